"""Heads: from features to distributions, and from samples to actions."""

import dataclasses
import math
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf

from agents.networks import beta as beta_
from agents.networks import boxes, distributions, joint, kinds, parts
from agents.networks.config import NetworkConfig
from agents.tools import spaces

LOG_STD = (-20.0, 2.0)
"""Range of logarithms of standard deviations."""
_INFINITE = 1e30
"""Size of bounds that stand for none."""


class NormalHead(keras.layers.Layer):
    """Diagonal normal with state-independent standard deviation, for boxes.

    In a bounded box the distribution covers [-1, 1]; samples are clipped to this range
    and scaled to the bounds for the environment, so probabilities are those of
    unclipped samples. In other boxes, samples around zero are shifted so that they
    begin at a single bound or lie between both, and are clipped to the bounds.
    """

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        super().__init__()
        self._space = space
        size = int(np.prod(space.shape))
        self._mean = keras.layers.Dense(
            size,
            config.mean_activation,
            kernel_initializer=parts.output_weights(config, seed),
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
        self._bounded = boxes.is_bounded(space)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the parameters of the distribution."""
        mean = self._mean(features)
        log_std = tf.convert_to_tensor(self._log_std)
        excess = tf.clip_by_value(log_std, *LOG_STD) - log_std
        log_std += tf.stop_gradient(excess)  # Gradients lead back into the range.
        return {"mean": mean, "log_std": tf.zeros_like(mean) + log_std}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> distributions.Normal:
        """Create the distribution over samples `[B..., A]`."""
        return distributions.Normal(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert samples `[B, A]` to actions of the space `[B, *shape]`."""
        if self._bounded:
            return boxes.scale(sample, self._space)
        low, high = boxes.bounds(self._space)
        action = tf.reshape(sample, [-1, *self._space.shape]) + center(self._space)
        return tf.clip_by_value(action, low, high)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B, *shape]` to samples `[B, A]`."""
        if self._bounded:
            return boxes.unscale(action, self._space)
        action = action - center(self._space)
        return tf.reshape(action, [-1, *self.sample_spec.shape])


def center(space: gymnasium.spaces.Box) -> np.ndarray:
    """Return where samples around zero belong in a box, float32 `shape`.

    That is the middle between two bounds, a distance of one from a single bound, and
    zero without bounds, which numbers above 1e30 stand for.
    """
    low, high = boxes.bounds(space)
    below, above = (np.abs(x) < _INFINITE for x in (low, high))
    one = np.where(below, low + 1.0, np.where(above, high - 1.0, 0.0))
    with np.errstate(invalid="ignore"):
        middle = low / 2.0 + high / 2.0
    return np.where(below & above, middle, one).astype(np.float32)


class TanhNormalHead(NormalHead):
    """Normal distribution squashed by tanh to the bounds of a box.

    Samples are values of the normal distribution; the mean has no activation.
    """

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        _require_bounded(space, config)
        config = dataclasses.replace(config, mean_activation="linear")
        super().__init__(space, config, seed)

    def distribution(
        self, parameters: dict[str, tf.Tensor]
    ) -> distributions.TanhNormal:
        """Create the distribution over samples `[B..., A]`."""
        return distributions.TanhNormal(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert samples `[B, A]` to actions of the space `[B, *shape]`."""
        return super().action(tf.tanh(sample))

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B, *shape]` to samples `[B, A]`."""
        unit = super().sample_of(action)
        return tf.atanh(tf.clip_by_value(unit, -boxes.INSIDE, boxes.INSIDE))


class BetaHead(keras.layers.Layer):
    """Independent Beta distributions between the bounds of a box."""

    def __init__(self, space: gymnasium.spaces.Box, config: NetworkConfig, seed: int):
        super().__init__()
        _require_bounded(space, config)
        self._space = space
        size = int(np.prod(space.shape))
        # Symmetric distributions on [-1, 1] have variance 1 / (2 alpha + 1); with one
        # mode, the deviation is below that of the uniform distribution, 0.58.
        excess = max((config.initial_std**-2 - 1.0) / 2.0 - 1.0, 0.1)
        self._excess = keras.layers.Dense(
            2 * size,
            kernel_initializer=parts.output_weights(config, seed),
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
        """Compute the parameters of the distribution."""
        alpha, beta = tf.split(1.0 + tf.math.softplus(self._excess(features)), 2, -1)
        return {"alpha": alpha, "beta": beta}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> beta_.Beta:
        """Create the distribution over samples `[B..., A]`."""
        return beta_.Beta(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert samples `[B, A]` to actions of the space `[B, *shape]`."""
        return boxes.scale(2.0 * sample - 1.0, self._space)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B, *shape]` to samples `[B, A]`."""
        unit = tf.clip_by_value(
            boxes.unscale(action, self._space), -boxes.INSIDE, boxes.INSIDE
        )
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
            size, kernel_initializer=parts.output_weights(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([], tf.int64)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(
        self, parameters: dict[str, tf.Tensor]
    ) -> distributions.Categorical:
        """Create the distribution over indices `[B...]`."""
        return distributions.Categorical(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert indices `[B]` to actions of the space `[B]`."""
        return sample + int(self._space.start)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B]` to indices `[B]`."""
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
            size, kernel_initializer=parts.output_weights(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([len(self._sizes)], tf.int64)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> joint.MultiCategorical:
        """Create the distribution over indices `[B..., K]`."""
        return joint.MultiCategorical(**parameters, sizes=self._sizes)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert indices `[B, K]` to actions of the space `[B, *shape]`."""
        action = tf.reshape(sample, [-1, *self._space.shape]) + self._low
        return tf.cast(action, spaces.spec(self._space).dtype)

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B, *shape]` to indices `[B, K]`."""
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
            size, kernel_initializer=parts.output_weights(config, seed)
        )
        self.parameter_specs = {"logits": tf.TensorSpec([size])}
        self.sample_spec = tf.TensorSpec([size], tf.int8)

    def call(self, features: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the parameters of the distribution."""
        return {"logits": self._logits(features)}

    def distribution(self, parameters: dict[str, tf.Tensor]) -> joint.Bernoulli:
        """Create the distribution over zeros and ones `[B..., A]`."""
        return joint.Bernoulli(**parameters)

    def action(self, sample: tf.Tensor) -> tf.Tensor:
        """Convert values `[B, A]` to actions of the space `[B, *shape]`."""
        return tf.reshape(sample, [-1, *self._space.shape])

    def sample_of(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the space `[B, *shape]` to values `[B, A]`."""
        return tf.reshape(action, [-1, *self.sample_spec.shape])


class JointHead(keras.layers.Layer):
    """Independent distributions of all leaves, for Dict and Tuple spaces.

    Parameters and samples are tuples with one entry per leaf.
    """

    def __init__(self, space: gymnasium.Space, config: NetworkConfig, seed: int):
        super().__init__()
        self._structure = spaces.spec(space)
        self._heads = [
            kinds.head(leaf, config, seed + 10 * index)
            for index, leaf in enumerate(spaces.flatten(space))
        ]
        self.parameter_specs = tuple(x.parameter_specs for x in self._heads)
        self.sample_spec = tuple(x.sample_spec for x in self._heads)

    def call(self, features: tf.Tensor) -> tuple[dict[str, tf.Tensor], ...]:
        """Compute the parameters of the distributions."""
        return tuple(x(features) for x in self._heads)

    def distribution(self, parameters: tuple) -> joint.Joint:
        """Create the distribution over tuples of the leaves' samples."""
        pairs = zip(self._heads, parameters, strict=True)
        return joint.Joint([x.distribution(y) for x, y in pairs])

    def action(self, sample: tuple) -> Any:
        """Convert samples of the leaves to actions of the space `[B, ...]`."""
        pairs = zip(self._heads, sample, strict=True)
        return spaces.unflatten(self._structure, [x.action(y) for x, y in pairs])

    def sample_of(self, action: Any) -> tuple:
        """Convert actions of the space `[B, ...]` to samples of the leaves."""
        pairs = zip(self._heads, spaces.flatten(action), strict=True)
        return tuple(x.sample_of(y) for x, y in pairs)


def _require_bounded(space: gymnasium.spaces.Box, config: NetworkConfig) -> None:
    """Raise UnsupportedSpaceError unless a box is bounded on both sides."""
    if not boxes.is_bounded(space):
        raise spaces.UnsupportedSpaceError(
            f"Action space {space} is not bounded on both sides, as actions with "
            f"continuous {config.continuous!r} must be; use continuous 'normal'."
        )
