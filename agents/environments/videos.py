"""Video files: episodes, formats, sizes, text on frames, and grids of several."""

import dataclasses
import math
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.tools import errors, files

FORMATS = ("mp4", "gif")
SIDE = 320
"""Pixels that the longer side of an enlarged picture has at least."""
INDEX = "episodes.json"
"""File with a list of the videos of a directory."""
GIF_FPS = 50
"""Most frames per second that viewers of GIFs show in time."""
_PALETTE = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
_EVEN = "settb=1/90000,setpts=N/(FRAME_RATE*TB),fps=source_fps"
"""Filters that count frames, as the times in `mkv` are whole milliseconds."""
_CODECS = {
    "mp4": {"codec": "libx264", "pix_fmt_out": "yuv420p"},
    "gif": {"codec": "gif", "pix_fmt_out": "pal8", "output_params": ["-vf", _PALETTE]},
    # Without loss, for parts of a grid.
    "mkv": {
        "codec": "libx264rgb",
        "pix_fmt_out": "rgb24",
        "quality": None,
        "output_params": ["-crf", "0", "-preset", "ultrafast"],
    },
}


class RenderError(errors.Mistake):
    """Environment that cannot be rendered, with the reason in one line."""


@dataclasses.dataclass(frozen=True)
class Style:
    """Form of videos."""

    format: str = "mp4"
    """One of `FORMATS`."""
    overlay: bool = False
    """Write the step and the return so far onto every frame."""
    grid: bool = False
    """Show all episodes side by side in one video."""

    @property
    def part(self) -> str:
        """Format of the videos of single episodes."""
        return "mkv" if self.grid else self.format


PLAIN = Style()


def shares(rows: int, episodes: int) -> list[range]:
    """Distribute the numbers of episodes over rows, in turns."""
    return [range(row, episodes, rows) for row in range(rows)]


class Reel:
    """Videos of the first episodes of one environment, a frame per observation.

    A video appears when its episode is complete, named by its number and return. GIFs
    skip frames above `GIF_FPS` per second, but not the last one.

    Attributes:
      films: `{"file", "return", "length"}` of every video, and `"steps_per_frame"`
        where frames are skipped.
    """

    def __init__(
        self, directory: str | pathlib.Path, numbers: range, style: Style, fps: float
    ):
        """Film one episode per number into an existing directory."""
        self.films: list[dict[str, Any]] = []
        self._directory, self._numbers = pathlib.Path(directory), list(numbers)
        gif = style.format == "gif"
        self._every = max(math.ceil(fps / GIF_FPS), 1) if gif else 1
        self._style, self._fps = style, fps / self._every
        self._video = None

    def begin(self, draw: Callable[[], np.ndarray]) -> None:
        """Begin an episode, unless all are filmed; an unfinished one is abandoned.

        `draw` returns the picture of the first observation, if it is called.
        """
        self.discard()
        if len(self.films) == len(self._numbers):
            return
        self._return, self._length = 0.0, 0
        number = self._numbers[len(self.films)]
        path = self._directory / f".unfinished-{number}.{self._style.part}"
        self._video = Video(path, self._frame(draw), self._fps)

    def step(self, reward: float, done: bool, draw: Callable[[], np.ndarray]) -> None:
        """Append a step, if its episode is filmed; publish the video at its end."""
        if self._video is None:
            return
        self._return += reward
        self._length += 1
        if done or self._length % self._every == 0:
            self._video.write(self._frame(draw))
        if done:
            self._finish()

    def discard(self) -> None:
        """Remove the video of an abandoned episode."""
        if self._video is not None:
            self._video.discard()
            self._video = None

    def _frame(self, draw: Callable[[], np.ndarray]) -> np.ndarray:
        """Draw a frame of the video."""
        image = draw()
        if not self._style.overlay:
            return image
        return inscribed(image, f"step {self._length}  return {self._return:.1f}")

    def _finish(self) -> None:
        """Publish the video of a finished episode."""
        number = self._numbers[len(self.films)]
        name = f"episode-{number}_return_{self._return:.1f}.{self._style.part}"
        self._video.finish(self._directory / name)
        self._video = None
        film = {"file": name, "return": self._return, "length": self._length}
        if self._every > 1:
            film["steps_per_frame"] = self._every
        self.films.append(film)


class Video:
    """File of frames with even side lengths, as players expect.

    The ending of its name is the format.
    """

    def __init__(self, path: pathlib.Path, first: np.ndarray, fps: float):
        import imageio_ffmpeg

        height, width, _ = self._shape = first.shape
        self._path = path
        self._padding = [(0, height % 2), (0, width % 2), (0, 0)]
        size = width + width % 2, height + height % 2
        codec = _CODECS[path.suffix[1:]]
        options = {"macro_block_size": 2, "ffmpeg_log_level": "error", **codec}
        # In relative paths, ffmpeg takes what precedes a colon for a protocol.
        self._ffmpeg = imageio_ffmpeg.write_frames(
            path.absolute(), size, fps=fps, **options
        )
        self._ffmpeg.send(None)
        self.write(first)

    def write(self, image: np.ndarray) -> None:
        """Append an image, uint8 `[height, width, 3]`.

        Raises:
          RenderError: if its size is not that of the first one.
          WriteError: if ffmpeg has ended.
        """
        if image.shape != self._shape:
            raise RenderError(
                f"render() must return images of one size, got {list(image.shape)} after "
                f"{list(self._shape)}"
            )
        try:
            self._ffmpeg.send(np.pad(image, self._padding, mode="edge").tobytes())
        except OSError as error:
            reason = RuntimeError("ffmpeg has ended")
            raise files.write_error(self._path, reason, "more") from error

    def finish(self, path: pathlib.Path) -> None:
        """Complete the file, and rename it."""
        self._ffmpeg.close()
        self._path.rename(path)

    def discard(self) -> None:
        """Remove the file."""
        self._ffmpeg.close()
        self._path.unlink(missing_ok=True)


def newest(images: np.ndarray) -> np.ndarray:
    """Return the newest of stacked frames in colors, uint8 `[N, height, width, 3]`.

    Args:
      images: uint8 `[N, height, width, channels]`, the newest channels last. A multiple
        of three channels are colors, others are shades of gray.
    """
    count = 3 if images.shape[-1] % 3 == 0 else 1
    return np.repeat(images[..., -count:], 3 // count, -1)


def enlarged(image: np.ndarray) -> np.ndarray:
    """Scale a small image up by a whole number; see `SIDE`."""
    factor = math.ceil(SIDE / max(image.shape[:2]))
    return image.repeat(factor, 0).repeat(factor, 1)


def inscribed(image: np.ndarray, text: str) -> np.ndarray:
    """Return an image with a line of text in its upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(image)
    size = max(len(image) // 20, 10)
    outline = {"stroke_width": max(size // 10, 1), "stroke_fill": "black"}
    ImageDraw.Draw(picture).text(
        (size // 2, size // 2), text, "white", ImageFont.load_default(size), **outline
    )
    return np.asarray(picture)


def join(
    directory: str | pathlib.Path, films: list[dict[str, Any]], format: str
) -> list[dict[str, Any]]:
    """Replace videos of episodes by one that shows them side by side.

    Shorter ones stay at their last frame, and cells without an episode are black.

    Raises:
      WriteError: if ffmpeg fails; then no video is left.
    """
    import imageio_ffmpeg

    folder, name = pathlib.Path(directory).absolute(), f"grid.{format}"
    paths = [folder / entry["file"] for entry in films]
    options = _CODECS[format]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    command += [x for path in paths for x in ("-i", str(path))]
    graph, result = _graph([_num_frames(entry) for entry in films]), "[grid]"
    if format == "gif":
        graph, result = f"{graph};[grid]{_PALETTE}[colored]", "[colored]"
    command += ["-filter_complex", graph, "-map", result, "-c:v", options["codec"]]
    command += ["-pix_fmt", options["pix_fmt_out"]]
    unfinished = folder / f".unfinished-{name}"
    try:
        subprocess.run(
            [*command, str(unfinished)], check=True, capture_output=True, text=True
        )
        unfinished.rename(folder / name)
    except subprocess.CalledProcessError as error:
        unfinished.unlink(missing_ok=True)
        reason = RuntimeError(error.stderr.strip().split("\n")[-1])
        raise files.write_error(folder / name, reason, "more") from error
    finally:
        for path in paths:
            path.unlink()
    return [{**entry, "file": name} for entry in films]


def _num_frames(film: dict[str, Any]) -> int:
    """Return the number of frames of a video of one episode."""
    return 1 + math.ceil(film["length"] / film.get("steps_per_frame", 1))


def _graph(lengths: list[int]) -> str:
    """Return ffmpeg's filters for videos of these lengths, ending in `[grid]`."""
    columns = math.ceil(math.sqrt(len(lengths)))
    places = [divmod(index, columns) for index in range(len(lengths))]
    layout = "|".join(
        f"{'+'.join(['w0'] * column) or '0'}_{'+'.join(['h0'] * row) or '0'}"
        for row, column in places
    )
    held = [
        f"[{index}]{_EVEN},tpad=stop_mode=clone:stop={max(lengths) - length}[v{index}]"
        for index, length in enumerate(lengths)
    ]
    inputs = "".join(f"[v{index}]" for index in range(len(lengths)))
    stack = f"xstack=inputs={len(lengths)}:layout={layout}:fill=black"
    return ";".join([*held, f"{inputs}{stack if len(lengths) > 1 else 'null'}[grid]"])


def clean(directory: str | pathlib.Path) -> None:
    """Remove videos of an earlier call, complete or not, and its index."""
    (pathlib.Path(directory) / INDEX).unlink(missing_ok=True)
    for name in ("episode-*_return_*", ".unfinished-*", "grid"):
        for format in _CODECS:
            for path in pathlib.Path(directory).glob(f"{name}.{format}"):
                path.unlink()


def require_whole(directory: str | pathlib.Path, films: list[dict[str, Any]]) -> None:
    """Remove videos with missing frames, about which ffmpeg is silent.

    Raises:
      WriteError: if a video was incomplete.
    """
    import imageio_ffmpeg

    counts: dict[str, int] = {}
    failure = None
    for entry in films:  # Those of a grid share a file.
        counts[entry["file"]] = max(_num_frames(entry), counts.get(entry["file"], 0))
    for name, expected in counts.items():
        path = pathlib.Path(directory) / name
        try:
            frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path.absolute()))
        except RuntimeError:  # Not a video at all.
            frames = 0
        if frames != expected:
            path.unlink()
            reason = RuntimeError(f"it got {frames} of {expected} frames")
            failure = failure or files.write_error(path, reason, "more")
    if failure:
        raise failure
