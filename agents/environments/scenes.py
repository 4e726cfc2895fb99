"""Batches in the graph that film their own episodes, without single environments."""

import abc
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.environments import compiled, videos
from agents.environments.functional import functional_env
from agents.tools import calls, checks, errors, steps


class Filmed(steps.Continued, abc.ABC):
    """Batch that films itself, with the interface of `InGraphBatchEnv`.

    Subclasses say what a scene is, a structure of tensors `[N, ...]`, and how to draw
    it. Scenes leave the graph at every step; those that are in no video are not drawn.

    Args:
      env: Batch in one part, `InGraphBatchEnv` or `Compiled`.
      reels: Videos of each row.
    """

    parts = 1
    compiled = False

    def __init__(self, env: Any, reels: Sequence[videos.Reel]) -> None:
        self._env, self._reels = env, list(reels)
        self._error: BaseException | None = None
        self.steps = 0

    def __len__(self) -> int:
        return len(self._reels)

    @property
    def observation_space(self) -> gymnasium.Space:
        """Observation space of one environment."""
        return self._env.observation_space

    @property
    def action_space(self) -> gymnasium.Space:
        """Action space of one environment."""
        return self._env.action_space

    @property
    def error(self) -> BaseException | None:
        """Last exception of the videos or the environments, or None."""
        return self._error or self._env.error

    @property
    def called(self) -> float | None:
        """`time.monotonic()` of the running call into Python, else None."""
        return self._env.called

    def discontinue(self, seeds: np.ndarray | None = None) -> None:
        """Abandon all episodes; the next ones use the seeds, integers `[N]`."""
        self.current = None
        self._env.discontinue(seeds)

    def begin(self) -> steps.Before:
        """Begin episodes in all rows, and their videos."""
        before = self._env.begin()
        self._call(self._open, self._scene(before))
        return before

    def simulate(
        self, before: steps.Before, action: Any
    ) -> tuple[steps.After, steps.Before]:
        """Step and film all environments once; see `InGraphBatchEnv.simulate`."""
        last, after, following = self._step(before, action)
        scenes = last, self._scene(following)
        self._call(self._show, *scenes, after.reward, after.done)
        return after, following

    def close(self) -> None:
        """Remove unfinished videos, and close the environments."""
        for reel in self._reels:
            reel.discard()
        self._env.close()

    @abc.abstractmethod
    def _scene(self, before: steps.Before) -> Any:
        """Return the scene before acting."""

    @abc.abstractmethod
    def _step(
        self, before: steps.Before, action: Any
    ) -> tuple[Any, steps.After, steps.Before]:
        """Step all environments; the scene comes first, the true last one where done."""

    @abc.abstractmethod
    def _draw(self, scene: Any) -> np.ndarray:
        """Draw a scene of arrays, uint8 `[N, height, width, 3]`."""

    def _call(self, method: Callable, *tensors: Any) -> None:
        """Call a method with structures of arrays from the graph.

        TensorFlow keeps functions that graphs call as long as the process lives, so
        this one only holds a weak reference.
        """
        reference = weakref.WeakMethod(method)
        structure = tf.nest.map_structure(lambda _: None, tensors)

        def run(*arrays):
            reference()(*tf.nest.pack_sequence_as(structure, arrays))
            return []

        tf.numpy_function(run, tf.nest.flatten(tensors), [])

    def _open(self, scene: Any) -> None:
        """Begin videos in all rows."""
        pictures = self._pictures(scene)
        for row, reel in enumerate(self._reels):
            self._film(reel.begin, functools.partial(pictures, row))

    def _show(self, last: Any, first: Any, reward: np.ndarray, done: np.ndarray):
        """Append a step to all videos, and begin those of rows that are done."""
        self.steps += len(self)
        last, first = self._pictures(last), self._pictures(first)
        for row, reel in enumerate(self._reels):
            step = float(reward[row]), bool(done[row]), functools.partial(last, row)
            self._film(reel.step, *step)
            if done[row]:
                self._film(reel.begin, functools.partial(first, row))

    def _pictures(self, scene: Any) -> Callable[[int], np.ndarray]:
        """Return a function from a row to its picture, which draws when needed."""
        draw = functools.cache(lambda: self._draw(scene))
        return lambda row: videos.enlarged(draw()[row])

    def _film(self, function: Callable, *args: Any) -> None:
        """Call a function of a reel; remember its error."""
        try:
            function(*args)
        except BaseException as error:
            self._error = error
            raise


class Observed(Filmed):
    """Batch that films the newest image of its observations.

    Args:
      env: Batch in one part, `InGraphBatchEnv` or `Compiled`.
      image: Function from observations to images, uint8 `[N, height, width, channels]`;
        see `videos.newest`.
      reels: Videos of each row.
    """

    def __init__(
        self, env: Any, image: Callable[[Any], tf.Tensor], reels: Sequence[videos.Reel]
    ) -> None:
        super().__init__(env, reels)
        self._image = image

    def _scene(self, before):
        return self._image(before.observation)

    def _step(self, before, action):
        after, following = self._env.simulate(before, action)
        return self._image(after.observation), after, following

    def _draw(self, scene):
        return videos.newest(scene)


class Rendered(Filmed):
    """Batch of functional environments that films what their `render` returns.

    Args:
      env: Batch of them.
      functional: Environment with this optional method.
      reels: Videos of each row.

    Raises:
      RenderError: if `render` fails, or returns something else than pictures.
    """

    def __init__(
        self,
        env: compiled.Compiled,
        functional: functional_env.FunctionalEnv,
        reels: Sequence[videos.Reel],
    ) -> None:
        super().__init__(env, reels)
        self._functional = functional
        self._draw(self._env.state)

    def _scene(self, before):
        return self._env.state

    def _step(self, before, action):
        state, after = self._env.step(action)
        return state, after, self._env.go_on(state, after.done)

    def _draw(self, scene):
        state = tf.nest.map_structure(tf.convert_to_tensor, scene)
        # Called from a graph, functions could wait forever for the thread that waits.
        with calls.eagerly(), errors.framed("render() failed", videos.RenderError):
            images = np.asarray(self._functional.render(state))
        size, expected = len(self), (len(self), *images.shape[1:3], 3)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape != expected:
            raise videos.RenderError(
                f"render() must return uint8 [{size}, height, width, 3] for {size} "
                f"states, got {checks.summary(images)}"
            )
        return images
