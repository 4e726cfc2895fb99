"""Returns and advantages: pure functions of float32 tensors `[B, T]`.

There are `B` rows and `T` steps, known during tracing. `done` marks the last step of an
episode; no sum crosses it, so a row may contain several episodes. `next_value` is the
value of the observation after the step: the true last one if the episode was truncated,
zero if it terminated; see `next_values`. Tensors of different shapes would broadcast to
plausible numbers, so all must have one shape; a ValueError names those that do not.
"""

import tensorflow as tf


def next_values(value: tf.Tensor, done: tf.Tensor, bootstrap: tf.Tensor) -> tf.Tensor:
    """Return the value after every step, `[B, T]`: the next one or the bootstrap.

    Args:
      value: Values of the observations before the steps.
      done: Steps that end an episode or the data of a row, bool.
      bootstrap: Value of the observation after those steps; zero if terminated.
    """
    require_same_shape(2, value=value, done=done, bootstrap=bootstrap)
    following = tf.concat([value[:, 1:], tf.zeros_like(value[:, :1])], 1)
    return tf.where(done, bootstrap, following)


def n_step(
    reward: tf.Tensor,
    terminated: tf.Tensor,
    done: tf.Tensor,
    discount: float,
    steps: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Sum up to n rewards of an episode; Sutton (1988).

    Args:
      reward: Rewards `[B, T]`.
      terminated: Steps that terminate an episode.
      done: Steps that end an episode or the data of a row, terminated or not; the last
        step of a row must be one.
      discount: Discount of later rewards, per step.
      steps: Number n of rewards to sum up.

    Returns:
      Discounted sums `[B, T]`; discounts of the value after them, zero where the
      episode terminated; and the index of the last included step, int32.
    """
    require_same_shape(2, reward=reward, terminated=terminated, done=done)
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
    """Compute discounted sums `[B, T]` of the rewards from the `first` step on."""
    require_same_shape(2, reward=reward, first=first)
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
    """Compute TD(lambda) returns `[B, T]`; Sutton and Barto (2018), equation 12.20.

    `lambda_=1` gives the discounted (Monte-Carlo) return, bootstrapped where the data
    ends without termination, and `lambda_=0` the one-step target.
    """
    require_same_shape(2, reward=reward, next_value=next_value, done=done)
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
    """Estimate generalized advantages `[B, T]`; Schulman et al. (2016), equation 16."""
    values = {"value": value, "next_value": next_value}
    require_same_shape(2, reward=reward, done=done, **values)
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
    """Compute V-trace value targets and advantages, `[B, T]`, without gradient.

    Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance
    Weighted Actor-Learner Architectures", equation 1, remark 2 and section 4.2.

    Args:
      log_ratio: Log-probabilities of the actions by the learning policy minus those by
        the acting policy.
      reward, value, next_value: See `advantage`.
      done: Ends of episodes and of data.
      discount: Discount of future rewards, per step.
      rho_bar: Largest weight of a temporal difference; determines the policy to whose
        values the targets converge.
      c_bar: Largest weight of later differences; determines the speed.
      rho_pg: Largest weight of an advantage.
      lambda_: Factor of the weights of later differences.
    """
    values = {"value": value, "next_value": next_value}
    require_same_shape(2, log_ratio=log_ratio, reward=reward, done=done, **values)
    ratio = tf.exp(log_ratio)
    error = tf.minimum(rho_bar, ratio) * (reward + discount * next_value - value)
    decay = tf.where(done, 0.0, discount * lambda_ * tf.minimum(c_bar, ratio))
    target = value + _accumulate(error, decay)
    next_target = next_values(target, done, next_value)
    gain = reward + discount * next_target - value
    advantage = tf.minimum(rho_pg, ratio) * gain
    return tf.stop_gradient(target), tf.stop_gradient(advantage)


def require_same_shape(rank: int | None = None, **tensors: tf.Tensor) -> None:
    """Raise ValueError unless tensors have one shape, and the rank if given.

    Dimensions that are unknown during tracing match any size.
    """
    common = tf.TensorShape([None] * rank if rank is not None else None)
    for tensor in tensors.values():
        if not common.is_compatible_with(tensor.shape):
            found = ", ".join(f"{name} {x.shape}" for name, x in tensors.items())
            form = "one shape" if rank is None else f"one shape of {rank} dimensions"
            raise ValueError(f"expected tensors of {form}, got {found}.")
        common = common.merge_with(tensor.shape)


def _accumulate(value: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Solve x[t] = value[t] + decay[t] x[t + 1] backward in log2(T) parallel steps."""
    length, shift = value.shape[1], 1
    while shift < length:
        padding = [[0, 0], [0, shift]]
        value += decay * tf.pad(value[:, shift:], padding)
        decay *= tf.pad(decay[:, shift:], padding)
        shift *= 2
    return value
