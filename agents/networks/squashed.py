"""Policy of SAC for boxes."""

from typing import Any

import gymnasium
import tensorflow as tf

from agents.networks import boxes, distributions, twin_critics
from agents.networks.config import NetworkConfig


class SquashedPolicy(twin_critics.Outputs):
    """Tanh-squashed normal distribution whose deviation depends on observations.

    Actions are vectors in [-1, 1], which `action` scales to the bounds of a box;
    Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications".
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NetworkConfig,
        seed: int,
    ) -> None:
        """Build all layers; raises UnsupportedSpaceError unless actions are boxes."""
        self.size = boxes.size_of(action_space)
        self._space = action_space
        super().__init__(observation_space, 2 * self.size, config, seed)

    def distribution(self, observation: Any) -> distributions.TanhNormal:
        """Compute the distribution over vectors `[B, A]` before tanh."""
        mean, log_std = tf.split(self(observation), 2, -1)
        middle, half = sum(LOG_STD) / 2.0, (LOG_STD[1] - LOG_STD[0]) / 2.0
        return distributions.TanhNormal(mean, middle + half * tf.tanh(log_std))

    def action(self, unit: tf.Tensor) -> tf.Tensor:
        """Scale vectors in [-1, 1] to actions of the space."""
        return boxes.scale(unit, self._space)


LOG_STD = (-5.0, 2.0)
"""Bounds of the logarithm of the deviation before tanh."""
