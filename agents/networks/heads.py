"""Heads: from features to a distribution, and from its samples to actions."""

import math
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from agents.networks import distributions, initializers
from agents.networks.presets import NetworkConfig
from agents.tools import spaces


class NormalHead(keras.layers.Layer):
    """Diagonal normal with state-independent standard deviation, for boxes.

    In a bounded box the distribution lives in [-1, 1]; samples are clipped to that
    and scaled to the bounds on their way to the environment, so that probabilities are
    those of the unclipped samples. In other boxes they are clipped to what bounds
    there are.
    """

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        super().__init__()
        self._space = space
        size = int(np.prod(space.shape))
        self._mean = keras.layers.Dense(
            size,
            config.mean_activation,
            kernel_initializer=initializers.output(config, seed),
        )
        self._log_std = self.add_weight(
            shape=[size],
            initializer=keras.initializers.Constant(math.log(config.initial_std)),
            name="log_std",
        )
        self.parameter_specs = {
            "mean": tf.TensorSpec([size]),
            "log_std": tf.TensorSpec([size]),
        }
        self.sample_spec = tf.TensorSpec([size])
        self._bounded = space.is_bounded("both")

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parameters of the distribution."""
        mean = self._mean(features)
        log_std = tf.clip_by_value(tf.convert_to_tensor(self._log_std), -20.0, 2.0)
        return {"mean": mean, "log_std": tf.zeros_like(mean) + log_std}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> distributions.Normal:
        """Distribution over samples `[B..., A]`."""
        return distributions.Normal(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B, *shape]` for samples `[B, A]`."""
        action = tf.reshape(sample, [-1, *self._space.shape])
        low = tf.constant(self._space.low, tf.float32)
        high = tf.constant(self._space.high, tf.float32)
        if self._bounded:
            unit = tf.clip_by_value(action, -1.0, 1.0)
            action = low + (unit + 1.0) / 2.0 * (high - low)
        return tf.clip_by_value(action, low, high)


class CategoricalHead(keras.layers.Layer):
    """Categorical distribution, for Discrete spaces."""

    def __init__(
        self, space: gymnasium.spaces.Discrete, config: NetworkConfig, seed: int
    ):
        super().__init__()
        self._space = space
        size = int(space.n)
        self._logits = keras.layers.Dense(
            size, kernel_initializer=initializers.output(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([], tf.int64)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(
        self, parameters: dict[str, tf.Tensor]
    ) -> distributions.Categorical:
        """Distribution over indices `[B...]`."""
        return distributions.Categorical(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B]` for indices `[B]`."""
        return sample + int(self._space.start)


def head(space: gymnasium.Space, config: NetworkConfig, seed: int) -> Any:
    """Head that suits an action space.

    Raises:
      UnsupportedSpaceError: if there is none.
    """
    check_action_space(space)
    if isinstance(space, gymnasium.spaces.Box):
        return NormalHead(space, config, seed)
    return CategoricalHead(space, config, seed)


def check_action_space(space: gymnasium.Space) -> None:
    """Raise UnsupportedSpaceError unless there is a head for this space."""
    floating = np.issubdtype(space.dtype or np.int64, np.floating)
    if isinstance(space, gymnasium.spaces.Box) and floating:
        return
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise spaces.UnsupportedSpaceError(
            f"Action space {space} is not supported by policy gradients; use Discrete "
            "or a floating point Box."
        )
