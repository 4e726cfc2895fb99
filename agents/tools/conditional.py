"""Conditional side effects whose cost, when they do not happen, is small."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def when(predicate: tf.Tensor, function: Callable[..., Any], *args: tf.Tensor) -> None:
    """Call a function for its side effects if the predicate is true.

    `tf.cond` becomes one switch for every variable that the branch touches, which all
    run at every step: for a training update 0.2 ms. Here it stays one operation that
    calls the branch as a function.

    Args:
      predicate: Scalar bool.
      function: Traced once; may use any variable, but symbolic tensors only if they
        are among the arguments. What it returns is ignored.
      *args: Arguments of the function.
    """
    if tf.executing_eagerly():
        if predicate:
            function(*args)
        return

    def branch(*args):
        function(*args)

    def nothing(*args):
        pass

    chosen = _trace(branch, args)
    inputs = [*args, *chosen.captured_inputs]
    other = _trace(nothing, inputs)
    predicate = tf.identity(predicate)  # Belongs to the current graph.
    chosen.add_to_graph(predicate.graph)
    other.add_to_graph(predicate.graph)
    tf.raw_ops.If(
        cond=predicate, input=inputs, Tout=[], then_branch=chosen, else_branch=other
    )


def _trace(function: Callable, inputs: Any) -> Any:
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    return tf.function(function, autograph=False).get_concrete_function(*specs)
