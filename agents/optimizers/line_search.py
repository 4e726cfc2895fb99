"""Optimizers that shorten steps until these are good enough."""

import tensorflow as tf

from agents.optimizers import optimizer as optimizer_
from agents.optimizers import replicas
from agents.tools import bounds


class LineSearch(optimizer_.Wrapper):
    """Optimizer that tries 1, 1/2, 1/4, ... of the step of another one.

    It stops when the loss falls by at least `accept_ratio` of the decrease that the
    gradient predicts for this length, the KL divergence is at most `max_kl`, and both
    are finite. If no length succeeds, the variables stay unchanged. All losses begin with
    the same `state`, so dropout draws the same units.
    """

    def __init__(
        self,
        optimizer: optimizer_.Optimizer,
        max_iterations: int = 10,
        accept_ratio: float = 0.1,
        max_kl: float | None = None,
    ) -> None:
        """Configure the acceptance of steps.

        Args:
          optimizer: Optimizer that proposes steps.
          max_iterations: Number of lengths to try.
          accept_ratio: Smallest ratio of the actual to the expected improvement.
          max_kl: Largest divergence in nats; none for that of the optimizer, if any.
        """
        super().__init__(optimizer)
        self.max_kl = optimizer.max_kl if max_kl is None else max_kl
        if self.max_kl is not None:
            self.needs = self.needs | {"kl"}
        self.metric_names = (*self.metric_names, "step_fraction", "improvement")
        self._max_iterations = max_iterations
        bounds.require_options(
            bounds.POSITIVE, max_iterations=max_iterations, max_kl=max_kl
        )
        bounds.require_options(bounds.NOT_NEGATIVE, accept_ratio=accept_ratio)
        self._accept_ratio = accept_ratio

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items, state = functions.get("items"), list(functions.get("state", ()))
        start = [tf.identity(tf.convert_to_tensor(x)) for x in state]
        gradients, loss, _ = replicas.gradient(loss_fn, variables, items)
        before = [tf.identity(variable.value) for variable in variables]
        metrics = self.optimizer.step(loss_fn, variables, **functions)
        changes = [x.value - y for x, y in zip(variables, before, strict=True)]
        expected = -tf.add_n(
            [tf.reduce_sum(x * y) for x, y in zip(gradients, changes, strict=True)]
        )

        def attempt(fraction):
            """Take a fraction of the step; return its improvement and acceptance."""
            for variable, old, change in zip(variables, before, changes, strict=True):
                variable.assign(old + fraction * change)
            for variable, old in zip(state, start, strict=True):
                variable.assign(old)
            improvement = loss - loss_fn(items)[0]
            accepted = improvement >= self._accept_ratio * fraction * expected
            accepted &= (improvement > 0) & tf.math.is_finite(improvement)
            if self.max_kl is not None:
                accepted &= functions["kl"](items) <= self.max_kl
            return improvement, accepted

        def search(index, fraction, improvement, accepted):
            fraction = 0.5 ** tf.cast(index, tf.float32)
            return index + 1, fraction, *attempt(fraction)

        _, fraction, improvement, accepted = tf.while_loop(
            lambda index, fraction, improvement, accepted: ~accepted,
            search,
            (0, tf.constant(0.0), tf.constant(0.0), tf.constant(False)),
            maximum_iterations=self._max_iterations,
            parallel_iterations=1,
        )
        for variable, old in zip(variables, before, strict=True):
            variable.assign(tf.where(accepted, variable.value, old))
        return {
            **metrics,
            "step_fraction": tf.where(accepted, fraction, 0.0),
            "improvement": tf.where(accepted, improvement, 0.0),
        }
