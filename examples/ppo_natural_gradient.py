"""PPO with natural gradients instead of Adam: python examples/ppo_natural_gradient.py

Python objects form the optimizer. It makes 5 steps per batch, each as long as a KL
divergence of 0.002 nats allows.
"""

import numpy as np
import tensorflow as tf

from agents import optimizers, tools
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
    optimizer=optimizers.MultiStep(
        optimizers.NaturalGradient(max_kl=0.002, subsampling_fraction=0.2),
        num_steps=5,
    ),
)


def main():
    environment = Environment("CartPole-v1", num_agents=16)
    batch_env = make.in_graph(environment)
    spaces = batch_env.observation_space, batch_env.action_space
    agent = ppo.PPO(*spaces, num_agents=16, max_length=500, config=CONFIG)
    batch_env.discontinue(np.arange(16))  # Seeds of the first episodes.
    for phase in range(3):
        tools.simulate(batch_env, agent, steps=10 * 128, reset=True)
        test = tools.simulate(batch_env, agent, 500, training=False, reset=True)
        score = tf.reduce_mean(tf.boolean_mask(test["score"], test["done"]))
        print(f"{(phase + 1) * 20_480:,} steps: mean return {score:.0f}")
    batch_env.close()


if __name__ == "__main__":
    main()
