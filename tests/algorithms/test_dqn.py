"""DQN: targets, losses and priorities, also of distributions."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from replay_agents import (
    DISCRETE,
    ONLINE,
    SGD,
    TABLE,
    TARGET,
    Chain,
    Identity,
    items,
    make,
    outputs,
    table,
)
from simulated import batch, numbers, same

from agents import tools
from agents.algorithms import dqn


@pytest.mark.parametrize(
    ("double", "expected"),
    [
        # The online network prefers action 0 in state 1, and action 1 in state 2.
        (True, [0.9 * 30, 0.5 + 0.81 * 60, 1.0, -1.0 + 0.9 * 30]),
        (False, [0.9 * 40, 0.5 + 0.81 * 60, 1.0, -1.0 + 0.9 * 40]),
    ],
)
def test_targets_by_hand(double, expected):
    agent = make("dqn", batch(Chain()), double=double, network=TABLE)
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    target = agent.target(items())[:, 0]
    np.testing.assert_allclose(target, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("jit", "shape", "expected"),
    [(None, (3,), True), (None, (36, 36, 1), False), (True, (36, 36, 1), True)],
)
def test_updates_with_convolutions_are_compiled_only_if_asked(jit, shape, expected):
    space = gs.Box(0, 255, shape, np.uint8)
    config = dqn.Config(capacity=10, batch_size=2, start_size=2, jit=jit)
    algorithm = dqn.DQN(space, gs.Discrete(2), 2, 10, config)
    assert algorithm.config.jit == expected


def test_weights_are_outside_of_the_huber_loss():
    """RLgraph weighted the error, which is squared afterwards."""
    agent = make("dqn", batch(Chain()), network=TABLE, huber_delta=1.0)
    table(agent, ONLINE)
    target = tf.constant([[2.5], [3.0], [5.0], [0.5]])  # Errors 0.5, 3, 0 and 0.5.
    loss, _ = agent.loss(items(target=target))
    terms = [0.5 * 0.5**2, 0.5 * (3.0 - 0.5), 0.0, 0.25 * 0.5 * 0.5**2]
    np.testing.assert_allclose(loss, np.mean(terms), rtol=1e-6)


@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
def test_slope_of_the_huber_loss(delta):
    """Not zero beyond delta, as where errors are clipped."""
    error = tf.constant([-10.0, -3.0, -0.1, 0.0, 0.2, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(error)
        loss = dqn.huber(error, delta)
    expected = np.clip(error.numpy(), -delta, delta)
    np.testing.assert_allclose(tape.gradient(loss, error), expected, rtol=1e-6)
    np.testing.assert_allclose(dqn.huber(error, None), 0.5 * error.numpy() ** 2)


def test_priorities_are_errors_and_not_losses():
    agent = make("dqn", batch(Chain()), network=TABLE, prioritized=True)
    table(agent, ONLINE)
    table(agent, TARGET, agent.target_network)
    _, errors = agent.learn(items())
    target = np.array([27, 49.1, 1, 26])
    np.testing.assert_allclose(errors, np.abs(target - [2, 0, 5, 0]), rtol=1e-5)


def test_dueling_values_have_advantages_of_mean_zero():
    agent = make("dqn", batch(Chain()), network=TABLE, dueling=True)
    advantages, _, states, _ = agent.network.trainable_variables
    advantages.assign(ONLINE)
    states.assign([[7.0], [8.0], [9.0]])
    values = agent.network(tf.constant([0, 1, 2], tf.int64))[..., 0]
    expected = [[6.5, 7.5], [9.5, 6.5], [6.5, 11.5]]
    np.testing.assert_allclose(values, expected)


def test_projection_by_hand():
    """Bellemare et al. (2017), algorithm 1, on three atoms."""
    support = tf.constant([-1.0, 0.0, 1.0])
    probabilities = tf.constant([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    returns = tf.constant([[-1.5, 0.25, 0.5], [0.75, 0.75, 0.75]])
    result = dqn.project(probabilities, returns, support)
    expected = [[0.2, 0.3 * 0.75 + 0.25, 0.3 * 0.25 + 0.25], [0, 0.25, 0.75]]
    np.testing.assert_allclose(result, expected, atol=1e-6)


THREE = {"atoms": 3, "value_range": (-1.0, 1.0), "network": TABLE}
LOW, HIGH = [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]


def categorical(agent, network, *preferred):
    """Make one action of each state have high returns, others low ones."""
    rows = [[HIGH if x == best else LOW for x in (0, 1)] for best in preferred]
    table(agent, np.log(np.reshape(rows, [3, 6])), network)


@pytest.mark.parametrize("double", [True, False])
def test_targets_of_distributions_by_hand(double):
    agent = make("dqn", batch(Chain()), double=double, **THREE)
    categorical(agent, agent.network, 0, 0, 0)
    categorical(agent, agent.target_network, 1, 1, 1)
    target = agent.target(
        items(
            reward=tf.constant([0.0, 0.5, 1.0, -1.0]),
            discount=tf.constant([0.5, 0.5, 0.0, 1.0]),
        )
    )
    low, middle, high = LOW if double else HIGH  # Of the action that is chosen.
    expected = [
        [low / 2, low / 2 + middle + high / 2, high / 2],  # At -0.5, 0 and 0.5.
        [0, low + middle / 2, middle / 2 + high],  # At 0, 0.5 and 1.
        [0, 0, 1],  # Terminated, so at 1.
        [low + middle, high, 0],  # At -2, -1 and 0.
    ]
    np.testing.assert_allclose(target, expected, atol=1e-6)


def test_loss_and_priorities_of_distributions_by_hand():
    """The divergence, whose gradient is that of the cross entropy."""
    agent = make("dqn", batch(Chain()), prioritized=True, **THREE)
    categorical(agent, agent.network, 0, 0, 0)
    target = np.array([HIGH, HIGH, [0.0, 0.0, 1.0], LOW], np.float32)
    data = items(target=tf.constant(target))
    chosen = np.array([LOW, LOW, LOW, HIGH])  # Actions 1, 1, 1 and 0.
    terms = target * (np.log(np.maximum(target, 1e-8)) - np.log(chosen))
    divergence = terms.sum(1)
    loss, _ = agent.loss(data)
    weights = data["weight"].numpy()
    np.testing.assert_allclose(loss, np.mean(weights * divergence), rtol=1e-5)
    np.testing.assert_allclose(agent.priorities(data), divergence, rtol=1e-5)


@pytest.mark.parametrize("atoms", [1, 11])
def test_branches_have_their_own_best_actions(atoms):
    env = Identity(gs.MultiDiscrete([2, 3], start=[1, -1]))
    agent = make("dqn", batch(env), atoms=atoms)
    values = tf.constant([[0.0, 1.0, 5.0, 7.0, 6.0]])
    np.testing.assert_array_equal(agent.network.best(values, None), [[1, 1]])
    chosen = agent.network.chosen(values, tf.constant([[0, 2]], tf.int64))
    np.testing.assert_array_equal(chosen, [[0.0, 6.0]])
    action = agent.environment_action(tf.constant([[1, 2]], tf.int64))
    np.testing.assert_array_equal(action, [[2, 1]])


def test_noise_is_for_training_only():
    envs = batch(*(Chain() for _ in range(4)))
    agent = make("dqn", envs, noisy_std=0.5, network=TABLE)
    seen = tf.constant([0, 1, 2, 0], tf.int64)
    rows = tf.range(4)
    still = [agent.perform(rows, seen, training=False).numpy() for _ in range(20)]
    assert len({tuple(x) for x in still}) == 1
    moving = [agent.perform(rows, seen).numpy() for _ in range(50)]
    assert len({tuple(x) for x in moving}) > 1


@pytest.mark.quick("dqn")
@pytest.mark.parametrize("name", DISCRETE)
def test_target_network_is_a_copy_renewed_at_the_exact_step(name):
    envs = batch(Chain())
    agent = make(name, envs, target_period=5, replay_ratio=1.0, optimizer=SGD)
    first = numbers(agent.network.trainable_variables)
    assert same(first, numbers(agent.target_network.trainable_variables))
    while agent.updates.numpy() < 4:
        tools.simulate(envs, agent, 1)
        assert same(first, numbers(agent.target_network.trainable_variables))
    assert agent.updates.numpy() == 4
    tools.simulate(envs, agent, 1)
    copy = numbers(agent.network.trainable_variables)
    assert not same(first, copy)
    assert same(copy, numbers(agent.target_network.trainable_variables))
    for _ in range(4):
        tools.simulate(envs, agent, 1)
        assert not same(copy, numbers(agent.network.trainable_variables))
        assert same(copy, numbers(agent.target_network.trainable_variables))
    assert agent.updates.numpy() == 9


def test_values_of_the_chain_are_recovered():
    discount = 0.9
    best = np.zeros([3, 2])
    for _ in range(200):
        state = best.max(1)
        best = np.array(
            [
                [0.1 + discount * state[0], discount * state[1]],
                [discount * state[0], discount * state[2]],
                [discount * state[1], 1.0],
            ]
        )
    envs = batch(*(Chain() for _ in range(8)))
    agent = make(
        "dqn",
        envs,
        batch_size=32,
        start_size=100,
        capacity=1000,
        discount=discount,
        epsilon=1.0,
        replay_ratio=1.0,
        target_period=20,
        network=TABLE,
        optimizer={
            "type": "adam",
            "learning_rate": {"type": "linear", "from": 0.05, "to": 0.001, "over": 6e3},
        },
    )
    tools.simulate(envs, agent, 800)
    values = agent.network(tf.constant([0, 1, 2], tf.int64))[..., 0]
    np.testing.assert_allclose(values, best, atol=1e-2)


MASKED = gs.Dict(
    observation=gs.Box(0, 1, (2,)), action_mask=gs.Box(0, 1, (4,), np.int8)
)


def masked(**changes):
    """Agent with four actions, some of which masks forbid."""
    values = {"capacity": 50, "batch_size": 8, "start_size": 16, "jit": False}
    config = dqn.Config(**{**values, "network": TABLE, **changes})
    return dqn.DQN(MASKED, gs.Discrete(4), 8, 500, config)


def seen(*mask, count=1):
    """Observations with this mask."""
    return {
        "observation": tf.zeros([count, 2]),
        "action_mask": tf.constant([mask] * count, tf.int8),
    }


@pytest.mark.parametrize("double", [False, True])
def test_targets_have_actions_that_are_allowed_in_the_next_state(double):
    agent = masked(double=double)
    outputs(agent.network, [1.0, 2.0, 3.0, 4.0])
    outputs(agent.target_network, [10.0, 20.0, 30.0, 40.0])
    data = {
        "observation": seen(0, 0, 1, 1),
        "next_observation": seen(1, 1, 0, 0),
        "reward": tf.constant([1.0]),
        "discount": tf.constant([0.5]),
    }
    np.testing.assert_allclose(agent.target(data), [[1 + 0.5 * 20]])


def test_random_actions_of_dqn_are_allowed():
    agent = masked(epsilon=1.0)
    outputs(agent.network, [1.0, 2.0, 3.0, 4.0])
    allowed = seen(0, 1, 0, 1, count=400)
    action = agent.try_out(tf.zeros([400], tf.int32), allowed).numpy()
    assert set(action[:, 0].tolist()) == {1, 3}


def test_target_network_has_noise_of_its_own():
    agent = make("dqn", batch(Chain()), network=TABLE, noisy_std=0.5, double=False)
    one, other = agent.target(items()), agent.target(items())
    future = items()["discount"].numpy() > 0
    assert ((one != other).numpy().any(1) == future).all()
