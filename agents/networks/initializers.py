"""Initial weights, seeded layer by layer."""

import keras

from agents.networks.presets import NetworkConfig


def hidden(config: NetworkConfig, seed: int) -> keras.initializers.Initializer:
    """For layers followed by an activation."""
    if config.initializer == "orthogonal":
        return keras.initializers.Orthogonal(2**0.5, seed)
    return keras.initializers.GlorotUniform(seed)


def output(
    config: NetworkConfig, seed: int, scale: float | None = None
) -> keras.initializers.Initializer:
    """For the last layer, small (`config.output_scale`) unless a scale is given."""
    scale = config.output_scale if scale is None else scale
    if config.initializer == "orthogonal":
        return keras.initializers.Orthogonal(scale, seed)
    return keras.initializers.VarianceScaling(scale, seed=seed)
