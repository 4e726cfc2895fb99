"""Batch of environments inside the TensorFlow graph."""

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from agents.tools import batch_env, spaces, steps, transitions


class InGraphBatchEnv(steps.Continued):
    """Runner of one batch of environments, or two in turns, from inside the graph.

        before = env.begin()
        while ...:
            action = ...
            after, before = env.simulate(before, action)

    The environments keep the state of their episodes; no variables hold it. When an
    episode ends, the next one begins in the same step. Every step is a single call into
    Python for any kind of environments.

    With two batches, `parts` is 2 and the rows of the second follow those of the first.
    A call then starts the step of one part and waits for that of the other, so that one
    part steps while the graph computes the actions of the other.

    Args:
      batch_envs: One batch or two.
      prepare: Called before all episodes begin, with `elapsed` and with the environment
        steps of training in each batch step, zero for evaluation.

    Attributes:
      parts: Number of batches, which have equal sizes.
      compiled: Whether XLA can compile the steps, which are calls into Python here.
      error: The last exception of the environments, or None.
      called: `time.monotonic()` of the running call into Python, else None.
      steps: Number of environment steps begun so far, updated while the graph runs.
    """

    compiled = False

    def __init__(
        self,
        batch_envs: batch_env.Backend | Sequence,
        prepare: Callable[[int, int], Any] | None = None,
    ) -> None:
        single = isinstance(batch_envs, batch_env.Backend)
        self._envs = [batch_envs] if single else list(batch_envs)
        sizes = [len(env) for env in self._envs]
        if len(set(sizes)) != 1 or len(sizes) > 2:
            raise ValueError(f"Expected one batch or two equal ones, got {sizes} rows.")
        self._size, self.parts = sizes[0], len(sizes)
        self._rows = [
            slice(part * self._size, (part + 1) * self._size)
            for part in range(self.parts)
        ]
        self._specs = spaces.spec(self.observation_space)
        self._columns = transitions.Columns(self.observation_space)
        self._action_specs = spaces.spec(self.action_space)
        self._started = [False] * self.parts
        self._seeds: np.ndarray | None = None
        self._prepare = prepare
        self._sums = np.zeros([len(self), 2])  # Score and length.
        self.error = self.called = None
        self.steps = 0

    def __len__(self) -> int:
        return self._size * self.parts

    @property
    def observation_space(self):
        """Observation space of one environment."""
        return self._envs[0].observation_space

    @property
    def action_space(self):
        """Action space of one environment."""
        return self._envs[0].action_space

    def discontinue(self, seeds: np.ndarray | None = None) -> None:
        """Abandon all episodes; the next ones use the seeds, integers `[N]`.

        Takes effect in `begin`; not allowed inside a graph.
        """
        self.current = None
        if seeds is not None:
            self._seeds = np.array(seeds)

    def begin(self) -> steps.Before:
        """Begin episodes in all rows."""
        leaves = spaces.flatten(self._specs)
        dtypes = [spec.dtype for spec in leaves] + [tf.bool]
        *observation, first = _call(self._begin, [], dtypes)
        shaped = [
            tf.ensure_shape(x, [len(self), *spec.shape])
            for x, spec in zip(observation, leaves, strict=True)
        ]
        observation = spaces.unflatten(self._specs, shaped)
        return steps.Before(observation, tf.ensure_shape(first, [len(self)]))

    def simulate(
        self,
        before: steps.Before,
        action: Any,
        start: int | tf.Tensor = 0,
        finish: int | tf.Tensor = 0,
    ) -> tuple[steps.After, steps.Before]:
        """Step environments once; n is the number of rows of a part.

        Args:
          before: State that the actions answer; the step waits for it.
          action: Structure `[n, ...]` of the action space.
          start: Part that takes the actions; -1 for none.
          finish: Part to wait for; -1 for none, which returns zeros.

        Returns:
          The finished part after its step, and before its next one.
        """
        specs = self._columns.others * 2
        dtypes = [tf.float32, *(spec.dtype for spec in specs)]
        leaves = tf.nest.flatten(action)
        inputs = [start, finish, before.first, *leaves]
        results = _call(self._simulate, inputs, dtypes)
        numbers, *others = tf.nest.flatten(results)  # One eager result is not a list.
        numbers = tf.ensure_shape(numbers, [self._size, self._columns.width])
        others = [
            tf.ensure_shape(x, [self._size, *spec.shape])
            for x, spec in zip(others, specs, strict=True)
        ]
        half = len(others) // 2
        reward, flags, last, following = self._columns.split(
            numbers, others[:half], others[half:]
        )
        after = steps.After(
            self._columns.structure(last),
            reward,
            *tf.unstack(flags > 0, axis=1),
            numbers[:, transitions.RECORD],
        )
        return after, steps.Before(self._columns.structure(following), after.done)

    def close(self) -> None:
        """Close the environments and their processes."""
        for env in self._envs:
            env.close()

    def _begin(self) -> list[np.ndarray]:
        """Return leaves of the first observations and flags of new rows, as arrays."""
        parts = []
        with _Watched(self):
            for part in np.flatnonzero(self._started):
                self._finish(part)  # The algorithm failed meanwhile.
            if self._prepare:
                training = self.user is not None and self.user[1]
                self._prepare(self.elapsed, len(self) if training else 0)
            for env, rows in zip(self._envs, self._rows, strict=True):
                seeds = None if self._seeds is None else self._seeds[rows]
                parts.append(spaces.flatten(env.reset(seeds=seeds)))
        self._seeds = None
        self._sums[:] = 0
        observation = [np.concatenate(x) for x in zip(*parts, strict=True)]
        return [*observation, np.ones(len(self), bool)]

    def _simulate(
        self,
        start: np.ndarray,
        finish: np.ndarray,
        _: np.ndarray,
        *leaves: np.ndarray,
    ) -> list[np.ndarray]:
        """Start one part; return numbers and leaves of the part to wait for."""
        _keep_thread_state()
        with _Watched(self):
            if start >= 0:
                self.steps += self._size
                action = spaces.unflatten(self._action_specs, list(leaves))
                self._envs[start].start(action, restart=True)
                self._started[start] = True
            if finish < 0:
                numbers = np.zeros((self._size, self._columns.width), np.float32)
                others = [spec.zeros(self._size) for spec in self._columns.others]
                return [numbers, *others, *others]
            result = self._finish(finish)
        self._account(int(finish), result)
        return [result.numbers, *result.observation, *result.following]

    def _finish(self, part: int) -> batch_env.Results:
        """Wait for the step that a part has started."""
        self._started[part] = False
        return self._envs[part].finish()

    def _account(self, part: int, result: batch_env.Results) -> None:
        """Add score and length of the episodes to the results of a step."""
        numbers, sums = result.numbers, self._sums[self._rows[part]]
        sums[:, 0] += numbers[:, transitions.REWARD]
        sums[:, 1] += 1
        numbers[:, transitions.SUMS] = sums
        if np.count_nonzero(result.done):  # Faster than `any`.
            sums[result.done] = 0


class _Watched:
    """Recorder of the start and the exception of a call, for clear errors."""

    def __init__(self, owner: InGraphBatchEnv) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        self._owner.error, self._owner.called = None, time.monotonic()

    def __exit__(self, kind, error, traceback) -> None:
        self._owner.error, self._owner.called = error, None


def _call(method: Callable, inputs: list, dtypes: list) -> list[tf.Tensor]:
    """Call a method from the graph.

    TensorFlow keeps functions that graphs call as long as the process lives, so this
    function only holds a weak reference to the object of the method.
    """
    reference = weakref.WeakMethod(method)
    return tf.numpy_function(lambda *arrays: reference()(*arrays), inputs, dtypes)


_threads = threading.local()


def _keep_thread_state() -> None:
    """Keep Python's state of this TensorFlow thread between calls.

    Otherwise it is rebuilt in every call, which takes a third of the call's time.
    """
    if not hasattr(_threads, "kept"):
        _threads.kept = True
        ctypes.pythonapi.PyGILState_Ensure()
