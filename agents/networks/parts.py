"""Parts of networks: inputs, torsos, which make features, and initial weights."""

from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents.networks.config import TORSOS, NetworkConfig
from agents.tools import config as config_
from agents.tools import spaces

FORBIDDEN = -1e9
"""Logit of masked actions: their probability is zero, and its square still finite."""


class Inputs:
    """Splitter of observations into inputs of torsos and action masks.

    Attributes:
      space: Space of the inputs of torsos.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ) -> None:
        """Check whether observations contain a mask, see `spaces.mask_sizes`."""
        self._masked = spaces.mask_sizes(observation_space, action_space) is not None
        self.space = observation_space
        if self._masked:
            children = dict(observation_space.spaces)
            del children[spaces.ACTION_MASK]
            self.space = gymnasium.spaces.Dict(children)

    def split(self, observation: Any) -> tuple[Any, tf.Tensor | None]:
        """Return inputs of torsos, and the mask bool `[..., values]` or None."""
        if not self._masked:
            return observation, None
        rest = dict(observation)
        mask = tf.nest.flatten(rest.pop(spaces.ACTION_MASK))
        return rest, tf.concat([tf.cast(leaf, tf.bool) for leaf in mask], -1)


def zeros(space: gymnasium.Space) -> Any:
    """Return a batch of one zero observation, to build layers."""
    return spaces.transform(
        lambda x: tf.zeros([1, *x.shape], x.dtype), spaces.spec(space)
    )


def torso(
    space: gymnasium.Space, config: NetworkConfig, seed: int, action_size: int = 0
) -> Any:
    """Create the torso that a config names; arguments are those of its class.

    A torso is a Keras layer with these methods:

        initial_state(size)                   # tuple of `[size, units]`, or ()
        step(observation, state, action=None)         # features `[B, F]`, next state
        sequence(observation, state, first)   # features `[B, T, F]`, states after steps
        unroll(observation, state, first)     # the features only

    `observation` is a structure of `[B, ...]` or, in sequences, `[B, T, ...]`; `action`
    is `[B, action_size]`; `first`, bool `[B, T]`, marks steps that begin an episode.

    Raises:
      ConfigError: if the torso is unknown or does not fit the config.
    """
    known = TORSOS.get(config.torso)
    cls = config_.imported(known) if known else config_.find(config.torso)
    return cls(space, config, seed, action_size)


def masked(
    parameters: dict[str, tf.Tensor], allowed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Restrict parameters of (multi-)categorical heads to allowed values.

    Other values are never drawn and do not affect entropy, divergence and gradient.

    Args:
      parameters: Logits `[B..., A]`.
      allowed: bool `[B..., A]`.
    """
    return {"logits": tf.where(allowed, parameters["logits"], FORBIDDEN)}


def hidden_weights(config: NetworkConfig, seed: int) -> keras.initializers.Initializer:
    """Create initial weights of layers followed by an activation."""
    if config.initializer == "orthogonal":
        return keras.initializers.Orthogonal(2**0.5, seed)
    return keras.initializers.GlorotUniform(seed)


def output_weights(
    config: NetworkConfig, seed: int, scale: float | None = None
) -> keras.initializers.Initializer:
    """Create initial weights of the last layer, of `output_scale` by default."""
    scale = config.output_scale if scale is None else scale
    if config.initializer == "orthogonal":
        return keras.initializers.Orthogonal(scale, seed)
    return keras.initializers.VarianceScaling(scale, seed=seed)
