"""Probability distributions over actions: sample, mode, log_prob, entropy, kl.

`B...` stands for any leading dimensions. Parameters are a dict of tensors, so that
they can be stored in memories as they are.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_NODES = np.linspace(-5.0, 5.0, 32, dtype=np.float32)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
"""Rule for expectations over standard normal variables, of equidistant nodes.

It converges exponentially, and for functions like log tanh' with half the nodes of
Gauss-Hermite; Trefethen and Weideman (2014), "The exponentially convergent trapezoidal
rule".
"""

_EDGE = 1e-6
"""Distance that samples of Beta distributions keep from zero and one."""


class Normal:
    """Diagonal normal distribution over vectors `[B..., A]`."""

    def __init__(self, mean: tf.Tensor, log_std: tf.Tensor) -> None:
        self.parameters = {"mean": mean, "log_std": log_std}
        self._mean, self._log_std = mean, log_std

    def sample(
        self, generator: tf.random.Generator, noise: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Draw one vector per row, `[B..., A]`, or take it from normal noise."""
        if noise is None:
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


class TanhNormal(Normal):
    """Distribution of tanh(u) in (-1, 1)^A, where u is normal; values are the u.

    So probabilities are exact where tanh(u) rounds to one. Haarnoja et al. (2018),
    "Soft Actor-Critic", appendix C.
    """

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Log-density of tanh(value) for vectors `[B..., A]`, `[B...]`."""
        return super().log_prob(value) - tf.reduce_sum(_log_slope(value), -1)

    def entropy(self) -> tf.Tensor:
        """Differential entropy of tanh(u) in nats, `[B...]`.

        By quadrature; the error is below 1e-4 for deviations up to 3.
        """
        std = tf.exp(self._log_std)[..., tf.newaxis]
        points = self._mean[..., tf.newaxis] + std * _NODES  # [B..., A, nodes]
        slope = tf.reduce_sum(_log_slope(points) * _WEIGHTS, [-2, -1])
        return super().entropy() + slope


class Beta:
    """Independent Beta distributions over vectors in (0, 1)^A; `[B..., A]`.

    Parameters below one, as in zero padding, count as one, so that there is one mode.
    Chou et al. (2017), "Improving Stochastic Policy Gradients in Continuous Control
    with Deep Reinforcement Learning using the Beta Distribution".
    """

    def __init__(self, alpha: tf.Tensor, beta: tf.Tensor) -> None:
        self.parameters = {"alpha": alpha, "beta": beta}
        self._alpha, self._beta = (tf.maximum(x, 1.0) for x in (alpha, beta))
        self._total = self._alpha + self._beta

    def sample(self, generator: tf.random.Generator) -> tf.Tensor:
        """Draw one vector per row, `[B..., A]`, without gradient."""
        ones, zeros = (_gamma(x, generator) for x in (self._alpha, self._beta))
        value = tf.stop_gradient(ones / (ones + zeros))
        return tf.clip_by_value(value, _EDGE, 1.0 - _EDGE)

    def mode(self) -> tf.Tensor:
        """Most probable vectors, `[B..., A]`; the middle where all are equally so."""
        mode = (self._alpha - 1.0 + _EDGE) / (self._total - 2.0 + 2.0 * _EDGE)
        return tf.clip_by_value(mode, _EDGE, 1.0 - _EDGE)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Log-density of vectors, `[B...]`; values are clipped as samples are."""
        value = tf.clip_by_value(value, _EDGE, 1.0 - _EDGE)
        ones = (self._alpha - 1.0) * tf.math.log(value)
        zeros = (self._beta - 1.0) * tf.math.log1p(-value)
        return tf.reduce_sum(ones + zeros - self._log_norm(), -1)

    def entropy(self) -> tf.Tensor:
        """Differential entropy in nats, `[B...]`."""
        log_ones, log_zeros = self._mean_logs()
        ones, zeros = (self._alpha - 1.0) * log_ones, (self._beta - 1.0) * log_zeros
        return tf.reduce_sum(self._log_norm() - ones - zeros, -1)

    def kl(self, other: "Beta") -> tf.Tensor:
        """Divergence KL(self || other) in nats, `[B...]`."""
        log_ones, log_zeros = self._mean_logs()
        ones = (self._alpha - other._alpha) * log_ones
        zeros = (self._beta - other._beta) * log_zeros
        norm = other._log_norm() - self._log_norm()
        return tf.reduce_sum(norm + ones + zeros, -1)

    def _mean_logs(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Expectations of log x and of log(1 - x), `[B..., A]`."""
        total = tf.math.digamma(self._total)
        return tf.math.digamma(self._alpha) - total, tf.math.digamma(self._beta) - total

    def _log_norm(self) -> tf.Tensor:
        """Logarithm of the beta function, `[B..., A]`."""
        parts = tf.math.lgamma(self._alpha) + tf.math.lgamma(self._beta)
        return parts - tf.math.lgamma(self._total)


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


def _log_slope(value: tf.Tensor) -> tf.Tensor:
    """Logarithm of the derivative of tanh, 1 - tanh(value)^2, for any value."""
    return 2.0 * (math.log(2.0) - value - tf.math.softplus(-2.0 * value))


def _gamma(
    shape: tf.Tensor, generator: tf.random.Generator, rounds: int = 6
) -> tf.Tensor:
    """Samples of gamma distributions with these shape parameters, at least one.

    By rejection, Marsaglia and Tsang (2000), "A simple method for generating gamma
    variables". All rounds are drawn at once and the first that is accepted counts, as
    95% are; once in 1e8 times none is, and the mode takes its place.
    """
    scale = shape - 1.0 / 3.0
    size = tf.concat([[rounds], tf.shape(shape)], 0)
    noise, uniform = generator.normal(size), generator.uniform(size, minval=1e-20)
    cubes = (1.0 + noise / tf.sqrt(9.0 * scale)) ** 3
    positive = tf.maximum(cubes, 1e-20)
    bound = 0.5 * noise**2 + scale * (1.0 - positive + tf.math.log(positive))
    accepted = (cubes > 0.0) & (tf.math.log(uniform) < bound)
    result = tf.ones_like(shape)
    for index in reversed(range(rounds)):
        result = tf.where(accepted[index], positive[index], result)
    return scale * result
