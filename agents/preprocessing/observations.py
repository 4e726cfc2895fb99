"""Normalization of observations: numbers are normalized, images stay raw."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import spaces


class Observations(tf.Module):
    """Normalizer of the floating point leaves of observations.

    Integers stay integers (images uint8) until the network. Only `update` changes
    statistics, so acting, evaluation and export share one transformation. Action masks,
    at the top of a Dict, pass unchanged too.
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
            if enabled and spec.dtype == "float32" and path != spaces.ACTION_MASK
            else None
            for path, spec in leaves
        ]
        self.persistent = [x for x in self._normalizers if x is not None]

    def __call__(self, observation: Any) -> Any:
        """Normalize observations `[..., *shape]`."""
        leaves = [
            normalizer(leaf) if normalizer else leaf
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
            if normalizer:
                normalizer.update(leaf, mask)
