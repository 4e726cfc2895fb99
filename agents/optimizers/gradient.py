"""Gradient descent by any Keras optimizer."""

from collections.abc import Callable

import keras
import tensorflow as tf


class Gradient(tf.Module):
    """Steps down the gradient of a loss, optionally clipped by its global norm.

    The loss is a function, so the optimizer decides where it is evaluated. Slots are
    created at construction, before anything is traced or restored.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: list[tf.Variable],
        clip_norm: float | None = None,
    ) -> None:
        super().__init__()
        self.optimizer = optimizer
        self.optimizer.build(variables)
        self._variables = variables
        self._clip_norm = clip_norm

    def set_learning_rate(self, value: tf.Tensor) -> None:
        """Use this learning rate from now on."""
        self.optimizer.learning_rate.assign(tf.cast(value, tf.float32))

    def step(self, loss_fn: Callable[[], tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Evaluate the loss once and step; returns it and the gradient's norm."""
        with tf.GradientTape() as tape:
            loss = loss_fn()
        gradients = tape.gradient(loss, [v.value for v in self._variables])
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, norm)
        self.optimizer.apply_gradients(zip(gradients, self._variables, strict=True))
        return loss, norm
