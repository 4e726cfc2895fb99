"""Memory of whole episodes, which trains when enough of them have finished."""

from typing import Any

import tensorflow as tf

from agents.memories import sequences


class Episodes(tf.Module):
    """Memory of running episodes per row and of finished episodes.

        memory.append(rows, transition)    # after every step
        memory.end(rows)                   # episodes finished: kept if there is room
        if memory.full(): data, mask = memory.data(); memory.clear_data()

    A checkpoint contains `finished` only; running episodes are lost.

    Acting and training can be divided: an instance in another process gives its
    finished episodes away by `take`, and the one that trains gets them by `extend`.

    Attributes:
      topology: Name of the way to divide them; see `distributed.phases`.
      whole_episodes: Whether sequences are episodes of any row, or one of each row.
    """

    topology = "synchronous"
    whole_episodes = True

    def __init__(self, specs: Any, rows: int, capacity: int, max_length: int) -> None:
        """Allocate `rows` running and `capacity` finished episodes."""
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
        """Number of further episodes that fit."""
        return self._finished.rows - self._count

    def append(self, rows: tf.Tensor, transition: Any) -> None:
        """Add one transition `[K, ...]` to the running episodes of rows."""
        self._running.append(rows, transition)

    def clear(self, rows: tf.Tensor) -> None:
        """Forget the running episodes of rows."""
        self._running.clear(rows)

    def end(self, rows: tf.Tensor) -> None:
        """Keep the episodes of these rows; drop those beyond the capacity."""
        kept = tf.range(tf.size(rows)) < self.room  # XLA cannot slice by variables.
        self.extend(*self._running.gather(tf.boolean_mask(rows, kept)))

    def last_of_unroll(self, rows: tf.Tensor) -> tf.Tensor:
        """Return false: only ends of episodes end the data of a row."""
        return tf.zeros_like(rows, tf.bool)

    def full(self) -> tf.Tensor:
        """Return whether it is time to train."""
        return tf.equal(self._count, self._finished.rows)

    def data(self) -> tuple[Any, tf.Tensor]:
        """Return finished episodes `[capacity, max_length, ...]` and mask of steps."""
        return self._finished.data, self._finished.mask()

    def take(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Remove the finished episodes `[K]`; return packed data and lengths."""
        taken = self._finished.gather(tf.range(self._count))
        self.clear_data()
        return taken

    def extend(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        """Add finished episodes `[K]` that `take` removed from another memory."""
        slots = self._count + tf.range(tf.size(lengths))
        self._finished.replace(slots, data, lengths)
        self._count.assign_add(tf.size(lengths))

    def clear_data(self) -> None:
        """Forget the finished episodes."""
        self._count.assign(0)
        self._finished.clear(tf.range(self._finished.rows))
