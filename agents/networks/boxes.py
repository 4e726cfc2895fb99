"""Conversion of box actions from and to vectors between -1 and 1."""

import gymnasium
import numpy as np
import tensorflow as tf

from agents.tools import spaces

INSIDE = 1.0 - 1e-6
"""Largest fraction of the way to a bound for distributions between bounds."""


def is_bounded(space: gymnasium.spaces.Box) -> bool:
    """Return whether a box has a finite size in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (x.astype(np.float32) for x in (space.low, space.high))
        return bool(np.isfinite(high - low).all())


def bounds(space: gymnasium.spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Return lowest and highest actions of a box, float32 `shape`."""
    return space.low.astype(np.float32), space.high.astype(np.float32)


def scale(unit: tf.Tensor, space: gymnasium.spaces.Box) -> tf.Tensor:
    """Scale vectors `[B, A]`, clipped to +-1, to actions `[B, *shape]` of a box."""
    unit = tf.clip_by_value(tf.reshape(unit, [-1, *space.shape]), -1.0, 1.0)
    low, high = bounds(space)
    return tf.clip_by_value(low + (unit + 1.0) / 2.0 * (high - low), low, high)


def unscale(action: tf.Tensor, space: gymnasium.spaces.Box) -> tf.Tensor:
    """Scale actions back to vectors `[B, A]` in [-1, 1], zero if there is one value."""
    low, high = bounds(space)
    unit = 2.0 * (action - low) / np.where(high > low, high - low, 1.0) - 1.0
    unit = tf.where(high > low, tf.clip_by_value(unit, -1.0, 1.0), 0.0)
    return tf.reshape(unit, [-1, int(np.prod(space.shape))])


def size_of(space: gymnasium.Space) -> int:
    """Return the number of components of a bounded box.

    Raises:
      UnsupportedSpaceError: for other spaces.
    """
    floating = isinstance(space, gymnasium.spaces.Box) and space.dtype.kind == "f"
    if not floating or not is_bounded(space):
        raise spaces.UnsupportedSpaceError(
            f"Action space {space} is not a floating point Box with finite bounds; use a "
            "policy gradient such as ppo, which acts in all spaces, or dqn for Discrete "
            "and MultiDiscrete ones."
        )
    return int(np.prod(space.shape))
