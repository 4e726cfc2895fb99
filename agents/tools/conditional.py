"""Conditional side effects that cost little when they do not happen."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


def when(
    predicate: tf.Tensor,
    function: Callable[..., Any],
    *args: tf.Tensor,
    otherwise: Callable[..., Any] | None = None,
) -> Any:
    """Call a function if the predicate is true, for side effects or a tensor.

    `tf.cond` becomes one switch per variable of the branch, and all of them run at
    every step, which takes 0.2 ms for a training update. Here it stays one operation
    that calls the branch as a function. One operation only takes variables of one
    device, so with several devices it becomes a loop.

    Args:
      predicate: Scalar bool.
      function: Traced once; may use any variable, but symbolic tensors only as
        arguments.
      *args: Arguments of the functions.
      otherwise: Called if the predicate is false. With it, both functions return one
        tensor of the same shape and dtype, which is returned; else None is.
    """
    if tf.executing_eagerly():
        chosen = function if predicate else otherwise
        return chosen(*args) if chosen else None
    if in_program() or len(tf.config.list_logical_devices()) > 1:
        return _at_most_once(predicate, function, args, otherwise)

    def branch(*args):
        result = function(*args)
        return result if otherwise else None

    def other(*args):
        return otherwise(*args[: len(args) - captured]) if otherwise else None

    captured = 0
    chosen = _trace(branch, args)
    captured = len(chosen.captured_inputs)
    inputs = [*args, *chosen.captured_inputs]
    other = _trace(other, inputs)
    predicate = tf.identity(predicate)  # In the current graph.
    chosen.add_to_graph(predicate.graph)
    other.add_to_graph(predicate.graph)
    results = tf.raw_ops.If(
        cond=predicate,
        input=inputs,
        Tout=[x.dtype for x in chosen.outputs],
        then_branch=chosen,
        else_branch=other,
    )
    if not otherwise:
        return None
    return tf.ensure_shape(results[0], chosen.outputs[0].shape)


def for_rows(
    function: Callable[[tf.Tensor], None], rows: tf.Tensor, selected: tf.Tensor
) -> None:
    """Call a function with the selected rows, if there are any."""

    def call(rows, selected):
        function(tf.boolean_mask(rows, selected))

    when(tf.reduce_any(selected), call, rows, selected)


@contextlib.contextmanager
def program() -> Iterator[None]:
    """Mark operations traced here as part of a program that XLA compiles.

    In such programs, a conditional copies all variables that it may change, taken or
    not; a loop that runs at most once changes them in place.
    """
    token = _in_program.set(True)
    try:
        yield
    finally:
        _in_program.reset(token)


def in_program() -> bool:
    """Return whether the current trace is part of such a program."""
    return _in_program.get()


_in_program = contextvars.ContextVar("_in_program", default=False)


def _at_most_once(predicate, function, args, otherwise) -> Any:
    """Implement `when` as a loop."""

    def body(_, *previous):
        result = function(*args)
        return (tf.constant(False), *([result] if previous else []))

    initial = [otherwise(*args)] if otherwise else []
    _, *results = tf.while_loop(lambda again, *_: again, body, (predicate, *initial))
    return results[0] if results else None


def _trace(function: Callable, inputs: Any) -> Any:
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    return tf.function(function, autograph=False).get_concrete_function(*specs)
