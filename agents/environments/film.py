"""Videos and windows of episodes, rendered by environments in separate processes.

Rendering needs no display. It must not happen in a process that has loaded TensorFlow,
where MuJoCo's EGL crashes, so the workers backend makes films.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from agents.environments import videos, workers
from agents.tools import channels, checks, processes

FPS = 30
"""Frames per second of environments that name none."""
_MUJOCO_HINT = (
    "to draw MuJoCo without a display, install the Debian package libegl1 and set "
    "MUJOCO_GL=egl, or libosmesa6 and MUJOCO_GL=osmesa."
)


def rate(env: Any) -> float:
    """Return the steps per second of an environment in videos."""
    fps = (getattr(env, "metadata", None) or {}).get("render_fps")
    return fps if isinstance(fps, int | float | np.number) and fps > 0 else FPS


class Film(gymnasium.Wrapper):
    """Wrapper that writes a video of each of the first episodes; see `videos.Reel`."""

    def __init__(
        self,
        env: gymnasium.Env,
        directory: str | pathlib.Path,
        numbers: range,
        style: videos.Style,
    ):
        """Film one episode per number into an existing directory."""
        super().__init__(env)
        self._reel = videos.Reel(directory, numbers, style, rate(env))

    @property
    def films(self) -> list[dict[str, Any]]:
        """List `{"file", "return", "length"}` of every video."""
        return self._reel.films

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        result = self.env.reset(**kwargs)
        self._reel.begin(lambda: frame(self.env))
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        result = self.env.step(action)
        _, reward, terminated, truncated, _ = result
        done = bool(terminated or truncated)
        self._reel.step(float(reward), done, lambda: frame(self.env))
        return result

    def close(self) -> None:
        self._reel.discard()
        super().close()


@dataclasses.dataclass(frozen=True)
class _Filming:
    """Picklable function that creates an environment with a film."""

    constructor: Callable[[], gymnasium.Env]
    variables: dict[str, str]
    directory: str
    numbers: range
    style: videos.Style

    def __call__(self) -> gymnasium.Env:
        os.environ.update(self.variables)  # Graphics libraries read them at import.
        return Film(self.constructor(), self.directory, self.numbers, self.style)


def batch(
    constructor: Callable[[], gymnasium.Env],
    directory: str | pathlib.Path,
    rows: int,
    episodes: int,
    timeout: float | None = 60.0,
    start_timeout: float | None = 120.0,
    style: videos.Style = videos.PLAIN,
) -> workers.Workers:
    """Create environments, one per process, that film a number of episodes.

    Args:
      constructor: Creates an environment with render mode `rgb_array`.
      directory: Existing directory for the videos.
      rows: Number of environments; each films its first episodes.
      episodes: Number of videos.
      timeout: Seconds that a step may take.
      start_timeout: Seconds that the construction of one of them may take.
      style: Form of the videos; `videos.join` makes a grid of them.

    Raises:
      RenderError: if the environment cannot be rendered here.
      EnvProcessError: if an environment fails.
    """
    variables = _find_variables(constructor, start_timeout)
    constructors = [
        _Filming(constructor, variables, str(directory), share, style)
        for share in videos.shares(rows, episodes)
    ]
    return workers.Workers(constructors, rows, timeout, start_timeout)


def window(
    constructor: Callable[[], gymnasium.Env],
    timeout: float | None = 60.0,
    start_timeout: float | None = 120.0,
) -> workers.Workers:
    """Create one environment, in a separate process, that shows itself in a window.

    Args:
      constructor: Creates an environment with render mode `human`.
      timeout: Seconds that a step may take.
      start_timeout: Seconds that the construction may take.

    Raises:
      RenderError: if there is no display, or the environment has no window.
      EnvProcessError: if the environment fails.
    """
    if not _has_display():
        raise videos.RenderError(
            "there is no display, as DISPLAY and WAYLAND_DISPLAY are not set; write "
            "videos by --outdir instead of --live"
        )
    failure, _ = _attempt(constructor, {}, start_timeout)
    if failure is not None:
        raise videos.RenderError(failure)
    return workers.Workers([constructor], 1, timeout, start_timeout)


def frame(env: gymnasium.Env) -> np.ndarray:
    """Render an environment, uint8 `[height, width, 3]`."""
    image = env.render()
    array = isinstance(image, np.ndarray) and image.dtype == np.uint8
    if not array or image.ndim != 3 or image.shape[2] < 3:
        raise videos.RenderError(
            f"render() must return an RGB image, got {checks.summary(image)}; use uint8 "
            "[height, width, 3]"
        )
    return image[..., :3]


def tracked(env: gymnasium.Env) -> gymnasium.Env:
    """Let the camera `track` of a MuJoCo model show an environment of Gymnasium.

    Otherwise the view stands still, so that robots run out of the picture. It remains
    as it is if there is no such camera, or the environment has a view of its own.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    config = getattr(renderer, "default_cam_config", None) or {}
    if getattr(renderer, "camera_id", None) != -1 or "trackbodyid" in config:
        return env
    import mujoco

    camera = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if camera != -1:
        renderer.camera_id = camera  # Windows only read the other attribute.
        view = {"type": mujoco.mjtCamera.mjCAMERA_FIXED, "fixedcamid": camera}
        renderer.default_cam_config = {**config, **view}
    return env


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
            if "argument 'render_mode'" in failure:
                failure += "; let it take one, and return images from render()"
            raise videos.RenderError(failure)
    raise videos.RenderError(f"{_MUJOCO_HINT} Tried {'; '.join(failures)}")


def _has_display() -> bool:
    """Return whether there is a display for windows."""
    return "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ


def _candidates() -> list[dict[str, str]]:
    """List variables to try, the best first, without those that the user has set."""
    display = _has_display()
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
    """Return the reason why rendering fails, or None, and whether MuJoCo is in use."""
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
        if env.render_mode != "human":
            frame(env)
        elif "human" not in env.metadata.get("render_modes", ()):
            raise videos.RenderError(
                "it has no window, as its render modes lack 'human'"
            )
    except videos.RenderError as error:
        failure = str(error)
    except Exception as error:
        failure = " ".join(f"{type(error).__name__}: {error}".split())
    channel.send(channels.RESULT, (failure, "mujoco" in sys.modules))
