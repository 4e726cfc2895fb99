"""Memory of fixed unrolls that wait in a queue before they are learned from."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences, unrolls


class Queue(unrolls.Unrolls):
    """Unrolls of all rows, a batch, and the last `size` batches, first in, first out.

        if memory.full():    # The newest batch is complete.
            if memory.ready(): data, mask = memory.oldest()
            memory.advance()

    So what is learned from was complete `size` batches ago; size zero is no queue. A
    checkpoint holds the waiting batches: phases begin with an empty newest one.
    """

    def __init__(self, specs: Any, rows: int, length: int, size: int) -> None:
        super().__init__(specs, rows, length)
        self._rows, self._size = rows, size
        if not size:
            return
        self._waiting = sequences.Sequences(specs, size * rows, length)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.persistent = {"waiting": self._waiting, "count": self._count}

    def ready(self) -> tf.Tensor:
        """Whether there is a batch to learn from."""
        return self._count >= self._size if self._size else self.full()

    def oldest(self) -> tuple[Any, tf.Tensor]:
        """Batch `[rows, length, ...]` to learn from, and mask of valid steps."""
        return self._waiting.select(self._slot()) if self._size else self.data()

    def advance(self) -> None:
        """The newest batch waits in place of the oldest one, and another one begins."""
        if self._size:
            newest = self._unrolls.gather(tf.range(self._rows))
            self._waiting.replace(self._slot(), *newest)
            self._count.assign_add(1)
        self.clear_data()

    def _slot(self) -> tf.Tensor:
        """Rows of the oldest batch, or of the next one to wait."""
        index = tf.cast(self._count % self._size, tf.int32)
        return index * self._rows + tf.range(self._rows)
