"""Steps of a batch of environments in the graph, and the state before and after."""

import weakref
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import tensorflow as tf

RECORD = 4
"""Columns of a record; see `record`."""


class Before(NamedTuple):
    """All rows `[N, ...]` before they act.

    Attributes:
      observation: Structure of tensors to act upon.
      first: bool, rows whose episode begins here.
    """

    observation: Any
    first: tf.Tensor


class After(NamedTuple):
    """All rows `[N, ...]` after they acted.

    Attributes:
      observation: Structure of tensors, the true last one where done.
      reward: float32, raw.
      terminated, truncated: bool.
      record: float32 `[N, RECORD]` about the episodes so far.
    """

    observation: Any
    reward: tf.Tensor
    terminated: tf.Tensor
    truncated: tf.Tensor
    record: tf.Tensor

    @property
    def done(self) -> tf.Tensor:
        """Rows whose episode ended here, bool `[N]`."""
        return self.terminated | self.truncated


class Continued:
    """Base of environments in the graph, with what `simulate` keeps between its calls.

    Attributes:
      user: Algorithm of the last call of `simulate`, as a weak reference, and whether it
        trained; None before the first.
      current: State from which the next call continues; None if episodes begin.
      elapsed: Environment steps of training when episodes begin, set by the caller.
    """

    user: tuple[weakref.ref, bool] | None = None
    current: Any = None
    elapsed = 0


class Environments(Protocol):
    """Batch of environments in the graph: `InGraphBatchEnv` or `Compiled`.

    The attributes are those of `InGraphBatchEnv` and `Continued`.
    """

    parts: int
    compiled: bool
    error: BaseException | None
    called: float | None
    steps: int
    user: tuple[weakref.ref, bool] | None
    current: Any
    elapsed: int

    @property
    def observation_space(self) -> gymnasium.Space:
        """Observation space of one environment."""

    @property
    def action_space(self) -> gymnasium.Space:
        """Action space of one environment."""

    def __len__(self) -> int: ...

    def discontinue(self, seeds: np.ndarray | None = None) -> None:
        """Abandon all episodes; the next ones use the seeds, integers `[N]`."""

    def begin(self) -> Before:
        """Begin episodes in all rows."""

    def simulate(self, before: Before, action: Any) -> tuple[After, Before]:
        """Step all environments once."""

    def close(self) -> None:
        """Release everything that the environments hold."""


def record(
    terminated: tf.Tensor, truncated: tf.Tensor, score: tf.Tensor, length: tf.Tensor
) -> tf.Tensor:
    """Join both flags, score (sum of raw rewards) and length of episodes, all `[N]`."""
    columns = [tf.cast(x, tf.float32) for x in (terminated, truncated, score, length)]
    return tf.stack(columns, 1)


def ended(records: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return `done`, `score` and `length`, `[T, N]`, of records `[T, N, RECORD]`.

    Score and length are zero where no episode ended.
    """
    terminated, truncated, score, length = tf.unstack(records, axis=2)
    done = terminated + truncated > 0
    return {
        "done": done,
        "score": tf.where(done, score, 0.0),
        "length": tf.cast(tf.where(done, length, 0.0), tf.int32),
    }
