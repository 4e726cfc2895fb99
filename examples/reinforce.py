"""REINFORCE on CartPole, from scratch: python examples/reinforce.py

Williams (1992), "Simple Statistical Gradient-Following Algorithms for Connectionist
Reinforcement Learning", with the mean return of all steps as the baseline.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from agents import memories, optimizers, returns, tools
from agents.environments import Environment, make
from agents.tools import algorithm


@dataclasses.dataclass(frozen=True)
class Config:
    type: str = "examples.reinforce:Reinforce"
    learning_rate: float = 0.01


class Reinforce(algorithm.Algorithm):
    def __init__(self, observations, actions, num_agents, length, config, seed=0):
        self.optimizer = optimizers.Gradient("adam", config.learning_rate)
        super().__init__(("loss", *self.optimizer.metric_names))
        keras.utils.set_random_seed(seed)
        layers = [keras.layers.Dense(64, "tanh"), keras.layers.Dense(int(actions.n))]
        self.network = keras.Sequential([keras.Input(observations.shape), *layers])
        self.optimizer.build(self.network.trainable_variables)
        self.generator = tf.random.Generator.from_seed(seed)
        action = tf.TensorSpec([], tf.int64)
        specs = {"observation": tf.TensorSpec(observations.shape), "action": action}
        specs |= {"reward": tf.TensorSpec([]), "done": tf.TensorSpec([], tf.bool)}
        self.memory = memories.Episodes(specs, num_agents, 10, length)

    def begin_episodes(self, agent_indices, training=True):
        self.memory.clear(agent_indices)

    def perform(self, agent_indices, observation, training=True):
        logits = self.network(observation)
        if training:
            uniform = self.generator.uniform(tf.shape(logits), minval=1e-20)
            logits -= tf.math.log(-tf.math.log(uniform))
        return tf.argmax(logits, -1)

    def experience(
        self, agent_indices, observation, action, reward, terminated, truncated, _
    ):
        step = {"observation": observation, "action": action, "reward": reward}
        self.memory.append(agent_indices, step | {"done": terminated | truncated})

    def end_episodes(self, agent_indices):
        self.memory.end(agent_indices)
        self.train_when(self.memory.full())

    def train(self):
        data, mask = self.memory.data()
        reward, done = data["reward"], data["done"]
        data["return"] = returns.lambda_return(reward, 0 * reward, done, 0.99, 1.0)
        data = tf.nest.map_structure(lambda x: tf.boolean_mask(x, mask), data)
        variables = self.network.trainable_variables
        self.metrics.update(self.optimizer.step(self.loss, variables, items=data))
        self.memory.clear_data()

    def loss(self, items):
        log_probs = tf.nn.log_softmax(self.network(items["observation"]))
        log_prob = tf.gather(log_probs, items["action"], batch_dims=1)
        gain = items["return"] - tf.reduce_mean(items["return"])
        loss = -tf.reduce_mean(log_prob * gain / tf.math.reduce_std(gain))
        return loss, {"loss": loss}

    def persistent(self):
        parts = {"optimizer": self.optimizer, "generator": self.generator}
        network, memory = self.network.variables, self.memory.persistent
        return {**parts, "network": network, "memory": memory}


def main():
    environment = Environment("CartPole-v1", num_agents=16)
    batch_env = make.in_graph(environment)
    spaces = batch_env.observation_space, batch_env.action_space
    agent = Reinforce(*spaces, 16, 500, Config())
    batch_env.discontinue(np.arange(16))  # Seeds of the first episodes.
    for phase in range(4):
        tools.simulate(batch_env, agent, steps=1000, reset=True)
        test = tools.simulate(batch_env, agent, 500, training=False, reset=True)
        score = tf.reduce_mean(tf.boolean_mask(test["score"], test["done"]))
        print(f"{(phase + 1) * 16_000:,} steps: mean return {score:.0f}")
    batch_env.close()


if __name__ == "__main__":
    main()
