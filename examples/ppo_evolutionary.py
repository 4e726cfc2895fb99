"""PPO with derivative-free policy updates: python examples/ppo_evolutionary.py

Nested blocks declare the optimizer, as in a config file. It makes 20 steps per batch,
each along a gradient estimated from 32 pairs of random perturbations.
"""

import numpy as np
import tensorflow as tf

from agents import tools
from agents.algorithms import ppo
from agents.environments import Environment, make
from agents.networks import NetworkConfig

CONFIG = ppo.Config(
    memory="unrolls",
    objective="clip",
    discount=0.99,
    gae_lambda=0.95,
    normalize_rewards="return",
    network=NetworkConfig.preset("small"),
    optimizer={
        "type": "multi_step",
        "num_steps": 20,
        "optimizer": {
            "type": "evolutionary",
            "learning_rate": 0.01,
            "num_samples": 32,
            "std": 0.05,
        },
    },
)


def main():
    environment = Environment("CartPole-v1", num_agents=16)
    batch_env = make.in_graph(environment)
    spaces = batch_env.observation_space, batch_env.action_space
    agent = ppo.PPO(*spaces, num_agents=16, max_length=500, config=CONFIG)
    batch_env.discontinue(np.arange(16))  # Seeds of the first episodes.
    for phase in range(2):
        tools.simulate(batch_env, agent, steps=10 * 128, reset=True)
        test = tools.simulate(batch_env, agent, 500, training=False, reset=True)
        score = tf.reduce_mean(tf.boolean_mask(test["score"], test["done"]))
        print(f"{(phase + 1) * 20_480:,} steps: mean return {score:.0f}")
    batch_env.close()


if __name__ == "__main__":
    main()
