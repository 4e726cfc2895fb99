"""Functions of batches on several devices, each of which takes a part."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def mean(
    function: Callable[[Any], Any], variables: list[keras.Variable], items: Any
) -> Any:
    """Mean of a function over parts of the items, one per copy of the variables.

    If the function is a mean over items `[M, ...]`, or the gradient of one, the result
    is that of all items: parts may differ in size, and are weighted by their valid
    steps, which `items["mask"]` tells, if there is one. Without items, all are equal.

    Args:
      function: Maps items to a structure of floating point tensors.
      variables: Used by the function; of one device, or made in the scope of a
        `tf.distribute.MirroredStrategy`.
      items: Structure of tensors `[M, ...]`, or none.
    """
    strategy = _strategy(variables)
    if strategy is None:
        return function(items)
    total = _valid(items)

    def replica():
        context = tf.distribute.get_replica_context()
        number, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
        part, share = items, 1.0 / count
        if items is not None:
            part = tf.nest.map_structure(lambda x: _part(x, number, count), items)
            share = tf.math.divide_no_nan(_valid(part), total)

        def weigh(x):  # The mean over nothing is no number.
            return tf.math.multiply_no_nan(x, tf.cast(share, x.dtype))

        return tf.nest.map_structure(weigh, function(part))

    # All-reduce would be a collective operation, which waits for all and fails for good.
    return tf.nest.map_structure(
        lambda x: tf.add_n(strategy.experimental_local_results(x)),
        strategy.run(replica),
    )


def run(function: Callable[[], Any], variables: list[keras.Variable]) -> None:
    """Call a function that changes variables, once for each of their copies."""
    strategy = _strategy(variables)
    function() if strategy is None else strategy.run(function)


def scope(variables: list[keras.Variable]) -> Any:
    """Context in which new variables have as many copies."""
    strategy = _strategy(variables)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def count(variables: list[keras.Variable]) -> int:
    """Number of copies of the variables."""
    strategy = _strategy(variables)
    return 1 if strategy is None else strategy.num_replicas_in_sync


def _strategy(variables: list[keras.Variable]) -> tf.distribute.Strategy | None:
    """What the variables were made under; none for one device, and within a replica."""
    if not variables:
        return None
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        return None
    return getattr(variables[0].value, "distribute_strategy", None)


def _part(x: tf.Tensor, number: int, count: int) -> tf.Tensor:
    size = x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
    return x[size * number // count : size * (number + 1) // count]


def _valid(items: Any) -> tf.Tensor:
    """Number of valid steps, or of items, float."""
    if items is None:
        return tf.constant(1.0)
    if isinstance(items, dict) and "mask" in items:
        return tf.reduce_sum(items["mask"])
    return tf.cast(tf.shape(tf.nest.flatten(items)[0])[0], tf.float32)
