"""Natural gradients within a trust region."""

from typing import Any

import numpy as np
import tensorflow as tf

from agents.optimizers import conjugate_gradient, replicas
from agents.optimizers import items as items_
from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds, schedules


class NaturalGradient(optimizer_.Optimizer):
    """Optimizer along the natural gradient, as far as the KL divergence allows.

    With gradient g and Fisher information F, the step is -sqrt(2 max_kl / xFx) x where
    F x = g: the longest one with divergence `max_kl` to second order; Schulman et al.
    (2015), "Trust Region Policy Optimization", appendix C. F is never formed: its
    products are derivatives of the KL divergence.
    """

    metric_names = ("gradient_norm", "cg_residual")
    needs = frozenset({"kl"})

    def __init__(
        self,
        max_kl: schedules.Scalar = 0.01,
        cg_max_iterations: int = 10,
        cg_damping: float = 0.1,
        cg_tolerance: float = 1e-5,
        subsampling_fraction: float = 1.0,
    ) -> None:
        """Configure the trust region.

        Args:
          max_kl: Divergence of a step, in nats; number or schedule.
          cg_max_iterations: Largest number of Fisher-vector products.
          cg_damping: Multiple of the identity that is added to F.
          cg_tolerance: Relative residual to stop at.
          subsampling_fraction: Random share of the items for the Fisher information.
        """
        super().__init__()
        bounds.require_options(bounds.SHARE, subsampling_fraction=subsampling_fraction)
        bounds.require_options(
            bounds.POSITIVE, max_kl=max_kl, cg_max_iterations=cg_max_iterations
        )
        bounds.require_options(
            bounds.NOT_NEGATIVE, cg_damping=cg_damping, cg_tolerance=cg_tolerance
        )
        self._max_kl = schedules.Held(max_kl)
        self.max_kl = self._max_kl.value
        self._solver = conjugate_gradient.ConjugateGradient(
            cg_max_iterations, cg_tolerance
        )
        self._damping = cg_damping
        self._fraction = subsampling_fraction
        if subsampling_fraction < 1:
            self.needs = self.needs | {"items", "seed"}

    def schedule(self, time: Any) -> None:
        self._max_kl.update(time)

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items = functions.get("items")
        gradients, _, metrics = replicas.gradient(loss_fn, variables, items)
        gradient = _flatten(gradients)
        if self._fraction < 1:
            items = self._subsample(items, functions["seed"])

        def product(vector):
            image = fisher_product(functions["kl"], variables, vector, items)
            return image + self._damping * vector

        direction, residual = self._solver.solve(product, gradient)
        curvature = tf.reduce_sum(direction * product(direction))
        length = tf.sqrt(2.0 * self.max_kl / curvature)
        step = tf.where(curvature > 0, -length * direction, tf.zeros_like(direction))
        for variable, change in zip(variables, _split(step, variables), strict=True):
            variable.assign_add(change)
        return {
            **metrics,
            "gradient_norm": tf.norm(gradient),
            "cg_residual": residual,
        }

    def _subsample(self, items: Any, seed: tf.Tensor) -> Any:
        count = items_.size_of(items)
        if isinstance(count, int):
            size = max(int(self._fraction * count + 0.5), 1)
        else:
            size = tf.cast(self._fraction * tf.cast(count, tf.float32) + 0.5, tf.int32)
            size = tf.maximum(size, 1)
        return items_.take(items, items_.order(seed, count)[:size])


def fisher_product(kl, variables: list, vector: tf.Tensor, items: Any) -> tf.Tensor:
    """Compute the product `[D]` of Fisher information and a vector `[D]`.

    The Hessian of the divergence from the current model is the Fisher information;
    Pearlmutter (1994), "Fast Exact Multiplication by the Hessian".
    """
    parts = _split(vector, variables)

    def function(items):
        values = [variable.value for variable in variables]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(values)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(values)
                divergence = kl(items, local=True)
            gradients = inner.gradient(divergence, values, unconnected_gradients="zero")
            along = tf.add_n(
                [tf.reduce_sum(g * p) for g, p in zip(gradients, parts, strict=True)]
            )
        return _flatten(outer.gradient(along, values, unconnected_gradients="zero"))

    return replicas.mean(function, variables, items)


def _flatten(tensors: list[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(x, [-1]) for x in tensors], 0)


def _split(vector: tf.Tensor, variables: list) -> list[tf.Tensor]:
    sizes = [int(np.prod(x.shape)) for x in variables]
    parts = tf.split(vector, sizes)
    return [tf.reshape(x, y.shape) for x, y in zip(parts, variables, strict=True)]
