"""Optimizers that copy variables."""

from typing import Any

import tensorflow as tf

from agents.optimizers import optimizer as optimizer_
from agents.tools import schedules


class Synchronization(optimizer_.Optimizer):
    """Optimizer that moves variables towards those of a source, for target networks.

    At every `period`-th step, the new value is tau source + (1 - tau) old; Mnih et al.
    (2015) use tau = 1 with a long period, Lillicrap et al. (2016) a small tau at every
    step. The loss is ignored.
    """

    needs = frozenset({"source"})

    def __init__(self, period: int = 1, tau: schedules.Scalar = 1.0) -> None:
        """Set the period and the fraction of the way."""
        super().__init__()
        if period < 1 or not all(0 < x <= 1 for x in schedules.ends(tau)):
            raise ValueError(
                f"period must be positive and tau in (0, 1], got {period} and {tau}."
            )
        self._period, self._tau = period, schedules.Held(tau)
        self._count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def schedule(self, time: Any) -> None:
        self._tau.update(time)

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        count, tau = self._count.assign_add(1), self._tau.value
        due = tf.equal(count % self._period, 0)
        for variable, source in zip(variables, functions["source"], strict=True):
            new = tf.convert_to_tensor(source)
            if not (isinstance(tau, float) and tau == 1.0):
                new = tau * new + (1.0 - tau) * variable.value
            if self._period > 1:
                new = tf.where(due, new, variable.value)
            variable.assign(new)
        return {}
