"""Probability distributions over actions: sample, mode, log_prob, entropy, kl.

`B...` stands for any leading dimensions. Parameters are a dict of tensors, so that
they can be stored in memories as they are.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Normal:
    """Diagonal normal distribution over vectors `[B..., A]`."""

    def __init__(self, mean: tf.Tensor, log_std: tf.Tensor) -> None:
        self.parameters = {"mean": mean, "log_std": log_std}
        self._mean, self._log_std = mean, log_std

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw one vector per row, `[B..., A]`."""
        noise = generator.normal(tf.shape(self._mean))
        return self._mean + noise * tf.exp(self._log_std)

    def mode(self) -> tf.Tensor:
        """Most probable vectors, `[B..., A]`."""
        return self._mean

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Log-density of vectors, `[B...]`."""
        distance = (value - self._mean) * tf.exp(-self._log_std)
        terms = 0.5 * distance**2 + self._log_std + 0.5 * math.log(2 * math.pi)
        return -tf.reduce_sum(terms, -1)

    def entropy(self) -> tf.Tensor:
        """Differential entropy in nats, `[B...]`."""
        return tf.reduce_sum(self._log_std + 0.5 * math.log(2 * math.pi * math.e), -1)

    def kl(self, other: "Normal") -> tf.Tensor:
        """Divergence KL(self || other) in nats, `[B...]`."""
        ratio = tf.exp(2.0 * (self._log_std - other._log_std))
        distance = ((self._mean - other._mean) * tf.exp(-other._log_std)) ** 2
        terms = ratio + distance - 1.0 + 2.0 * (other._log_std - self._log_std)
        return 0.5 * tf.reduce_sum(terms, -1)


class Categorical:
    """Distribution over the indices 0 to A - 1, from logits `[B..., A]`."""

    def __init__(self, logits: tf.Tensor) -> None:
        self.parameters = {"logits": logits}
        self._log_probs = tf.nn.log_softmax(logits)

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw one index per row by the Gumbel-max trick, int64 `[B...]`."""
        uniform = generator.uniform(tf.shape(self._log_probs), minval=1e-20)
        return tf.argmax(self._log_probs - tf.math.log(-tf.math.log(uniform)), -1)

    def mode(self) -> tf.Tensor:
        """Most probable index, int64 `[B...]`."""
        return tf.argmax(self._log_probs, -1)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Log-probability of indices, `[B...]`."""
        chosen = tf.one_hot(value, self._log_probs.shape[-1])
        return tf.reduce_sum(chosen * self._log_probs, -1)

    def entropy(self) -> tf.Tensor:
        """Entropy in nats, `[B...]`."""
        return -tf.reduce_sum(tf.exp(self._log_probs) * self._log_probs, -1)

    def kl(self, other: "Categorical") -> tf.Tensor:
        """Divergence KL(self || other) in nats, `[B...]`."""
        difference = self._log_probs - other._log_probs
        return tf.reduce_sum(tf.exp(self._log_probs) * difference, -1)


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
        """Most probable values, int8 `[B..., A]`."""
        return tf.cast(self._logits > 0, tf.int8)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Joint log-probability of values, `[B...]`."""
        sign = 2.0 * tf.cast(value, tf.float32) - 1.0
        return tf.reduce_sum(tf.math.log_sigmoid(sign * self._logits), -1)

    def entropy(self) -> tf.Tensor:
        """Entropy in nats, `[B...]`."""
        return -tf.reduce_sum(self._mean(self._logits), -1)

    def kl(self, other: "Bernoulli") -> tf.Tensor:
        """Divergence KL(self || other) in nats, `[B...]`."""
        terms = self._mean(self._logits) - self._mean(other._logits)
        return tf.reduce_sum(terms, -1)

    def _mean(self, logits: tf.Tensor) -> tf.Tensor:
        """Expected log-probability under these logits, `[B..., A]`."""
        ones, zeros = (
            tf.sigmoid(sign * self._logits) * tf.math.log_sigmoid(sign * logits)
            for sign in (1.0, -1.0)
        )
        return ones + zeros


class Joint:
    """Independent distributions of several leaves; values are tuples of theirs."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parameters = tuple(part.parameters for part in parts)
        self._parts = parts

    def sample(self, generator: tf.random.Generator) -> tuple[tf.Tensor, ...]:
        """Draw the values of all leaves, `[B..., *leaf]`."""
        return tuple(part.sample(generator) for part in self._parts)

    def mode(self) -> tuple[tf.Tensor, ...]:
        """Most probable values of all leaves."""
        return tuple(part.mode() for part in self._parts)

    def log_prob(self, value: Sequence[tf.Tensor]) -> tf.Tensor:
        """Joint log-probability of the values of all leaves, `[B...]`."""
        pairs = zip(self._parts, value, strict=True)
        return tf.add_n([part.log_prob(x) for part, x in pairs])

    def entropy(self) -> tf.Tensor:
        """Entropy in nats, `[B...]`."""
        return tf.add_n([part.entropy() for part in self._parts])

    def kl(self, other: "Joint") -> tf.Tensor:
        """Divergence KL(self || other) in nats, `[B...]`."""
        pairs = zip(self._parts, other._parts, strict=True)
        return tf.add_n([ours.kl(theirs) for ours, theirs in pairs])


class MultiCategorical(Joint):
    """Independent categorical distributions over K indices with `sizes` values each.

    Their logits lie side by side, `[B..., sum of sizes]`, and so do the indices.
    """

    def __init__(self, logits: tf.Tensor, sizes: Sequence[int]) -> None:
        super().__init__([Categorical(x) for x in tf.split(logits, list(sizes), -1)])
        self.parameters = {"logits": logits}

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw all indices of each row, int64 `[B..., K]`."""
        return tf.stack(super().sample(generator), -1)

    def mode(self) -> tf.Tensor:
        """Most probable indices, int64 `[B..., K]`."""
        return tf.stack(super().mode(), -1)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Joint log-probability of indices `[B..., K]`, `[B...]`."""
        return super().log_prob(tf.unstack(value, len(self._parts), -1))
