"""Named running means, stored in variables and updated inside the graph."""

import math
from collections.abc import Sequence

import tensorflow as tf

from agents.tools import errors


class NotFiniteError(errors.Failure, FloatingPointError):
    """Loss or another reported mean that is not finite."""


class Metrics(tf.Module):
    """Means of named scalars since the last reset.

    The names are fixed at construction, so that tracing creates no variables.

        metrics.update({"loss": loss, "entropy": entropy})   # in the graph
        metrics.result(); metrics.reset()                    # by the loop
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self._total = tf.Variable(tf.zeros([len(names)], tf.float64), trainable=False)
        self._count = tf.Variable(tf.zeros([len(names)], tf.float64), trainable=False)

    def update(
        self, values: dict[str, tf.Tensor], weight: float | tf.Tensor = 1.0
    ) -> None:
        """Add one scalar per name; raise KeyError for unknown names."""
        unknown = sorted(set(values) - set(self.names))
        if unknown:
            raise KeyError(f"Metrics {unknown} were not declared; known: {self.names}")
        indices = [[self.names.index(name)] for name in values]
        scalars = tf.stack([tf.cast(value, tf.float64) for value in values.values()])
        weights = tf.cast(weight, tf.float64) * tf.ones_like(scalars)
        self._total.scatter_nd_add(indices, weights * scalars)
        self._count.scatter_nd_add(indices, weights)

    def take(self) -> tf.Tensor:
        """Return totals and counts `[2, names]` since the last reset, and reset."""
        taken = tf.stack([self._total, self._count])
        self.reset()
        return taken

    def add(self, taken: tf.Tensor) -> None:
        """Add the result of `take` from other metrics with the same names."""
        self._total.assign_add(taken[0])
        self._count.assign_add(taken[1])

    def result(self) -> dict[str, float]:
        """Return the means of names that were updated since the last reset."""
        sums = zip(self.names, self._total.numpy(), self._count.numpy(), strict=True)
        return {name: float(total / count) for name, total, count in sums if count}

    def reset(self) -> None:
        """Forget all values."""
        self._total.assign(tf.zeros_like(self._total))
        self._count.assign(tf.zeros_like(self._count))

    def require_finite(self, owner: str) -> None:
        """Raise NotFiniteError if a mean is not finite; the message names it."""
        for name, value in self.result().items():
            if not math.isfinite(value):
                raise NotFiniteError(f"{owner}'s {name} is not finite.")
