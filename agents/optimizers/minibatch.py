"""Several epochs of steps on random minibatches."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from agents.optimizers import items as items_
from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds


class Minibatch(optimizer_.Wrapper):
    """Optimizer that steps on every item once per epoch, in a new order each time.

    Items with a `mask` of zeros are padding. No step uses them if shapes are static;
    otherwise they count as items without weight.
    """

    def __init__(
        self,
        optimizer: optimizer_.Optimizer,
        epochs: int = 1,
        size: int | None = None,
    ) -> None:
        """Configure epochs and minibatches.

        Args:
          optimizer: Optimizer that takes the steps.
          epochs: Number of times that every item is used.
          size: Items per step (the last step of an epoch takes the rest), or none for
            all at once.
        """
        super().__init__(optimizer)
        self.needs = self.needs | {"items", "seed"}
        bounds.require_options(bounds.POSITIVE, epochs=epochs, size=size)
        self._epochs, self._size = epochs, size

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items = functions["items"]
        count, size = items_.size_of(items), self._size
        if isinstance(count, int) and size is not None:
            size = min(size, count)
        valid = _valid(items)
        used = count if valid is None else tf.reduce_sum(tf.cast(valid, tf.int32))
        steps = 1 if size is None else -(-used // size)

        def step(chosen, functions):
            return self.optimizer.step(
                loss_fn, variables, **{**functions, "items": chosen}
            )

        def epoch(index):
            inner = items_.fold(functions, index)
            if size is None:
                return step(items, inner)
            order = items_.order(functions["seed"] + index, count, valid)
            if valid is not None:  # Pad the last step with ignored items.
                order = tf.pad(order, [[0, -count % size]])

            def some(number, length):
                indices = tf.slice(order, [number * size], [length])
                chosen = items_.take(items, indices)
                if valid is not None:
                    inside = tf.range(length) < used - number * size
                    chosen["mask"] = _where(inside, chosen["mask"])
                return step(chosen, items_.fold(inner, number))

            if valid is not None:
                return optimizer_.repeat(steps, lambda i: some(i, size))
            return _all(some, count, size)

        total = optimizer_.repeat(self._epochs, epoch)
        return optimizer_.scale(
            total, 1.0 / tf.cast(self._epochs * tf.maximum(steps, 1), tf.float32)
        )


def _all(some: Callable, count: Any, size: int) -> optimizer_.Metrics:
    """Sum the metrics of `some(number, length)` over all items."""
    if not isinstance(count, int):
        return optimizer_.repeat(
            -(-count // size), lambda i: some(i, tf.minimum(size, count - i * size))
        )
    whole, rest = divmod(count, size)
    metrics = optimizer_.repeat(whole, lambda i: some(i, size))
    if not rest:
        return metrics
    return tf.nest.map_structure(tf.add, metrics, some(whole, rest))


def _valid(items: Any) -> tf.Tensor | None:
    """Return the mask of items without padding, bool `[M]`, if shapes are static."""
    static = isinstance(items_.size_of(items), int)
    if not (static and isinstance(items, dict) and "mask" in items):
        return None
    mask = items["mask"]
    return tf.reduce_any(tf.reshape(mask, [mask.shape[0], -1]) > 0, 1)


def _where(rows: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Set a mask `[M, ...]` to zero outside of rows, bool `[M]`."""
    rows = tf.reshape(rows, [-1, *[1] * (mask.shape.rank - 1)])
    return tf.where(rows, mask, tf.zeros_like(mask))
