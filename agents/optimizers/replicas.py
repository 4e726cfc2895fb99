"""Functions of batches on several devices, each of which handles a part."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def mean(
    function: Callable[[Any], Any], variables: list[keras.Variable], items: Any
) -> Any:
    """Compute a function on parts of the items, one per copy, and return the mean.

    For a function that is a mean over items `[M, ...]`, or the gradient of one, the
    result is that over all items: parts may differ in size, and are weighted by their
    valid steps in `items["mask"]`, if that exists. Without items, weights are equal.

    Args:
      function: Maps items to a structure of floating point tensors.
      variables: Variables of the function, on one device, or from the scope of a
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

        def weigh(x):  # The mean over nothing is NaN.
            return tf.math.multiply_no_nan(x, tf.cast(share, x.dtype))

        return tf.nest.map_structure(weigh, function(part))

    # A collective all-reduce would wait for all devices, and fail for good.
    return tf.nest.map_structure(
        lambda x: tf.add_n(strategy.experimental_local_results(x)),
        strategy.run(replica),
    )


def run(function: Callable[[], Any], variables: list[keras.Variable]) -> None:
    """Call a function that changes variables, once for each copy of them."""
    strategy = _strategy(variables)
    function() if strategy is None else strategy.run(function)


def gradient(
    loss_fn: Callable, variables: list[keras.Variable], items: Any
) -> tuple[list[tf.Tensor], tf.Tensor, dict[str, tf.Tensor]]:
    """Compute the gradients of the loss on items, the loss, and its metrics.

    If variables have copies on several devices, each copy handles a part of the items,
    and the results are means over all items.
    """

    def function(items):
        values = [variable.value for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(values)
            loss, metrics = loss_fn(items)
        gradients = tape.gradient(loss, values, unconnected_gradients="zero")
        # Those of embeddings list repeated rows, which norms and Keras mistake.
        return [tf.convert_to_tensor(x) for x in gradients], loss, metrics

    return mean(function, variables, items)


def scope(variables: list[keras.Variable]) -> Any:
    """Return a context in which new variables get the same number of copies."""
    strategy = _strategy(variables)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def count(variables: list[keras.Variable]) -> int:
    """Return the number of copies of the variables."""
    strategy = _strategy(variables)
    return 1 if strategy is None else strategy.num_replicas_in_sync


def _strategy(variables: list[keras.Variable]) -> tf.distribute.Strategy | None:
    """Return the strategy of the variables; None on one device or inside a replica."""
    if not variables:
        return None
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        return None
    return getattr(variables[0].value, "distribute_strategy", None)


def _part(x: tf.Tensor, number: int, count: int) -> tf.Tensor:
    size = x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
    return x[size * number // count : size * (number + 1) // count]


def _valid(items: Any) -> tf.Tensor:
    """Return the number of valid steps, or of items, as float."""
    if items is None:
        return tf.constant(1.0)
    if isinstance(items, dict) and "mask" in items:
        return tf.reduce_sum(items["mask"])
    return tf.cast(tf.shape(tf.nest.flatten(items)[0])[0], tf.float32)
