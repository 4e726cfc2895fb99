"""Normalization of observations: of numbers, and of the pixels of images."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import spaces

COUNTED = 16
"""Statistics of images count one of this many samples, as neighbors hardly differ."""


class Observations(tf.Module):
    """Normalizer of the floating point leaves of observations, and of images.

    Images are bytes of two or more dimensions. Every pixel has a mean of its own, so what
    moves in front of a background stands out; all share one deviation, which keeps their
    contrasts. Other integers, and action masks at the top of a Dict, pass unchanged.
    """

    def __init__(self, specs: Any, enabled: bool) -> None:
        """Create it for a structure of `spaces.Spec`."""
        super().__init__()
        leaves = zip(spaces.paths(specs), spaces.flatten(specs), strict=True)
        self._normalizers = [_normalizer(*leaf) if enabled else None for leaf in leaves]
        self.persistent = [x for x in self._normalizers if x is not None]

    def __call__(self, observation: Any) -> Any:
        """Normalize observations `[..., *shape]`."""
        pairs = self._pairs(observation)
        leaves = [apply(_numbers(leaf)) if apply else leaf for apply, leaf in pairs]
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


def _normalizer(path: str, spec: Any) -> normalize.StreamingNormalize | None:
    image = spec.dtype == "uint8" and len(spec.shape) > 1
    masks = path.partition("/")[0] == spaces.ACTION_MASK
    if masks or not (image or spec.dtype == "float32"):
        return None
    clip = None if image else 5.0  # In deviations; images have few large values.
    return normalize.StreamingNormalize(spec.shape, shared=image, clip=clip)


def _numbers(leaf: tf.Tensor) -> tf.Tensor:
    """Convert bytes to float32 in [0, 1), without rounding; other leaves are floats."""
    return tf.cast(leaf, tf.float32) / 256.0 if leaf.dtype == tf.uint8 else leaf
