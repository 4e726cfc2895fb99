"""Normalization of observations: of numbers, and of the pixels of images."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import placement, spaces

_CLIP = 5.0  # Deviations.
_STRIDE = 17  # Prime, so that it is not always the same of 8, 16 or 32 rows.


class Pixels(normalize.StreamingNormalize):
    """Normalizer of images, whose statistics count one of 17 samples."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, clip=_CLIP)
        self._skipped = tf.Variable(_STRIDE - 1, trainable=False)  # Since one counted.
        # One pass over the memory, not six; what acts stays plain, for exports.
        self._sequences = placement.function(self._plain, jit=True, memory=False)

    def __call__(self, value: tf.Tensor) -> tf.Tensor:
        acting = value.shape.rank == self._rank + 1
        return self._plain(value) if acting else self._sequences(value)

    def _plain(self, value: tf.Tensor) -> tf.Tensor:
        return super().__call__(_numbers(value))

    def update(self, value: tf.Tensor, mask: tf.Tensor) -> None:
        value = tf.reshape(value, [-1, *value.shape[mask.shape.rank :]])
        size = tf.size(mask)
        counted = _STRIDE * tf.range(1, 1 + -(-size // _STRIDE)) - 1 - self._skipped
        self._skipped.assign((self._skipped + size) % _STRIDE)
        inside, counted = counted < size, tf.minimum(counted, size - 1)
        value, mask = (tf.gather(x, counted) for x in (value, tf.reshape(mask, [-1])))
        super().update(_numbers(value), mask & inside)


class Observations(tf.Module):
    """Normalizer of the floating point leaves of observations, and of images.

    Images are bytes of two or more dimensions. Every pixel has statistics of its own, so
    what moves in front of a background stands out. Other integers, and action masks at
    the top of a Dict, pass unchanged. Only `update` changes statistics.
    """

    def __init__(self, specs: Any, enabled: bool) -> None:
        """Create it for a structure of `spaces.Spec`."""
        super().__init__()
        leaves = zip(spaces.paths(specs), spaces.flatten(specs), strict=True)
        self._normalizers = [_normalizer(*x) if enabled else None for x in leaves]
        self.persistent = [x for x in self._normalizers if x is not None]

    def __call__(self, observation: Any) -> Any:
        """Normalize observations `[..., *shape]`."""
        leaves = [f(leaf) if f else leaf for f, leaf in self._pairs(observation)]
        return tf.nest.pack_sequence_as(observation, leaves)

    def update(self, observation: Any, mask: tf.Tensor) -> None:
        """Learn from observations `[..., *shape]` where the mask `[...]` is true."""
        for normalizer, leaf in self._pairs(observation):
            if normalizer:
                normalizer.update(leaf, mask)

    def _pairs(self, observation: Any) -> Any:
        return zip(self._normalizers, tf.nest.flatten(observation), strict=True)


def _normalizer(path: str, spec: spaces.Spec) -> normalize.StreamingNormalize | None:
    """Create the normalizer of a leaf, if it has one."""
    if path.partition("/")[0] == spaces.ACTION_MASK:
        return None
    if spec.dtype == "float32":
        return normalize.StreamingNormalize(spec.shape, clip=_CLIP)
    images = spec.dtype == "uint8" and spec.shape[1:]
    return Pixels(spec.shape) if images else None


def _numbers(value: tf.Tensor) -> tf.Tensor:
    """Convert bytes to float32 in [0, 1), without rounding."""
    return tf.cast(value, tf.float32) / 256.0
