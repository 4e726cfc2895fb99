"""A2C: its one step."""

import numpy as np
from gradient_agents import SGD, make, noise
from simulated import collected, numbers, same

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
