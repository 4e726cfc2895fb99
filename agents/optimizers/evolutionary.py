"""Descent without derivatives, by random perturbations."""

from typing import Any

import keras
import tensorflow as tf

from agents.optimizers import gradient, replicas
from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds, schedules


class Evolutionary(optimizer_.Optimizer):
    """Optimizer that estimates gradients from losses at perturbed variables.

    Every sample is a pair of opposite perturbations; Salimans et al. (2017), "Evolution
    Strategies as a Scalable Alternative to Reinforcement Learning", section 2. All
    perturbations of a batch are evaluated at the same time.
    """

    metric_names = ("gradient_norm", "learning_rate")
    needs = frozenset({"seed"})

    def __init__(
        self,
        learning_rate: schedules.Scalar = 1e-2,
        num_samples: int = 32,
        std: float = 0.02,
        batch_size: int | None = None,
        optimizer: str = "adam",
    ) -> None:
        """Configure the sampling, and the descent along the estimate.

        Args:
          learning_rate: Number or schedule.
          num_samples: Pairs of perturbations per step.
          std: Standard deviation of the perturbations.
          batch_size: Samples to evaluate at the same time; none for all.
          optimizer: Name of a Keras optimizer.
        """
        super().__init__()
        self._descent = gradient.Gradient(optimizer, learning_rate)
        bounds.require_options(
            bounds.POSITIVE, num_samples=num_samples, std=std, batch_size=batch_size
        )
        self._num_samples, self._std = num_samples, std
        self._batch = num_samples if batch_size is None else batch_size

    def build(self, variables: list[keras.Variable]) -> None:
        if replicas.count(variables) > 1:
            raise ValueError(
                "evolutionary optimizers have no gradients that replicas could compute "
                "together; train on one device."
            )
        self._descent.build(variables)

    def schedule(self, time: Any) -> None:
        self._descent.schedule(time)

    def step(self, loss_fn, variables, **functions) -> optimizer_.Metrics:
        items, seed = functions.get("items"), functions["seed"]
        _, metrics = loss_fn(items)

        def perturbed(noise):
            """Compute half the difference of the losses on either side."""
            losses = []
            for sign in (self._std, -self._std):
                values = [
                    (variable, variable.value + sign * x)
                    for variable, x in zip(variables, noise, strict=True)
                ]
                with keras.StatelessScope(values):
                    losses.append(loss_fn(items)[0])
            return 0.5 * (losses[0] - losses[1])

        def batch(index):
            noise = [
                tf.random.stateless_normal(
                    [self._batch, *variable.shape],
                    tf.random.experimental.stateless_fold_in(
                        seed, index * len(variables) + number, alg="philox"
                    ),
                    alg="philox",
                )
                for number, variable in enumerate(variables)
            ]
            slopes = tf.vectorized_map(perturbed, noise) / self._std
            left = self._num_samples - index * self._batch
            slopes = tf.where(tf.range(self._batch) < left, slopes, 0.0)
            return {
                str(number): tf.tensordot(slopes, x, 1)
                for number, x in enumerate(noise)
            }

        def add(index, total):
            return index + 1, tf.nest.map_structure(tf.add, total, batch(index))

        count = -(-self._num_samples // self._batch)
        zeros = {str(i): tf.zeros(x.shape) for i, x in enumerate(variables)}
        _, total = tf.while_loop(
            lambda index, _: index < count, add, (0, zeros), parallel_iterations=1
        )
        estimate = [total[str(i)] / self._num_samples for i in range(len(variables))]
        return {**metrics, **self._descent.apply(estimate, variables)}
