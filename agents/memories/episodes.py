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

    @property
    def count(self) -> tf.Tensor:
        """Number of finished episodes, int32."""
        return self._count.read_value()

    @property
    def room(self) -> tf.Tensor:
        """Number of episodes that are missing."""
        return self._finished.rows - self._count

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one transition `[K, ...]` to the running episodes of rows."""
        self._running.append(rows, transition)

    def clear(self, rows: tf.Tensor) -> None:
        """Forget the running episodes of rows."""
        self._running.clear(rows)

    def end(self, rows: tf.Tensor) -> None:
        """Keep the episodes of these rows; those beyond the capacity are dropped."""
        kept = tf.range(tf.size(rows)) < self.room  # XLA cannot slice by variables.
        self.extend(*self._running.gather(tf.boolean_mask(rows, kept)))

    def last_of_unroll(self, rows: tf.Tensor) -> tf.Tensor:
        """Whether the next step ends the data of a row: never, only episodes do."""
        return tf.zeros_like(rows, tf.bool)

    def full(self) -> tf.Tensor:
        """Whether it is time to train."""
        return tf.equal(self._count, self._finished.rows)

    def data(self) -> tuple[Any, tf.Tensor]:
        """Finished episodes `[capacity, max_length, ...]` and mask of valid steps."""
        return self._finished.data, self._finished.mask()

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Remove the finished episodes `[K]`; returns packed data and lengths."""
        taken = self._finished.gather(tf.range(self._count))
        self.clear_data()
        return taken

    def extend(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        """Hold finished episodes `[K]` that were taken from another memory."""
        slots = self._count + tf.range(tf.size(lengths))
        self._finished.replace(slots, data, lengths)
        self._count.assign_add(tf.size(lengths))

    def clear_data(self) -> None:
        """Forget the finished episodes."""
        self._count.assign(0)
        self._finished.clear(tf.range(self._finished.rows))
