"""Heads: from features to a distribution, and from its samples to actions."""

import dataclasses
import math
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from agents.networks import distributions, initializers
from agents.networks.presets import NetworkConfig
from agents.tools import spaces

FORBIDDEN = -1e9
"""Logit of masked actions: their probability is zero, and its square still finite."""


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
        self._bounded = is_bounded(space)

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
        if self._bounded:
            return scale(sample, self._space)
        low, high = _bounds(self._space)
        return tf.clip_by_value(tf.reshape(sample, [-1, *self._space.shape]), low, high)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Samples `[B, A]` that lead to actions of the space `[B, *shape]`."""
        if self._bounded:
            return unscale(action, self._space)
        return tf.reshape(action, [-1, *self.sample_spec.shape])


class TanhNormalHead(NormalHead):
    """Normal distribution squashed by tanh to the bounds of a box.

    Samples are those of the normal distribution; the mean has no activation.
    """

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        _require_bounded(space, config)
        config = dataclasses.replace(config, mean_activation="linear")
        super().__init__(space, config, seed)

    def distribution(
        self, parameters: dict[str, tf.Tensor]
    ) -> distributions.TanhNormal:
        """Distribution over samples `[B..., A]`."""
        return distributions.TanhNormal(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B, *shape]` for samples `[B, A]`."""
        return super().action(tf.tanh(sample))

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Samples `[B, A]` that lead to actions of the space `[B, *shape]`."""
        unit = super().sample_of(action)
        return tf.atanh(tf.clip_by_value(unit, -INSIDE, INSIDE))


class BetaHead(keras.layers.Layer):
    """Independent Beta distributions between the bounds of a box."""

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        super().__init__()
        _require_bounded(space, config)
        self._space = space
        size = int(np.prod(space.shape))
        # Symmetric distributions on [-1, 1] have variance 1 / (2 alpha + 1); with one
        # mode, the deviation is below that of the uniform one, 0.58.
        excess = max((config.initial_std**-2 - 1.0) / 2.0 - 1.0, 0.1)
        self._excess = keras.layers.Dense(
            2 * size,
            kernel_initializer=initializers.output(config, seed),
            bias_initializer=keras.initializers.Constant(
                excess + math.log(-math.expm1(-excess))  # Inverse of softplus.
            ),
        )
        self.parameter_specs = {
            "alpha": tf.TensorSpec([size]),
            "beta": tf.TensorSpec([size]),
        }
        self.sample_spec = tf.TensorSpec([size])

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parameters of the distribution."""
        alpha, beta = tf.split(1.0 + tf.math.softplus(self._excess(features)), 2, -1)
        return {"alpha": alpha, "beta": beta}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> distributions.Beta:
        """Distribution over samples `[B..., A]`."""
        return distributions.Beta(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B, *shape]` for samples `[B, A]`."""
        return scale(2.0 * sample - 1.0, self._space)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Samples `[B, A]` that lead to actions of the space `[B, *shape]`."""
        unit = tf.clip_by_value(unscale(action, self._space), -INSIDE, INSIDE)
        return (unit + 1.0) / 2.0


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

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Indices `[B]` of actions of the space `[B]`."""
        return action - int(self._space.start)


class MultiCategoricalHead(keras.layers.Layer):
    """Independent categorical distributions, for MultiDiscrete and integer boxes."""

    def __init__(
        self,
        space: gymnasium.spaces.MultiDiscrete | gymnasium.spaces.Box,
        config: NetworkConfig,
        seed: int,
    ):
        super().__init__()
        self._space = space
        self._low, counts = spaces.integer_range(space)
        self._sizes = counts.ravel().tolist()
        size = sum(self._sizes)
        self._logits = keras.layers.Dense(
            size, kernel_initializer=initializers.output(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([len(self._sizes)], tf.int64)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(
        self, parameters: dict[str, tf.Tensor]
    ) -> distributions.MultiCategorical:
        """Distribution over indices `[B..., K]`."""
        return distributions.MultiCategorical(**parameters, sizes=self._sizes)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B, *shape]` for indices `[B, K]`."""
        action = tf.reshape(sample, [-1, *self._space.shape]) + self._low
        return tf.cast(action, spaces.spec(self._space).dtype)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Indices `[B, K]` of actions of the space `[B, *shape]`."""
        index = tf.cast(action, tf.int64) - self._low
        return tf.reshape(index, [-1, len(self._sizes)])


class BernoulliHead(keras.layers.Layer):
    """Independent binary values, for MultiBinary spaces."""

    def __init__(
        self, space: gymnasium.spaces.MultiBinary, config: NetworkConfig, seed: int
    ):
        super().__init__()
        self._space = space
        size = int(np.prod(space.shape))
        self._logits = keras.layers.Dense(
            size, kernel_initializer=initializers.output(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([size], tf.int8)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> distributions.Bernoulli:
        """Distribution over zeros and ones `[B..., A]`."""
        return distributions.Bernoulli(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Action of the space `[B, *shape]` for values `[B, A]`."""
        return tf.reshape(sample, [-1, *self._space.shape])

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Values `[B, A]` of actions of the space `[B, *shape]`."""
        return tf.reshape(action, [-1, *self.sample_spec.shape])


class JointHead(keras.layers.Layer):
    """Independent distributions of all leaves, for Dict and Tuple spaces.

    Parameters and samples are tuples with one entry per leaf.
    """

    def __init__(self, space: gymnasium.Space, config: NetworkConfig, seed: int):
        super().__init__()
        self._structure = spaces.spec(space)
        self._heads = [
            head(leaf, config, seed + 10 * index)
            for index, leaf in enumerate(spaces.leaf_spaces(space))
        ]
        self.parameter_specs = tuple(x.parameter_specs for x in self._heads)
        self.sample_spec = tuple(x.sample_spec for x in self._heads)

    def call(self, features: tf.Tensor) -> tuple[dict[str, tf.Tensor], ...]:
        """Parameters of the distributions."""
        return tuple(x(features) for x in self._heads)

    def distribution(self, parameters: tuple) -> distributions.Joint:
        """Distribution over tuples of the leaves' samples."""
        pairs = zip(self._heads, parameters, strict=True)
        return distributions.Joint([x.distribution(y) for x, y in pairs])

    def action(self, sample: tuple) -> Any:
        """Action of the space `[B, ...]` for samples of the leaves."""
        pairs = zip(self._heads, sample, strict=True)
        return spaces.unflatten(self._structure, [x.action(y) for x, y in pairs])

    def sample_of(self, action: Any) -> tuple:
        """Samples of the leaves that lead to actions of the space `[B, ...]`."""
        pairs = zip(self._heads, spaces.flatten(action), strict=True)
        return tuple(x.sample_of(y) for x, y in pairs)


def head(space: gymnasium.Space, config: NetworkConfig, seed: int) -> Any:
    """Head that suits an action space.

    Raises:
      UnsupportedSpaceError: if there is none.
    """
    check_action_space(space)
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        return JointHead(space, config, seed)
    if isinstance(space, gymnasium.spaces.Discrete):
        return CategoricalHead(space, config, seed)
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return BernoulliHead(space, config, seed)
    if np.issubdtype(space.dtype, np.floating):
        kinds = {
            "normal": NormalHead,
            "tanh_normal": TanhNormalHead,
            "beta": BetaHead,
        }
        return kinds[config.continuous](space, config, seed)
    return MultiCategoricalHead(space, config, seed)


def masked(
    parameters: dict[str, tf.Tensor], allowed: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Parameters of (multi-)categorical heads with only the allowed values possible.

    Others are never drawn and have no part in entropy, divergence and gradient.

    Args:
      parameters: Logits `[B..., A]`.
      allowed: bool `[B..., A]`.
    """
    return {"logits": tf.where(allowed, parameters["logits"], FORBIDDEN)}


INSIDE = 1.0 - 1e-6
"""Largest part of the way to a bound that distributions between bounds can reach."""
MAX_VALUES = 1000
"""Values that one number of an integer box may take to be an action."""


def check_action_space(space: gymnasium.Space) -> None:
    """Raise UnsupportedSpaceError unless there is a head for this space."""
    for leaf in spaces.leaf_spaces(space):
        spaces.spec(leaf)
        integers = isinstance(leaf, gymnasium.spaces.Box) and leaf.dtype.kind in "iub"
        if integers and spaces.integer_range(leaf)[1].max(initial=0) > MAX_VALUES:
            raise spaces.UnsupportedSpaceError(
                f"Action space {leaf} has too many values to choose from, at most "
                f"{MAX_VALUES} are supported; use a floating point Box."
            )
    if not spaces.leaf_spaces(space):
        raise spaces.UnsupportedSpaceError(f"Action space {space} is empty.")


def is_bounded(space: gymnasium.spaces.Box) -> bool:
    """Whether a box has a finite size in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (x.astype(np.float32) for x in (space.low, space.high))
        return bool(np.isfinite(high - low).all())


def _require_bounded(space: gymnasium.spaces.Box, config: NetworkConfig) -> None:
    """Raise UnsupportedSpaceError unless a box is bounded on both sides."""
    if not is_bounded(space):
        raise spaces.UnsupportedSpaceError(
            f"Action space {space} is not bounded on both sides, as actions with "
            f"continuous {config.continuous!r} must be; use continuous 'normal'."
        )


def _bounds(space: gymnasium.spaces.Box) -> tuple[tf.Tensor, tf.Tensor]:
    """Lowest and highest actions of a box, float32 `shape`."""
    return tf.constant(space.low, tf.float32), tf.constant(space.high, tf.float32)


def scale(unit: tf.Tensor, space: gymnasium.spaces.Box) -> tf.Tensor:
    """Actions of a bounded box `[B, *shape]` for vectors `[B, A]` clipped to +-1."""
    unit = tf.clip_by_value(tf.reshape(unit, [-1, *space.shape]), -1.0, 1.0)
    low, high = _bounds(space)
    return tf.clip_by_value(low + (unit + 1.0) / 2.0 * (high - low), low, high)


def unscale(action: tf.Tensor, space: gymnasium.spaces.Box) -> tf.Tensor:
    """Vectors `[B, A]` in [-1, 1] for actions of a bounded box, see `scale`."""
    low, high = _bounds(space)
    size = tf.where(high > low, high - low, 1.0)
    unit = tf.clip_by_value(2.0 * (action - low) / size - 1.0, -1.0, 1.0)
    return tf.reshape(unit, [-1, int(np.prod(space.shape))])
