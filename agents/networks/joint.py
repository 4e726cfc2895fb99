"""Distributions of several independent values; see `distributions`."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from agents.networks import distributions


class Joint:
    """Independent distributions of several leaves, over tuples of their values."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parameters = tuple(part.parameters for part in parts)
        self._parts = parts

    def sample(self, generator: tf.random.Generator) -> tuple[tf.Tensor, ...]:
        """Draw the values of all leaves, `[B..., *leaf]`."""
        return tuple(part.sample(generator) for part in self._parts)

    def mode(self) -> tuple[tf.Tensor, ...]:
        """Return the most probable values of all leaves."""
        return tuple(part.mode() for part in self._parts)

    def log_prob(self, value: Sequence[tf.Tensor]) -> tf.Tensor:
        """Compute the joint log-probability of the values of all leaves, `[B...]`."""
        pairs = zip(self._parts, value, strict=True)
        return tf.add_n([part.log_prob(x) for part, x in pairs])

    def entropy(self) -> tf.Tensor:
        """Compute the entropy in nats, `[B...]`."""
        return tf.add_n([part.entropy() for part in self._parts])

    def kl(self, other: "Joint") -> tf.Tensor:
        """Compute the divergence KL(self || other) in nats, `[B...]`."""
        pairs = zip(self._parts, other._parts, strict=True)
        return tf.add_n([ours.kl(theirs) for ours, theirs in pairs])


class MultiCategorical(Joint):
    """Independent categorical distributions over K indices with `sizes` values each.

    Their logits are placed side by side, `[B..., sum of sizes]`, and so are indices.
    """

    def __init__(self, logits: tf.Tensor, sizes: Sequence[int]) -> None:
        super().__init__(
            [distributions.Categorical(x) for x in tf.split(logits, list(sizes), -1)]
        )
        self.parameters = {"logits": logits}

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw all indices of each row, int64 `[B..., K]`."""
        return tf.stack(super().sample(generator), -1)

    def mode(self) -> tf.Tensor:
        """Return the most probable indices, int64 `[B..., K]`."""
        return tf.stack(super().mode(), -1)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Compute the joint log-probability `[B...]` of indices `[B..., K]`."""
        return super().log_prob(tf.unstack(value, len(self._parts), -1))


class Bernoulli:
    """Independent binary values, from logits `[B..., A]` of being one."""

    def __init__(self, logits: tf.Tensor) -> None:
        self.parameters = {"logits": logits}
        self._logits = logits

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw zeros and ones, int8 `[B..., A]`."""
        uniform = generator.uniform(tf.shape(self._logits))
        return tf.cast(uniform < tf.sigmoid(self._logits), tf.int8)

    def mode(self) -> tf.Tensor:
        """Return the most probable values, int8 `[B..., A]`."""
        return tf.cast(self._logits > 0, tf.int8)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Compute the joint log-probability of values, `[B...]`."""
        sign = 2.0 * tf.cast(value, tf.float32) - 1.0
        return tf.reduce_sum(tf.math.log_sigmoid(sign * self._logits), -1)

    def entropy(self) -> tf.Tensor:
        """Compute the entropy in nats, `[B...]`."""
        return -tf.reduce_sum(self._mean(self._logits), -1)

    def kl(self, other: "Bernoulli") -> tf.Tensor:
        """Compute the divergence KL(self || other) in nats, `[B...]`."""
        terms = self._mean(self._logits) - self._mean(other._logits)
        return tf.reduce_sum(terms, -1)

    def _mean(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the expected log-probability under these logits, `[B..., A]`."""
        ones, zeros = (
            tf.sigmoid(sign * self._logits) * tf.math.log_sigmoid(sign * logits)
            for sign in (1.0, -1.0)
        )
        return ones + zeros
