"""Ways to film or show the environments of a config."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.environments import config as environments_
from agents.environments import curriculum, film, make, singles, videos
from agents.experiments import runs
from agents.tools import errors, spaces

_VIEW = {"camera_id", "camera_name", "default_camera_config", "render_mode"}
"""Arguments of environments that have a view of their own, perhaps to observe it."""


class Single:
    """Single environments, which render themselves in separate processes."""

    def __init__(self, environment: environments_.Environment) -> None:
        self._environment = environment
        self._timeouts = environment.timeout, environment.start_timeout

    def start(
        self, outdir: str, rows: int, episodes: int, style: videos.Style
    ) -> tuple[Any, Sequence[Any]]:
        """Start environments that film their episodes into a directory.

        Args:
          outdir: Existing directory.
          rows: Number of environments, each of which films its first episodes.
          episodes: Number of videos.
          style: Form of the videos.

        Returns:
          Batch in the graph, and an object with `films` for each row.

        Raises:
          RunError: if they cannot be filmed.
        """
        args = self._constructor("rgb_array"), outdir, rows, episodes, *self._timeouts
        with _rendering(self._environment, "film"):
            batch = film.batch(*args, style)
        return _in_graph(self._environment, batch), batch

    def window(self) -> Any:
        """Start one environment in the graph that shows itself in a window.

        Raises:
          RunError: if there can be no window.
        """
        constructor = self._constructor("human")
        with _rendering(self._environment, "show"):
            batch = film.window(constructor, *self._timeouts)
        return _in_graph(self._environment, batch)

    def _constructor(self, render_mode: str) -> Callable[[], Any]:
        """Return a constructor of environments that render themselves."""
        kwargs, declared = self._environment.kwargs, self._environment.wrappers
        if not _VIEW & kwargs.keys():
            declared = ["agents.environments.film:tracked", *declared]
        return make.constructor(
            dataclasses.replace(
                self._environment,
                backend="workers",
                kwargs={**kwargs, "render_mode": render_mode},
                wrappers=declared,
            )
        )


class Batch:
    """Environments on their own backend, whose batch shows all rows.

    Functional ones are shown by their method `render`, others by an image that they
    observe, which is this leaf of the observations.
    """

    def __init__(
        self, environment: environments_.Environment, leaf: int | None
    ) -> None:
        self._environment, self._leaf = environment, leaf

    def start(
        self, outdir: str, rows: int, episodes: int, style: videos.Style
    ) -> tuple[Any, Sequence[Any]]:
        """Start environments that are filmed; see `Single.start`."""
        from agents.environments import scenes

        environment = dataclasses.replace(self._environment, num_agents=rows)
        env, fps = self._create(environment)
        reels = [
            videos.Reel(outdir, share, style, fps)
            for share in videos.shares(rows, episodes)
        ]
        with _rendering(environment, "film"):
            if self._leaf is None:
                return scenes.Rendered(env, make.functional(environment), reels), reels
        return scenes.Observed(env, self._image, reels), reels

    def window(self) -> Any:
        """Raise RunError, because there is no window."""
        raise runs.RunError(
            f"cannot show {self._environment.id!r}: it has no window; write videos by "
            "--outdir instead of --live."
        )

    def _create(self, environment: environments_.Environment) -> tuple[Any, float]:
        """Create the batch in the graph; return it with its steps per second."""
        if make.choose(environment) == "compiled":
            return make.in_graph(environment), make.functional(environment).render_fps
        batch = make.batch(environment)
        return _in_graph(environment, batch), _fps(environment, batch)

    def _image(self, observation: Any) -> Any:
        """Return images of observations, uint8 `[N, height, width, channels]`."""
        from agents.tools import images

        return images.channels_last(spaces.flatten(observation)[self._leaf])


def find(
    environment: environments_.Environment, description: make.Description
) -> Single | Batch:
    """Find out how to film an environment.

    Single environments make the videos, independently of the backend, if they have the
    same spaces as the batch.

    Raises:
      RunError: if it cannot be filmed.
    """
    backend = make.choose(environment)
    functional = backend == "compiled"
    if backend in ("workers", "process", "serial"):
        return Single(environment)
    attempts = [environment.kwargs]
    if environment.kwargs and backend in ("vector", "envpool"):  # Perhaps their own.
        attempts.append({})
    for kwargs in attempts:
        single = dataclasses.replace(environment, backend="workers", kwargs=kwargs)
        if _has_spaces(single, description):
            return Single(single)
    if functional and hasattr(make.functional(environment), "render"):
        return Batch(environment, None)
    leaf = _find_image(description)
    if leaf is not None:
        return Batch(environment, leaf)
    hint = "give its class a method render(state), or " if functional else ""
    raise runs.RunError(
        f"environment {environment.id!r} of backend {backend} cannot be filmed: "
        f"Gymnasium has no single environment with the same spaces; {hint}let it "
        "observe an image (uint8, at least 36 pixels wide and high)."
    )


def _has_spaces(
    environment: environments_.Environment, description: make.Description
) -> bool:
    """Return whether an environment can be made and has these spaces."""
    try:
        single = make.describe(environment)
    except errors.Mistake:
        return False
    if single.observation_space != description.observation_space:
        return False
    return _lowered(single.action_space) == _lowered(description.action_space)


def _lowered(space: gymnasium.Space) -> gymnasium.Space:
    """Return an action space with float32 for any floating box, since actions adapt."""
    box = isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f"
    if not box:
        return space
    low, high = (x.astype(np.float32) for x in (space.low, space.high))
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def _find_image(description: make.Description) -> int | None:
    """Return the number of the first leaf of observations that is an image, or None."""
    from agents.tools import images

    for index, leaf in enumerate(spaces.flatten(description.observation_space)):
        if leaf.dtype == np.uint8 and images.recognized(leaf):
            return index
    return None


def _fps(environment: environments_.Environment, batch: Any) -> float:
    """Return agent steps per second; ALE draws 60 frames per second."""
    if singles.is_atari(environment.id):
        return 60 / environment.kwargs.get("frameskip", 4)
    return film.rate(batch[0])


def _in_graph(environment: environments_.Environment, batch: Any) -> Any:
    """Create a batch in the graph from one outside of it."""
    from agents.tools import in_graph_batch_env

    prepare = curriculum.preparation(environment.kwargs, [batch])
    return in_graph_batch_env.InGraphBatchEnv(batch, prepare)


@contextlib.contextmanager
def _rendering(environment: environments_.Environment, verb: str) -> Iterator[None]:
    """Name the environment in errors about its rendering."""
    try:
        yield
    except videos.RenderError as error:
        raise runs.RunError(f"cannot {verb} {environment.id!r}: {error}") from error
