"""Rows of batches: reading and writing variables by row, and shifts in time."""

from typing import Any

import numpy as np
import tensorflow as tf


def variables(structure: Any) -> Any:
    """Create variables with the tensors `[N, ...]` of a structure as initial values."""
    return tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), structure)


def gather(variables: Any, rows: tf.Tensor) -> Any:
    """Read values `[K, ...]` of rows, int32 `[K]`."""

    def read(variable):
        if _are_all(rows, variable):
            return variable.read_value()
        return tf.gather(variable, rows)

    return tf.nest.map_structure(read, variables)


def write(variables: Any, rows: tf.Tensor, values: Any) -> None:
    """Assign values `[K, ...]` to rows; the others keep theirs."""

    def assign(variable, value):
        if _are_all(rows, variable):
            variable.assign(value)
        else:
            variable.scatter_update(tf.IndexedSlices(value, rows))

    tf.nest.map_structure(assign, variables, values)


def _are_all(rows: tf.Tensor, variable: tf.Variable) -> bool:
    """Return whether these are all rows in order, as far as a trace knows."""
    known = tf.get_static_value(rows)
    return known is not None and np.array_equal(known, np.arange(variable.shape[0]))


def choose(mask: tf.Tensor, one: Any, other: Any) -> Any:
    """Select rows `[K, ...]` of `one` where the mask `[K]` is true, else of `other`."""

    def leaf(x, y):
        return tf.where(tf.reshape(mask, [-1, *[1] * (x.shape.rank - 1)]), x, y)

    return tf.nest.map_structure(leaf, one, other)


def swap_time(structure: Any) -> Any:
    """Swap batch and time, from tensors `[B, T, ...]` to `[T, B, ...]` or back."""
    return tf.nest.map_structure(
        lambda x: tf.transpose(x, [1, 0, *range(2, x.shape.rank)]), structure
    )


def before(value: tf.Tensor, start: Any) -> tf.Tensor:
    """Shift values `[B, T, ...]` by one step in time, filling with `start`."""
    first = tf.fill(tf.shape(value[:, :1]), tf.cast(start, value.dtype))
    return tf.concat([first, value[:, :-1]], 1)


def last(mask: tf.Tensor) -> tf.Tensor:
    """Mark the last valid step of each row, bool `[B, T]`; the first ones are valid."""
    following = tf.concat([mask[:, 1:], tf.zeros_like(mask[:, :1])], 1)
    return mask & ~following


def merge_time(structure: Any) -> Any:
    """Merge batch and time, from tensors `[B, T, ...]` to `[B * T, ...]`."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), structure)
