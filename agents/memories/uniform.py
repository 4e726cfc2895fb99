"""Selection of entries of a replay memory with equal probability."""

from typing import Any

import tensorflow as tf


class Uniform(tf.Module):
    """Set of entries that are drawn with equal probability.

    The members are a list without gaps: the last ones fill the places of removed ones.
    So every draw is exact and costs the same for any number of entries.

    All selectors have this interface. Indices are int32 `[M]`, in `change` each at most
    once; the index `num_entries` stands for no entry, so that shapes are static.

    Attributes:
      size: Number of members, int32.
    """

    def build(self, num_entries: int) -> None:
        """Allocate for indices from zero to `num_entries - 1`, without members."""
        self._none = num_entries
        self._members = tf.Variable(
            tf.zeros([num_entries + 1], tf.int32), trainable=False
        )
        self._places = tf.Variable(
            tf.fill([num_entries + 1], -1), trainable=False
        )  # Places of entries in the list, -1 without one.
        self.size = tf.Variable(0, trainable=False)

    def num_bytes(self, num_entries: int) -> int:
        """Return the bytes that `build` allocates."""
        return 8 * (num_entries + 1) + 4

    @property
    def persistent(self) -> dict[str, Any]:
        """Contents of a checkpoint."""
        return {"members": self._members, "places": self._places, "size": self.size}

    def priorities(self, indices: tf.Tensor) -> tf.Tensor:
        """Return one for members and zero for others, float64 `[M]`."""
        return tf.cast(tf.gather(self._places, indices) >= 0, tf.float64)

    def change(
        self, new: tf.Tensor, old: tf.Tensor, priority: tf.Tensor | None = None
    ) -> None:
        """Add entries that are not members, and remove others if they are members.

        Only selectors with priorities use `priority`, by default the largest so far.
        """
        self._insert(new)
        self._remove(old)

    def sample(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draw entries with replacement, for a seed int32 `[2]`.

        Returns:
          Indices, int32 `[count]`, and the probability of each, float64 `[count]`.
        """
        size = self.size.read_value()
        place = tf.random.stateless_uniform(
            [count], seed, 0, size, tf.int32, alg="philox"
        )
        probability = tf.fill([count], 1 / tf.cast(size, tf.float64))
        return tf.gather(self._members, place), probability

    def update(self, indices: tf.Tensor, td_errors: tf.Tensor) -> None:
        """Ignore errors, which do not change uniform selection."""

    def _insert(self, indices: tf.Tensor) -> None:
        new = indices < self._none
        count = tf.cast(new, tf.int32)
        place = tf.where(new, self.size + tf.cumsum(count) - 1, self._none)
        _assign(self._members, place, indices)
        _assign(self._places, indices, tf.where(new, place, -1))
        self.size.assign_add(tf.reduce_sum(count))

    def _remove(self, indices: tf.Tensor) -> None:
        size = self.size.read_value()
        place = tf.gather(self._places, indices)
        left = size - tf.reduce_sum(tf.cast(place >= 0, tf.int32))
        # XLA would copy the list if the written values did not depend on a read.
        _assign(self._places, indices, tf.minimum(place, -1))
        # The list beyond its new end holds as many members as there are gaps before it.
        gaps = tf.sort(tf.where((place >= 0) & (place < left), place, self._none))
        behind = left + tf.range(tf.size(indices))
        last = tf.gather(self._members, tf.minimum(behind, self._none))
        remains = (behind < size) & (tf.gather(self._places, last) >= 0)
        movers = tf.sort(tf.where(remains, last, self._none))
        _assign(self._members, gaps, movers)
        _assign(self._places, movers, tf.where(gaps < self._none, gaps, -1))
        self.size.assign(left)


def _assign(variable: tf.Variable, indices: tf.Tensor, values: tf.Tensor) -> None:
    variable.scatter_update(tf.IndexedSlices(values, indices))
