"""Gradient descent by any Keras optimizer."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

Metrics = dict[str, tf.Tensor]


class Gradient(tf.Module):
    """Steps down the gradient of a loss, optionally clipped by its global norm.

    The loss is a function of items, so the optimizer decides where it is evaluated.
    Slots are created at construction, before anything is traced or restored.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: list[tf.Variable],
        clip_norm: float | None = None,
        block: int | None = None,
    ) -> None:
        """Prepare to move some variables.

        Args:
          optimizer: What to do with gradients.
          variables: Keras variables.
          clip_norm: Largest global norm of the gradients.
          block: Evaluate the loss on so many items at a time and add up. The loss is
            then the mean of those of the blocks, weighted by their valid steps. Saves
            memory, and time since activations stay in the cache of the processor.
        """
        super().__init__()
        self.optimizer = optimizer
        self.optimizer.build(variables)
        self._variables = variables
        self._clip_norm = clip_norm
        self._block = block

    def set_learning_rate(self, value: tf.Tensor) -> None:
        """Use this learning rate from now on."""
        self.optimizer.learning_rate.assign(tf.cast(value, tf.float32))

    def step(
        self, loss_fn: Callable[[Any], tuple[tf.Tensor, Metrics]], items: Any
    ) -> tuple[Metrics, tf.Tensor]:
        """Step down the loss on items.

        Args:
          loss_fn: Maps items to the mean loss over their valid steps, and metrics.
          items: Dict of tensors `[M, ...]`, where `mask` marks valid steps.

        Returns:
          Metrics of the loss, and global norm of the gradients before clipping.
        """
        if self._block is None:
            gradients, metrics = self._gradients(loss_fn, items)
        else:
            gradients, metrics = self._accumulate(loss_fn, items)
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, norm)
        self.optimizer.apply_gradients(zip(gradients, self._variables, strict=True))
        return metrics, norm

    def _gradients(self, loss_fn, items) -> tuple[list[tf.Tensor], Metrics]:
        variables = [variable.value for variable in self._variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss, metrics = loss_fn(items)
        return tape.gradient(loss, variables), metrics

    def _accumulate(self, loss_fn, items) -> tuple[list[tf.Tensor], Metrics]:
        """Gradients and metrics as means over blocks, each compiled by XLA.

        The last block is filled up with invalid steps, so that shapes are static.
        """
        size = self._block
        total = tf.maximum(tf.reduce_sum(items["mask"]), 1.0)
        count = -(-tf.shape(items["mask"])[0] // size)
        missing = count * size - tf.shape(items["mask"])[0]

        def blocks(x):
            padded = tf.pad(x, [[0, missing], *[[0, 0]] * (x.shape.rank - 1)])
            return tf.reshape(padded, [count, size, *x.shape[1:]])

        items = tf.nest.map_structure(blocks, items)
        gradients = tf.function(
            lambda block: self._gradients(loss_fn, block),
            autograph=False,
            jit_compile=True,
        )

        def evaluate(index):
            block = tf.nest.map_structure(lambda x: x[index], items)
            share = tf.reduce_sum(block["mask"]) / total
            return tf.nest.map_structure(lambda x: share * x, gradients(block))

        def add(index, previous):
            new = evaluate(index)
            return index + 1, tf.nest.map_structure(tf.add, previous, new)

        _, result = tf.while_loop(
            lambda index, _: index < count, add, (1, evaluate(0)), parallel_iterations=1
        )
        return result
