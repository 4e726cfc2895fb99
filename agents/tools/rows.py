"""Rows of batches: variables that are read and written by them, steps as rows."""

from typing import Any

import tensorflow as tf


def variables(structure: Any) -> Any:
    """Variables that begin as the tensors `[N, ...]` of a structure."""
    return tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), structure)


def gather(variables: Any, rows: tf.Tensor) -> Any:
    """Values `[K, ...]` of rows, int32 `[K]`."""
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), variables)


def write(variables: Any, rows: tf.Tensor, values: Any) -> None:
    """Assign values `[K, ...]` to rows; the others keep theirs."""
    tf.nest.map_structure(
        lambda x, value: x.scatter_nd_update(rows[:, None], value), variables, values
    )


def merge_time(structure: Any) -> Any:
    """Tensors `[B * T, ...]` of tensors `[B, T, ...]`."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), structure)
