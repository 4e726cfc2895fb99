"""Memory of fixed unrolls that wait in a queue before training."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences, unrolls


class Queue(unrolls.Unrolls):
    """Queue of the last `size` batches, each with one unroll of every row.

        if memory.full():    # The newest batch is complete.
            if memory.ready(): data, mask = memory.oldest()
            memory.advance()

    Training data was complete `size` batches ago; size zero means no queue. A
    checkpoint contains the waiting batches: phases begin with an empty newest batch.
    """

    topology = "streaming"

    def __init__(self, specs: Any, rows: int, length: int, size: int) -> None:
        super().__init__(specs, rows, length)
        self._rows, self._size = rows, size
        if not size:
            return
        self._waiting = sequences.Sequences(specs, size * rows, length)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.persistent = {"waiting": self._waiting, "count": self._count}

    def ready(self) -> tf.Tensor:
        """Return whether a batch is ready for training."""
        return self._count >= self._size if self._size else self.full()

    def oldest(self) -> tuple[Any, tf.Tensor]:
        """Return a batch `[rows, length, ...]` to train on, and its mask of steps."""
        return self._waiting.select(self._slot()) if self._size else self.data()

    def advance(self) -> None:
        """Replace the oldest batch by the newest, and begin another one."""
        if self._size:
            newest = self._unrolls.gather(tf.range(self._rows))
            self._waiting.replace(self._slot(), *newest)
            self._count.assign_add(1)
        self.clear_data()

    def _slot(self) -> tf.Tensor:
        """Return the rows of the oldest batch, which the newest will replace."""
        index = tf.cast(self._count % self._size, tf.int32)
        return index * self._rows + tf.range(self._rows)
