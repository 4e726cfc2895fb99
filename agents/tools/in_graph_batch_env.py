"""A batch of environments lifted into the TensorFlow graph."""

import ctypes
import math
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from agents.tools import batch_env, spaces


class Step(NamedTuple):
    """What environments show before they act, for all rows `[N, ...]`.

    Attributes:
      observation: Structure of tensors to act upon.
      first: bool, rows whose episode begins here.
    """

    observation: Any
    first: tf.Tensor


class Outcome(NamedTuple):
    """What a step of the environments gave, for all rows `[N, ...]`.

    Attributes:
      observation: Structure of tensors; where done, the true last one.
      reward: float32, raw.
      terminated, truncated: bool.
      ended: float32 `[N, 4]`: both flags, and score (sum of raw rewards) and length
        of the episode so far.
    """

    observation: Any
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor
    ended: tf.Tensor

    @property
    def done(self) -> tf.Tensor:
        """bool `[N]`, rows whose episode ended here."""
        return self.terminated | self.truncated


def ended(
    terminated: tf.Tensor, truncated: tf.Tensor, score: tf.Tensor, length: tf.Tensor
) -> tf.Tensor:
    """`Outcome.ended` of its columns `[N]`."""
    columns = [tf.cast(x, tf.float32) for x in (terminated, truncated, score, length)]
    return tf.stack(columns, 1)


class InGraphBatchEnv:
    """Steps one batch of environments, or two in turns, from inside the graph.

        step = env.begin()
        while ...:
            action = ...
            outcome, step = env.simulate(step, action)

    The environments know where their episodes are; nothing is held in variables. Where
    one ends, the next one begins in the same step. Every step is one call into Python,
    whatever the environments are.

    With two batches, `parts` is 2 and the rows of the second follow those of the
    first. Then a call starts the step of one part and waits for that of the other, so
    that one part steps while the graph computes the actions of the other.

    Attributes:
      parts: Number of batches, which have equal sizes.
      compiled: Whether XLA can compile it; not if steps are calls into Python.
      error: The exception that the environments raised last, or None.
      called: `time.monotonic()` when they were called, or None once they returned.
      steps: Number of environment steps begun so far, also while the graph runs.
      training: Whether `simulate` trained when it was called last; none before.
      current: What the next call of `simulate` goes on with; none if episodes begin.
    """

    compiled = False
    training: bool | None = None
    current: Any = None

    def __init__(self, batch_envs: batch_env.Backend | Sequence) -> None:
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
        leaves = spaces.flatten(self._specs)
        self._others = [spec for spec in leaves if spec.dtype != np.float32]
        self._width = batch_env.row_width(leaves)
        self._action_specs = spaces.spec(self.action_space)
        self._started = [False] * self.parts
        self._seeds: np.ndarray | None = None
        self._score = np.zeros(len(self), np.float32)
        self._length = np.zeros(len(self), np.float32)
        self.error = self.called = None
        self.steps = 0

    def __len__(self) -> int:
        return self._size * self.parts

    @property
    def observation_space(self):
        """Space of one environment."""
        return self._envs[0].observation_space

    @property
    def action_space(self):
        """Space of one environment."""
        return self._envs[0].action_space

    def discontinue(self, seeds: np.ndarray | None = None) -> None:
        """Abandon all episodes; the next ones use the seeds, integers `[N]`.

        Takes effect in `begin`; not to be called in a graph.
        """
        self.current = None
        if seeds is not None:
            self._seeds = np.array(seeds)

    def begin(self) -> Step:
        """Begin episodes in all rows."""
        leaves = spaces.flatten(self._specs)
        *observation, first = tf.numpy_function(
            self._begin,
            [],
            [spec.dtype for spec in leaves] + [tf.bool],
        )
        shaped = [
            tf.ensure_shape(x, [len(self), *spec.shape])
            for x, spec in zip(observation, leaves, strict=True)
        ]
        observation = spaces.unflatten(self._specs, shaped)
        return Step(observation, tf.ensure_shape(first, [len(self)]))

    def simulate(
        self,
        step: Step,
        action: Any,
        start: int | tf.Tensor = 0,
        finish: int | tf.Tensor = 0,
    ) -> tuple[Outcome, Step]:
        """Step environments once; n is the number of rows of a part.

        Args:
          step: What the actions belong to; nothing happens before it is known.
          action: Structure `[n, ...]` of the action space.
          start: Part that takes the actions; -1 for none.
          finish: Part to wait for; -1 for none, then zeros are returned.

        Returns:
          What happened to the finished part, and what it acts upon next.
        """
        dtypes = [tf.float32, *(x.dtype for _ in range(2) for x in self._others)]
        leaves = tf.nest.flatten(action)
        results = tf.numpy_function(
            self._simulate, [start, finish, step.first, *leaves], dtypes
        )
        numbers, *others = tf.nest.flatten(results)  # One alone is no list eagerly.
        numbers = tf.ensure_shape(numbers, [self._size, self._width])
        reward, flags, _, last, following = tf.split(
            numbers, [1, 2, 2, *[(self._width - batch_env.NUMBERS) // 2] * 2], 1
        )
        terminated, truncated = tf.unstack(flags > 0, axis=1)
        half = len(self._others)
        outcome = Outcome(
            self._structure(last, others[:half]),
            tf.reshape(reward, [self._size]),
            terminated,
            truncated,
            numbers[:, batch_env.TERMINATED : batch_env.NUMBERS],
        )
        observation = self._structure(following, others[half:])
        return outcome, Step(observation, outcome.done)

    def close(self) -> None:
        """Close the environments and their processes."""
        for env in self._envs:
            env.close()

    def _structure(self, numbers: tf.Tensor, others: list[tf.Tensor]) -> Any:
        """Observation `[n, ...]` of its float32 leaves in one tensor, and the others."""
        leaves = spaces.flatten(self._specs)
        floats = [spec for spec in leaves if spec.dtype == np.float32]
        sizes = [math.prod(spec.shape) for spec in floats]
        parts = tf.split(numbers, sizes, 1) if len(sizes) > 1 else [numbers]
        parts, others = iter(parts), iter(others)
        shaped = []
        for spec in leaves:
            shape = [self._size, *spec.shape]
            if spec.dtype != np.float32:
                shaped.append(tf.ensure_shape(next(others), shape))
            elif len(spec.shape) == 1:
                shaped.append(next(parts))
            else:
                shaped.append(tf.reshape(next(parts), shape))
        return spaces.unflatten(self._specs, shaped)

    def _begin(self) -> list[np.ndarray]:
        """Leaves of the first observation and what rows are new, as arrays."""
        parts = []
        with self._watched():
            for part in np.flatnonzero(self._started):
                self._finish(part)  # What the algorithm failed beside.
            for env, rows in zip(self._envs, self._rows, strict=True):
                seeds = None if self._seeds is None else self._seeds[rows]
                parts.append(spaces.flatten(env.reset(seeds=seeds)))
        self._seeds = None
        self._score[:] = self._length[:] = 0
        observation = [np.concatenate(x) for x in zip(*parts, strict=True)]
        return [*observation, np.ones(len(self), bool)]

    def _simulate(
        self,
        start: np.ndarray,
        finish: np.ndarray,
        _: np.ndarray,
        *leaves: np.ndarray,
    ) -> list[np.ndarray]:
        """Numbers and other leaves of the part to wait for, as arrays."""
        _keep_thread_state()
        with self._watched():
            if start >= 0:
                self.steps += self._size
                action = spaces.unflatten(self._action_specs, list(leaves))
                self._envs[start].start(action, restart=True)
                self._started[start] = True
            if finish < 0:
                numbers = np.zeros((self._size, self._width), np.float32)
                others = [spec.zeros(self._size) for spec in self._others]
                return [numbers, *others, *others]
            result = self._finish(finish)
        self._account(int(finish), result)
        return [result.numbers, *result.observation, *result.following]

    def _finish(self, part: int) -> batch_env.Results:
        """Wait for the step that a part has started."""
        self._started[part] = False
        return self._envs[part].finish()

    def _account(self, part: int, result: batch_env.Results) -> None:
        """Complete what a step gave by what is known of the episodes."""
        numbers, done, rows = result.numbers, result.done, self._rows[part]
        score, length = self._score[rows], self._length[rows]
        score += numbers[:, batch_env.REWARD]
        length += 1
        numbers[:, batch_env.SCORE] = score
        numbers[:, batch_env.LENGTH] = length
        if done.any():
            score[done] = length[done] = 0

    def _watched(self) -> "_Watched":
        return _Watched(self)


class _Watched:
    """Keeps when a call began, and its exception, which TensorFlow turns into text."""

    def __init__(self, owner: InGraphBatchEnv) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        self._owner.error, self._owner.called = None, time.monotonic()

    def __exit__(self, kind, error, traceback) -> None:
        self._owner.error, self._owner.called = error, None


_threads = threading.local()


def _keep_thread_state() -> None:
    """Keep what Python knows of this thread, one of TensorFlow's, between calls.

    Otherwise it is made anew for every call, for a third of what a call costs.
    """
    if not hasattr(_threads, "kept"):
        _threads.kept = True
        ctypes.pythonapi.PyGILState_Ensure()
