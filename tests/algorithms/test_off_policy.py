"""Algorithms with a replay memory: when they learn, and that they do."""

import random

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from replay_agents import (
    CLASSES,
    CONFIGS,
    DISCRETE,
    TABLE,
    Chain,
    Identity,
    continuous,
    make,
    outputs,
    steps_of_one_number,
)
from simulated import Endless, batch, eagerly, numbers, same

from agents import networks, tools
from agents.algorithms import dqn
from agents.environments import compiled, functional
from agents.experiments import named, runs
from agents.networks.config import NetworkConfig
from agents.testing import mock_algorithm
from agents.tools import checkpoint, config, loop
from agents.tools import spaces as spaces_


def stored(agent, folder):
    """Everything that a checkpoint holds, by name."""
    path = tf.train.Checkpoint(**agent.persistent()).write(str(folder / "stored"))
    reader = tf.train.load_checkpoint(path)
    names = sorted(reader.get_variable_to_shape_map())
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


def equal(left, right):
    """Whether what two checkpoints hold is the same, bit for bit."""
    return set(left) == set(right) and all(
        np.array_equal(left[name], right[name]) for name in left
    )


# Initial weights.


class Gated(keras.layers.Layer):
    """Layer of a user, which leaves its weights to Keras."""

    def build(self, shape):
        self.gate = keras.layers.Dense(shape[-1], "sigmoid")
        self.gate.build(shape)

    def call(self, value):
        return value * self.gate(value)


def weights(agent, prefix=""):
    """All weights of networks whose attribute begins like this, by attribute."""
    found = {k: v for k, v in vars(agent).items() if isinstance(v, keras.layers.Layer)}
    return {k: v.get_weights() for k, v in found.items() if k.startswith(prefix)}


@pytest.mark.parametrize("name", CLASSES)
def test_targets_begin_as_copies_and_a_seed_gives_the_same_weights(name):
    initialized = {"type": "dense", "units": 5, "kernel_initializer": "he_normal"}
    layers = initialized, f"{__name__}:Gated"
    options = {"network": NetworkConfig(layers=layers)}
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))
    envs = batch(Identity(space))
    random.seed(0)
    agent, other = make(name, envs, **options), make(name, envs, **options)
    drawn = random.random()
    random.seed(0)
    assert random.random() == drawn  # Others draw from it as before.
    targets = weights(agent, "target_")
    assert targets
    for key, target in targets.items():
        source = getattr(agent, key.removeprefix("target_")).get_weights()
        tf.nest.map_structure(np.testing.assert_array_equal, target, source)
    found, again = weights(agent), weights(other)
    tf.nest.map_structure(np.testing.assert_array_equal, found, again)


# When they learn.


@pytest.mark.quick("1-0.1", "3-0.25")
@pytest.mark.parametrize("ratio", [0.1, 0.25, 1.0, 2.5])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_replay_ratio_is_exact_for_any_number_of_agents(count, ratio):
    envs = batch(*(Chain() for _ in range(count)))
    agent = make("dqn", envs, replay_ratio=ratio, network=TABLE)
    while agent.memory.size < 16:
        tools.simulate(envs, agent, 1)
    before = agent._counted.numpy() - count * (agent._counted.numpy() > 0)
    assert before == 0
    tools.simulate(envs, agent, 40)
    counted = agent._counted.numpy()
    assert abs(counted - 40 * count) <= count
    assert agent.updates.numpy() == np.floor(counted * ratio + 1e-9)


@pytest.mark.quick("200-200")
@pytest.mark.parametrize(
    ("capacity", "start_size"), [(200, 183), (200, 200), (200, 1000)]
)
def test_replay_ratio_is_exact_where_the_memory_is_hardly_large_enough(
    capacity, start_size
):
    """Every end of an episode takes room, so 200 transitions are never there."""
    envs = batch(*(Identity(gs.Discrete(2)) for _ in range(4)))
    options = {"capacity": capacity, "start_size": start_size}
    agent = make("dqn", envs, replay_ratio=1.0, network=TABLE, **options)
    tools.simulate(envs, agent, 300)
    assert 1200 - 200 <= agent.updates.numpy() <= 1200 - 183 + 4


RATE = {"type": "linear", "from": 5e-3, "to": 1e-3, "over": 100}


@pytest.fixture(scope="module", params=CLASSES)
def trained(request):
    """Agent that learned, its environments, and its rates after every 15 steps."""
    name = request.param
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))
    envs = batch(*(Identity(space) for _ in range(4)))
    descent = {"type": "adam", "learning_rate": RATE}
    fields = {field: descent for field in CONFIGS[name].OPTIMIZERS}
    agent = make(name, envs, prioritized=True, n_step=3, replay_ratio=0.25, **fields)
    rates = []
    for _ in range(3):
        tools.simulate(envs, agent, 15)
        rates.append([float(x.optimizer.learning_rate) for x in agent.optimizers])
    return agent, envs, rates


@pytest.mark.quick("dqn", "sac")
def test_evaluation_is_deterministic_and_learns_nothing(trained, tmp_path):
    agent, envs, _ = trained
    before = stored(agent, tmp_path)
    seen = tf.random.stateless_uniform([4, 2], [1, 2], -1.0, 1.0)
    actions = [agent.perform(tf.range(4), seen, False).numpy() for _ in range(3)]
    tools.simulate(envs, agent, 20, training=False, reset=True)
    assert equal(stored(agent, tmp_path), before)
    assert np.array_equal(actions[0], actions[1])
    space = envs.action_space
    for action in actions[0]:
        assert space.contains(np.asarray(action, space.dtype))


def test_evaluation_leaves_running_transitions_in_the_memory():
    """Transitions that begin in evaluation never reach the memory; later ones do."""
    envs = batch(*(Endless(True) for _ in range(2)))
    agent = make("dqn", envs, replay_ratio=0.0, n_step=3)
    eagerly(envs, agent, 5)
    variables = tf.nest.flatten(agent.memory.variables)
    before = numbers(variables)
    eagerly(envs, agent, 12, training=False)
    assert same(numbers(variables), before)
    size = int(agent.memory.size)
    eagerly(envs, agent, 1)
    assert int(agent.memory.size) == size


@pytest.mark.quick("dqn", "sac")
def test_metrics_are_finite_and_declared(trained):
    agent, *_ = trained
    result = agent.metrics.result()
    assert set(result) == set(agent.metrics.names)
    assert np.isfinite(list(result.values())).all()
    assert agent._run_updates.experimental_get_tracing_count() == 1


@pytest.mark.quick("dqn", "sac", "apex")
def test_learning_rates_follow_their_schedules(trained):
    agent, _, rates = trained
    expected = [[x] * len(agent.optimizers) for x in (2.6e-3, 1e-3, 1e-3)]
    np.testing.assert_allclose(rates, expected, atol=1e-8)


# Critics.


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_critics_have_weighted_squared_errors_and_absolute_priorities(name):
    agent = continuous(name, prioritized=True)
    outputs(agent.critics, [1.0], [4.0])
    data = steps_of_one_number(target=tf.constant([3.0, -1.0]))
    loss, _ = agent.critic_loss(data)
    squares = [0.5 * (2**2 + 1**2), 0.25 * 0.5 * (2**2 + 5**2)]
    np.testing.assert_allclose(loss, np.mean(squares), rtol=1e-6)
    agent.target = lambda items: data["target"]
    _, errors = agent.learn(steps_of_one_number())
    np.testing.assert_allclose(errors, [(2 + 1) / 2, (2 + 5) / 2], rtol=1e-6)


# Refusals.


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("dqn", gs.Box(-1, 1, (2,)), "use sac or td3 for a floating"),
        ("apex", gs.MultiBinary(2), "else a policy gradient such as ppo, or gymnasium"),
        ("sac", gs.Box(-np.inf, np.inf, (2,)), "not a floating point Box with finite"),
        ("sac", gs.MultiBinary(2), "use a policy gradient such as ppo"),
        ("td3", gs.Discrete(3), "or dqn for Discrete"),
    ],
)
def test_other_action_spaces_are_refused(name, space, message):
    with pytest.raises(spaces_.UnsupportedSpaceError, match=message):
        CLASSES[name](gs.Box(-1, 1, (2,)), space, 2, 10, CONFIGS[name]())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 64, "start_size": 32}, "batch_size 64 must not be larger"),
        ({"n_step": 0}, "n_step must be positive"),
        ({"capacity": 63}, "batch_size 64 must not be larger .* capacity 63"),
        ({"replay_ratio": -1.0}, "replay_ratio must be at least 0, got -1.0"),
        ({"discount": 1.5}, "discount must be 0 to 1, got 1.5"),
        ({"reward_clip": -1.0}, "reward_clip must be positive, got -1.0"),
        ({"priority_beta": -1.0}, "priority_beta must be at least 0"),
        ({"huber_delta": 0.0}, "huber_delta must be positive, got 0.0"),
        ({"noisy_std": -0.5}, "noisy_std must be at least 0"),
        ({"value_range": (-10.0, np.inf)}, "value_range must be finite"),
        ({"value_range": (1.0, 1.0)}, "value_range must be finite and increasing"),
        ({"network": networks.NetworkConfig.preset("gru")}, "not be recurrent"),
        ({"atoms": 0}, "atoms must be positive"),
    ],
)
def test_impossible_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dqn.Config(**changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("apex", {"noisy_std": 0.5}, "noisy_std explores instead of epsilon"),
        ("td3", {"target_noise": -1.0}, "target_noise must be at least 0"),
        ("td3", {"policy_delay": 0}, "policy_delay must be positive"),
        ("sac", {"initial_temperature": 0.0}, "initial_temperature must be positive"),
    ],
)
def test_impossible_configs_of_others_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        CONFIGS[name](**changes)


# Resuming.


@pytest.mark.parametrize(
    "name",
    [
        "apex",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("dqn", "sac", "td3")),
    ],
)
def test_resumed_training_is_the_uninterrupted_one(name, tmp_path):
    space = gs.Discrete(2) if name in DISCRETE else gs.Box(-2, 1, (1,))

    def start(folder, steps):
        envs = batch(*(Identity(space) for _ in range(4)))
        options = {"prioritized": name in DISCRETE, "n_step": 2}
        agent = make(name, envs, replay_ratio=0.5, **options)
        schedule = loop.Plan(steps, 80, 4)
        checkpoints = checkpoint.Checkpoints(folder)
        runner = loop.Loop(envs, agent, schedule, 0, checkpoints)
        if checkpoints.names():
            runner.restore()
        return agent, runner

    agent, runner = start(tmp_path / "a", 320)
    whole = [x.metrics for x in runner.run() if x.finished]
    _, runner = start(tmp_path / "b", 160)
    parts = [x.metrics for x in runner.run() if x.finished]
    other, runner = start(tmp_path / "b", 320)
    parts += [x.metrics for x in runner.run() if x.finished]
    assert parts == whole
    assert equal(stored(agent, tmp_path), stored(other, tmp_path))


@pytest.mark.slow
def test_a_large_memory_resumes_exactly(tmp_path, monkeypatch):
    """With 100,000 transitions, of which the runs overwrite some."""
    monkeypatch.setattr(checkpoint, "BLOCK_BYTES", 1 << 16)

    def start(folder, steps):
        envs = batch(*(gymnasium.make("CartPole-v1") for _ in range(50)))
        agent = make(
            "dqn",
            envs,
            capacity=100_000,
            start_size=90_000,
            replay_ratio=0.01,
            prioritized=True,
            n_step=3,
        )
        schedule = loop.Plan(steps, 20_000, 50)
        checkpoints = checkpoint.Checkpoints(folder)
        runner = loop.Loop(envs, agent, schedule, 0, checkpoints)
        if checkpoints.names():
            runner.restore()
        return agent, runner

    agent, runner = start(tmp_path / "a", 140_000)
    whole = [x.metrics for x in runner.run() if x.finished]
    assert int(agent.memory.size) > 95_000
    assert int(agent.updates) > 300
    parts = []
    for steps in (80_000, 120_000, 140_000):
        _, runner = start(tmp_path / "b", steps)  # This one dies within a phase.
        for _, report in zip(range(4), runner.run(), strict=False):
            assert not report.finished
        assert runner.step % 20_000
        other, runner = start(tmp_path / "b", steps)
        parts += [x.metrics for x in runner.run() if x.finished]
    assert parts == whole
    assert equal(stored(agent, tmp_path), stored(other, tmp_path))
    newest = max((tmp_path / "b").glob("step-*"))
    assert len(list(newest.glob("*.block"))) > 50


# Learning.

RAINBOW = {
    **{"atoms": 11, "value_range": (0.0, 3.0), "noisy_std": 0.5, "dueling": True},
    **{"prioritized": True, "n_step": 3},
}
DDPG = {
    **{"twin": False, "policy_delay": 1, "target_noise": 0.0},
    **{"noise": "ornstein_uhlenbeck"},
}

NOISY_TD3 = "td3", gs.Box(-3, 1, (1,)), {"noise": "parameters"}


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    envs.discontinue(np.arange(len(envs)))
    result = tools.simulate(envs, agent, steps, training=False)
    return result["score"].numpy()[result["done"].numpy()].mean()


@pytest.mark.quick("dqn", "apex", "sac", "td3")
@pytest.mark.parametrize(
    ("name", "space", "changes"),
    [
        ("dqn", gs.Discrete(2, start=3), {}),
        ("dqn", gs.MultiDiscrete([2, 2]), {}),
        ("dqn", gs.Discrete(2), RAINBOW),
        ("apex", gs.Discrete(2), {}),
        ("sac", gs.Box(-3, 1, (1,)), {}),
        ("sac", gs.Discrete(2), {}),
        ("td3", gs.Box(-3, 1, (1,)), {}),
        NOISY_TD3,
        ("td3", gs.Box(-3, 1, (1,)), DDPG),
    ],
    ids=[
        *("dqn", "dqn of parts", "rainbow", "apex", "sac", "sac of choices"),
        *("td3", "noisy td3", "ddpg"),
    ],
)
def test_identity_is_learned(name, space, changes):
    envs = batch(*(Identity(space) for _ in range(4)))
    gate = 9.0
    assert score(envs, mock_algorithm.MockAlgorithm(envs.action_space), 50) < gate
    fast = {"type": "adam", "learning_rate": 3e-3}
    options = {"optimizer": fast}
    if name not in DISCRETE:
        options["critic_optimizer"] = fast
    if name == "sac":
        options |= {"temperature_optimizer": fast, "initial_temperature": 0.1}
    agent = make(
        name,
        envs,
        batch_size=64,
        start_size=200,
        capacity=4000,
        discount=0.5,
        replay_ratio=0.5,
        **options,
        **changes,
    )
    tools.simulate(envs, agent, 400)
    assert score(envs, agent, 50) >= gate


@pytest.mark.parametrize("name", ["dqn", pytest.param("sac", marks=pytest.mark.slow)])
def test_value_of_an_endless_reward(name):
    """Fifty if episodes are cut off, less than eight if they end."""
    found = []
    for truncate in (True, False):
        envs = batch(*(Endless(truncate, name == "dqn") for _ in range(8)))
        fast = {"type": "adam", "learning_rate": 3e-3}
        options = {"optimizer": fast}
        if name == "dqn":
            options |= {"target_period": 10, "huber_delta": None}
        else:
            options |= {
                "critic_optimizer": fast,
                "initial_temperature": 1e-3,
                "temperature_optimizer": {"type": "sgd", "learning_rate": 0.0},
                "tau": 0.05,
            }
        agent = make(
            name,
            envs,
            batch_size=64,
            start_size=200,
            capacity=4000,
            discount=0.98,
            n_step=4,
            replay_ratio=0.5,
            **options,
        )
        tools.simulate(envs, agent, 500)
        seen = tf.random.stateless_uniform([100, 2], [1, 2], -1.0, 1.0)
        if name == "dqn":
            values = tf.reduce_max(agent.expected(agent.network(seen)), -1)
        else:
            values, _ = agent.evaluate(agent.critics, seen)
        found.append(float(tf.reduce_mean(values)))
    assert abs(found[0] - 50) < 2
    assert found[1] < 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["apex", *(pytest.param(x, marks=pytest.mark.slow) for x in ("sac", "dqn"))],
)
def test_everything_compiles_to_one_program(name):
    discrete = name in DISCRETE
    env = functional.CartPole() if discrete else functional.Pendulum()
    envs = compiled.Compiled(env, 4)
    agent = make(name, envs, prioritized=discrete, jit=True, replay_ratio=0.5)
    tools.simulate(envs, agent, 20)
    assert agent.updates.numpy() > 0
    assert np.isfinite(list(agent.metrics.result().values())).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cartpole_dqn", "cartpole_apex", "pendulum_sac", "pendulum_td3"]
)
def test_presets_learn(name):
    config = named.load(name)
    envs = runs.environments(config)
    gate = 475 if name.startswith("cartpole") else -200
    try:
        chance = mock_algorithm.MockAlgorithm(envs.action_space)
        assert score(envs, chance, 500) < gate
        agent = runs.algorithm(config, runs.describe(config))
        envs.discontinue(np.arange(len(envs)))
        tools.simulate(envs, agent, config.train.steps // len(envs))
        assert score(envs, agent, 500) >= gate
    finally:
        envs.close()


@pytest.mark.parametrize("name", ["cartpole_dqn", "pendulum_sac"])
def test_blocks_are_refused(name):
    with pytest.raises(config.ConfigError, match="needs 'mask', which is not provided"):
        named.load(name, ["algorithm.optimizer={type: adam, block: 32}"])


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_first_actions_are_uniform(name):
    agent = continuous(name, start_size=16)
    biases = [5.0, -9.0] if name == "sac" else [5.0]  # All actions near one.
    outputs(agent.policy, biases)
    rows, seen = tf.zeros([400], tf.int32), tf.zeros([400, 2])
    for steps, uniform in ((0, True), (15, True), (16, False)):
        agent.steps.assign(steps)
        action = agent.try_out(rows, seen).numpy()
        assert np.abs(action).max() <= 1
        assert (action.min() < -0.9) == uniform
        if uniform:
            assert abs(action.mean()) < 0.15


def test_both_observations_are_normalized():
    agent = continuous("td3", normalize_observations=True)
    agent.observations.update(tf.constant([[1.0, 2.0], [5.0, 9.0]]), tf.ones([2], bool))
    raw = tf.constant([[3.0, 4.0]])
    items = agent.prepare({"observation": raw, "next_observation": raw + 1})
    np.testing.assert_array_equal(items["observation"], agent.observations(raw))
    np.testing.assert_array_equal(
        items["next_observation"], agent.observations(raw + 1)
    )
    assert not np.allclose(items["next_observation"], raw + 1)


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_every_batch_is_a_new_draw(name):

    space = gs.Box(-2, 1, (1,)) if name == "td3" else gs.Discrete(2)
    envs = batch(Identity(space))
    agent = make(name, envs, network=TABLE, replay_ratio=0.0)
    eagerly(envs, agent, 100)
    draws = [tuple(agent.draw()["index"].numpy().tolist()) for _ in range(3)]
    assert len(set(draws)) == 3


@pytest.mark.quick("sac")
@pytest.mark.parametrize("name", ["sac", "td3"])
def test_subclasses_report_metrics_of_their_own(name, monkeypatch):
    base = CLASSES[name]

    class Squared(base):
        METRICS = (*base.METRICS, "square")

        def critic_loss(self, items):
            loss, metrics = super().critic_loss(items)
            return loss, {**metrics, "square": metrics["critic_loss"] ** 2}

    monkeypatch.setitem(CLASSES, name, Squared)
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make(name, envs, start_size=8, replay_ratio=1 / len(envs))
    while not agent.updates:
        tools.simulate(envs, agent, 1)
    metrics = agent.metrics.result()
    assert set(metrics) == set(Squared.METRICS)
    assert metrics["square"] == pytest.approx(metrics["critic_loss"] ** 2, rel=1e-4)
