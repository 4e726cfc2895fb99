"""Beta distributions of actions between bounds; see `distributions`."""

import tensorflow as tf

_EDGE = 1e-6
"""Distance of samples of Beta distributions from zero and one."""


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
        """Return the most probable vectors, `[B..., A]`; the middle if uniform."""
        mode = (self._alpha - 1.0 + _EDGE) / (self._total - 2.0 + 2.0 * _EDGE)
        return tf.clip_by_value(mode, _EDGE, 1.0 - _EDGE)

    def log_prob(self, value: tf.Tensor) -> tf.Tensor:
        """Compute the log-density of vectors, `[B...]`, clipped like samples."""
        value = tf.clip_by_value(value, _EDGE, 1.0 - _EDGE)
        ones = (self._alpha - 1.0) * tf.math.log(value)
        zeros = (self._beta - 1.0) * tf.math.log1p(-value)
        return tf.reduce_sum(ones + zeros - self._log_norm(), -1)

    def entropy(self) -> tf.Tensor:
        """Compute the differential entropy in nats, `[B...]`."""
        log_ones, log_zeros = self._mean_logs()
        ones, zeros = (self._alpha - 1.0) * log_ones, (self._beta - 1.0) * log_zeros
        return tf.reduce_sum(self._log_norm() - ones - zeros, -1)

    def kl(self, other: "Beta") -> tf.Tensor:
        """Compute the divergence KL(self || other) in nats, `[B...]`."""
        log_ones, log_zeros = self._mean_logs()
        ones = (self._alpha - other._alpha) * log_ones
        zeros = (self._beta - other._beta) * log_zeros
        norm = other._log_norm() - self._log_norm()
        return tf.reduce_sum(norm + ones + zeros, -1)

    def _mean_logs(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute the expectations of log x and of log(1 - x), `[B..., A]`."""
        total = tf.math.digamma(self._total)
        return tf.math.digamma(self._alpha) - total, tf.math.digamma(self._beta) - total

    def _log_norm(self) -> tf.Tensor:
        """Compute the logarithm of the beta function, `[B..., A]`."""
        parts = tf.math.lgamma(self._alpha) + tf.math.lgamma(self._beta)
        return parts - tf.math.lgamma(self._total)


def _gamma(
    shape: tf.Tensor, generator: tf.random.Generator, rounds: int = 6
) -> tf.Tensor:
    """Draw from gamma distributions with these shape parameters of at least one.

    Rejection sampling by Marsaglia and Tsang (2000), "A simple method for generating
    gamma variables". All rounds are drawn at once and the first accepted one counts,
    95% of them; with probability 1e-8 none is, and the mode takes its place.
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
