"""PPO: what is stored, what is learned from it, and that it learns."""

import dataclasses
import pathlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import Endless, eagerly

from agents import networks, tools
from agents.algorithms import ppo
from agents.tools import checkpoint, loop, mock_algorithm, schedules

ROOT = pathlib.Path(__file__).parents[2]
NETWORKS = {
    "dense": networks.NetworkConfig(layers=(8,)),
    "shared": networks.NetworkConfig(layers=(8,), shared=True),
    "gru": networks.NetworkConfig(layers=(8, {"type": "gru", "units": 6})),
    "lstm": networks.NetworkConfig(layers=({"type": "lstm", "units": 6},)),
}


class Noise(gymnasium.Env):
    """Observes noise; episodes have the given durations in turn."""

    def __init__(self, durations=(3, 5), truncate=False, discrete=False, seed=0):
        self.observation_space = gs.Box(-np.inf, np.inf, (3,))
        self.action_space = gs.Discrete(4) if discrete else gs.Box(-1, 1, (2,))
        self._durations, self._truncate = durations, truncate
        self._episode, self._time = -1, 0
        self._random = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._random, self._episode = np.random.default_rng(seed), -1
        self._episode, self._time = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        done = self._time == self._durations[self._episode % len(self._durations)]
        flags = (False, done) if self._truncate else (done, False)
        reward = self._random.normal() + float(np.sum(action))
        return self._observe(), reward, *flags, {}

    def _observe(self):
        return self._random.normal(1, 3, 3).astype(np.float32)


@pytest.fixture
def _graph_again():
    """For tests that run functions eagerly."""
    yield
    tf.config.run_functions_eagerly(False)


class Kept(ppo.PPO):
    """Never trains by itself, so that the memory stays full."""

    def train(self):
        pass


def batch(*envs):
    return tools.InGraphBatchEnv(tools.BatchEnv(list(envs), blocking=True))


def noise_batch(count=4, durations=((3, 5), (4,), (2, 1), (6,)), **kwargs):
    return batch(
        *(Noise(durations[i % len(durations)], seed=i, **kwargs) for i in range(count))
    )


def settings(network="dense", **changes):
    """Config that makes small and quick updates."""
    defaults = {
        "update_every": 5,
        "unroll_length": 8,
        "chunk_length": 4,
        "epochs": 2,
        "minibatch_size": 100,
        "jit": False,
        "network": NETWORKS[network],
    }
    return ppo.Config(**{**defaults, **changes})


def make(envs, config, seed=0, cls=ppo.PPO, max_length=6):
    spaces = envs.observation_space, envs.action_space
    return cls(*spaces, len(envs), max_length, config, seed)


def rows(*indices):
    return tf.constant(indices, tf.int32)


def numpy(structure):
    return [x.numpy() for x in tf.nest.flatten(structure)]


def filled(config, cls=Kept, **kwargs):
    """Algorithm that did not train yet, and the data in its full memory."""
    envs = noise_batch(**kwargs)
    agent = make(envs, config, cls=cls)
    randomize(agent)
    while not agent.memory.full():
        eagerly(envs, agent, 1)
    return agent, *agent.memory.data()


def randomize(agent, seed=0, scale=0.5):
    """Change the network, whose outputs are nearly constant at first."""
    for i, variable in enumerate(agent.network.trainable_variables):
        if len(variable.shape) > 1:
            noise = tf.random.stateless_normal(variable.shape, [seed, i])
            variable.assign(variable + scale * noise)


# What is remembered.


def interact(agent, envs_rows, steps, seed=0, flags=None):
    """Call the functions by hand with random numbers; returns the transitions."""
    rng = np.random.default_rng(seed)
    count = len(envs_rows)
    transitions = []
    index = tf.constant(envs_rows, tf.int32)
    agent.begin_episodes(index)
    observation = tf.constant(rng.normal(size=[count, 3]), tf.float32)
    for step in range(steps):
        action = agent.perform(index, observation)
        following = tf.constant(rng.normal(size=[count, 3]), tf.float32)
        reward = tf.constant(rng.normal(size=[count]), tf.float32)
        terminated, truncated = flags[step] if flags else ([False] * count,) * 2
        flag = (tf.constant(terminated), tf.constant(truncated))
        agent.experience(index, observation, action, reward, *flag, following)
        transitions.append((observation, reward, *flag, following))
        observation = following
    return transitions


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


def value_of(agent, observation):
    """Value of observations `[K, 3]` by a dense network."""
    observation = agent.observations(observation)
    return agent.network.step(observation, ((), ()))[1].numpy()


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_bootstrap_is_the_value_of_the_last_observation_unless_terminated(memory):
    envs = noise_batch(4)
    config = settings(memory=memory, unroll_length=3, update_every=4)
    agent = make(envs, config, cls=Kept)
    randomize(agent)
    nothing = ([False] * 4, [False] * 4)
    last = ([False, True, False, True], [False, False, True, True])
    transitions = interact(agent, range(4), 3, flags=[nothing, nothing, last])
    agent.end_episodes(tf.range(4))
    data, _ = agent.memory.data()
    bootstrap = data["bootstrap"].numpy()
    np.testing.assert_array_equal(bootstrap[:, :2], 0)
    value = value_of(agent, transitions[-1][-1])
    assert (np.abs(value) > 1e-3).all()
    # Rows: goes on, terminated, truncated, both.
    expected = [value[0] if memory == "unrolls" else 0, 0, value[2], 0]
    np.testing.assert_allclose(bootstrap[:, 2], expected, rtol=1e-5)
    np.testing.assert_array_equal(data["done"][:, 2], [False, True, True, True])


def test_bootstrap_of_a_recurrent_network_continues_its_state():
    envs = noise_batch(2)
    config = settings("gru", memory="unrolls", unroll_length=4)
    agent = make(envs, config, cls=Kept)
    randomize(agent)
    transitions = interact(agent, range(2), 4)
    data, mask = agent.memory.data()
    *_, following = transitions[-1]
    observation = tf.concat([data["observation"], following[:, None]], 1)
    state = tf.nest.map_structure(lambda x: x[:, 0], data["state"])
    first = tf.zeros([2, 5], tf.bool)
    value = agent.network.value(agent.observations(observation), state, first)
    np.testing.assert_allclose(data["bootstrap"][:, 3], value[:, 4], atol=1e-5)
    items = agent.prepare(data, mask)
    np.testing.assert_allclose(items["value"], value[:, :4], atol=1e-5)


def test_stored_state_is_that_of_acting_and_not_zero():
    agent, data, mask = filled(
        settings("gru", memory="unrolls"), durations=((100,), (5,))
    )
    items = agent.prepare(data, mask)
    policy = items["state"][0][0].numpy().reshape(4, 2, 6)  # Rows, chunks, units.
    np.testing.assert_array_equal(policy[:, 0], 0)
    assert (policy[[0, 2], 1] != 0).all()  # The long episodes go on.
    unrolled = agent.network._policy.step(  # One step from the stored state.
        agent.observations(data["observation"][:, 3]),
        tf.nest.map_structure(lambda x: x[:, 3], data["state"])[0],
    )[1][0]
    np.testing.assert_allclose(policy[[0, 2], 1], unrolled.numpy()[[0, 2]], atol=1e-6)


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


# What is trained on.


def slow_advantage(reward, value, done, bootstrap, discount, lambda_):
    """Generalized advantages of one row in float64."""
    result, following = np.zeros(len(reward)), 0.0
    for t in reversed(range(len(reward))):
        last = done[t] or t == len(reward) - 1
        after = bootstrap[t] if last else value[t + 1]
        carried = 0.0 if last else following
        error = reward[t] + discount * after - value[t]
        following = result[t] = error + discount * lambda_ * carried
    return result


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
def test_advantages_and_returns_of_real_data(memory, truncate):
    config = settings(
        memory=memory,
        gae_lambda=0.9,
        normalize_advantages=False,
        normalize_rewards="none",
    )
    agent, data, mask = filled(config, truncate=truncate)
    items = agent.prepare(data, mask)
    value = value_of(agent, tf.reshape(data["observation"], [-1, 3]))
    value = value.reshape(mask.shape).astype(np.float64)
    expected = []
    for row in range(mask.shape[0]):
        length = int(mask.numpy()[row].sum())
        part = {
            key: data[key].numpy()[row, :length]
            for key in ("reward", "done", "bootstrap")
        }
        advantage = slow_advantage(
            part["reward"],
            value[row, :length],
            part["done"],
            part["bootstrap"],
            config.discount,
            config.gae_lambda,
        )
        expected.append(advantage)
    expected = np.concatenate(expected)
    np.testing.assert_allclose(items["advantage"][:, 0], expected, atol=1e-4)
    valid = value[mask.numpy()]
    np.testing.assert_allclose(items["return"][:, 0], expected + valid, atol=1e-4)
    np.testing.assert_allclose(items["value"][:, 0], valid, atol=1e-5)
    assert (data["bootstrap"].numpy() != 0).any() == (truncate or memory == "unrolls")


@pytest.mark.parametrize("name", ["dense", "gru"])
def test_items_are_the_valid_steps(name):
    agent, data, mask = filled(settings(name))
    items = agent.prepare(data, mask)
    chunk = 1 if name == "dense" else 4
    chunks = -(-mask.numpy().sum(1) // chunk)
    assert items["mask"].shape == (chunks.sum(), chunk)
    assert items["mask"].numpy().sum() == mask.numpy().sum()
    valid = items["mask"].numpy() > 0
    for key in ("observation", "sample"):
        expected = data[key].numpy()[mask.numpy()]
        if key == "observation":
            expected = agent.observations(tf.constant(expected))
        np.testing.assert_allclose(items[key].numpy()[valid], expected, rtol=1e-6)


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
@pytest.mark.parametrize("name", ["dense", "gru"])
def test_advantages_are_standardized_over_valid_steps_of_batch_and_time(name, memory):
    agent, data, mask = filled(settings(name, memory=memory))
    items = agent.prepare(data, mask)
    advantage = items["advantage"].numpy()[items["mask"].numpy() > 0]
    assert abs(advantage.mean()) < 1e-5
    assert abs(advantage.std() - 1) < 1e-4


def test_advantages_of_one_episode_are_not_all_zero():
    agent, data, mask = filled(settings(update_every=1), count=1, durations=((6,),))
    advantage = agent.prepare(data, mask)["advantage"].numpy()
    assert advantage.shape == (6, 1)
    assert abs(advantage.std() - 1) < 1e-4


def test_equal_advantages_become_zero():
    config = settings(normalize_rewards="none", gae_lambda=0.0, discount=0.0)
    agent, data, mask = filled(config)
    for variable in agent.network.value_variables:
        variable.assign(np.zeros(variable.shape))
    for reward in (0.0, 0.1, 1 / 3, 2.7):
        data["reward"] = tf.fill(mask.shape, reward)
        advantage = agent.prepare(data, mask)["advantage"].numpy()
        assert np.abs(advantage).max() < 0.1
    single = (
        mask & (tf.range(mask.shape[1]) == 0) & (tf.range(mask.shape[0]) == 0)[:, None]
    )
    assert np.abs(agent.prepare(data, single)["advantage"]).max() < 0.1


def losses(agent, data, mask):
    """Losses and gradients of everything, as flat arrays."""
    items = agent.prepare(data, mask)
    variables = [v.value for v in agent.network.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        policy_loss, metrics = agent.policy_loss(items, 0.1)
        value_loss, _ = agent.value_loss(items)
    results = [policy_loss, value_loss, *metrics.values()]
    for loss in (policy_loss, value_loss):
        gradients = tape.gradient(loss, variables)
        results += [x for x in gradients if x is not None]
    return numpy(results)


def spoilt(data, mask, scale):
    """The data with other values in the padding."""

    def replace(i, x):
        noise = tf.random.stateless_normal(x.shape, [i, 0]) * scale
        if x.dtype == tf.bool:
            noise = noise > 0
        elif x.dtype.is_integer:
            noise = tf.abs(noise) % 4
        shape = [*mask.shape, *[1] * (x.shape.rank - 2)]
        return tf.where(tf.reshape(mask, shape), x, tf.cast(noise, x.dtype))

    leaves = [replace(i, x) for i, x in enumerate(tf.nest.flatten(data))]
    return tf.nest.pack_sequence_as(data, leaves)


@pytest.mark.parametrize("objective", ["kl", "clip"])
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("name", ["dense", "gru"])
def test_padding_changes_no_loss_and_no_gradient(name, discrete, objective):
    config = settings(
        name, objective=objective, gae_lambda=0.9, value_clip=0.1, kl_target=1e-4
    )
    agent, data, mask = filled(config, discrete=discrete, truncate=True)
    assert not mask.numpy().all()
    randomize(agent, seed=1, scale=0.05)  # So that ratios are not one.
    expected = losses(agent, data, mask)
    assert all(np.isfinite(x).all() for x in expected)
    for scale in (1.0, 30.0):
        result = losses(agent, spoilt(data, mask, scale), mask)
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["dense", "gru"])
def test_padding_changes_nothing_where_it_is_kept_for_static_shapes(name):
    config = settings(name, gae_lambda=0.9)
    agent, data, mask = filled(config, truncate=True)
    randomize(agent, seed=1, scale=0.05)
    expected = losses(agent, data, mask)
    padded = make(noise_batch(), dataclasses.replace(config, jit=True), cls=Kept)
    for ours, theirs in zip(
        padded.network.trainable_variables,
        agent.network.trainable_variables,
        strict=True,
    ):
        ours.assign(theirs)
    for scale in (1.0, 30.0):
        result = losses(padded, spoilt(data, mask, scale), mask)
        for x, y in zip(result, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_padding_changes_no_statistics():
    results = []
    for scale in (0.0, 1000.0):
        agent, data, mask = filled(settings(normalize_rewards="return"))
        data = spoilt(data, mask, scale)
        agent.observations.update(data["observation"], mask)
        agent.rewards.update(data["discounted"], mask)
        results.append(numpy([*agent.observations.variables, *agent.rewards.variables]))
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


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
    return {**items, "parameters": {**parameters, "mean": mean}}


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


def test_divergence_is_that_of_the_new_policy_from_the_old_one():
    agent, data, mask = filled(settings(kl_penalty=2.0, kl_cutoff_coef=0.0))
    items = agent.prepare(data, mask)
    items["advantage"] *= 0.0
    new = agent.network.policy(items["observation"], items["state"], items["first"])
    items["parameters"] = {"mean": new["mean"], "log_std": new["log_std"] + 1.0}
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
    agent.adapt({"kl": tf.constant(kl)})
    np.testing.assert_allclose(agent.kl_penalty, 0.8 * factor, rtol=1e-6)
    assert agent.persistent()["kl_penalty"] is agent.kl_penalty


def test_penalty_stays_between_limits():
    agent = make(noise_batch(), settings())
    for kl, limit in ((0.0, 1e-6), (1.0, 1e6)):
        for _ in range(100):
            agent.adapt({"kl": tf.constant(kl)})
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


@pytest.mark.parametrize("memory", ["episodes", "unrolls"])
@pytest.mark.parametrize("name", ["dense", "gru", "lstm"])
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


def test_episode_longer_than_promised_raises():
    envs = noise_batch(2, durations=((9,),))
    agent = make(envs, settings(), max_length=6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the memory"):
        eagerly(envs, agent, 9)


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
        schedule = loop.Schedule(96, 32, 3)
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


# Learning.


def seeded(envs):
    envs.discontinue(tf.constant(loop.phase_seeds(0, 0, len(envs))))
    return envs


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
    config = ppo.Config(
        memory=memory,
        update_every=25,
        unroll_length=16,
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


@pytest.mark.parametrize(
    ("recurrent", "low", "high"),
    [
        ("gru", 0.95, 1.0),
        pytest.param("lstm", 0.95, 1.0, marks=pytest.mark.slow),
        ("", 0.3, 0.7),
    ],
)
def test_only_recurrent_networks_remember_the_cue(recurrent, low, high):
    envs = batch(*(Cue() for _ in range(32)))
    steps = 36 * 24
    config = ppo.Config(
        memory="unrolls",
        unroll_length=36,
        chunk_length=9,
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
