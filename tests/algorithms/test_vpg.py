"""VPG: its gradient."""

import numpy as np
import tensorflow as tf
from gradient_agents import SGD, make, noise
from simulated import collected

from agents import optimizers


def test_gradient_of_vpg_is_the_policy_gradient():
    """Advantage times the derivative of the log-probability, and no ratio."""
    envs = noise(discrete=True)
    agent = make("vpg", envs, optimizer=SGD)
    items = collected(agent, envs)
    policy = agent.network.policy_variables
    gradients, _, _ = optimizers.replicas.gradient(
        lambda items: agent.policy_loss(items, 0.0), policy, items
    )
    with tf.GradientTape() as tape:
        logits = agent.network.policy(
            items["observation"], items["state"], items["first"]
        )["logits"]
        chosen = tf.one_hot(items["sample"], 3)
        log_prob = tf.reduce_sum(chosen * tf.nn.log_softmax(logits), -1)
        loss = -tf.reduce_mean(log_prob * items["advantage"])
    expected = tape.gradient(loss, [x.value for x in policy])
    for x, y in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
