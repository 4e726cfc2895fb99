"""Returns and advantages: pure functions of float32 tensors `[B, T]`.

`B` rows, `T` steps. `done` marks the last step of an episode; nothing crosses it, so
a row may hold several episodes. `next_value` is the value of the observation after
the step: of the true last observation where the episode was truncated, zero where it
terminated, which `next_values` arranges.
"""

import tensorflow as tf


def next_values(value: tf.Tensor, done: tf.Tensor, bootstrap: tf.Tensor) -> tf.Tensor:
    """Value after every step, `[B, T]`: the one that follows, or the bootstrap.

    Args:
      value: Values of the observations before the steps.
      done: Steps after which the row does not go on, bool: ends of episodes and of data.
      bootstrap: Value of the observation after those steps; zero if terminated.
    """
    following = tf.concat([value[:, 1:], tf.zeros_like(value[:, :1])], 1)
    return tf.where(done, bootstrap, following)


def lambda_return(
    reward: tf.Tensor,
    next_value: tf.Tensor,
    done: tf.Tensor,
    discount: float | tf.Tensor,
    lambda_: float | tf.Tensor,
) -> tf.Tensor:
    """TD(lambda) return `[B, T]`; Sutton and Barto (2018), equation 12.20.

    `lambda_=1` gives the discounted (Monte-Carlo) return, bootstrapped where the data
    ends without termination, and `lambda_=0` the one-step target.
    """
    decay = tf.where(done, 0.0, tf.cast(discount * lambda_, reward.dtype))
    carried = tf.where(done, 1.0, tf.cast(1.0 - lambda_, reward.dtype))
    return _accumulate(reward + discount * carried * next_value, decay)


def advantage(
    reward: tf.Tensor,
    value: tf.Tensor,
    next_value: tf.Tensor,
    done: tf.Tensor,
    discount: float | tf.Tensor,
    lambda_: float | tf.Tensor,
) -> tf.Tensor:
    """Generalized advantage estimate `[B, T]`; Schulman et al. (2016), equation 16."""
    error = reward + discount * next_value - value
    decay = tf.where(done, 0.0, tf.cast(discount * lambda_, reward.dtype))
    return _accumulate(error, decay)


def _accumulate(value: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Solve x[t] = value[t] + decay[t] x[t + 1] backward in log2(T) parallel steps."""
    length, shift = value.shape[1], 1
    while shift < length:
        padding = [[0, 0], [0, shift]]
        value += decay * tf.pad(value[:, shift:], padding)
        decay *= tf.pad(decay[:, shift:], padding)
        shift *= 2
    return value
