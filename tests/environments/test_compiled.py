"""Batches of functional environments, compiled."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import networks, tools
from agents.algorithms import a2c, ppo
from agents.environments import Environment, compiled, config, functional, make
from agents.testing import mock_algorithm
from agents.tools import algorithm, errors, sections


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

        def until(agent=agent):
            return agent.steps % every == 0

        until = until if pausing else None
        for length in [every] * 2 if pausing else [steps]:
            before = env.steps
            result = tools.simulate(env, agent, steps, until=until)
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
        network=networks.NetworkConfig.preset("small"),
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


class Endless(Counter):
    max_length = None


class Short(Counter):
    max_length = 0


class Unbatched(Counter):
    def initial(self, size, seed):
        return {**super().initial(size, seed), "level": tf.constant(1.0)}

    def transition(self, state, action, seed):
        return {**super().transition(state, action, seed), "level": state["level"]}


class Fixed(Unbatched):
    def initial(self, size, seed):
        return {**super().initial(size, seed), "level": tf.ones([3])}


class Misshapen(Counter):
    def observation(self, state):
        return state["time"]


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Impure, "Impure changes its attribute 'calls'.*put what changes"),
        (Calling, "Calling calls Python.*PyFunc.*workers"),
        (Keeping, "Keeping uses a variable"),
        (Endless, "Endless.max_length must be a positive integer, got None"),
        (Short, "must be a positive integer, got 0"),
        (Reading, "fail when they are traced"),
        (Unbatched, r"Unbatched.initial gives .* \[\] for 3 .*expected \[3, \.\.\.\]"),
        (Fixed, r"Fixed.initial gives .* \[3\] for 2 .*expected \[2, \.\.\.\]"),
        (Misshapen, r"Misshapen.observation gives .*\[3\].*expected .*\[3, 2\]"),
    ],
)
def test_functions_that_break_the_rules(cls, text):
    with pytest.raises(compiled.FunctionError, match=text):
        compiled.Compiled(cls(), 2)


def test_states_may_begin_as_arrays():
    class Arrays(Counter):
        def initial(self, size, seed):
            return tf.nest.map_structure(
                lambda x: np.zeros(x.shape, x.dtype.as_numpy_dtype),
                super().initial(size, seed),
            )

    env = compiled.Compiled(Arrays(), 2)
    env.compiled = False  # The mock calls Python.
    agent = mock_algorithm.MockAlgorithm(env.action_space)
    result = tools.simulate(env, agent, 12, training=False)
    assert result["done"].numpy().any()


def test_names_of_compiled_environments():
    assert (
        make.choose(Environment("agents.environments.functional:CartPole"))
        == "compiled"
    )
    assert make.choose(Environment(Counter)) == "compiled"
    assert make.choose(Environment("CartPole-v1")) == "workers"
    assert isinstance(make.functional(Environment("CartPole-v1")), functional.CartPole)
    description = make.describe(Environment("agents.environments.functional:Catch"))
    assert description.max_length == 10
    assert (
        make.describe(Environment("CartPole-v1", "compiled", max_length=7)).max_length
        == 7
    )
    with pytest.raises(config.BackendError, match="it has Acrobot-v1.*workers"):
        make.functional(Environment("HalfCheetah-v5"))
    with pytest.raises(config.BackendError, match="backend compiled runs"):
        make.batch(Environment(Counter, "workers", 2))


def test_numbers_that_are_not_finite_stop_a_program():
    class Infinite(functional.CartPole):
        def reward(self, state, action, next_state):
            return np.nan * state[:, 0]

    env = compiled.Compiled(Infinite(), 4)
    config = ppo.Config(memory="unrolls", unroll_length=8, epochs=1)
    agent = ppo.PPO(env.observation_space, env.action_space, 4, 500, config)
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        tools.simulate(env, agent, 8)


def test_batch_normalization_is_refused_where_it_would_count_padding():
    settings = {"memory": "episodes", "update_every": 6}
    settings["network"] = [8, "batch_normalization"]
    config = sections.build(a2c.Config, settings)
    env = compiled.Compiled(Counter(), 6)
    agent = a2c.A2C(env.observation_space, env.action_space, 6, 4, config)
    with pytest.raises(errors.Mistake, match="use layer_normalization, or memory"):
        tools.simulate(env, agent, 6)


class Still(algorithm.Algorithm):
    def perform(self, agent_indices, observation, training=True):
        return tf.zeros_like(agent_indices, tf.int64)


def test_scores_and_lengths_are_those_of_one_episode():
    result = tools.simulate(compiled.Compiled(Counter(), 3), Still(), 6)
    # The rewards of an episode are 1, 2 and 3.
    scores = [[1, 0, 0], [1, 3, 0], [1, 0, 6], [1, 3, 0], [1, 0, 0], [1, 3, 6]]
    lengths = [[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 0], [1, 0, 0], [1, 2, 3]]
    np.testing.assert_array_equal(result["score"], scores)
    np.testing.assert_array_equal(result["length"], lengths)


class Random(Counter):
    """Counter whose second number is random at every step."""

    def initial(self, size, seed):
        end = tf.random.stateless_uniform([size], seed, 9.0, 99.0)
        return {"time": tf.zeros([size]), "end": end}

    def transition(self, state, action, seed):
        new = self.initial(state["time"].shape[0], seed)
        return {**new, "time": state["time"] + 1.0}


def test_every_episode_and_step_has_a_seed_of_its_own():
    env = compiled.Compiled(Random(), 1)
    before = env.begin()
    numbers = [float(before.observation[0, 1])]
    for _ in range(4):
        after, before = env.simulate(before, tf.zeros([1], tf.int64))
        numbers.append(float(after.observation[0, 1]))
    assert after.done.numpy().all()  # Truncated, so another one begins.
    numbers.append(float(before.observation[0, 1]))
    assert len(set(numbers)) == 6


def test_limit_of_the_config_replaces_that_of_the_class():
    env = compiled.Compiled(Counter(), 6, max_length=2)
    result = tools.simulate(env, Still(), 4)
    assert result["length"][1].numpy().tolist() == [1, 2, 2, 2, 2, 2]
    assert result["done"][1].numpy().all()


def test_rewards_are_those_of_the_state_before_the_step():
    class Early(Counter):
        def reward(self, state, action, next_state):
            return state["time"]

    env = compiled.Compiled(Early(), 3)
    after, _ = env.simulate(env.begin(), tf.zeros([3], tf.int64))
    np.testing.assert_array_equal(after.reward, [0, 0, 0])


def test_batches_without_seeds_differ():
    envs = [compiled.Compiled(Random(), 2) for _ in range(2)]
    one, other = (env.begin().observation[:, 1] for env in envs)
    assert not np.isclose(one, other).any()
