"""Streaming normalization by mean and deviation, or root mean square, of data."""

from collections.abc import Sequence

import tensorflow as tf


class StreamingNormalize(tf.Module):
    """Normalizer of float tensors by running statistics of their last dimensions.

    Without centering, the scale is the root mean square instead of the deviation, so
    that constant values become ones.

    Statistics are float64 and merged batch by batch, so they stay exact for large means
    and many samples; Chan, Golub and LeVeque (1983). Before the second sample, values
    are at most clipped. Only `update` changes the statistics.
    """

    def __init__(
        self,
        shape: Sequence[int],
        center: bool = True,
        scale: bool = True,
        clip: float | None = None,
    ) -> None:
        """Normalize tensors `[..., *shape]` and clip the results to +-clip."""
        super().__init__()
        self._center, self._scale, self._clip = center, scale, clip
        self._rank = len(shape)
        self.count = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self.mean = tf.Variable(tf.zeros(shape, tf.float64), trainable=False)
        self._squares = tf.Variable(tf.zeros(shape, tf.float64), trainable=False)
        # Results of these statistics, so that calls need not compute them.
        self._shift = tf.Variable(tf.zeros(shape), trainable=False)
        self._divisor = tf.Variable(tf.ones(shape), trainable=False)

    @property
    def std(self) -> tf.Tensor:
        """Divisor of values, float64 `shape`; ones before the second sample."""
        variance = self._squares / tf.maximum(self.count - 1.0, 1.0)
        if not self._center:
            variance += self.mean**2
        return tf.where(self.count > 1.0, tf.sqrt(variance + 1e-8), 1.0)

    def __call__(self, value: tf.Tensor) -> tf.Tensor:
        """Normalize values `[..., *shape]`, float32."""
        if self._center:
            value -= self._shift
        if self._scale:
            value /= self._divisor
        if self._clip:
            value = tf.clip_by_value(value, -self._clip, self._clip)
        return value

    def update(self, value: tf.Tensor, mask: tf.Tensor) -> None:
        """Merge samples `[..., *shape]` where the mask `[...]` is true."""
        valid = mask[(..., *[tf.newaxis] * self._rank)]
        # Padding may contain NaN, which times zero would not be zero.
        value = tf.where(valid, tf.cast(value, tf.float64), 0.0)
        weight = tf.cast(valid, tf.float64)
        axes = list(range(mask.shape.rank))
        count = tf.reduce_sum(tf.cast(mask, tf.float64))
        mean = tf.math.divide_no_nan(tf.reduce_sum(value * weight, axes), count)
        squares = tf.reduce_sum(weight * tf.square(value - mean), axes)
        total = self.count + count
        share = tf.math.divide_no_nan(count, total)
        difference = mean - self.mean
        self._squares.assign_add(squares + difference**2 * self.count * share)
        self.mean.assign_add(difference * share)
        self.count.assign(total)
        self._shift.assign(tf.cast(tf.where(total > 1.0, self.mean, 0.0), "float32"))
        self._divisor.assign(tf.cast(self.std, tf.float32))
