"""Functional environments against Gymnasium's own."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents.environments import Environment, compiled, functional, make

SEED = tf.constant([3, 4])
NAMES = [name for name in functional.__all__ if name != "FunctionalEnv"]


def set_state(env, state):
    """Put a Gymnasium environment into a state, float32 `[S]`."""
    env.reset()
    env.state = np.array(state, np.float64)


def random_states(name, env, rng, count=200):
    """States that episodes visit, and some that end them."""
    state = env.initial(count, SEED)
    states = [state]
    for _ in range(30):
        state = env.transition(state, random_actions(env, rng, count), SEED)
        states.append(state)
    picked = np.concatenate([x.numpy() for x in states])
    return tf.constant(picked[rng.permutation(len(picked))[:count]])


def random_actions(env, rng, count):
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return tf.constant(rng.integers(0, env.action_space.n, count))
    low, high = env.action_space.low, env.action_space.high
    return tf.constant(rng.uniform(low, high, (count, len(low))), tf.float32)


@pytest.mark.parametrize("id", functional.GYMNASIUM)
def test_steps_equal_those_of_gymnasium(id):
    env = make.functional(Environment(id))
    rng = np.random.default_rng(0)
    state = random_states(id, env, rng)
    action = random_actions(env, rng, 200)
    following = env.transition(state, action, SEED)
    observation, reward = (
        env.observation(following),
        env.reward(state, action, following),
    )
    terminal = env.terminal(following).numpy()
    plain = gymnasium.make(id).unwrapped
    for row in range(200):
        set_state(plain, state[row])
        expected, expected_reward, terminated, _, _ = plain.step(action[row].numpy())
        np.testing.assert_allclose(observation[row], expected, atol=1e-5)
        np.testing.assert_allclose(reward[row], expected_reward, atol=1e-4)
        assert terminal[row] == terminated
    assert env.observation_space == plain.observation_space
    assert env.action_space == plain.action_space
    assert env.max_length == gymnasium.spec(id).max_episode_steps


@pytest.mark.parametrize("id", functional.GYMNASIUM)
def test_episodes_begin_like_those_of_gymnasium(id):
    env, plain = make.functional(Environment(id)), gymnasium.make(id)
    ours = env.observation(env.initial(4000, SEED)).numpy()
    theirs = np.array([plain.reset(seed=seed)[0] for seed in range(2000)])
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=0.08)
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.1, atol=1e-3)
    np.testing.assert_allclose(ours.min(0), theirs.min(0), rtol=0.1, atol=0.05)


def test_ends_of_all_kinds_were_compared():
    """Some of the states above must end episodes, or the flags prove nothing."""
    rng = np.random.default_rng(0)
    env = functional.CartPole()
    state = random_states("CartPole-v1", env, rng)
    after = env.transition(state, random_actions(env, rng, 200), SEED)
    assert 0 < env.terminal(after).numpy().sum() < 200


def test_catch():
    env = functional.Catch()
    state = env.initial(50, SEED)
    assert set(state[:, 1].numpy()) == set(range(5))
    for time in range(9):
        board = env.observation(state).numpy()
        assert board.shape == (50, 10, 5)
        assert (board[:, time].sum(1) == 1).all()
        assert not env.terminal(state).numpy().any()
        action = tf.cast(tf.sign(state[:, 1] - state[:, 2]) + 1, tf.int64)
        action = tf.where(tf.range(50) < 40, action, 0)  # Ten run to the left.
        following = env.transition(state, action, SEED)
        reward = env.reward(state, action, following).numpy()
        state = following
        assert (reward == 0).all() or time == 8
    assert env.terminal(state).numpy().all()
    assert (reward[:40] == 1).all()
    np.testing.assert_array_equal(reward[40:] == 1, state[40:, 1] == 0)


def test_grid_world():
    env = functional.GridWorld()
    state = env.initial(100, SEED)
    assert not env.terminal(state).numpy().any()
    for action, axis, sign in ((0, 0, -1), (1, 0, 1), (2, 1, -1), (3, 1, 1)):
        following = env.transition(state, tf.fill([100], action), SEED).numpy()
        expected = state.numpy()
        expected[:, axis] = np.clip(expected[:, axis] + sign, 0, 4)
        np.testing.assert_array_equal(following, expected)
    board = env.observation(state).numpy()
    for row, (y, x, goal_y, goal_x) in enumerate(state.numpy()):
        assert board[row, y, x, 0] == board[row, goal_y, goal_x, 1] == 1
    assert (board.sum((1, 2)) == 1).all()
    at_goal = tf.constant([[1, 2, 1, 2], [1, 2, 2, 1]])
    assert env.terminal(at_goal).numpy().tolist() == [True, False]
    reward = env.reward(state[:2], None, at_goal).numpy()
    np.testing.assert_allclose(reward, [1, -0.01])


def test_pictures_of_the_grid_world():
    state = tf.constant([[1, 2, 3, 0], [1, 2, 1, 2]])
    pictures = functional.GridWorld().render(state)
    assert pictures.dtype == tf.uint8
    colors = np.empty((2, 25, 3))
    colors[:, ::2], colors[:, 1::2] = 235, 215
    colors = colors.reshape(2, 5, 5, 3)
    colors[:, 1, 2], colors[0, 3, 0] = [40, 90, 200], [50, 160, 80]
    np.testing.assert_array_equal(pictures, colors)


def test_recall():
    env = functional.Recall()
    state = env.initial(400, SEED)
    cue = state[:, 1].numpy()
    np.testing.assert_allclose(np.bincount(cue), [100] * 4, atol=35)
    action = tf.constant(np.arange(400) % 4)
    for time in range(10):
        seen = env.observation(state).numpy()
        expected = np.eye(4)[cue] if time == 0 else np.zeros([400, 4])
        np.testing.assert_array_equal(seen[:, :4], expected)
        np.testing.assert_array_equal(seen[:, 4], float(time == 9))
        assert not env.terminal(state).numpy().any()
        following = env.transition(state, action, SEED)
        reward = env.reward(state, action, following).numpy()
        state = following
        assert (reward == 0).all() or time == 9
    assert env.terminal(state).numpy().all()
    np.testing.assert_array_equal(reward, cue == np.arange(400) % 4)


@pytest.mark.parametrize("name", NAMES)
def test_all_fit_their_spaces(name):
    env = getattr(functional, name)()
    compiled.Compiled(env, 2)
    observation = env.observation(env.initial(20, SEED)).numpy()
    for row in observation:
        assert env.observation_space.contains(row)


def test_torques_beyond_the_bounds_cost_like_those_at_the_bounds():
    env, state = functional.Pendulum(), tf.constant([[1.0, 2.0]] * 2)
    reward = env.reward(state, tf.constant([[2.0], [50.0]]), state)
    np.testing.assert_allclose(reward, [-1.404] * 2, rtol=1e-6)  # 1 + 0.4 + 0.004.


def test_a_car_may_rest_at_the_goal():
    env = functional.MountainCar()
    state = tf.constant([[0.5, 0.0], [0.5, -0.01], [0.49, 0.07]])
    assert env.terminal(state).numpy().tolist() == [True, False, False]


def test_efforts_of_the_car_cost_as_they_are():
    """As in Gymnasium, beyond the bounds, too."""
    env, state = functional.ContinuousMountainCar(), tf.constant([[-0.5, 0.0]] * 2)
    reward = env.reward(state, tf.constant([[1.0], [3.0]]), state)
    np.testing.assert_allclose(reward, [-0.1, -0.9], rtol=1e-6)


def test_every_pair_of_cells_may_begin_an_episode_of_the_grid_world():
    state = functional.GridWorld().initial(20_000, SEED).numpy()
    assert len({tuple(x) for x in state.tolist()}) == 25 * 24


@pytest.mark.parametrize(("name", "length"), [("Catch", 9), ("Recall", 10)])
def test_episodes_are_over_before_their_limit(name, length):
    env = getattr(functional, name)()
    state = env.initial(1, SEED)
    for _ in range(length):
        assert not env.terminal(state).numpy()
        state = env.transition(state, tf.constant([1]), SEED)
    assert env.terminal(state).numpy()
    assert env.max_length >= length
