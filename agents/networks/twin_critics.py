"""Networks with vector outputs, and twin critics of observations and actions."""

from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents.networks import parts
from agents.networks.config import NetworkConfig


class Outputs(keras.layers.Layer):
    """Network from observations, and in critics also actions, to a vector."""

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
        self._torso = parts.torso(observation_space, config, seed, action_size)
        self._output = keras.layers.Dense(
            units, kernel_initializer=parts.hidden_weights(config, seed + 50)
        )
        self.call(parts.zeros(observation_space), tf.zeros([1, action_size]))
        self.built = True

    def call(self, observation: Any, action: tf.Tensor | None = None) -> tf.Tensor:
        """Compute outputs `[B, units]`, in critics for actions `[B, A]`."""
        return self._output(self._torso.step(observation, (), action)[0])


class TwinCritics(keras.layers.Layer):
    """Two independent value functions of observations and actions.

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
        """Compute values `[2, B]` of actions `[B, A]`, or `[2, B, A]` of choices."""
        values = tf.stack([critic(observation, action) for critic in self._critics])
        return values if self._discrete else values[..., 0]
