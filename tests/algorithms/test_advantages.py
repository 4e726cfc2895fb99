"""Bootstraps, advantages and padding in the data of policy gradients, by PPO."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from ppo_agents import (
    Kept,
    filled,
    interact,
    make,
    noise_batch,
    numpy,
    randomize,
    settings,
    value_of,
)

# What is remembered.


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
    target = {"kl_target": 1e-4} if objective == "kl" else {}
    config = settings(
        name, objective=objective, gae_lambda=0.9, value_clip=0.1, **target
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
