"""PPO: its losses, its updates, and that it learns."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from ppo_agents import (
    batch,
    filled,
    make,
    noise_batch,
    numpy,
    randomize,
    seeded,
    settings,
)
from simulated import Endless, eagerly

from agents import networks, tools
from agents.algorithms import ppo
from agents.testing import mock_algorithm
from agents.tools import schedules

# The losses.


def take(items, *indices):
    return tf.nest.map_structure(lambda x: tf.gather(x, indices), items)


def with_ratio(agent, items, ratio):
    """Items whose actions got more probable by this factor since they were made."""
    parameters = agent.network.policy(
        items["observation"], items["state"], items["first"]
    )
    new = agent.network.head.distribution(parameters)
    old = tf.exp(new.log_prob(items["sample"])) / ratio  # [M, 1]
    assert (old.numpy() < 0.99).all()
    chosen = tf.one_hot(items["sample"], 4)
    probs = tf.where(chosen > 0, old[..., None], (1 - old[..., None]) / 3)
    return {**items, "parameters": {"logits": tf.math.log(probs)}}


def policy_gradient(agent, loss_fn):
    variables = [v.value for v in agent.network.policy_variables]
    with tf.GradientTape() as tape:
        loss = loss_fn()
    return numpy(tape.gradient(loss, variables))


@pytest.mark.parametrize("objective", ["kl", "clip"])
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("name", ["dense", "gru", "shared"])
def test_gradient_at_the_old_parameters_is_the_policy_gradient(
    name, discrete, objective
):
    agent, data, mask = filled(settings(name, objective=objective), discrete=discrete)
    items = agent.prepare(data, mask)

    def definition():
        made = agent.network.head.distribution(
            agent.network.policy(items["observation"], items["state"], items["first"])
        )
        gain = made.log_prob(items["sample"]) * items["advantage"] * items["mask"]
        return -tf.reduce_sum(gain) / tf.reduce_sum(items["mask"])

    expected = policy_gradient(agent, definition)
    result = policy_gradient(agent, lambda: agent.policy_loss(items, 0.0)[0])
    assert any(np.abs(x).max() > 1e-2 for x in expected)
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [
        (1.5, 2.0, True),
        (1.5, -2.0, False),
        (0.7, 2.0, False),
        (0.7, -2.0, True),
        (1.1, 2.0, False),
        (0.9, -2.0, False),
    ],
)
def test_clipped_objective_has_no_gradient_where_it_is_clipped(
    ratio, advantage, clipped
):
    agent, data, mask = filled(settings(objective="clip", clip=0.2), discrete=True)
    items = agent.prepare(data, mask)
    made = agent.network.head.distribution(items["parameters"])
    unlikely = tf.argmin(made.log_prob(items["sample"])[:, 0])
    items = with_ratio(agent, take(items, unlikely), ratio)
    items["advantage"] = tf.constant([[advantage]])
    loss, metrics = agent.policy_loss(items, 0.0)
    limit = min(max(ratio, 0.8), 1.2) if clipped else ratio
    np.testing.assert_allclose(loss, -limit * advantage, rtol=1e-4)
    outside = float(abs(ratio - 1) > 0.2)
    assert float(metrics["clip_fraction"]) == outside
    gradient = policy_gradient(agent, lambda: agent.policy_loss(items, 0.0)[0])
    assert any((x != 0).any() for x in gradient) != clipped


def with_divergence(agent, items, divergence):
    """Items whose distributions are this KL divergence away, in one dimension."""
    parameters = agent.network.policy(
        items["observation"], items["state"], items["first"]
    )
    shift = (2 * divergence) ** 0.5 * tf.exp(parameters["log_std"])
    mean = parameters["mean"] + shift * [1.0, 0.0]
    return {**items, "before": {**parameters, "mean": mean}}


@pytest.mark.parametrize("targets", [0.5, 1.9, 2.5, 20.0])
def test_cut_off_adds_to_the_penalty_beyond_two_targets_only(targets):
    agent, data, mask = filled(settings(kl_target=0.01, kl_penalty=3.0))
    items = agent.prepare(data, mask)
    kl = targets * 0.01
    items = with_divergence(agent, items, kl)
    items["advantage"] *= 0.0
    loss, metrics = agent.policy_loss(items, 0.0)
    expected = 3 * kl + 1000 * max(kl - 0.02, 0) ** 2
    np.testing.assert_allclose(loss, expected, rtol=1e-3)
    np.testing.assert_allclose(metrics["policy_loss"], loss)


def test_divergence_is_from_the_policy_before_the_update_to_the_new_one():
    agent, data, mask = filled(settings(kl_penalty=2.0, kl_cutoff_coef=0.0))
    items = agent.prepare(data, mask)
    items["advantage"] *= 0.0
    new = agent.network.policy(items["observation"], items["state"], items["first"])
    items["before"] = {"mean": new["mean"], "log_std": new["log_std"] + 1.0}
    loss, _ = agent.policy_loss(items, 0.0)
    # Two dimensions of log(s_new / s_old) + s_old^2 / (2 s_new^2) - 1/2.
    expected = 2 * (-1 + np.exp(2) / 2 - 0.5)
    np.testing.assert_allclose(loss, 2.0 * expected, rtol=1e-5)


def test_penalty_has_no_part_in_the_clipped_objective():
    agent, data, mask = filled(settings(objective="clip"))
    items = with_divergence(agent, agent.prepare(data, mask), 5.0)
    items["advantage"] *= 0.0
    np.testing.assert_allclose(agent.policy_loss(items, 0.0)[0], 0.0, atol=1e-6)


def test_entropy_makes_the_loss_smaller():
    agent, data, mask = filled(settings(), discrete=True)
    items = agent.prepare(data, mask)
    without, metrics = agent.policy_loss(items, 0.0)
    loss, _ = agent.policy_loss(items, 0.5)
    assert 0 < metrics["entropy"] < np.log(4)
    np.testing.assert_allclose(loss, without - 0.5 * metrics["entropy"], rtol=1e-5)
    items["advantage"] *= 0.0
    gradient = policy_gradient(agent, lambda: agent.policy_loss(items, 1.0)[0])
    for variable, x in zip(agent.network.policy_variables, gradient, strict=True):
        variable.assign(variable - 0.01 * x)
    assert agent.policy_loss(items, 0.0)[1]["entropy"] > metrics["entropy"]


@pytest.mark.parametrize("limit", [None, 0.1, 100.0])
def test_value_loss_and_its_clipping(limit):
    agent, data, mask = filled(settings(value_clip=limit))
    items = take(agent.prepare(data, mask), *range(5))
    value = agent.network.value(items["observation"], items["state"], items["first"])
    old = value - tf.constant([0.0, 1.0, 1.0, -1.0, 0.05])[:, None]
    target = old + tf.constant([2.0, 2.0, -2.0, 2.0, -2.0])[:, None]
    items |= {"value": old, "return": target}
    loss, metrics = agent.value_loss(items)
    error = (value - target).numpy() ** 2
    if limit is not None:
        near = old + tf.clip_by_value(value - old, -limit, limit)
        error = np.maximum(error, (near - target).numpy() ** 2)
    np.testing.assert_allclose(loss, 0.5 * error.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["value_loss"], loss)
    by_hand = {None: [4, 1, 9, 9, 2.05**2], 0.1: [4, 1.9**2, 9, 9, 2.05**2]}
    np.testing.assert_allclose(
        error[:, 0], by_hand[limit if limit == 0.1 else None], rtol=1e-3
    )


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        (0.0, 1 / 1.5),
        (0.0069, 1 / 1.5),
        (0.0071, 1.0),
        (0.01, 1.0),
        (0.0129, 1.0),
        (0.0131, 1.5),
        (1.0, 1.5),
    ],
)
def test_penalty_adapts_beyond_a_tolerance(kl, factor):
    agent = make(noise_batch(), settings(kl_target=0.01, kl_penalty=0.8))
    agent._adapt(tf.constant(kl), 0.0)
    np.testing.assert_allclose(agent.kl_penalty, 0.8 * factor, rtol=1e-6)
    assert agent.persistent()["kl_penalty"] is agent.kl_penalty


def test_penalty_stays_between_limits():
    agent = make(noise_batch(), settings())
    for kl, limit in ((0.0, 1e-6), (1.0, 1e6)):
        for _ in range(100):
            agent._adapt(tf.constant(kl), 0.0)
        np.testing.assert_allclose(agent.kl_penalty, limit, rtol=1e-6)


# The update.


class Watched(ppo.PPO):
    """Compares the policy to the one that acted, at the first step of every update."""

    def __init__(self, *args):
        super().__init__(*args)
        self.worst = tf.Variable([0.0, 0.0], trainable=False)
        self.begun = tf.Variable(False, trainable=False)

    def train(self):
        self.begun.assign(True)
        super().train()

    def policy_loss(self, items, entropy_coef):
        head = self.network.head
        old = head.distribution(items["parameters"])
        new = head.distribution(
            self.network.policy(items["observation"], items["state"], items["first"])
        )
        change = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
        changes = (tf.abs(change), tf.abs(old.kl(new)))
        worst = tf.stack([tf.reduce_max(x * items["mask"]) for x in changes])
        worst = tf.maximum(self.worst, worst)
        self.worst.assign(tf.where(self.begun, worst, self.worst))
        self.begun.assign(False)
        return super().policy_loss(items, entropy_coef)


@pytest.mark.quick("dense-episodes", "lstm-episodes")
@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
@pytest.mark.parametrize("name", ["dense", "lstm", "gru"])
def test_policy_before_the_update_is_the_one_that_acted(name, memory):
    """The first importance ratio is one and the first divergence zero."""
    # Whole episodes are on-policy only if none began before the last update.
    durations = ((4,),) if memory == "episodes" else ((3, 5), (9, 2), (1, 4), (30,))
    envs = noise_batch(4, durations=durations)
    config = settings(
        name,
        memory=memory,
        update_every=4,
        learning_rate=1e-2,
        kl_cutoff_coef=0.0,
        unroll_length=4,
        chunk_length=2,
    )
    agent = make(envs, config, cls=Watched, max_length=30)
    before = numpy(agent.network.policy_variables)
    graph = (name, memory) == ("gru", "unrolls")  # Tracing all takes too long.
    simulate = tools.simulate if graph else eagerly
    simulate(envs, agent, 20)
    assert agent.updates.numpy() >= 5
    for x, y in zip(before, numpy(agent.network.policy_variables), strict=True):
        assert np.abs(x - y).max() > 1e-3
    assert (agent.worst.numpy() < 1e-5).all()


class Anchored(Watched):
    """Records the penalty at the first step of every update."""

    def __init__(self, *args):
        super().__init__(*args)
        self.penalties = []

    def policy_loss(self, items, entropy_coef):
        if self.begun:
            equal = {**items, "advantage": tf.zeros_like(items["advantage"])}
            penalty, _ = ppo.PPO.policy_loss(self, equal, 0.0)
            self.penalties.append(float(penalty))
        return super().policy_loss(items, entropy_coef)


@pytest.mark.quick("dense")
@pytest.mark.parametrize("name", ["dense", "gru"])
def test_episodes_that_began_before_other_updates_are_no_divergence(name):
    envs = noise_batch(4, durations=((3, 5), (9, 2), (1, 4), (30,)))
    config = settings(
        name, update_every=4, learning_rate=1e-2, kl_penalty=100.0, chunk_length=2
    )
    agent = make(envs, config, cls=Anchored, max_length=30)
    eagerly(envs, agent, 40)
    assert agent.worst[1] > 1e-2  # Older policies chose some of the actions.
    assert len(agent.penalties) >= 5
    np.testing.assert_allclose(agent.penalties, 0.0, atol=1e-5)


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_nothing_is_learned_across_a_forced_reset(memory):
    envs = noise_batch(4, durations=((5,),), truncate=True)
    config = settings("gru", memory=memory, update_every=4, chunk_length=2)
    agent = make(envs, config, cls=Watched)
    randomize(agent)
    for steps in (3, 4, 17):
        eagerly(envs, agent, steps, reset=True)
    # What was cut off is forgotten, so 17 steps hold three updates or two.
    assert agent.updates.numpy() == (3 if memory == "episodes" else 2)
    assert (agent.worst.numpy() < 1e-5).all()


class Recording(ppo.PPO):
    """Remembers which steps each gradient step is made of."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []

    def policy_loss(self, items, entropy_coef):
        def record(observation, mask):
            self.seen.append(observation[mask > 0][:, 0].tolist())

        tf.numpy_function(record, [items["observation"], items["mask"]], [])
        return super().policy_loss(items, entropy_coef)


@pytest.mark.parametrize(
    ("name", "memory", "size", "sizes"),
    [
        ("dense", "episodes", 6, [6, 6, 2]),
        ("dense", "unrolls", 10, [10, 10, 10, 2]),
        ("dense", "unrolls", 32, [32]),
        ("gru", "unrolls", 13, [12, 12, 8]),
    ],
)
def test_every_step_is_used_once_per_epoch(name, memory, size, sizes):
    envs = noise_batch(4, durations=((3,), (4,), (4,), (6,)))
    config = settings(
        name,
        memory=memory,
        update_every=4,
        minibatch_size=size,
        epochs=3,
        normalize_observations=False,
    )
    agent = make(envs, config, cls=Recording)
    # Episodes of 3, 4, 4 and again 3 steps, while the longest is one too many.
    eagerly(envs, agent, 6 if memory == "episodes" else 8)
    assert [len(x) for x in agent.seen] == sizes * 3
    epochs = np.reshape(np.concatenate(agent.seen), [3, -1])
    orders = [tuple(epoch) for epoch in epochs]
    assert len(set(orders)) == 3
    assert len({tuple(sorted(epoch)) for epoch in orders}) == 1
    assert len(set(orders[0])) == sum(sizes)  # Observations are all different.


def test_no_learning_no_change():
    envs = noise_batch(4)
    rates = {"learning_rate": 0.0, "value_learning_rate": 0.0}
    agent = make(envs, settings(memory="unrolls", **rates))
    before = numpy(agent.network.trainable_variables)
    eagerly(envs, agent, 16)
    for x, y in zip(before, numpy(agent.network.trainable_variables), strict=True):
        np.testing.assert_array_equal(x, y)
    metrics = agent.metrics.result()
    assert abs(metrics["kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0
    assert agent.kl_penalty.numpy() < 1


def test_metrics_of_an_update():
    envs = noise_batch(4)
    agent = make(envs, settings())
    eagerly(envs, agent, 3)
    assert agent.metrics.result() == {}
    eagerly(envs, agent, 5)
    expected = set(agent.metrics.names) - {"failed_updates"}
    assert expected >= {"policy_loss", "value_loss", "kl", "gradient_norm"}
    assert set(agent.metrics.result()) == expected
    shared = make(envs, settings("shared"))
    eagerly(envs, shared, 8)
    missing = {"value_gradient_norm", "value_learning_rate"}
    assert set(shared.metrics.result()) == expected - missing


def test_schedules_reach_their_ends_in_one_trace():
    envs = noise_batch(4)
    over = 5 * 4 * 8
    linear = schedules.Schedule("linear", 1e-2, 0.0, over)
    config = settings(
        memory="unrolls",
        learning_rate=linear,
        value_learning_rate=None,
        entropy_coef=schedules.Schedule("linear", 1.0, 0.0, over),
        minibatch_size=12,  # The last minibatch is smaller.
    )
    agent = make(envs, config)
    rates = []
    for _ in range(6):
        tools.simulate(envs, agent, 8)
        rates.append(agent.metrics.result()["learning_rate"])
        agent.metrics.reset()
    np.testing.assert_allclose(rates, [8e-3, 6e-3, 4e-3, 2e-3, 0, 0], atol=1e-9)
    assert agent.steps.numpy() == 6 * 32
    assert agent._update.experimental_get_tracing_count() == 1


def test_clipped_gradients_move_little():
    """Adam ignores the scale of gradients unless epsilon is large."""
    changes = []
    for clip_norm in (None, 1e-6):
        envs = noise_batch(4)
        config = settings(
            memory="unrolls", clip_norm=clip_norm, adam_epsilon=1.0, learning_rate=1.0
        )
        agent = make(envs, config)
        before = numpy(agent.network.trainable_variables)
        eagerly(envs, agent, 8)
        after = numpy(agent.network.trainable_variables)
        assert agent.metrics.result()["gradient_norm"] > 1e-3  # Before clipping.
        pairs = zip(before, after, strict=True)
        changes.append(max(np.abs(x - y).max() for x, y in pairs))
    assert changes[0] > 1e-3
    assert 0 < changes[1] < 1e-5


def test_blocks_and_compiled_updates_learn_the_same():
    results = []
    for simulate, changes in (
        (eagerly, {"minibatch_size": 1000}),
        (eagerly, {"minibatch_size": None, "block_size": 5}),
        (tools.simulate, {"minibatch_size": 1000, "jit": True}),
    ):
        envs = noise_batch(4)
        config = settings(objective="clip", memory="unrolls", **changes)
        agent = make(envs, config)
        simulate(envs, agent, 8)
        results.append(numpy(agent.network.trainable_variables))
    for result in results[1:]:
        for x, y in zip(result, results[0], strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)


# Failures.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": "replay"}, "memory must be one of"),
        ({"objective": "klip"}, "objective must be one of"),
        ({"discount": 1.5}, "discount must be 0 to 1, got 1.5"),
        ({"gae_lambda": -0.1}, "gae_lambda must be 0 to 1, got -0.1"),
        ({"clip": 0.0}, "clip must be positive, got 0.0"),
        ({"reward_clip": -1.0}, "reward_clip must be positive, got -1.0"),
        ({"normalize_rewards": "yes"}, "normalize_rewards must be one of"),
        (
            {"network": "gru", "memory": "unrolls", "unroll_length": 10},
            "unroll_length 10 must be a multiple of chunk_length 4",
        ),
    ],
)
def test_impossible_configs_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)


def test_defaults_are_those_of_the_paper():
    """Hafner et al. (2017), section 6, and the penalty of its section 3."""
    config = ppo.Config()
    assert (config.memory, config.update_every) == ("episodes", 25)
    assert (config.epochs, config.minibatch_size) == (25, None)
    assert (config.learning_rate, config.value_learning_rate) == (1e-4, 1e-3)
    assert (config.objective, config.kl_target, config.kl_penalty) == ("kl", 0.01, 1)
    assert (config.kl_cutoff_factor, config.kl_cutoff_coef) == (2, 1000)
    assert (config.normalize_observations, config.normalize_rewards) == (True, "reward")
    network = config.network
    assert (network.layers, network.activation) == ((200, 100), "relu")
    assert (network.shared, network.mean_activation) == (False, "tanh")


# Learning.


@pytest.mark.parametrize(
    "memory", ["unrolls", pytest.param("episodes", marks=pytest.mark.slow)]
)
def test_value_of_an_endless_reward(memory):
    """One per step for ever is worth 1 / (1 - 0.98) = 50."""
    values = []
    for terminate, steps in ((False, 1920), (True, 320)):
        envs = seeded(batch(*(Endless(not terminate) for _ in range(8))))
        config = settings(
            memory=memory,
            unroll_length=32,
            update_every=16,
            objective="clip",
            discount=0.98,
            gae_lambda=0.95,
            normalize_rewards="none",
            normalize_observations=False,
            epochs=10,
            minibatch_size=64,
            value_learning_rate=5e-3,
        )
        config = dataclasses.replace(
            config, network=networks.NetworkConfig(layers=(32,), activation="tanh")
        )
        agent = make(envs, config, max_length=8)
        tools.simulate(envs, agent, steps)
        grid = np.random.default_rng(0).uniform(-1, 1, [200, 2])
        observation = tf.constant(grid, tf.float32)
        state = agent.network.initial_state(200)
        values.append(agent.network.step(observation, state)[1].numpy())
    assert np.abs(values[0] - 50).max() < 1
    # Mean of (1 - 0.98^n) / 0.02 over the 1 to 8 remaining steps.
    expected = np.mean([(1 - 0.98**n) / 0.02 for n in range(1, 9)])
    assert abs(values[1].mean() - expected) < 1


class Identity(gymnasium.Env):
    """Pays for actions that equal the observation."""

    def __init__(self, discrete):
        self._discrete, self._time = discrete, 0
        if discrete:
            self.observation_space = gs.Discrete(4, start=2)
            self.action_space = gs.Discrete(4, start=-1)
        else:
            self.observation_space = gs.Box(-1, 1, (1,))
            self.action_space = gs.Box(np.float32([-3]), np.float32([1]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        if self._discrete:
            reward = float(action + 1 == self._target)
        else:
            reward = 1 - min(abs(float(action[0] + 1) / 2 - self._target), 1)
        self._time += 1
        return self._observe(), reward, self._time == 10, False, {}

    def _observe(self):
        if self._discrete:
            self._target = int(self.np_random.integers(4))
            return self._target + 2
        self._target = self.np_random.uniform(-1, 1)
        return np.array([self._target], np.float32)


def score(envs, agent, steps):
    """Mean score of whole episodes without training."""
    result = tools.simulate(seeded(envs), agent, steps, training=False)
    done = result["done"].numpy()
    return result["score"].numpy()[done].mean()


@pytest.mark.parametrize(
    ("discrete", "memory"),
    [
        (True, "unrolls"),
        (False, "episodes"),
        pytest.param(True, "episodes", marks=pytest.mark.slow),
        pytest.param(False, "unrolls", marks=pytest.mark.slow),
    ],
)
def test_identity_is_learned(discrete, memory):
    envs = batch(*(Identity(discrete) for _ in range(16)))
    gate = 9.0
    chance = mock_algorithm.MockAlgorithm(envs.action_space)
    assert score(envs, chance, 100) < gate
    steps = 480
    length = {"update_every": 25} if memory == "episodes" else {"unroll_length": 16}
    config = ppo.Config(
        memory=memory,
        **length,
        objective="kl" if memory == "episodes" else "clip",
        epochs=6,
        minibatch_size=64,
        discount=0.5,
        gae_lambda=0.5,
        learning_rate=schedules.Schedule("linear", 1e-2, 0.0, steps * 16),
        value_learning_rate=None,
        jit=False,
        network=networks.NetworkConfig(layers=(32,), activation="tanh"),
    )
    agent = make(envs, config, max_length=10)
    assert score(envs, agent, 100) < gate
    tools.simulate(seeded(envs), agent, steps)
    assert score(envs, agent, 100) >= gate


class Cue(gymnasium.Env):
    """Shows which of two actions pays at the end, at the beginning only."""

    observation_space = gs.Box(0, 1, (3,))
    action_space = gs.Discrete(2)
    delay = 8

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time, self._cue = 0, int(self.np_random.integers(2))
        return np.float32([self._cue == 0, self._cue == 1, 0]), {}

    def step(self, action):
        self._time += 1
        done = self._time > self.delay
        reward = float(done and action == self._cue)
        return np.float32([0, 0, self._time == self.delay]), reward, done, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recurrent", "low", "high"),
    [
        ("gru", 0.95, 1.0),
        ("lstm", 0.95, 1.0),
        ("", 0.3, 0.7),
    ],
)
def test_only_recurrent_networks_remember_the_cue(recurrent, low, high):
    envs = batch(*(Cue() for _ in range(32)))
    steps = 36 * 24
    config = ppo.Config(
        memory="unrolls",
        unroll_length=36,
        **({"chunk_length": 9} if recurrent else {}),
        objective="clip",
        epochs=8,
        minibatch_size=288,
        discount=0.9,
        gae_lambda=0.95,
        entropy_coef=0.01,
        clip_norm=0.5,
        learning_rate=schedules.Schedule("linear", 1e-2, 0.0, steps * 32),
        value_learning_rate=None,
        normalize_observations=False,
        jit=False,
        network=networks.NetworkConfig(
            layers=({"type": recurrent, "units": 16},) if recurrent else (32,)
        ),
    )
    agent = make(envs, config, max_length=9)
    assert score(envs, agent, 90) < 0.7
    tools.simulate(seeded(envs), agent, steps)
    assert low <= score(envs, agent, 90) <= high
