"""Selection of entries of a replay memory by the error of their values."""

from typing import Any

import numpy as np
import tensorflow as tf


class Prioritized(tf.Module):
    """Set of entries, each drawn in proportion to `(|td_error| + epsilon) ** alpha`.

    New entries have the largest priority so far, unless another one is given. The
    interface is that of `Uniform`. Proportional prioritization is by Schaul et al.
    (2016), https://arxiv.org/abs/1511.05952.

    The sum tree has 16 children per node, not two, since the number of operations
    determines the cost. A level is a variable `[nodes, 16]`, leaves first; each number
    is the sum of one node below, always recomputed from its children, so rounding does
    not accumulate. Priorities are stored with the exponent applied.

    Attributes:
      size: Number of members, int32.
    """

    def __init__(self, alpha: float = 0.6, epsilon: float = 1e-6) -> None:
        """Set the exponent `alpha`, zero for uniform, and the offset `epsilon` > 0."""
        super().__init__()
        if not (alpha >= 0 and epsilon > 0):
            raise ValueError(
                "Priorities need alpha >= 0 and epsilon > 0, "
                f"got {alpha} and {epsilon}."
            )
        self._alpha, self._epsilon = alpha, epsilon

    def build(self, num_entries: int) -> None:
        """Allocate for indices from zero to `num_entries - 1`, without members."""
        self._none = num_entries
        self._levels = [
            tf.Variable(tf.zeros([nodes, _WIDTH], tf.float64), trainable=False)
            for nodes in _nodes(num_entries)
        ]
        self._largest = tf.Variable(tf.ones([], tf.float64), trainable=False)
        self.size = tf.Variable(0, trainable=False)

    def num_bytes(self, num_entries: int) -> int:
        """Return the bytes that `build` allocates."""
        return 8 * _WIDTH * sum(_nodes(num_entries)) + 12

    @property
    def persistent(self) -> dict[str, Any]:
        """Contents of a checkpoint."""
        return {"levels": self._levels, "largest": self._largest, "size": self.size}

    @property
    def total(self) -> tf.Tensor:
        """Sum of all priorities, float64."""
        return tf.reduce_sum(tf.gather(self._levels[-1], 0))

    def priorities(self, indices: tf.Tensor) -> tf.Tensor:
        """Return priorities float64 `[M]` with exponent, zero for other indices."""
        return _pick(tf.gather(self._levels[0], indices // _WIDTH), indices % _WIDTH)

    def change(
        self, new: tf.Tensor, old: tf.Tensor, priority: tf.Tensor | None = None
    ) -> None:
        """Add entries that are not members, and remove others if they are members.

        Args:
          new, old: Indices.
          priority: Priorities of new entries, with exponent; none for the largest yet.
        """
        added = new < self._none
        before = self.priorities(old)
        removed = before > 0
        if priority is None:
            priority = self._largest
        else:
            self._raise_largest(tf.where(added, priority, 0))
        # XLA would copy the level if the written values did not depend on a read.
        zeros = tf.where(removed, tf.zeros_like(before), before)
        values = tf.concat([tf.where(added, priority, 0), zeros], 0)
        self._assign(tf.concat([new, old], 0), values)
        self.size.assign_add(_count(added) - _count(removed))

    def sample(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draw one entry from each of `count` equal shares, for a seed int32 `[2]`.

        Returns:
          Indices, int32 `[count]`, and the probability of each, float64 `[count]`.
        """
        # Integers, because XLA draws different floats from the same seed.
        bits = tf.random.stateless_uniform(
            [count], seed, None, None, tf.uint32, alg="philox"
        )
        uniform = tf.cast(bits, tf.float64) / 2**32
        total = self.total
        rest = (tf.range(count, dtype=tf.float64) + uniform) * (total / count)
        node = tf.zeros([count], tf.int32)
        for level in reversed(self._levels):
            children = tf.gather(level, node)
            child, before = _descend(children, rest)
            node, rest = node * _WIDTH + child, rest - before
        return node, _pick(children, child) / total

    def update(self, indices: tf.Tensor, td_errors: tf.Tensor) -> None:
        """Set priorities of members; for repeated indices, the last one counts."""
        error = tf.cast(tf.debugging.check_numerics(td_errors, "TD errors"), tf.float64)
        priority = (tf.abs(error) + self._epsilon) ** self._alpha
        priority = tf.maximum(priority, np.finfo(np.float64).tiny)
        priority = tf.where(self.priorities(indices) > 0, priority, 0)
        self._assign(indices, priority)
        self._raise_largest(priority)

    def _raise_largest(self, priority: tf.Tensor) -> None:
        self._largest.assign(tf.maximum(self._largest, tf.reduce_max(priority)))

    def _assign(self, indices: tf.Tensor, values: tf.Tensor) -> None:
        """Set leaves, and update the sums above them."""
        for number, level in enumerate(self._levels):
            if number:
                values = tf.reduce_sum(tf.gather(self._levels[number - 1], indices), 1)
            places = tf.stack([indices // _WIDTH, indices % _WIDTH], 1)
            level.scatter_nd_update(places, values)
            indices //= _WIDTH


_WIDTH = 16


def _nodes(num_entries: int) -> list[int]:
    """Return the nodes of each level, leaves first, with one extra entry for none."""
    nodes = [-(-(num_entries + 1) // _WIDTH)]
    while nodes[-1] > 1:
        nodes.append(-(-nodes[-1] // _WIDTH))
    return nodes


def _count(flags: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(flags, tf.int32))


def _pick(children: tf.Tensor, child: tf.Tensor) -> tf.Tensor:
    """Select one of the children `[B, 16]` of each node, `[B]`."""
    numbers = np.arange(_WIDTH, dtype=np.int32)
    picked = tf.where(numbers == tf.expand_dims(child, 1), children, 0)
    return tf.reduce_sum(picked, 1)


def _descend(children: tf.Tensor, rest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Find the child `[B]` in which `rest` of the sum lies, and the sum before it.

    The child always has a positive priority: if rounding leaves nothing beyond `rest`,
    it is the last child with a priority.
    """
    numbers = np.arange(_WIDTH, dtype=np.int32)
    sums = tf.matmul(children, np.triu(np.ones([_WIDTH, _WIDTH])))  # Fast cumsum.
    rank = tf.where(sums > tf.expand_dims(rest, 1), 2 * _WIDTH - numbers, numbers + 1)
    child = tf.argmax(tf.where(children > 0, rank, 0), 1, tf.int32)
    return child, _pick(sums - children, child)
