"""Training mode of layers: dropout, batch statistics, regularization."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Enable training mode: dropout, and updates of batch statistics."""
    token = _training.set(True)
    try:
        yield
    finally:
        _training.reset(token)


def in_training() -> bool:
    """Return whether layers are applied in training mode."""
    return _training.get()


_training = contextvars.ContextVar("_training", default=False)


def convolutional(network: keras.layers.Layer) -> bool:
    """Return whether there are convolutions, which XLA computes slowly on CPUs."""
    return any(len(x.shape) == 4 for x in network.trainable_variables)


def learning(loss: Callable, network: keras.layers.Layer) -> Callable:
    """Make a loss run in training mode and add penalties of regularized layers."""

    def penalized(*args: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        network._clear_losses()  # Those on activities of earlier calls.
        with training():
            value, metrics = loss(*args)
        return value + sum(network.losses), metrics

    return penalized
