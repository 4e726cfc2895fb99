"""State of a batch of environments before and after a step, in the graph."""

from typing import Any, NamedTuple

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
