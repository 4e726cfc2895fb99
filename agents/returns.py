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


def n_step(
    reward: tf.Tensor,
    terminated: tf.Tensor,
    done: tf.Tensor,
    discount: float,
    steps: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sums of so many rewards, or up to the next end; Sutton (1988).

    Args:
      reward: Rewards `[B, T]`.
      terminated: Steps after which nothing is worth anything.
      done: Those and all others after which the row does not go on; the last one of a
        row is one.
      discount: Of later rewards.
      steps: Rewards that are summed up.

    Returns:
      Discounted sums `[B, T]`; discounts of the value of what follows, zero where that
      is nothing; and the steps int32 that it follows.
    """
    start = tf.zeros_like(reward, tf.int32) + tf.range(tf.shape(reward)[1])
    last, total = start, reward
    for ahead in range(1, steps):
        goes_on = ~tf.gather(done, last, batch_dims=1)
        last += tf.cast(goes_on, tf.int32)
        next_reward = tf.gather(reward, last, batch_dims=1)
        total += tf.where(goes_on, discount**ahead * next_reward, 0.0)
    factor = discount ** tf.cast(last + 1 - start, reward.dtype)
    nothing = tf.gather(terminated, last, batch_dims=1)
    return total, tf.where(nothing, 0.0, factor), last


def running(
    reward: tf.Tensor, first: tf.Tensor, discount: float | tf.Tensor
) -> tf.Tensor:
    """Discounted sums `[B, T]` of the rewards up to each step, from `first` ones on."""
    decay = tf.where(first, 0.0, tf.cast(discount, reward.dtype))
    backward = _accumulate(reward[:, ::-1], decay[:, ::-1])
    return backward[:, ::-1]


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


def vtrace(
    log_ratio: tf.Tensor,
    reward: tf.Tensor,
    value: tf.Tensor,
    next_value: tf.Tensor,
    done: tf.Tensor,
    discount: float | tf.Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_pg: float = 1.0,
    lambda_: float = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """V-trace targets of values, and advantages of actions, `[B, T]`, without gradient.

    Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance
    Weighted Actor-Learner Architectures", equation 1, remark 2 and section 4.2.

    Args:
      log_ratio: Log-probabilities of what was done by the policy that learns, less
        those by the policy that acted.
      reward, value, next_value: As for `advantage`.
      done: Ends of episodes and of data.
      discount: Of future rewards.
      rho_bar: Largest weight of a temporal difference; it decides to the values of
        which policy the targets converge.
      c_bar: Largest weight of what follows; it decides how quickly.
      rho_pg: Largest weight of an advantage.
      lambda_: Factor of the weights of what follows.
    """
    ratio = tf.exp(log_ratio)
    error = tf.minimum(rho_bar, ratio) * (reward + discount * next_value - value)
    decay = tf.where(done, 0.0, discount * lambda_ * tf.minimum(c_bar, ratio))
    target = value + _accumulate(error, decay)
    next_target = next_values(target, done, next_value)
    gain = reward + discount * next_target - value
    advantage = tf.minimum(rho_pg, ratio) * gain
    return tf.stop_gradient(target), tf.stop_gradient(advantage)


def _accumulate(value: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Solve x[t] = value[t] + decay[t] x[t + 1] backward in log2(T) parallel steps."""
    length, shift = value.shape[1], 1
    while shift < length:
        padding = [[0, 0], [0, shift]]
        value += decay * tf.pad(value[:, shift:], padding)
        decay *= tf.pad(decay[:, shift:], padding)
        shift *= 2
    return value
