"""Memory of fixed unrolls: the same number of steps of every row."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences


class Unrolls(tf.Module):
    """Collects `length` steps of all rows, across episode ends, then is full.

    Same interface as `Episodes`. An unroll goes on when episodes end, so rows may hold
    several of them. If an episode is cut off without an end, all rows begin anew.
    Nothing is kept in a checkpoint: phases begin with empty unrolls.
    """

    def __init__(self, specs: Any, rows: int, length: int) -> None:
        super().__init__()
        self._unrolls = sequences.Sequences(specs, rows, length)
        self._ended = tf.Variable(tf.zeros([rows], tf.bool), trainable=False)
        self.persistent = {}

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one transition `[K, ...]` to rows."""
        self._unrolls.append(rows, transition)
        self._ended.scatter_nd_update(rows[:, None], tf.zeros_like(rows, tf.bool))

    def clear(self, rows: tf.Tensor) -> None:
        """Episodes begin: their unrolls go on if the last ones ended."""
        running = tf.gather(self._unrolls.lengths, rows) > 0
        running &= ~tf.gather(self._ended, rows)
        tf.cond(tf.reduce_any(running), self.clear_data, lambda: None)

    def end(self, rows: tf.Tensor) -> None:
        """Episodes ended: their unrolls go on."""
        self._ended.scatter_nd_update(rows[:, None], tf.ones_like(rows, tf.bool))

    def last_of_unroll(self, rows: tf.Tensor) -> tf.Tensor:
        """Whether the next step is the last of a row's unroll, bool `[K]`."""
        return tf.gather(self._unrolls.lengths, rows) + 1 == self._unrolls.length

    def full(self) -> tf.Tensor:
        """Whether it is time to train: all rows hold `length` steps."""
        return tf.reduce_all(self._unrolls.lengths == self._unrolls.length)

    def data(self) -> tuple[Any, tf.Tensor]:
        """Transitions `[rows, length, ...]` and mask of valid steps."""
        return self._unrolls.data, self._unrolls.mask()

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Remove the unrolls of all rows; returns packed data and lengths `[rows]`."""
        taken = self._unrolls.gather(tf.range(self._unrolls.rows))
        self.clear_data()
        return taken

    def extend(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        """Hold the unrolls of all rows that were taken from other memories."""
        self._unrolls.replace(tf.range(self._unrolls.rows), data, lengths)

    def unpack(
        self, data: list[tf.Tensor], lengths: tf.Tensor
    ) -> tuple[Any, tf.Tensor]:
        """As `data`, of what was taken."""
        return self._unrolls.unpack(data, lengths)

    def clear_data(self) -> None:
        """Begin new unrolls."""
        self._unrolls.clear(tf.range(self._unrolls.rows))
