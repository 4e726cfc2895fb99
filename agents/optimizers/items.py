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
    """Return a random permutation of `count` indices, equal with and without XLA.

    Indices where `first` is true, bool `[count]`, precede the others.
    """
    keys = tf.random.stateless_uniform(  # Floats would differ.
        [count], seed, None, None, tf.int32, alg="philox"
    )
    if first is not None:
        keys = tf.where(first, keys, tf.int32.max)
    return tf.argsort(keys, stable=True)


def size_of(items: Any) -> Any:
    """Return the number of items, an integer if it is static."""
    first = tf.nest.flatten(items)[0]
    return first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]


def take(items: Any, indices: tf.Tensor) -> Any:
    """Select items by their indices."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices), items)
