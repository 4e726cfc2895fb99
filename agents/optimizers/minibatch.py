"""Several epochs of steps on random minibatches."""

import tensorflow as tf

from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds


class Minibatch(optimizer_.Wrapper):
    """Steps on every item once per epoch, in a new order each time."""

    def __init__(
        self,
        optimizer: optimizer_.Optimizer,
        epochs: int = 1,
        size: int | None = None,
    ) -> None:
        """Choose how often.

        Args:
          optimizer: Makes the steps.
          epochs: Times that every item is used.
          size: Items per step (the last step of an epoch takes what remains), or none
            for all at once.
        """
        super().__init__(optimizer)
        self.needs = self.needs | {"items", "seed"}
        bounds.require_options(bounds.POSITIVE, epochs=epochs, size=size)
        self._epochs, self._size = epochs, size

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items = functions["items"]
        count, size = optimizer_.size_of(items), self._size
        static = isinstance(count, int)
        if static and size is not None:
            size = min(size, count)
        steps = 1 if size is None else -(-count // size)

        def step(chosen, functions):
            return self.optimizer.step(
                loss_fn, variables, **{**functions, "items": chosen}
            )

        def epoch(index):
            inner = optimizer_.fold(functions, index)
            if size is None:
                return step(items, inner)
            order = optimizer_.order(functions["seed"] + index, count)

            def some(number, length):
                indices = tf.slice(order, [number * size], [length])
                chosen = optimizer_.take(items, indices)
                return step(chosen, optimizer_.fold(inner, number))

            if not static:
                return optimizer_.repeat(
                    steps, lambda i: some(i, tf.minimum(size, count - i * size))
                )
            whole, rest = divmod(count, size)
            metrics = optimizer_.repeat(whole, lambda i: some(i, size))
            if not rest:
                return metrics
            last = some(whole, rest)
            return tf.nest.map_structure(tf.add, metrics, last)

        total = optimizer_.repeat(self._epochs, epoch)
        return optimizer_.scale(total, 1.0 / tf.cast(self._epochs * steps, tf.float32))
