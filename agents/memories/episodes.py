"""Memory of whole episodes, trained on when enough of them have finished."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences


class Episodes(tf.Module):
    """Collects running episodes per row and keeps the finished ones.

        memory.append(rows, transition)    # after every step
        memory.end(rows)                   # episodes finished: kept if there is room
        if memory.full(): data, mask = memory.data(); memory.clear_data()

    A checkpoint holds `finished` only; running episodes are begun anew.
    """

    def __init__(self, specs: Any, rows: int, capacity: int, max_length: int) -> None:
        """Room for `rows` running and `capacity` finished episodes."""
        super().__init__()
        self._running = sequences.Sequences(specs, rows, max_length)
        self._finished = sequences.Sequences(specs, capacity, max_length)
        self._count = tf.Variable(0, trainable=False)
        self.persistent = {"finished": self._finished, "count": self._count}

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one transition `[K, ...]` to the running episodes of rows."""
        self._running.append(rows, transition)

    def clear(self, rows: tf.Tensor) -> None:
        """Forget the running episodes of rows."""
        self._running.clear(rows)

    def end(self, rows: tf.Tensor) -> None:
        """Keep the episodes of these rows; those beyond the capacity are dropped."""
        rows = rows[: self._finished.rows - self._count]
        slots = self._count + tf.range(tf.size(rows))
        self._finished.replace(slots, *self._running.gather(rows))
        self._count.assign_add(tf.size(rows))

    def last_of_unroll(self, rows: tf.Tensor) -> tf.Tensor:
        """Whether the next step ends the data of a row: never, only episodes do."""
        return tf.zeros_like(rows, tf.bool)

    def full(self) -> tf.Tensor:
        """Whether it is time to train."""
        return tf.equal(self._count, self._finished.rows)

    def data(self) -> tuple[Any, tf.Tensor]:
        """Finished episodes `[capacity, max_length, ...]` and mask of valid steps."""
        return self._finished.data, self._finished.mask()

    def clear_data(self) -> None:
        """Forget the finished episodes."""
        self._count.assign(0)
        self._finished.clear(tf.range(self._finished.rows))
