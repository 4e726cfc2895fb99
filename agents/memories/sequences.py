"""Storage of growing sequences: variables `[rows, length, ...]`."""

from typing import Any

import tensorflow as tf

from agents.tools import spaces


class Sequences(tf.Module):
    """Rows of transitions, each with its own length.

    Attributes:
      lengths: Valid steps of each row, int32 `[rows]`; what is beyond is padding.
    """

    def __init__(self, specs: Any, rows: int, length: int) -> None:
        """Allocate zeros for a structure of `tf.TensorSpec` of one transition."""
        super().__init__()
        self.rows, self.length = rows, length
        # Plain dicts: those of Keras layers would be left out of checkpoints.
        self._data = spaces.transform(
            lambda spec: tf.Variable(
                tf.zeros([rows, length, *spec.shape], spec.dtype), trainable=False
            ),
            specs,
        )
        self.lengths = tf.Variable(tf.zeros([rows], tf.int32), trainable=False)

    @property
    def data(self) -> Any:
        """Structure of variables `[rows, length, ...]`, in plain dicts and tuples."""
        return spaces.transform(lambda variable: variable, self._data)

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one step `[K, ...]` to rows, int32 `[K]`; a full row raises."""
        position = tf.gather(self.lengths, rows)
        tf.debugging.assert_less(
            position, self.length, "A sequence is longer than the memory."
        )
        # Clipped so that the scatter does not fail first, with a message less clear.
        indices = tf.stack([rows, tf.minimum(position, self.length - 1)], 1)
        tf.nest.map_structure(
            lambda variable, value: variable.scatter_nd_update(indices, value),
            self.data,
            transition,
        )
        self.lengths.scatter_nd_update(rows[:, None], position + 1)

    def gather(self, rows: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Data `[K, T, ...]` and lengths `[K]` of rows."""
        data = tf.nest.map_structure(lambda x: tf.gather(x, rows), self.data)
        return data, tf.gather(self.lengths, rows)

    def replace(self, rows: tf.Tensor, data: Any, lengths: tf.Tensor) -> None:
        """Overwrite whole rows with data `[K, T, ...]` and lengths `[K]`."""
        tf.nest.map_structure(
            lambda variable, value: variable.scatter_nd_update(rows[:, None], value),
            self.data,
            data,
        )
        self.lengths.scatter_nd_update(rows[:, None], lengths)

    def clear(self, rows: tf.Tensor) -> None:
        """Make rows empty, int32 `[K]`."""
        self.lengths.scatter_nd_update(rows[:, None], tf.zeros_like(rows))

    def mask(self) -> tf.Tensor:
        """Which steps are valid, bool `[rows, length]`."""
        return tf.sequence_mask(self.lengths, self.length)
