"""Returns and advantages: numbers worked by hand, and identities."""

import re

import numpy as np
import pytest
import tensorflow as tf

from agents import returns

DISCOUNT = 0.9


def tensors(*arrays):
    kinds = {"b": tf.bool, "f": tf.float32, "i": tf.float32}
    arrays = [np.asarray(array) for array in arrays]
    return [tf.constant(array, kinds[array.dtype.kind]) for array in arrays]


def random_batch(rng, rows=3, length=11, ends=0.3):
    """Rewards, values, next values and ends of rows with several episodes each."""
    reward, value, bootstrap = rng.normal(size=(3, rows, length))
    done = rng.random((rows, length)) < ends
    done[:, -1] = True
    bootstrap *= done & (rng.random((rows, length)) < 0.5)
    reward, value, bootstrap, done = tensors(reward, value, bootstrap, done)
    next_value = returns.next_values(value, done, bootstrap)
    return reward, value, next_value, done


def slow_advantage(reward, value, next_value, done, discount, lambda_):
    """Definition as a sum over the rest of the episode, in float64."""
    reward, value, next_value = (
        np.asarray(x, np.float64) for x in (reward, value, next_value)
    )
    result = np.zeros_like(reward)
    for row, start in np.ndindex(*reward.shape):
        weight = 1.0
        for step in range(start, reward.shape[1]):
            error = reward[row, step] + discount * next_value[row, step]
            result[row, start] += weight * (error - value[row, step])
            if done[row, step]:
                break
            weight *= discount * lambda_
    return result


def test_next_values_by_hand():
    value, bootstrap = [[1.0, 2, 3, 4, 5]], [[9.0, 0, 9, 7, 8]]
    done = [[False, True, False, True, True]]
    result = returns.next_values(*tensors(value, done, bootstrap))
    assert result.numpy().tolist() == [[2, 0, 4, 7, 8]]


def test_monte_carlo_return_by_hand():
    reward = [[1.0, 2, 3], [1, 1, 1]]
    done = [[False, False, True], [True, False, True]]
    reward, done, zeros = tensors(reward, done, np.zeros([2, 3]))
    result = returns.lambda_return(reward, zeros, done, 0.5, 1.0)
    np.testing.assert_allclose(result, [[2.75, 3.5, 3], [1, 1.5, 1]])


def test_advantage_by_hand():
    reward, value = [[1.0, 2.0, 3.0]], [[0.5, 1.0, -1.0]]
    done, bootstrap = [[False, False, True]], [[0.0, 0.0, 10.0]]
    reward, value, done, bootstrap = tensors(reward, value, done, bootstrap)
    next_value = returns.next_values(value, done, bootstrap)
    # Errors: 1 + .9 * 1 - .5 = 1.4; 2 - .9 - 1 = .1; 3 + 9 + 1 = 13.
    result = returns.advantage(reward, value, next_value, done, 0.9, 0.5)
    np.testing.assert_allclose(result, [[4.0775, 5.95, 13.0]], rtol=1e-6)
    # Returns mix half of the value and half of what follows: 3 + 9 = 12;
    # 2 + .9 * (.5 * -1 + .5 * 12) = 6.95; 1 + .9 * (.5 * 1 + .5 * 6.95) = 4.5775.
    result = returns.lambda_return(reward, next_value, done, 0.9, 0.5)
    np.testing.assert_allclose(result, [[4.5775, 6.95, 12.0]], rtol=1e-6)


def test_terminated_and_truncated_differ_by_the_bootstrap_exactly():
    reward, value, done = tensors(
        [[1.0, 1.0, 1.0]], [[3.0, 4.0, 5.0]], [[False, False, True]]
    )
    results = []
    for last in (0.0, 20.0):
        (bootstrap,) = tensors([[0.0, 0.0, last]])
        next_value = returns.next_values(value, done, bootstrap)
        results.append(
            returns.advantage(reward, value, next_value, done, 0.5, 1.0).numpy()
        )
    difference = results[1] - results[0]
    np.testing.assert_allclose(difference, [[2.5, 5.0, 10.0]])


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 0.95, 1.0])
def test_parallel_sum_equals_the_definition(lambda_):
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 8, 13):
        batch = random_batch(rng, length=length)
        result = returns.advantage(*batch, DISCOUNT, lambda_)
        expected = slow_advantage(*batch, DISCOUNT, lambda_)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_lambda_one_is_the_discounted_return_minus_the_value():
    reward, value, next_value, done = random_batch(np.random.default_rng(1))
    advantage = returns.advantage(reward, value, next_value, done, DISCOUNT, 1.0)
    expected = np.zeros(reward.shape)
    for row in range(reward.shape[0]):
        following = 0.0
        for step in reversed(range(reward.shape[1])):
            after = next_value[row, step] if done[row, step] else following
            following = reward[row, step] + DISCOUNT * after
            expected[row, step] = following
    np.testing.assert_allclose(advantage, expected - value, atol=1e-5)
    result = returns.lambda_return(reward, next_value, done, DISCOUNT, 1.0)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_lambda_zero_is_the_one_step_error():
    reward, value, next_value, done = random_batch(np.random.default_rng(2))
    target = reward + DISCOUNT * next_value
    advantage = returns.advantage(reward, value, next_value, done, DISCOUNT, 0.0)
    np.testing.assert_allclose(advantage, target - value, atol=1e-6)
    result = returns.lambda_return(reward, next_value, done, DISCOUNT, 0.0)
    np.testing.assert_allclose(result, target, atol=1e-6)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_advantage_is_lambda_return_minus_value(lambda_):
    reward, value, next_value, done = random_batch(np.random.default_rng(3))
    advantage = returns.advantage(reward, value, next_value, done, DISCOUNT, lambda_)
    result = returns.lambda_return(reward, next_value, done, DISCOUNT, lambda_)
    np.testing.assert_allclose(advantage, result - value, atol=1e-5)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_concatenated_episodes_equal_each_alone(lambda_):
    rng = np.random.default_rng(4)
    parts = [random_batch(rng, length=length, ends=0.0) for length in (4, 1, 7)]
    whole = [tf.concat(tensors, 1) for tensors in zip(*parts, strict=True)]

    def advantage(reward, value, next_value, done):
        return returns.advantage(reward, value, next_value, done, DISCOUNT, lambda_)

    def lambda_return(reward, _, next_value, done):
        return returns.lambda_return(reward, next_value, done, DISCOUNT, lambda_)

    for function in (advantage, lambda_return):
        alone = tf.concat([function(*part) for part in parts], 1)
        np.testing.assert_allclose(function(*whole), alone, atol=1e-5)


def test_steps_behind_an_end_contribute_nothing():
    reward, value, next_value, done = random_batch(np.random.default_rng(5), ends=0.0)
    end = tf.one_hot([4] * 3, 11, True, False, dtype=tf.bool)
    done = done | end
    result = returns.advantage(reward, value, next_value, done, DISCOUNT, 0.95)
    padded = [
        tf.concat([x[:, :5], 1e6 * tf.ones_like(x[:, 5:])], 1)
        for x in (reward, value, next_value)
    ]
    changed = returns.advantage(*padded, done, DISCOUNT, 0.95)
    np.testing.assert_array_equal(result[:, :5], changed[:, :5])


def test_value_of_constant_reward_without_end():
    """A perfect value function has no advantage, and its return is itself."""
    reward = tf.ones([1, 8])
    value = tf.fill([1, 8], 10.0)
    done = tf.one_hot([7], 8, True, False, dtype=tf.bool)
    next_value = returns.next_values(value, done, value)
    for lambda_ in (0.0, 0.9, 1.0):
        advantage = returns.advantage(reward, value, next_value, done, 0.9, lambda_)
        np.testing.assert_allclose(advantage, np.zeros([1, 8]), atol=1e-5)


def test_discount_and_lambda_may_be_tensors():
    batch = random_batch(np.random.default_rng(6))
    constants = returns.advantage(*batch, 0.9, 0.8)
    function = tf.function(returns.advantage, autograph=False)
    result = function(*batch, tf.constant(0.9), tf.constant(0.8))
    np.testing.assert_allclose(result, constants, atol=1e-6)


# V-trace.


def random_ratios(rng, shape=(3, 11)):
    """Log-ratios of which some are clipped and some are not."""
    return tf.constant(rng.normal(scale=0.7, size=shape), tf.float32)


def slow_vtrace(
    log_ratio,
    reward,
    value,
    next_value,
    done,
    discount,
    rho_bar,
    c_bar,
    rho_pg,
    lambda_,
):
    """Espeholt et al. (2018), equation 1 and section 4.2, as sums in float64."""
    log_ratio, reward, value, next_value = (
        np.asarray(x, np.float64) for x in (log_ratio, reward, value, next_value)
    )
    ratio = np.exp(log_ratio)
    target = value.copy()
    for row, start in np.ndindex(*reward.shape):
        for t in range(start, reward.shape[1]):
            trace = np.prod(lambda_ * np.minimum(c_bar, ratio[row, start:t]))
            rho = min(rho_bar, ratio[row, t])
            error = reward[row, t] + discount * next_value[row, t] - value[row, t]
            target[row, start] += discount ** (t - start) * trace * rho * error
            if done[row, t]:
                break
    advantage = np.zeros_like(reward)
    for row, t in np.ndindex(*reward.shape):
        following = next_value[row, t] if done[row, t] else target[row, t + 1]
        gain = reward[row, t] + discount * following - value[row, t]
        advantage[row, t] = min(rho_pg, ratio[row, t]) * gain
    return target, advantage


def test_vtrace_by_hand():
    """The policy that learns prefers the first action by 2, the second by 1/4."""
    log_ratio = np.log([[2.0, 0.25, 0.5]])
    reward, value = [[1.0, 2.0, 4.0]], [[2.0, 4.0, 8.0]]
    done, bootstrap = [[False, False, True]], [[0.0, 0.0, 16.0]]
    log_ratio, reward, value, done, bootstrap = tensors(
        log_ratio, reward, value, done, bootstrap
    )
    next_value = returns.next_values(value, done, bootstrap)
    # Errors: 1 + 2 - 2 = 1; 2 + 4 - 4 = 2; 4 + 8 - 8 = 4, times 1, 1/4 and 1/2.
    # Corrections: 2; 1/2 + 1/2 * 1/4 * 2 = 3/4; 1 + 1/2 * 1 * 3/4 = 11/8.
    # Advantages: 1 + 19/8 - 2 = 11/8; (2 + 5 - 4) / 4 = 3/4; (4 + 8 - 8) / 2 = 2.
    target, advantage = returns.vtrace(log_ratio, reward, value, next_value, done, 0.5)
    np.testing.assert_allclose(target, [[27 / 8, 19 / 4, 10]], rtol=1e-6)
    np.testing.assert_allclose(advantage, [[11 / 8, 3 / 4, 2]], rtol=1e-6)
    # With the sign swapped, weights are 1/2, 1 and 1.
    target, _ = returns.vtrace(-log_ratio, reward, value, next_value, done, 0.5)
    np.testing.assert_allclose(target, [[2 + 1 / 2 + 1, 8, 12]], rtol=1e-6)


def test_limits_of_vtrace_are_three():
    """Ratio 4 where errors are 1, 1 and 1, without discount."""
    log_ratio = np.log(np.full([1, 3], 4.0))
    reward, value, done = [[1.0, 1, 1]], [[0.0, 0, 0]], [[False, False, True]]
    batch = tensors(log_ratio, reward, value, value, done)
    for limits, target, advantage in (
        ((1.0, 1.0, 1.0), [3, 2, 1], [3, 2, 1]),
        ((2.0, 1.0, 1.0), [6, 4, 2], [5, 3, 1]),
        ((2.0, 3.0, 1.0), [26, 8, 2], [9, 3, 1]),
        ((1.0, 1.0, 5.0), [3, 2, 1], [12, 8, 4]),
    ):
        result = returns.vtrace(*batch, 1.0, *limits)
        np.testing.assert_allclose(result[0], [target], rtol=1e-6)
        np.testing.assert_allclose(result[1], [advantage], rtol=1e-6)


@pytest.mark.parametrize("limits", [(1.0, 1.0, 1.0), (2.0, 1.5, 1.2), (0.7, 0.9, 9.0)])
@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_vtrace_equals_the_definition(limits, lambda_):
    rng = np.random.default_rng(7)
    for length in (1, 2, 3, 8, 13):
        batch = random_batch(rng, length=length)
        log_ratio = random_ratios(rng, (3, length))
        expected = slow_vtrace(log_ratio, *batch, DISCOUNT, *limits, lambda_)
        result = returns.vtrace(log_ratio, *batch, DISCOUNT, *limits, lambda_)
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_vtrace_on_policy_is_the_n_step_return():
    """To the end of the episode or of the data; the advantage is that of GAE(1)."""
    batch = random_batch(np.random.default_rng(8))
    reward, value, next_value, done = batch
    target, advantage = returns.vtrace(tf.zeros_like(reward), *batch, DISCOUNT)
    expected = returns.lambda_return(reward, next_value, done, DISCOUNT, 1.0)
    np.testing.assert_allclose(target, expected, atol=1e-5)
    np.testing.assert_allclose(advantage, expected - value, atol=1e-5)
    target, _ = returns.vtrace(
        tf.zeros_like(reward), *batch, DISCOUNT, c_bar=9.0, lambda_=0.7
    )
    expected = returns.lambda_return(reward, next_value, done, DISCOUNT, 0.7)
    np.testing.assert_allclose(target, expected, atol=1e-5)


def test_vtrace_of_a_policy_that_avoids_the_actions_is_the_value():
    batch = random_batch(np.random.default_rng(9))
    never = tf.fill(batch[0].shape, -100.0)
    target, advantage = returns.vtrace(never, *batch, DISCOUNT)
    np.testing.assert_array_equal(target, batch[1])
    np.testing.assert_allclose(advantage, np.zeros(target.shape), atol=1e-30)


def test_vtrace_of_concatenated_episodes_equals_each_alone():
    rng = np.random.default_rng(10)
    parts = [random_batch(rng, length=length, ends=0.0) for length in (4, 1, 7)]
    parts = [(random_ratios(rng, part[0].shape), *part) for part in parts]
    whole = [tf.concat(tensors, 1) for tensors in zip(*parts, strict=True)]
    alone = [returns.vtrace(*part, DISCOUNT, 1.3, 1.1, 1.2) for part in parts]
    together = returns.vtrace(*whole, DISCOUNT, 1.3, 1.1, 1.2)
    for index in range(2):
        expected = tf.concat([x[index] for x in alone], 1)
        np.testing.assert_allclose(together[index], expected, atol=1e-5)


def test_vtrace_of_truncated_and_terminated_episodes():
    """The true last observation is worth 20, the next episode begins with 30."""
    reward, value, log_ratio = tensors(
        [[1.0, 1.0, 1.0]], [[3.0, 4.0, 30.0]], [[0.0, 0.0, 0.0]]
    )
    done = tf.constant([[False, True, True]])
    for last, target, advantage in (
        (20.0, [1.5 + 5, 11], [3.5, 7]),
        (0.0, [1.5, 1], [-1.5, -3]),
    ):
        (bootstrap,) = tensors([[0.0, last, 9.0]])
        next_value = returns.next_values(value, done, bootstrap)
        result = returns.vtrace(log_ratio, reward, value, next_value, done, 0.5)
        np.testing.assert_allclose(result[0][:, :2], [target])
        np.testing.assert_allclose(result[1][:, :2], [advantage])


def test_vtrace_has_no_gradient_and_does_not_overflow():
    reward, value, next_value, done = random_batch(np.random.default_rng(11))
    log_ratio = tf.fill(reward.shape, 200.0)
    with tf.GradientTape() as tape:
        tape.watch([log_ratio, value, next_value])
        result = returns.vtrace(log_ratio, reward, value, next_value, done, DISCOUNT)
    assert np.isfinite(result).all()
    assert tape.gradient(result, [log_ratio, value, next_value]) == [None] * 3


SHAPES = {
    "next_values": "value done bootstrap",
    "n_step": "reward terminated done",
    "running": "reward first",
    "lambda_return": "reward next_value done",
    "advantage": "reward value next_value done",
    "vtrace": "log_ratio reward value next_value done",
}
REST = {"n_step": (0.9, 3), "next_values": ()}
FLAGS = {"terminated", "done", "first"}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("shape", [[], [5], [1, 5], [4, 1], [4, 5, 1]])
def test_shapes_that_would_broadcast_are_refused(name, shape):
    names = SHAPES[name].split()
    rest = REST.get(name, (0.9, 0.8)[: 1 if name in ("running", "vtrace") else 2])

    def call(shapes):
        given = [
            tf.ones(shape, tf.bool if x in FLAGS else tf.float32)
            for x, shape in zip(names, shapes, strict=True)
        ]
        return getattr(returns, name)(*given, *rest)

    call([[4, 5]] * len(names))
    for index in range(len(names)):
        shapes = [[4, 5]] * len(names)
        shapes[index] = shape
        message = re.escape(f"{names[index]} {tf.TensorShape(shape)}")
        with pytest.raises(ValueError, match=message):
            call(shapes)
    if len(shape) != 2:
        with pytest.raises(ValueError, match="of 2 dimensions"):
            call([shape] * len(names))


def test_unknown_dimensions_may_be_anything():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])] * 2)
    def known_later(value, bootstrap):
        return returns.next_values(value, value > 0, bootstrap)

    assert known_later(tf.ones([2, 3]), tf.zeros([2, 3])).shape == [2, 3]


def test_n_steps_by_hand():
    reward = tf.constant([[1.0, 2.0, 4.0, 8.0, 16.0]])
    terminated = tf.constant([[False, False, True, False, False]])
    done = tf.constant([[False, False, True, False, True]])
    total, discount, last = returns.n_step(reward, terminated, done, 0.5, 2)
    np.testing.assert_allclose(total, [[2.0, 4.0, 4.0, 16.0, 16.0]])
    np.testing.assert_allclose(discount, [[0.25, 0.0, 0.0, 0.25, 0.5]])
    np.testing.assert_array_equal(last, [[1, 2, 2, 4, 4]])
