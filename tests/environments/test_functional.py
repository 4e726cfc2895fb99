"""Functional environments against Gymnasium's own, and their compiled batches."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.algorithms import ppo
from agents.environments import compiled, functional, make
from agents.networks import presets
from agents.tools import algorithm, mock_algorithm

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
    env = make.functional(id, None)
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
    env, plain = make.functional(id, None), gymnasium.make(id)
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


class Counter(functional.FunctionalEnv):
    """Counts steps; ends after as many as the state's second number says."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    max_length = 4

    def initial(self, size, seed):
        ends = 1.0 + tf.cast(tf.range(size), tf.float32)
        return {"time": tf.zeros([size]), "end": ends}

    def transition(self, state, action, seed):
        return {"time": state["time"] + 1.0, "end": state["end"]}

    def observation(self, state):
        return tf.stack([state["time"], state["end"]], 1)

    def reward(self, state, action, next_state):
        return next_state["time"]

    def terminal(self, state):
        return state["time"] >= state["end"]


def test_episodes_of_compiled_batches():
    env = compiled.Compiled(Counter(), 6)
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    env.compiled = False  # The mock calls Python.
    for steps in (5, 1, 6):
        tools.simulate(env, agent, steps)
    ends = np.minimum(np.arange(6) + 1, 4)
    begun = [call.agent_indices for call in agent.calls if "begin" in call.name]
    assert begun == [np.flatnonzero(step % ends == 0).tolist() for step in range(12)]
    experience = [call.arrays for call in agent.calls if call.name == "experience"]
    assert len(experience) == 12
    for step, arrays in enumerate(experience):
        time = step % ends
        np.testing.assert_array_equal(arrays["observation"][:, 0], time)
        np.testing.assert_array_equal(arrays["next_observation"][:, 0], time + 1)
        np.testing.assert_array_equal(arrays["reward"], time + 1)
        np.testing.assert_array_equal(
            arrays["terminated"], (time + 1 == ends) & (np.arange(6) < 4)
        )
        np.testing.assert_array_equal(arrays["truncated"], time + 1 == 4)


class Tally(algorithm.Algorithm):
    """Adds up what it is told, in variables."""

    def __init__(self, rows):
        super().__init__()
        self.begun, self.ended, self.rewards = (
            tf.Variable(tf.zeros([rows])) for _ in range(3)
        )
        self.steps = tf.Variable(0)

    def begin_episodes(self, agent_indices, training=True):
        self._add(self.begun, agent_indices, tf.ones_like(agent_indices, tf.float32))

    def perform(self, agent_indices, observation, training=True):
        return tf.cast(observation[:, 0], tf.int64) % 2

    def experience(self, agent_indices, observation, action, reward, *_):
        self._add(self.rewards, agent_indices, reward)
        self.steps.assign_add(1)

    def end_episodes(self, agent_indices):
        self._add(self.ended, agent_indices, tf.ones_like(agent_indices, tf.float32))

    def _add(self, variable, rows, value):
        variable.scatter_nd_add(rows[:, None], value)


def test_program_equals_the_graph():
    results, tallies = [], []
    for jit in (True, False):
        env, agent = compiled.Compiled(Counter(), 6), Tally(6)
        env.compiled = jit
        env.discontinue(np.arange(6))
        parts = [tools.simulate(env, agent, steps) for steps in (7, 1, 1030)]
        parts.append(tools.simulate(env, agent, 3, reset=True))
        results.append({k: np.concatenate([p[k] for p in parts]) for k in parts[0]})
        tallies.append([v.numpy() for v in (agent.begun, agent.ended, agent.rewards)])
        assert env.steps == 6 * 1041 or not jit
    for name, value in results[0].items():
        assert len(value) == 1041
        np.testing.assert_array_equal(value, results[1][name])
    np.testing.assert_array_equal(tallies[0], tallies[1])
    ends = np.minimum(np.arange(6) + 1, 4)
    np.testing.assert_array_equal(tallies[0][1], 1038 // ends + 3 // ends)


@pytest.mark.parametrize("every", [3, 1026])
def test_pauses_change_nothing(every):
    """Not even those at ends of episodes, or behind the end of a program."""
    tallies, steps = [], 2 * every
    for pausing in (False, True):
        env, agent = compiled.Compiled(Counter(), 6), Tally(6)
        if pausing:
            agent.paused = lambda agent=agent: agent.steps % every == 0
        for length in [every] * 2 if pausing else [steps]:
            before = env.steps
            result = tools.simulate(env, agent, steps)
            assert env.steps - before == 6 * length
            assert result["done"].shape == (steps, 6)
            assert not result["done"].numpy()[length:].any()
        tallies.append([v.numpy() for v in (agent.begun, agent.ended, agent.rewards)])
    np.testing.assert_array_equal(*tallies)


@pytest.mark.parametrize("name", ["CartPole", "GridWorld"])
def test_seeds_decide_everything(name):
    env = compiled.Compiled(getattr(functional, name)(), 4)
    agent, scores = Tally(4), []
    agent.perform = lambda rows, observation, training=True: tf.zeros([4], tf.int64)
    for seeds in ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4]):
        env.discontinue(np.array(seeds))
        scores.append(tools.simulate(env, agent, 100)["length"].numpy())
    np.testing.assert_array_equal(scores[0], scores[2])
    assert (scores[0] != scores[1]).any()


def test_ppo_learns_in_one_program():
    env = compiled.Compiled(functional.CartPole(), 16)
    config = ppo.Config(
        memory="unrolls",
        discount=0.99,
        gae_lambda=0.95,
        objective="clip",
        epochs=10,
        minibatch_size=256,
        learning_rate=1e-3,
        value_learning_rate=None,
        network=presets.NetworkConfig.preset("small"),
    )
    spaces = env.observation_space, env.action_space
    agent = ppo.PPO(*spaces, 16, 500, config)
    env.discontinue(np.arange(16))
    tools.simulate(env, agent, 128 * 25)
    result = tools.simulate(env, agent, 500, training=False, reset=True)
    assert result["score"].numpy()[result["done"]].mean() > 400


class Impure(Counter):
    def __init__(self):
        self.calls = 0

    def transition(self, state, action, seed):
        self.calls += 1
        return super().transition(state, action, seed)


class Calling(Counter):
    def reward(self, state, action, next_state):
        return tf.numpy_function(lambda x: x, [next_state["time"]], tf.float32)


class Keeping(Counter):
    def __init__(self):
        self.total = tf.Variable(0.0)

    def reward(self, state, action, next_state):
        return next_state["time"] + self.total


class Reading(Counter):
    def terminal(self, state):
        return state["time"].numpy() > 3


class Misshapen(Counter):
    def observation(self, state):
        return state["time"]


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Impure, "Impure changes its attribute 'calls'.*put what changes"),
        (Calling, "Calling calls Python.*PyFunc.*workers"),
        (Keeping, "Keeping uses a variable"),
        (Reading, "fail when they are traced"),
        (Misshapen, r"Misshapen.observation gives .*\[3\].*expected .*\[3, 2\]"),
    ],
)
def test_functions_that_break_the_rules(cls, text):
    with pytest.raises(compiled.FunctionError, match=text):
        compiled.Compiled(cls(), 2)


def test_names_of_compiled_environments():
    assert make.choose("agents.environments.functional:CartPole") == "compiled"
    assert make.choose(Counter) == "compiled"
    assert make.choose("CartPole-v1") == "workers"
    assert isinstance(make.functional("CartPole-v1", None), functional.CartPole)
    description = make.describe("agents.environments.functional:Catch")
    assert description.max_length == 10
    assert make.describe("CartPole-v1", 7, None, "compiled").max_length == 7
    with pytest.raises(make.BackendError, match="it has Acrobot-v1.*workers"):
        make.functional("HalfCheetah-v5", None)
    with pytest.raises(make.BackendError, match="backend compiled runs"):
        make.batch(Counter, 2)


def test_numbers_that_are_not_finite_stop_a_program():
    class Infinite(functional.CartPole):
        def reward(self, state, action, next_state):
            return np.nan * state[:, 0]

    env = compiled.Compiled(Infinite(), 4)
    config = ppo.Config(memory="unrolls", unroll_length=8, epochs=1)
    agent = ppo.PPO(env.observation_space, env.action_space, 4, 500, config)
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        tools.simulate(env, agent, 8)
