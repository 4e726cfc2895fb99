"""Storage of growing sequences: variables `[rows, length, ...]`."""

import math
from typing import Any

import tensorflow as tf

from agents.tools import arrays, placement
from agents.tools import rows as rows_


class Sequences(tf.Module):
    """Storage of sequences in rows, each with its own length.

    Attributes:
      lengths: Valid steps of each row, int32 `[rows]`; padding follows.
    """

    def __init__(self, specs: Any, rows: int, length: int) -> None:
        """Allocate zeros for a structure of `tf.TensorSpec` of one transition.

        Raises:
          ValueError: if there is too little free memory; nothing is allocated.
        """
        super().__init__()
        self.rows, self.length = rows, length
        self._packing = arrays.Packing(specs)
        sizes = [
            math.prod(spec.shape) * spec.dtype.itemsize for spec in self._packing.specs
        ]
        num_bytes = rows * length * sum(sizes)
        if num_bytes > (free := placement.free_bytes()):
            raise ValueError(
                f"a memory of {rows} times {length} steps needs {num_bytes} bytes, but "
                f"{free} are free; use fewer or shorter episodes or unrolls."
            )
        self._data = [
            tf.Variable(
                tf.zeros([rows, length, *spec.shape], spec.dtype), trainable=False
            )
            for spec in self._packing.specs
        ]
        self.lengths = tf.Variable(tf.zeros([rows], tf.int32), trainable=False)

    @property
    def data(self) -> Any:
        """Structure of tensors `[rows, length, ...]`."""
        return self._packing.unpack(self._data)

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one step `[K, ...]` to rows, int32 `[K]`; raise if a row is full."""
        position = rows_.gather(self.lengths, rows)
        tf.raw_ops.Assert(
            condition=tf.reduce_all(position < self.length),
            data=[
                "A sequence is longer than the memory. If episodes become longer than at "
                "first, set environment.max_length to the longest."
            ],
        )
        # Clipped, so that the scatter does not fail first with a less clear message.
        indices = tf.stack([rows, tf.minimum(position, self.length - 1)], 1)
        for variable, value in zip(
            self._data, self._packing.pack(transition), strict=True
        ):
            variable.scatter_nd_update(indices, value)
        rows_.write(self.lengths, rows, position + 1)

    def gather(self, rows: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Return packed data `[K, T, ...]` and lengths `[K]` of rows, for `replace`."""
        return rows_.gather(self._data, rows), rows_.gather(self.lengths, rows)

    def select(self, rows: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Return tensors `[K, length, ...]` of rows, and the mask of valid steps."""
        return self.unpack(*self.gather(rows))

    def unpack(
        self, data: list[tf.Tensor], lengths: tf.Tensor
    ) -> tuple[Any, tf.Tensor]:
        """Convert the result of `gather` to the form of `select`."""
        return self._packing.unpack(data), tf.sequence_mask(lengths, self.length)

    def replace(
        self, rows: tf.Tensor, data: list[tf.Tensor], lengths: tf.Tensor
    ) -> None:
        """Overwrite whole rows with the result of `gather`."""
        rows_.write(self._data, rows, data)
        rows_.write(self.lengths, rows, lengths)

    def clear(self, rows: tf.Tensor) -> None:
        """Make rows empty, int32 `[K]`."""
        rows_.write(self.lengths, rows, tf.zeros_like(rows))

    def mask(self) -> tf.Tensor:
        """Return the mask of valid steps, bool `[rows, length]`."""
        return tf.sequence_mask(self.lengths, self.length)
