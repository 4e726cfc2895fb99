"""Gradient descent by any Keras optimizer."""

import functools
import inspect
import logging
import typing
from typing import Any

import keras
import tensorflow as tf

from agents.optimizers import adam, replicas, rmsprop
from agents.optimizers import items as items_
from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds, config, placement, schedules

OPTIMIZERS = {
    name.lower(): value
    for name, value in vars(keras.optimizers).items()
    if inspect.isclass(value)
    and issubclass(value, keras.optimizers.Optimizer)
    and value is not keras.optimizers.Optimizer
    and "learning_rate" in inspect.signature(value).parameters
} | {"adam": adam.Adam, "rmsprop": rmsprop.RMSprop}
"""Keras optimizers by lower-case name, without wrappers, which have no rate."""


class Gradient(optimizer_.Optimizer):
    """Optimizer along the gradient of a loss, optionally clipped by global norm."""

    metric_names = ("gradient_norm", "learning_rate")
    KERAS = OPTIMIZERS

    @classmethod
    def options(cls, kind: str) -> dict[str, Any]:
        """Return the types of options for a Keras optimizer, by name.

        Types of Keras options come from their defaults.
        """
        left_out = ("kwargs", "learning_rate", "name", "clipnorm")
        bases = [x for x in OPTIMIZERS[kind].__mro__ if "__init__" in vars(x)]
        defaults = {
            name: parameter.default
            for cls in bases[1::-1]  # Ours adds options to those of Keras.
            for name, parameter in inspect.signature(cls).parameters.items()
            if name not in left_out and parameter.default is not inspect.Parameter.empty
        }
        hints = {
            name: int | float | None if default is None else type(default)
            for name, default in defaults.items()
        }
        hints |= typing.get_type_hints(cls.__init__)
        del hints["optimizer"]
        return hints

    def __init__(
        self,
        optimizer: str | keras.optimizers.Optimizer = "adam",
        learning_rate: schedules.Scalar = 1e-3,
        clip_norm: schedules.Scalar | None = None,
        block: int | None = None,
        **options: Any,
    ) -> None:
        """Configure the treatment of gradients.

        Args:
          optimizer: Name of a Keras optimizer, or an instance.
          learning_rate: Number or schedule.
          clip_norm: Largest global norm of the gradients; none for no limit.
          block: Number of items to evaluate the loss on at a time, adding up. The loss
            is then the mean over blocks, weighted by their valid steps according to
            `items["mask"]`. Saves memory, and time because activations stay in the
            cache of the processor.
          **options: Options of the Keras optimizer.
        """
        super().__init__()
        bounds.require_options(bounds.NOT_NEGATIVE, learning_rate=learning_rate)
        bounds.require_options(bounds.POSITIVE, clip_norm=clip_norm, block=block)
        if isinstance(optimizer, str):
            name = optimizer.lower()
            if name not in OPTIMIZERS:
                hint = config.did_you_mean(name, OPTIMIZERS)
                raise ValueError(f"optimizer {optimizer!r} is unknown; {hint}")
            optimizer = functools.partial(OPTIMIZERS[name], **options)
        self._made = not callable(optimizer)
        self._create = (lambda: optimizer) if self._made else optimizer
        self._learning_rate = learning_rate
        self._clip_norm = schedules.Held(clip_norm)
        moving = (isinstance(x, schedules.Schedule) for x in (learning_rate, clip_norm))
        self._waiting = any(moving)  # For the first call of `schedule`.
        self._block = block
        if block is not None:
            self.needs = self.needs | {"mask"}

    def build(self, variables: list[keras.Variable]) -> None:
        copies = replicas.count(variables)
        if self._made and copies > 1:
            raise ValueError(
                "an optimizer that was made before cannot move replicas; give its name, "
                "or a function that makes it."
            )
        with replicas.scope(variables), placement.unnamed():
            self.optimizer = self._create()
            self.optimizer.build(variables)
        # Keras would sum gradients that are equal in all replicas, by a gradient
        # function that TensorFlow keeps forever, with its graph.
        self.optimizer._all_reduce_sum_gradients = lambda pairs: pairs
        self._set(schedules.Elapsed(0, 0))

    def schedule(self, time: Any) -> None:
        self._waiting = False
        self._set(time)

    def _set(self, time: Any) -> None:
        self._clip_norm.update(time)
        rate = schedules.value(self._learning_rate, time)
        self.optimizer.learning_rate.assign(tf.cast(rate, tf.float32))

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items = functions.get("items")
        if self._block is None:
            gradients, _, metrics = replicas.gradient(loss_fn, variables, items)
        else:
            gradients, metrics = self._accumulate(loss_fn, variables, items)
        return {**metrics, **self.apply(gradients, variables)}

    def apply(self, gradients, variables) -> optimizer_.Metrics:
        """Move the variables by given gradients; return `metric_names` only."""
        if self._waiting:
            self._waiting = False
            logging.getLogger(__name__).warning(
                "a schedule of an optimizer stands still; call optimizer.schedule(steps) "
                "with the environment steps before each step"
            )
        norm = tf.linalg.global_norm(gradients)
        limit = self._clip_norm.value
        if limit is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, limit, norm)
        pairs = list(zip(gradients, variables, strict=True))
        replicas.run(lambda: self.optimizer.apply_gradients(pairs), variables)
        rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        return {"gradient_norm": norm, "learning_rate": rate}

    def _accumulate(
        self, loss_fn, variables, items
    ) -> tuple[list[tf.Tensor], optimizer_.Metrics]:
        """Compute mean gradients and metrics over blocks, each compiled by XLA.

        Items repeat, without weight, until the last block is full, so that shapes are
        static, and further such blocks give all replicas the same number. Statistics of
        batches, which weights do not reach, are those of real items.
        """
        size, copies = self._block, replicas.count(variables)
        real = items_.size_of(items)
        count = -(-real // (size * copies)) * copies
        index = tf.range(count * size)
        items = items_.take(items, index % real)
        weight = tf.cast(index < real, tf.float32)
        items["mask"] *= tf.reshape(weight, [-1, *[1] * (items["mask"].shape.rank - 1)])
        return replicas.mean(
            lambda items: self._sum(loss_fn, variables, items),
            variables,
            tf.nest.map_structure(
                lambda x: tf.reshape(x, [count, size, *x.shape[1:]]), items
            ),
        )

    @staticmethod
    def _sum(loss_fn, variables, blocks) -> tuple[list[tf.Tensor], optimizer_.Metrics]:
        """Compute the means over blocks `[count, size, ...]`, one after the other."""
        total = tf.maximum(tf.reduce_sum(blocks["mask"]), 1.0)
        count = tf.shape(blocks["mask"])[0]

        @tf.function(autograph=False, jit_compile=True)
        def gradients(block):
            gradients, _, metrics = replicas.gradient(loss_fn, variables, block)
            return gradients, metrics

        def evaluate(index):
            block = tf.nest.map_structure(lambda x: x[index], blocks)
            share = tf.reduce_sum(block["mask"]) / total
            # XLA compiles for the device of the call, which must hold the variables.
            with tf.device(variables[0].value.device):
                result = gradients(block)
            return tf.nest.map_structure(lambda x: share * x, result)

        def add(index, previous):
            new = evaluate(index)
            return index + 1, tf.nest.map_structure(tf.add, previous, new)

        _, result = tf.while_loop(
            lambda index, _: index < count, add, (1, evaluate(0)), parallel_iterations=1
        )
        return result
