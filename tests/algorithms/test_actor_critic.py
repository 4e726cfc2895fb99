"""Acting, remembering and resuming with a policy and values, by PPO."""

import dataclasses
import pathlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from ppo_agents import (
    Kept,
    batch,
    filled,
    interact,
    make,
    noise_batch,
    numpy,
    rows,
    settings,
)
from simulated import Endless, eagerly

from agents import networks, tools
from agents.algorithms import ppo
from agents.tools import checkpoint, loop, schedules

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def _graph_again():
    """For tests that run functions eagerly."""
    yield
    tf.config.run_functions_eagerly(False)


# What is remembered.


@pytest.mark.parametrize("name", ["dense", "gru", "lstm"])
@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_functions_change_only_the_rows_they_name(name, memory):
    count = 7  # Different from all other sizes.
    envs = noise_batch(count)
    agent = make(envs, settings(name, memory=memory, update_every=3), cls=Kept)
    interact(agent, range(count), 3)
    variables = [v for v in agent.variables if v.shape.rank > 0 and v.shape[0] == count]
    assert len(variables) >= 4  # Chosen, returns, data and lengths of the memory.
    others = [row for row in range(count) if row != 1]
    observation = tf.ones([1, 3])
    flags = tf.constant([True]), tf.constant([False])

    def experience():
        action = tf.zeros([1, 2])
        agent.experience(
            rows(1), observation, action, tf.ones([1]), *flags, observation
        )

    for function, changes in (
        (lambda: agent.perform(rows(1), observation), True),
        (experience, True),
        (lambda: agent.end_episodes(rows(1)), memory == "unrolls"),
        (lambda: agent.begin_episodes(rows(1)), True),
        (lambda: agent.perform(rows(1), observation, False), name != "dense"),
    ):
        before = [v.numpy() for v in variables]
        weights = numpy(agent.network.trainable_variables)
        function()
        after = [v.numpy() for v in variables]
        for x, y in zip(before, after, strict=True):
            np.testing.assert_array_equal(x[others], y[others])
        changed = any((x[1] != y[1]).any() for x, y in zip(before, after, strict=True))
        assert changed == changes
        for x, y in zip(weights, numpy(agent.network.trainable_variables), strict=True):
            np.testing.assert_array_equal(x, y)


def test_recurrent_state_begins_at_zero_in_the_rows_it_names():
    envs = noise_batch(3)
    agent = make(envs, settings("lstm"), cls=Kept)
    observation = tf.ones([3, 3])
    everyone = tf.range(3)
    fresh = agent.perform(everyone, observation, False)
    agent.perform(everyone, observation, False)
    agent.begin_episodes(rows(1))
    action = agent.perform(everyone, observation, False)
    np.testing.assert_array_equal(action[1], fresh[1])
    assert not np.allclose(action[0], fresh[0])
    assert not np.allclose(action[2], fresh[2])


def test_log_probs_are_those_of_the_unclipped_samples():
    config = settings(memory="unrolls")
    network = dataclasses.replace(config.network, initial_std=2.0)
    agent, data, _ = filled(dataclasses.replace(config, network=network))
    sample = data["sample"]
    assert np.abs(sample).max() > 3
    assert np.abs(agent.network.head.action(sample[0])).max() == 1


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_running_returns_begin_anew_with_every_episode(memory):
    _, data, mask = filled(settings(memory=memory, discount=0.5))
    reward, done = data["reward"].numpy(), data["done"].numpy()
    discounted = data["discounted"].numpy()
    for row, steps in enumerate(mask.numpy().sum(1)):
        expected = 0.0
        for step in range(steps):
            expected = reward[row, step] + 0.5 * expected
            np.testing.assert_allclose(discounted[row, step], expected, rtol=1e-4)
            expected *= not done[row, step]


# The update.


@pytest.mark.parametrize("key", ["reward", "discounted", None])
def test_statistics_are_those_of_the_valid_steps_of_all_updates(key):
    names = {"reward": "reward", "discounted": "return", None: "none"}

    class Collecting(ppo.PPO):
        collected = []

        def train(self):
            data, mask = self.memory.data()
            self.collected.append(tf.nest.map_structure(lambda x: x[mask], data))
            super().train()

    envs = noise_batch(4)
    agent = make(envs, settings(normalize_rewards=names[key]), cls=Collecting)
    eagerly(envs, agent, 14)
    assert len(agent.collected) >= 2
    (observations,) = agent.observations.persistent
    for normalizer, name in ((observations, "observation"), (agent.rewards, key)):
        if name is None:
            assert normalizer.count.numpy() == 0
            continue
        samples = np.concatenate([data[name] for data in agent.collected])
        samples = samples.astype(np.float64)
        assert normalizer.count.numpy() == len(samples)
        np.testing.assert_allclose(normalizer.mean, samples.mean(0), rtol=1e-5)
        variance = samples.var(0, ddof=1)
        if name != "observation":  # Rewards are not centered.
            variance += samples.mean(0) ** 2
        np.testing.assert_allclose(normalizer.std, variance**0.5, rtol=1e-5)


def test_nothing_but_the_network_is_trained():
    """The ancestor made copies of the policy trainable."""
    for name in ("dense", "shared", "lstm"):
        agent = make(noise_batch(), settings(name))
        trained = tf.nest.flatten(agent._trained)
        assert sorted(map(id, trained)) == sorted(
            map(id, agent.network.trainable_variables)
        )
        ours = {id(v.value) for v in agent.network.trainable_variables}
        assert {id(v) for v in agent.trainable_variables} <= ours


# Failures.


@pytest.mark.usefixtures("_graph_again")
@pytest.mark.parametrize("normalize", ["none", "reward", "return"])
def test_reward_that_is_no_number_stops_training(normalize):
    envs = noise_batch(2)
    config = settings(memory="unrolls", unroll_length=3, normalize_rewards=normalize)
    agent = make(envs, config)
    everyone, observation = tf.range(2), tf.zeros([2, 3])
    flags = [tf.constant([False, False])] * 2

    def step(reward):
        reward = tf.constant([0.0, reward])
        action = agent.perform(everyone, observation)
        agent.experience(everyone, observation, action, reward, *flags, observation)

    tf.config.run_functions_eagerly(True)
    step(0.0)
    step(np.nan)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not finite"):
        step(0.0)


@pytest.mark.parametrize(
    ("jit", "shape", "expected"),
    [
        (None, (3,), True),
        (None, (36, 36, 1), False),
        (True, (36, 36, 1), True),
        (False, (3,), False),
    ],
)
def test_updates_with_convolutions_are_compiled_only_if_asked(jit, shape, expected):
    space = gs.Box(0, 255, shape, np.uint8)
    config = ppo.Config(memory="unrolls", unroll_length=2, jit=jit)
    algorithm = ppo.PPO(space, gs.Discrete(2), 2, 10, config)
    assert algorithm.config.compiled == expected


def test_loss_that_is_no_number_stops_training_and_is_named():
    class Failing(ppo.PPO):
        def value_loss(self, items):
            loss, metrics = super().value_loss(items)
            loss = tf.math.log(loss - 1e9)
            return loss, {**metrics, "value_loss": loss}

    envs = noise_batch(2)
    agent = make(envs, settings(memory="unrolls", unroll_length=3), cls=Failing)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="value_loss is not finite"
    ):
        tools.simulate(envs, agent, 3)


def test_episode_longer_than_promised_raises():
    envs = noise_batch(2, durations=((9,),))
    agent = make(envs, settings(), max_length=6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the memory"):
        eagerly(envs, agent, 9)


# Preprocessing, checkpoints, and resuming.

OBSERVATIONS = {
    "discrete": gs.Discrete(5, start=-2),
    "multi discrete": gs.MultiDiscrete([2, 3], start=[1, -1]),
    "multi binary": gs.MultiBinary(3),
    "bytes": gs.Box(0, 255, (5,), np.uint8),
    "scalar": gs.Box(-np.inf, np.inf, ()),
    "nested": gs.Dict(
        {
            "camera": gs.Box(0, 255, (8, 8, 1), np.uint8),
            "rest": gs.Tuple((gs.Discrete(3), gs.Box(-1, 1, (2,), np.float64))),
        }
    ),
}
ACTIONS = {
    "box": gs.Box(np.float32([-1, 0]), np.float32([3, 0.1])),
    "scalar": gs.Box(-2.0, 5.0, ()),
    "discrete": gs.Discrete(3, start=5),
    "multi discrete": gs.MultiDiscrete([2, 3], start=[1, -1]),
    "multi binary": gs.MultiBinary(3),
    "integers": gs.Box(-2, 3, (2,), np.int32),
    "nested": gs.Dict(
        a=gs.Tuple((gs.Discrete(2), gs.Box(-1, 1, (2,)))), b=gs.MultiBinary(2)
    ),
}


class Sampled(gymnasium.Env):
    """Observes samples of its space and checks that actions are in theirs."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space
        self._time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._time += 1
        return self.observation_space.sample(), 1.0, self._time == 3, False, {}


@pytest.mark.quick("nested-nested", "multi binary-discrete", "nested-multi discrete")
@pytest.mark.parametrize(
    ("observation", "action"),
    [
        *((observation, "discrete") for observation in OBSERVATIONS),
        *(("nested", action) for action in ACTIONS if action != "discrete"),
    ],
)
def test_spaces(observation, action):
    spaces = OBSERVATIONS[observation], ACTIONS[action]
    envs = batch(Sampled(*spaces), Sampled(*spaces))
    network = networks.NetworkConfig(
        convolutions=((4, 4, 4),), layers=(8,), shared=observation == "nested"
    )
    config = settings(memory="unrolls", unroll_length=4, epochs=1)
    config = dataclasses.replace(config, network=network)
    agent = make(envs, config, cls=Kept)
    eagerly(envs, agent, 4)
    data, mask = agent.memory.data()
    for leaf, space in zip(
        tf.nest.flatten(data["observation"]),
        tf.nest.flatten(envs.begin().observation),
        strict=True,
    ):
        assert leaf.dtype == space.dtype  # Images are kept as bytes.
    ppo.PPO.train(agent)
    assert np.isfinite(agent.metrics.result()["policy_loss"])


def test_other_action_spaces_are_refused():
    spaces = gs.Box(-1, 1, (2,)), gs.Box(0, 10**6, (2,), np.int32)
    with pytest.raises(ValueError, match="too many values"):
        ppo.PPO(*spaces, 1, 5, settings())


def stored(agent, directory):
    """All tensors of a checkpoint by name."""
    name = checkpoint.Checkpoints(directory).save(0, agent.persistent(), {})
    readers = [
        tf.train.load_checkpoint(str(directory / name / file))
        for file in ("variables", checkpoint.MEMORY)
    ]
    return {
        key: reader.get_tensor(key)
        for reader in readers
        for key in reader.get_variable_to_shape_map()
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


def assert_same(ours, theirs):
    assert set(ours) == set(theirs)
    for key, value in ours.items():
        pair = [value, theirs[key]]
        if "memory/finished/_data" in key:  # But for the padding.
            name = "memory/finished/lengths/.ATTRIBUTES/VARIABLE_VALUE"
            mask = np.arange(value.shape[1]) < ours[name][:, None]
            pair = [x[mask] for x in pair]
        np.testing.assert_array_equal(*pair, err_msg=key)


PROGRAM = """
import sys
import gymnasium
import numpy as np
import tensorflow as tf
from agents import networks
from agents.algorithms import ppo
from agents.tools import checkpoint
box = gymnasium.spaces.Box
spaces = box(-np.inf, np.inf, (3,)), box(-1, 1, (2,))
network = networks.NetworkConfig(layers=({"type": "lstm", "units": 6},))
config = ppo.Config(update_every=5, chunk_length=4, network=network)
agent = ppo.PPO(*spaces, 4, 6, config, seed=9)
checkpoint.Checkpoints(sys.argv[1]).restore(agent.persistent())
observations = np.load(sys.argv[2])
actions = [agent.perform(tf.range(4), tf.constant(x), False) for x in observations]
np.save(sys.argv[3], np.stack(actions))
"""


@pytest.mark.slow
def test_fresh_process_restores_everything_and_acts_the_same(tmp_path):
    envs = noise_batch(4)
    config = settings("lstm", learning_rate=1e-2)
    agent = make(envs, config, max_length=6)
    eagerly(envs, agent, 17)
    agent.begin_episodes(tf.range(4))
    tensors = stored(agent, tmp_path)
    names = " ".join(tensors)
    for part in (
        "network",
        "optimizer/optimizer/_parts/policy",
        "optimizer/optimizer/_parts/value",
        "observations",
        "rewards",
        "memory/count",
        "memory/finished/lengths",
        "memory/finished/_data/0",
        "generator",
        "kl_penalty",
        "steps",
    ):
        assert part in names
    other = make(envs, config, seed=9)
    checkpoint.Checkpoints(tmp_path).restore(other.persistent())
    assert_same(stored(other, tmp_path / "other"), tensors)

    observations = np.random.default_rng(0).normal(1, 3, [250, 4, 3])
    np.save(tmp_path / "observations.npy", observations.astype(np.float32))
    files = [str(tmp_path / name) for name in ("", "observations.npy", "actions.npy")]
    command = [sys.executable, "-c", PROGRAM, *files]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    everyone = tf.range(4)
    for observation, action in zip(np.load(files[1]), np.load(files[2]), strict=True):
        expected = agent.perform(everyone, tf.constant(observation), False)
        np.testing.assert_array_equal(action, expected)


@pytest.mark.parametrize("name", ["dense", "gru"])
def test_evaluation_changes_nothing_that_is_stored(name, tmp_path):
    envs = noise_batch(4)
    agent = make(envs, settings(name))
    eagerly(envs, agent, 8)
    before = stored(agent, tmp_path / "before")
    tools.simulate(envs, agent, 20, training=False, reset=True)
    assert_same(stored(agent, tmp_path / "after"), before)


def test_evaluation_leaves_unrolls_until_training_begins():
    envs = batch(*(Endless(True) for _ in range(2)))
    agent = make(envs, settings("dense", memory="unrolls", unroll_length=8))
    eagerly(envs, agent, 5)
    eagerly(envs, agent, 12, training=False)
    lengths = agent.memory._unrolls.lengths
    assert lengths.numpy().tolist() == [5, 5]
    eagerly(envs, agent, 3)  # Of new episodes, so what was cut off is gone.
    assert lengths.numpy().tolist() == [3, 3]


def test_evaluation_is_deterministic():
    envs = noise_batch(4)
    agent = make(envs, settings("gru"))
    eagerly(envs, agent, 8)
    scores = []
    for _ in range(2):
        envs.discontinue(tf.constant(loop.phase_seeds(0, 0, 4)))
        scores.append(tools.simulate(envs, agent, 30, training=False)["score"])
    np.testing.assert_array_equal(*scores)


@pytest.mark.usefixtures("_graph_again")
@pytest.mark.parametrize(
    ("name", "memory"),
    [("dense", "episodes"), pytest.param("gru", "unrolls", marks=pytest.mark.slow)],
)
def test_resumed_training_is_the_uninterrupted_one(name, memory, tmp_path):
    def start(directory):
        envs = noise_batch(4)
        config = settings(
            name,
            memory=memory,
            update_every=7,
            normalize_rewards="return",
            minibatch_size=12,
            learning_rate=schedules.Schedule("linear", 1e-2, 0.0, 96),
        )
        agent = make(envs, config)
        checkpoints = checkpoint.Checkpoints(tmp_path / directory)
        schedule = loop.Plan(96, 32, 3)
        return agent, loop.Loop(envs, agent, schedule, 3, checkpoints)

    def finished(reports):
        return [(r.phase, r.step, r.metrics) for r in reports if r.finished]

    tf.config.run_functions_eagerly(name == "gru")  # Tracing it takes too long.
    agent, runner = start("whole")
    expected = finished(runner.run())
    assert len(expected) == 6
    _, runner = start("parts")
    reports = runner.run()
    result = []
    while len(result) < 3:
        result += finished([next(reports)])
    next(reports)  # Saves the third phase; what follows is lost.
    other, runner = start("parts")
    runner.restore()
    assert result + finished(runner.run()) == expected
    assert_same(stored(other, tmp_path / "a"), stored(agent, tmp_path / "b"))
