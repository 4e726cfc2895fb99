"""Normalization of observations: of numbers, and of the pixels of images."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import spaces


COUNTED = 16
"""Statistics of bytes count one of this many samples. Images have many numbers, and
those of one step and the next hardly differ."""


class Observations(tf.Module):
    """Normalizer of the floating point leaves of observations, and of bytes.

    Every pixel has a mean and a deviation of its own, so what hardly ever changes fades,
    and what moves in front of it stands out. Memories store bytes; normalized, they are
    float32. Other integers stay integers until the network, and action masks, at the
    top of a Dict, pass unchanged. Only `update` changes statistics, so acting,
    evaluation and export share one transformation.
    """

    def __init__(self, specs: Any, enabled: bool, clip: float | None = 5.0) -> None:
        """Create it for a structure of `spaces.Spec`; clip in standard deviations."""
        super().__init__()
        leaves = [
            (path.partition("/")[0], spec)
            for path, spec in zip(
                spaces.paths(specs), spaces.flatten(specs), strict=True
            )
        ]
        self._normalizers = [
            normalize.StreamingNormalize(spec.shape, clip=clip)
            if enabled
            and spec.dtype in ("float32", "uint8")
            and path != spaces.ACTION_MASK
            else None
            for path, spec in leaves
        ]
        self.persistent = [x for x in self._normalizers if x is not None]

    def __call__(self, observation: Any) -> Any:
        """Normalize observations `[..., *shape]`."""
        leaves = [
            normalizer(_numbers(leaf)) if normalizer else leaf
            for normalizer, leaf in zip(
                self._normalizers, tf.nest.flatten(observation), strict=True
            )
        ]
        return tf.nest.pack_sequence_as(observation, leaves)

    def update(self, observation: Any, mask: tf.Tensor) -> None:
        """Learn from observations `[..., *shape]` where the mask `[...]` is true."""
        for normalizer, leaf in zip(
            self._normalizers, tf.nest.flatten(observation), strict=True
        ):
            if normalizer and leaf.dtype == tf.uint8:
                every = slice(None, None, COUNTED)
                leaf = tf.reshape(leaf, [-1, *leaf.shape[mask.shape.rank :]])
                normalizer.update(_numbers(leaf[every]), tf.reshape(mask, [-1])[every])
            elif normalizer:
                normalizer.update(leaf, mask)


def _numbers(leaf: tf.Tensor) -> tf.Tensor:
    """Convert bytes to float32 in [0, 1), without rounding; other leaves are floats."""
    return tf.cast(leaf, tf.float32) / 256.0 if leaf.dtype == tf.uint8 else leaf
