"""A2C: its one step, and what the updates see."""

import numpy as np
import pytest
import tensorflow as tf
from gradient_agents import SGD, make, noise
from simulated import collected, eagerly, numbers, same

from agents import optimizers


def test_actor_critic_moves_both_by_the_sum_of_their_losses():
    envs = noise()
    agent = make("a2c", envs, optimizer=SGD, value_coef=0.25, entropy_coef=0.1)
    items = collected(agent, envs)

    def total(items):
        policy, value = agent.policy_loss(items, 0.1), agent.value_loss(items)
        return policy[0] + 0.25 * value[0], {}

    moved = agent.network.policy_variables + agent.network.value_variables
    gradients, _, _ = optimizers.replicas.gradient(total, moved, items)
    before = numbers(moved)
    agent = make("a2c", envs, optimizer=SGD, value_coef=0.25, entropy_coef=0.1)
    assert same(before, numbers(agent._trained))
    agent.optimizer.step(total, agent._trained, items=items)
    for new, old, gradient in zip(
        numbers(agent._trained), before, gradients, strict=True
    ):
        np.testing.assert_allclose(new, old - 0.1 * gradient, atol=1e-6)


@pytest.mark.parametrize("normalize", ["reward", "return"])
def test_updates_scale_rewards_by_their_own_data_but_see_what_acting_saw(normalize):

    counts, seeds = [], []
    envs = noise()
    agent = make("a2c", envs, memory="unrolls", normalize_rewards=normalize)
    (statistics,) = agent.observations.persistent

    def update(data, mask, seed, entropy_coef):
        counts.append([int(agent.rewards.count), int(statistics.count)])
        seeds.append(tuple(seed.numpy().tolist()))
        return {}

    agent._update = update
    agent.report = lambda *_: None
    eagerly(envs, agent, 24)  # Three updates on 4 times 8 steps.
    assert counts == [[32, 0], [64, 32], [96, 64]]
    assert len(set(seeds)) == 3


def test_one_optimizer_minimizes_the_weighted_sum():

    envs = noise()
    agent = make(
        "a2c", envs, "shared", memory="unrolls", value_coef=0.3, entropy_coef=0.0
    )
    items = collected(agent, envs)
    agent.prepare = lambda data, mask: items
    agent.optimizer.step = lambda losses, *_, **__: {"loss": losses(items)[0]}
    metrics = agent._update_steps(None, None, tf.constant([1, 2]), 0.0)
    expected = agent.policy_loss(items, 0.0)[0] + 0.3 * agent.value_loss(items)[0]
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)
