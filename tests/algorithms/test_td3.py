"""TD3: targets, noise, and the delay of the policy."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from replay_agents import Identity, continuous, make, outputs, steps_of_one_number
from simulated import batch, eagerly, numbers, same


@pytest.mark.parametrize(("twin", "value"), [(True, 2.0), (False, 3.0)])
def test_targets_of_td3_are_pessimistic(twin, value):
    """And those of DDPG are not."""
    agent = continuous("td3", twin=twin)
    outputs(agent.target_critics, [3.0], [2.0])
    target = agent.target(steps_of_one_number())
    np.testing.assert_allclose(target, [1 + 0.9 * value, 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "lowest", "highest"),
    [
        ({"target_noise": 0.0}, 0.5, 0.5),
        ({"target_noise": 10.0, "target_noise_clip": 0.2}, 0.3, 0.7),
        ({"target_noise": 10.0, "target_noise_clip": 5.0}, -1.0, 1.0),
    ],
)
def test_targets_of_td3_are_averaged_over_actions_nearby(options, lowest, highest):
    """Critics that answer with the action show which ones they were asked about."""
    agent = continuous("td3", **options)
    outputs(agent.target_policy, [np.arctanh(0.5)])
    outputs(agent.target_critics, [0.0], [0.0])
    for kernel in agent.target_critics.trainable_variables[::2]:
        kernel.assign([[0.0], [0.0], [1.0]])
    many = {
        "next_observation": tf.zeros([500, 2]),
        "reward": tf.zeros([500]),
        "discount": tf.ones([500]),
    }
    actions = agent.target(many).numpy()
    assert actions.min() == pytest.approx(lowest, abs=1e-6)
    assert actions.max() == pytest.approx(highest, abs=1e-6)
    if options["target_noise"]:
        assert abs(actions.mean() - np.clip(0.5, lowest, highest)) < 0.6
        assert actions.std() > 0.1


def test_noise_of_td3_begins_anew_with_episodes_and_is_for_training_only():
    agent = continuous("td3", noise="ornstein_uhlenbeck", noise_std=0.1, start_size=16)
    agent.steps.assign(1000)  # Random actions are over.
    seen, row = tf.zeros([1, 2]), tf.constant([0])
    noise = agent._exploration._state
    for _ in range(5):
        agent.perform(row, seen)
    moved = noise.numpy()
    assert moved.any()
    still = agent.perform(row, seen, training=False)
    assert np.array_equal(still, agent.perform(row, seen, training=False))
    assert np.array_equal(noise, moved)
    agent.begin_episodes(row)
    assert not noise.numpy().any()


def test_targets_of_td3_follow_with_the_policy():
    agent = make("td3", batch(Identity(gs.Box(-2, 1, (1,)))), tau=0.1, policy_delay=2)
    pairs = (agent.target_policy, agent.policy), (agent.target_critics, agent.critics)
    data = steps_of_one_number()
    for update in range(4):
        old = [numbers(target.trainable_variables) for target, _ in pairs]
        agent.updates.assign(update)
        agent.learn(data)
        for before, (target, source) in zip(old, pairs, strict=True):
            after = numbers(target.trainable_variables)
            new = numbers(source.trainable_variables)
            share = 0.0 if update % 2 else 0.1
            for x, y, z in zip(before, new, after, strict=True):
                np.testing.assert_allclose(z, x + share * (y - x), atol=1e-6)
    assert not same(after, new)


def test_policy_of_td3_is_delayed():
    envs = batch(Identity(gs.Box(-2, 1, (1,))))
    agent = make("td3", envs, policy_delay=3, replay_ratio=1.0, start_size=8)
    policy = numbers(agent.policy.trainable_variables)
    critics = numbers(agent.critics.trainable_variables)
    while agent.updates.numpy() < 2:
        eagerly(envs, agent, 1)
    assert same(numbers(agent.policy.trainable_variables), policy)
    assert not same(numbers(agent.critics.trainable_variables), critics)
    eagerly(envs, agent, 1)
    assert agent.updates.numpy() == 3
    assert not same(numbers(agent.policy.trainable_variables), policy)


def test_policy_of_td3_has_the_value_of_the_current_first_critic_as_loss():
    agent = continuous("td3")
    outputs(agent.critics, [3.0], [2.0])
    outputs(agent.target_critics, [-30.0], [40.0])
    loss, _ = agent.policy_loss({"observation": tf.zeros([2, 2])})
    np.testing.assert_allclose(loss, -3.0, rtol=1e-6)
