"""Memory of fixed unrolls, with the same number of steps of every row."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences
from agents.tools import rows as rows_


class Unrolls(tf.Module):
    """Memory of `length` steps of all rows, across the ends of episodes.

    The interface is that of `Episodes`. An unroll continues when episodes end, so rows
    may contain several of them. If an episode is cut off without an end, all rows start
    over. A checkpoint contains nothing: phases begin with empty unrolls.
    """

    topology = "synchronous"
    whole_episodes = False

    def __init__(self, specs: Any, rows: int, length: int) -> None:
        super().__init__()
        self._unrolls = sequences.Sequences(specs, rows, length)
        self._ended = tf.Variable(tf.zeros([rows], tf.bool), trainable=False)
        self.persistent = {}

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one transition `[K, ...]` to rows."""
        self._unrolls.append(rows, transition)
        rows_.write(self._ended, rows, tf.zeros_like(rows, tf.bool))

    def clear(self, rows: tf.Tensor) -> None:
        """Begin episodes; restart all unrolls if one was cut off."""
        running = rows_.gather(self._unrolls.lengths, rows) > 0
        running &= ~rows_.gather(self._ended, rows)
        tf.cond(tf.reduce_any(running), self.clear_data, lambda: None)

    def end(self, rows: tf.Tensor) -> None:
        """Mark episodes as ended, so that their unrolls continue."""
        rows_.write(self._ended, rows, tf.ones_like(rows, tf.bool))

    def last_of_unroll(self, rows: tf.Tensor) -> tf.Tensor:
        """Return whether the next step is the last of a row's unroll, bool `[K]`."""
        return rows_.gather(self._unrolls.lengths, rows) + 1 == self._unrolls.length

    def full(self) -> tf.Tensor:
        """Return whether it is time to train: all rows hold `length` steps."""
        return tf.reduce_all(self._unrolls.lengths == self._unrolls.length)

    def data(self) -> tuple[Any, tf.Tensor]:
        """Return transitions `[rows, length, ...]` and the mask of valid steps."""
        return self._unrolls.data, self._unrolls.mask()

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Remove the unrolls of all rows; return packed data and lengths `[rows]`."""
        taken = self._unrolls.gather(tf.range(self._unrolls.rows))
        self.clear_data()
        return taken

    def extend(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        """Set the unrolls of all rows to those of `take` from other memories."""
        self._unrolls.replace(tf.range(self._unrolls.rows), data, lengths)

    def unpack(
        self, data: list[tf.Tensor], lengths: tf.Tensor
    ) -> tuple[Any, tf.Tensor]:
        """Convert the result of `take` to the form of `data`."""
        return self._unrolls.unpack(data, lengths)

    def clear_data(self) -> None:
        """Begin new unrolls."""
        self._unrolls.clear(tf.range(self._unrolls.rows))
