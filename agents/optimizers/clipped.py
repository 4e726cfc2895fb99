"""Optimizers with steps of limited length."""

import tensorflow as tf

from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds


class Clipped(optimizer_.Wrapper):
    """Optimizer that shortens the steps of another one to a largest global norm."""

    def __init__(self, optimizer: optimizer_.Optimizer, max_norm: float = 1.0) -> None:
        """Set the largest norm of the change of all variables together."""
        super().__init__(optimizer)
        self.metric_names = (*self.metric_names, "step_norm")
        bounds.require_options(bounds.POSITIVE, max_norm=max_norm)
        self._max_norm = max_norm

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        before = [tf.identity(variable.value) for variable in variables]
        metrics = self.optimizer.step(loss_fn, variables, **functions)
        changes = [
            variable.value - old
            for variable, old in zip(variables, before, strict=True)
        ]
        norm = tf.linalg.global_norm(changes)
        factor = tf.minimum(1.0, self._max_norm / tf.maximum(norm, 1e-12))
        for variable, old, change in zip(variables, before, changes, strict=True):
            shorter = old + factor * change
            variable.assign(tf.where(norm > self._max_norm, shorter, variable.value))
        return {**metrics, "step_norm": norm}
