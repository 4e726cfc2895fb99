"""Probability distributions over actions: sample, mode, log_prob, entropy, kl.

`B...` stands for any leading dimensions. Parameters are a dict of tensors, so that
they can be stored in memories as they are.
"""

import math

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
