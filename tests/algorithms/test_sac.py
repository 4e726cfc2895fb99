"""SAC: soft targets, the temperature, and finite losses."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from replay_agents import (
    TABLE,
    Identity,
    continuous,
    make,
    outputs,
    steps_of_one_number,
)
from simulated import batch, eagerly, numbers, same

from agents import tools


def test_actor_update_leaves_critics_untouched():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    still = {"type": "sgd", "learning_rate": 0.0}
    agent = make("sac", envs, critic_optimizer=still, start_size=8)
    before = numbers(agent.critics.trainable_variables)
    policy = numbers(agent.policy.trainable_variables)
    eagerly(envs, agent, 16)
    assert same(numbers(agent.critics.trainable_variables), before)
    assert not same(numbers(agent.policy.trainable_variables), policy)


def test_temperature_stays_positive_and_moves_towards_the_target_entropy():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    fast = {"type": "adam", "learning_rate": 0.5}
    for target, above in ((-20.0, False), (20.0, True)):
        agent = make("sac", envs, target_entropy=target, temperature_optimizer=fast)
        tools.simulate(envs, agent, 60)
        temperature = float(agent.temperature)
        assert temperature > 0
        assert (temperature > 1) == above


def test_losses_are_finite_far_from_the_middle():
    """At 20 before tanh, where it rounds to one."""
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("sac", envs)
    output = agent.policy.trainable_variables[-1]
    output.assign([20.0, 0.0])
    seen = tf.zeros([5, 2])
    with tf.GradientTape() as tape:
        loss, _ = agent.policy_loss({"observation": seen})
    gradients = tape.gradient(loss, [x.value for x in agent.policy.trainable_variables])
    assert np.isfinite(loss)
    for gradient in gradients:
        assert np.isfinite(gradient).all()


def test_targets_of_sac_are_soft_and_pessimistic():
    envs = batch(Identity(gs.Discrete(2)))
    agent = make("sac", envs, network=TABLE)
    outputs(agent.target_critics, [3.0, 1.0], [2.0, 5.0])
    outputs(agent.policy, [np.log(3.0), 0.0])
    agent.log_temperature.assign(np.log(0.5))
    data = {
        "next_observation": tf.zeros([2, 2]),
        "reward": tf.constant([1.0, 1.0]),
        "discount": tf.constant([0.9, 0.0]),
    }
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    value = 0.75 * 2.0 + 0.25 * 1.0 + 0.5 * entropy
    np.testing.assert_allclose(agent.target(data), [1 + 0.9 * value, 1.0], rtol=1e-5)


def test_targets_of_sac_are_pessimistic_for_boxes():
    agent = continuous("sac", initial_temperature=0.5)
    outputs(agent.target_critics, [3.0], [2.0])
    agent.generator.reset_from_seed(1)
    target = agent.target(steps_of_one_number())
    agent.generator.reset_from_seed(1)
    distribution = agent.distribution(tf.zeros([2, 2]))
    log_prob = distribution.log_prob(distribution.sample(agent.generator))
    expected = [1 + 0.9 * (2.0 - 0.5 * log_prob[0]), 2.0]
    np.testing.assert_allclose(target, expected, rtol=1e-5)


def test_target_critics_follow():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("sac", envs, tau=0.1, replay_ratio=1.0, start_size=8)
    old = numbers(agent.target_critics.trainable_variables)
    while agent.updates.numpy() < 1:
        eagerly(envs, agent, 1)
    new = numbers(agent.critics.trainable_variables)
    after = numbers(agent.target_critics.trainable_variables)
    for x, y, z in zip(old, new, after, strict=True):
        np.testing.assert_allclose(z, 0.9 * x + 0.1 * y, atol=1e-6)


def test_policy_of_sac_has_the_soft_value_of_the_current_critics_as_loss():
    agent = make("sac", batch(Identity(gs.Discrete(2))), network=TABLE)
    outputs(agent.critics, [3.0, 1.0], [2.0, 5.0])
    outputs(agent.target_critics, [-30.0, 70.0], [40.0, -9.0])
    outputs(agent.policy, [np.log(3.0), 0.0])
    agent.log_temperature.assign(np.log(0.5))
    loss, metrics = agent.policy_loss({"observation": tf.zeros([2, 2])})
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    value = 0.75 * 2.0 + 0.25 * 1.0
    np.testing.assert_allclose(loss, -(value + 0.5 * entropy), rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)


@pytest.mark.parametrize("space", [gs.Box(-2, 1, (1,)), gs.Discrete(2)], ids=str)
def test_sac_samples_in_training_and_takes_the_mode_otherwise(space):
    agent = make("sac", batch(Identity(space)), network=TABLE)
    agent.steps.assign(1000)  # Uniform actions are over.
    biases = [0.5, 0.0] if isinstance(space, gs.Box) else [np.log(3.0), 0.0]
    outputs(agent.policy, biases)
    rows, seen = tf.zeros([400], tf.int32), tf.zeros([400, 2])
    tried, best = agent.try_out(rows, seen).numpy(), agent.best(seen).numpy()
    if isinstance(space, gs.Box):
        np.testing.assert_allclose(best, np.tanh(0.5), rtol=1e-5)
        assert tried.std() > 0.1
        assert abs(np.mean(tried > np.tanh(0.5)) - 0.5) < 0.1  # Around its median.
    else:
        assert not best.any()
        assert abs(tried.mean() - 0.25) < 0.1
