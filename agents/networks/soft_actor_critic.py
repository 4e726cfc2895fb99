"""Policy and twin critics of one agent, for SAC and TD3."""

from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from agents.networks import distributions, heads, initializers, inputs, torsos
from agents.networks.presets import NetworkConfig
from agents.tools import spaces


class Outputs(keras.layers.Layer):
    """Maps observations, and for critics actions, to a vector of numbers."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        units: int,
        config: NetworkConfig,
        seed: int,
        action_size: int = 0,
    ) -> None:
        """Build all layers, with `units` outputs; see `torsos.Torso`."""
        super().__init__()
        self._torso = torsos.Torso(observation_space, config, seed, action_size)
        self._output = keras.layers.Dense(
            units, kernel_initializer=initializers.hidden(config, seed + 50)
        )
        self.call(inputs.zeros(observation_space), tf.zeros([1, action_size]))
        self.built = True

    def call(self, observation: Any, action: tf.Tensor | None = None) -> tf.Tensor:
        """Outputs `[B, units]`, of actions `[B, A]` too if the layers take them."""
        return self._output(self._torso.step(observation, (), action)[0])


class TwinCritics(keras.layers.Layer):
    """Two independent values of observations and actions, or of all actions.

    Fujimoto et al. (2018), "Addressing Function Approximation Error in Actor-Critic
    Methods", section 4.2.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        size: int,
        config: NetworkConfig,
        seed: int,
        discrete: bool,
    ) -> None:
        """Build critics for vectors of `size` numbers in [-1, 1], or `size` choices."""
        super().__init__()
        self._discrete = discrete
        units, action_size = (size, 0) if discrete else (1, size)
        self._critics = [
            Outputs(observation_space, units, config, seed + x, action_size)
            for x in (0, 1000)
        ]
        self.built = True

    def call(self, observation: Any, action: tf.Tensor | None = None) -> tf.Tensor:
        """Values `[2, B]` of actions `[B, A]`; for choices, `[2, B, A]` of all."""
        values = tf.stack([critic(observation, action) for critic in self._critics])
        return values if self._discrete else values[..., 0]


class SquashedPolicy(Outputs):
    """Tanh-squashed normal distribution whose deviation depends on observations.

    Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications"; actions
    are vectors in [-1, 1], scaled to the bounds of a box by `action`.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NetworkConfig,
        seed: int,
    ) -> None:
        """Build all layers; raises UnsupportedSpaceError for other than boxes."""
        self.size = box_size(action_space)
        self._space = action_space
        super().__init__(observation_space, 2 * self.size, config, seed)

    def distribution(self, observation: Any) -> distributions.TanhNormal:
        """Distribution over vectors `[B, A]` before tanh."""
        mean, log_std = tf.split(self(observation), 2, -1)
        middle, half = sum(LOG_STD) / 2.0, (LOG_STD[1] - LOG_STD[0]) / 2.0
        return distributions.TanhNormal(mean, middle + half * tf.tanh(log_std))

    def action(self, unit: tf.Tensor) -> tf.Tensor:
        """Action of the space for vectors in [-1, 1]."""
        return heads.scale(unit, self._space)


LOG_STD = (-5.0, 2.0)
"""Bounds of the logarithm of the deviation before tanh."""


def box_size(space: gymnasium.Space) -> int:
    """Number of numbers of a bounded box.

    Raises:
      UnsupportedSpaceError: for other spaces.
    """
    floating = isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f"
    if not floating or not heads.is_bounded(space):
        raise spaces.UnsupportedSpaceError(
            f"Action space {space} is no floating point Box with finite bounds; use a "
            "policy gradient such as ppo, which acts in all spaces, or dqn for Discrete "
            "and MultiDiscrete ones."
        )
    return int(np.prod(space.shape))
