"""What the network sees of an observation: normalized numbers, raw images."""

from typing import Any

import tensorflow as tf

from agents.preprocessing import normalize
from agents.tools import spaces


class Observations(tf.Module):
    """Normalizes the floating point leaves of observations; others pass unchanged.

    Integers stay integers (images uint8) until the network. Statistics change in
    `update` only, so acting, evaluation and export see the same transformation. Action
    masks, at the top of a Dict, pass unchanged too.
    """

    def __init__(self, specs: Any, enabled: bool, clip: float | None = 5.0) -> None:
        """Specs is a structure of `spaces.Spec`, clip in standard deviations."""
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
        """Observations `[..., *shape]` as the network sees them."""
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
