"""Video files: formats, text on frames, and grids of several videos."""

import dataclasses
import math
import pathlib
import subprocess
from typing import Any

import numpy as np

from agents.tools import files

FORMATS = ("mp4", "gif")
_PALETTE = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
_CODECS = {
    "mp4": {"codec": "libx264", "pix_fmt_out": "yuv420p"},
    "gif": {"codec": "gif", "pix_fmt_out": "pal8", "output_params": ["-vf", _PALETTE]},
    # Without loss, for parts of a grid.
    "mkv": {
        "codec": "libx264rgb",
        "pix_fmt_out": "rgb24",
        "output_params": ["-crf", "0", "-preset", "ultrafast"],
    },
}


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


class Video:
    """File of frames with even side lengths, as players expect.

    The ending of its name is the format.
    """

    def __init__(self, path: pathlib.Path, first: np.ndarray, fps: float):
        import imageio_ffmpeg

        height, width, _ = first.shape
        self._path = path
        self._padding = [(0, height % 2), (0, width % 2), (0, 0)]
        size = width + width % 2, height + height % 2
        codec = _CODECS[path.suffix[1:]]
        self._ffmpeg = imageio_ffmpeg.write_frames(
            path, size, fps=fps, macro_block_size=2, **codec
        )
        self._ffmpeg.send(None)
        self.write(first)

    def write(self, image: np.ndarray) -> None:
        """Append an image, uint8 `[height, width, 3]`."""
        self._ffmpeg.send(np.pad(image, self._padding, mode="edge").tobytes())

    def finish(self, path: pathlib.Path) -> None:
        """Complete the file, and rename it."""
        self._ffmpeg.close()
        self._path.rename(path)

    def discard(self) -> None:
        """Remove the file."""
        self._ffmpeg.close()
        self._path.unlink(missing_ok=True)


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

    folder, name = pathlib.Path(directory), f"grid.{format}"
    paths = [folder / entry["file"] for entry in films]
    options = _CODECS[format]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    command += [x for path in paths for x in ("-i", str(path))]
    graph, result = _graph([entry["length"] for entry in films]), "[grid]"
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


def _graph(lengths: list[int]) -> str:
    """Return ffmpeg's filters for episodes of these lengths, ending in `[grid]`."""
    columns = math.ceil(math.sqrt(len(lengths)))
    places = [divmod(index, columns) for index in range(len(lengths))]
    layout = "|".join(
        f"{'+'.join(['w0'] * column) or '0'}_{'+'.join(['h0'] * row) or '0'}"
        for row, column in places
    )
    held = [
        f"[{index}]tpad=stop_mode=clone:stop={max(lengths) - length}[v{index}]"
        for index, length in enumerate(lengths)
    ]
    inputs = "".join(f"[v{index}]" for index in range(len(lengths)))
    stack = f"xstack=inputs={len(lengths)}:layout={layout}:fill=black"
    return ";".join([*held, f"{inputs}{stack if len(lengths) > 1 else 'null'}[grid]"])


def clean(directory: str | pathlib.Path) -> None:
    """Remove the videos of an earlier call, complete or not, from a directory."""
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

    lengths: dict[str, int] = {}
    for entry in films:  # Those of a grid share a file.
        lengths[entry["file"]] = max(entry["length"], lengths.get(entry["file"], 0))
    for name, length in lengths.items():
        path = pathlib.Path(directory) / name
        try:
            frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
        except RuntimeError:  # Not a video at all.
            frames = 0
        expected = length + 1
        if frames != expected:
            path.unlink()
            reason = RuntimeError(f"it got {frames} of {expected} frames")
            raise files.write_error(path, reason, "more")
