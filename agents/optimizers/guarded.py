"""Optimizers that undo steps with results that are not finite."""

from typing import Any

import keras
import tensorflow as tf

from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds


class Guarded(optimizer_.Wrapper):
    """Optimizer that undoes steps of another one if a result is not finite.

    The results are metrics, variables, and the divergence if `kl` is given. Undoing
    restores the variables, the state of the optimizer and the variables in `state` that
    the loss changes. Metrics of an undone step are zero, except `failed_updates`, which
    is one. If too many steps fail in a row, the last one is left for the caller to see.
    """

    def __init__(self, optimizer: optimizer_.Optimizer, max_failures: int = 1) -> None:
        """Set the number of steps in a row that may fail; zero undoes none."""
        super().__init__(optimizer)
        bounds.require_options(bounds.NOT_NEGATIVE, max_failures=max_failures)
        self._max_failures = max_failures
        if max_failures:
            self.metric_names = (*self.metric_names, "failed_updates")

    def build(self, variables: Any) -> None:
        super().build(variables)
        self._failures = tf.Variable(0, trainable=False)

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        if not self._max_failures:
            return self.optimizer.step(loss_fn, variables, **functions)
        changing = self._changing(variables, functions)
        before = [tf.identity(tf.convert_to_tensor(x)) for x in changing]
        metrics = self.optimizer.step(loss_fn, variables, **functions)
        numbers = [*metrics.values(), *(x.value for x in tf.nest.flatten(variables))]
        if "kl" in functions:
            numbers.append(functions["kl"](functions.get("items")))
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(x)) for x in numbers])
        self._failures.assign(tf.where(finite, 0, self._failures + 1))
        left = finite | (self._failures > self._max_failures)
        for variable, old in zip(changing, before, strict=True):
            variable.assign(tf.where(left, tf.convert_to_tensor(variable), old))
        metrics = {k: tf.where(left, x, tf.zeros_like(x)) for k, x in metrics.items()}
        return {**metrics, "failed_updates": tf.where(finite, 0.0, 1.0)}

    def _changing(self, variables: Any, functions: dict[str, Any]) -> list:
        """Return all variables that a step may change."""
        state = tf.train.TrackableView(self.optimizer).descendants()
        state = [x for x in state if isinstance(x, tf.Variable | keras.Variable)]
        return [*tf.nest.flatten(variables), *functions.get("state", ()), *state]
