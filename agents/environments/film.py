"""Videos of episodes, rendered by environments in separate processes.

Rendering needs no display. It must not happen in a process that has loaded TensorFlow,
next to which MuJoCo's EGL crashes, so the workers backend makes films.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from agents.environments import workers
from agents.tools import channels, errors, files, processes

_MUJOCO_HINT = (
    "MuJoCo draws without a display through EGL (Debian package libegl1) or OSMesa "
    "(libosmesa6); install one of them."
)


class RenderError(errors.Mistake):
    """Environment that cannot be rendered, with the reason in one line."""


class Film(gymnasium.Wrapper):
    """Wrapper that writes a video of each of the first episodes.

    Videos have one frame per observation. They appear when their episode is complete,
    named by its number and return.

    Attributes:
      films: `{"file", "return", "length"}` of every video.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        directory: str | pathlib.Path,
        numbers: range,
    ):
        """Film one episode per number into an existing directory."""
        super().__init__(env)
        self.films: list[dict[str, Any]] = []
        self._directory = pathlib.Path(directory)
        self._numbers = list(numbers)
        self._video = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        result = self.env.reset(**kwargs)
        self._discard()
        if len(self.films) < len(self._numbers):
            self._return, self._length = 0.0, 0
            fps = self.env.metadata.get("render_fps", 30)
            number = self._numbers[len(self.films)]
            path = self._directory / f".unfinished-{number}.mp4"
            self._video = _Video(path, frame(self.env), fps)
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        result = self.env.step(action)
        if self._video is not None:
            _, reward, terminated, truncated, _ = result
            self._return += float(reward)
            self._length += 1
            self._video.write(frame(self.env))
            if terminated or truncated:
                self._finish()
        return result

    def close(self) -> None:
        self._discard()
        super().close()

    def _finish(self) -> None:
        """Publish the video of a finished episode."""
        number = self._numbers[len(self.films)]
        name = f"episode-{number}_return_{self._return:.1f}.mp4"
        self._video.finish(self._directory / name)
        self._video = None
        film = {"file": name, "return": self._return, "length": self._length}
        self.films.append(film)

    def _discard(self) -> None:
        """Remove the video of an abandoned episode."""
        if self._video is not None:
            self._video.discard()
            self._video = None


class _Video:
    """File of H.264 frames with even side lengths, as players expect."""

    def __init__(self, path: pathlib.Path, first: np.ndarray, fps: float):
        import imageio_ffmpeg

        height, width, _ = first.shape
        self._path = path
        self._padding = [(0, height % 2), (0, width % 2), (0, 0)]
        self._ffmpeg = imageio_ffmpeg.write_frames(
            path, (width + width % 2, height + height % 2), fps=fps, macro_block_size=2
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


@dataclasses.dataclass(frozen=True)
class _Filming:
    """Picklable function that creates an environment with a film."""

    constructor: Callable[[], gymnasium.Env]
    variables: dict[str, str]
    directory: str
    numbers: range

    def __call__(self) -> gymnasium.Env:
        os.environ.update(self.variables)  # Graphics libraries read them at import.
        return Film(self.constructor(), self.directory, self.numbers)


def batch(
    constructor: Callable[[], gymnasium.Env],
    directory: str | pathlib.Path,
    rows: int,
    episodes: int,
    timeout: float | None = 60.0,
    start_timeout: float | None = 120.0,
) -> workers.Workers:
    """Create environments, one per process, that film a number of episodes.

    Args:
      constructor: Creates an environment with render mode `rgb_array`.
      directory: Existing directory for the videos.
      rows: Number of environments; each films its first episodes.
      episodes: Number of videos.
      timeout: Seconds that a step may take.
      start_timeout: Seconds that the construction of one of them may take.

    Raises:
      RenderError: if the environment cannot be rendered here.
      EnvProcessError: if an environment fails.
    """
    variables = _find_variables(constructor, start_timeout)
    shares = [range(row, episodes, rows) for row in range(rows)]
    constructors = [
        _Filming(constructor, variables, str(directory), share) for share in shares
    ]
    return workers.Workers(constructors, rows, timeout, start_timeout)


def clean(directory: str | pathlib.Path) -> None:
    """Remove the videos of an earlier call, complete or not, from a directory."""
    for pattern in ("episode-*_return_*.mp4", ".unfinished-*.mp4"):
        for path in pathlib.Path(directory).glob(pattern):
            path.unlink()


def require_whole(directory: str | pathlib.Path, films: list[dict[str, Any]]) -> None:
    """Remove videos with missing frames, about which ffmpeg is silent.

    Raises:
      WriteError: if a video was incomplete.
    """
    import imageio_ffmpeg

    for entry in films:
        path = pathlib.Path(directory) / entry["file"]
        try:
            frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
        except RuntimeError:  # Not a video at all.
            frames = 0
        expected = entry["length"] + 1
        if frames != expected:
            path.unlink()
            reason = RuntimeError(f"it got {frames} of {expected} frames")
            raise files.write_error(path, reason, "more")


def frame(env: gymnasium.Env) -> np.ndarray:
    """Render an environment, uint8 `[height, width, 3]`."""
    image = env.render()
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] < 3:
        kind = type(image).__name__
        raise RenderError(f"render() must return an RGB image, got {kind}")
    return image[..., :3].astype(np.uint8)


def _find_variables(
    constructor: Callable[[], gymnasium.Env], timeout: float | None
) -> dict[str, str]:
    """Find environment variables with which an environment can be rendered.

    Every attempt needs a separate process: graphics libraries cannot be exchanged once
    they are loaded, and some crash.
    """
    failures = []
    for variables in _candidates():
        failure, uses_mujoco = _attempt(constructor, variables, timeout)
        if failure is None:
            return variables
        backend = {**os.environ, **variables}.get("MUJOCO_GL", "display")
        failures.append(f"{backend}: {failure}")
        if not uses_mujoco:
            raise RenderError(failure)
    raise RenderError(f"{_MUJOCO_HINT} Tried {'; '.join(failures)}")


def _candidates() -> list[dict[str, str]]:
    """List variables to try, the best first, without those that the user has set."""
    display = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    candidates = [{"MUJOCO_GL": "egl"}, {"MUJOCO_GL": "osmesa"}]
    if "MUJOCO_GL" in os.environ:
        candidates = [{}]
    elif display:
        candidates.insert(0, {})
    if not display and "SDL_VIDEODRIVER" not in os.environ:
        for variables in candidates:
            variables["SDL_VIDEODRIVER"] = "dummy"
    return candidates


def _attempt(
    constructor: Callable[[], gymnasium.Env],
    variables: dict[str, str],
    timeout: float | None,
) -> tuple[str | None, bool]:
    """Return why rendering fails, or None, and whether MuJoCo is in use."""
    worker = processes.Worker(
        _draw, constructor, variables, name=lambda: "Drawing", timeout=timeout
    )
    try:
        return worker.receive()[1]
    except processes.EnvProcessError as error:  # Only OpenGL crashes.
        return str(error).split("\n")[0], True
    finally:
        processes.close([worker])


def _draw(
    channel: channels.Channel,
    stack: Any,
    constructor: Callable[[], gymnasium.Env],
    variables: dict[str, str],
) -> None:
    """Render one frame in a separate process, and report the result."""
    os.environ.update(variables)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # The reply has the error.
    failure = None
    try:
        env = constructor()
        stack.callback(env.close)
        env.reset(seed=0)
        frame(env)
    except RenderError as error:
        failure = str(error)
    except Exception as error:
        failure = " ".join(f"{type(error).__name__}: {error}".split())
    channel.send(channels.RESULT, (failure, "mujoco" in sys.modules))
