"""Normalization of observations: of numbers, and of the pixels of images."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import spaces

COUNTED = 16
"""Statistics of images count one of this many samples, as neighbors hardly differ."""


class Observations(tf.Module):
    """Normalizer of the floating point leaves of observations, and of images.

    Images are bytes of two or more dimensions. Every pixel has statistics of its own, so
    what moves in front of a background stands out. Other integers, and action masks at
    the top of a Dict, pass unchanged. Only `update` changes statistics.
    """

    def __init__(self, specs: Any, enabled: bool, clip: float | None = 5.0) -> None:
        """Create it for a structure of `spaces.Spec`; clip in standard deviations."""
        super().__init__()
        leaves = zip(spaces.paths(specs), spaces.flatten(specs), strict=True)
        self._normalizers = [
            normalize.StreamingNormalize(spec.shape, clip=clip)
            if enabled
            and (spec.dtype == "float32" or spec.dtype == "uint8" and spec.shape[1:])
            and path.partition("/")[0] != spaces.ACTION_MASK
            else None
            for path, spec in leaves
        ]
        self.persistent = [x for x in self._normalizers if x is not None]

    def __call__(self, observation: Any) -> Any:
        """Normalize observations `[..., *shape]`."""
        leaves = [
            normalizer(_numbers(leaf)) if normalizer else leaf
            for normalizer, leaf in self._pairs(observation)
        ]
        return tf.nest.pack_sequence_as(observation, leaves)

    def update(self, observation: Any, mask: tf.Tensor) -> None:
        """Learn from observations `[..., *shape]` where the mask `[...]` is true."""
        for normalizer, leaf in self._pairs(observation):
            every = COUNTED if leaf.dtype == tf.uint8 else 1
            if normalizer:
                flat = tf.reshape(leaf, [-1, *leaf.shape[mask.shape.rank :]])[::every]
                normalizer.update(_numbers(flat), tf.reshape(mask, [-1])[::every])

    def _pairs(self, observation: Any) -> Any:
        return zip(self._normalizers, tf.nest.flatten(observation), strict=True)


def _numbers(leaf: tf.Tensor) -> tf.Tensor:
    """Convert bytes to float32 in [0, 1), without rounding; other leaves are floats."""
    return tf.cast(leaf, tf.float32) / 256.0 if leaf.dtype == tf.uint8 else leaf
