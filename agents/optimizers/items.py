"""Selection of items for optimizer steps, in random order."""

from typing import Any

import tensorflow as tf


def fold(functions: dict[str, Any], data: Any) -> dict[str, Any]:
    """Fold an integer into the seed of the functions."""
    if "seed" not in functions:
        return functions
    seed = tf.random.experimental.stateless_fold_in(
        functions["seed"], data, alg="philox"
    )
    return {**functions, "seed": seed}


def order(seed: tf.Tensor, count: Any, first: tf.Tensor | None = None) -> tf.Tensor:
    """Return a pseudorandom permutation of `count` indices, equal with and without XLA.

    Indices where `first` is true, bool `[count]`, precede the others.

    Random permutations of the numbers with as many bits are applied until all results
    are below `count` (Black and Rogaway, 2002, "Ciphers with arbitrary finite domains",
    section 3). XLA would take many times as long to sort random keys.
    """
    size = tf.cast(count, tf.uint32)
    keys = tf.random.stateless_uniform(
        [ROUNDS, 2], seed, None, None, tf.uint32, alg="philox"
    )
    index = tf.cast(tf.range(count), tf.uint32)

    def again(x, outside):
        x = tf.where(outside, _permuted(x, size, keys), x)
        return x, x >= size

    result, _ = tf.while_loop(
        lambda _, outside: tf.reduce_any(outside), again, (index, index < size)
    )
    result = tf.cast(result, tf.int32)
    return result if first is None else _partitioned(result, tf.gather(first, result))


ROUNDS = 6
"""Rounds of permutations; with fewer than four, indices are visibly related."""


def _permuted(x: tf.Tensor, size: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Permute numbers of as many bits as those below `size` have, all uint32.

    Multiplication by an odd number, addition, and an exclusive or with the upper bits
    can all be undone.
    """
    powers = tf.constant([2**n for n in range(31)], tf.uint32)
    bits = tf.reduce_sum(tf.cast(size > powers, tf.uint32))
    ones = tf.bitwise.left_shift(tf.ones_like(bits), bits) - 1
    for factor, offset in map(tf.unstack, tf.unstack(keys)):
        x = tf.bitwise.bitwise_and(x * (2 * factor + 1) + offset, ones)
        x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, (bits + 1) // 2))
    return x


def _partitioned(values: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Put the values `[N]` where `first` is true, bool `[N]`, before the others."""
    before = tf.cumsum(tf.cast(first, tf.int32))  # Including itself.
    index = tf.range(tf.size(values))
    place = tf.where(first, before - 1, before[-1] + index - before)
    return tf.scatter_nd(tf.expand_dims(place, 1), values, tf.shape(values))


def size_of(items: Any) -> Any:
    """Return the number of items, an integer if it is static."""
    first = tf.nest.flatten(items)[0]
    return first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]


def take(items: Any, indices: tf.Tensor) -> Any:
    """Select items by their indices."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices), items)
