"""Small agents of PPO, and environments for them."""

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import eagerly, effective

from agents import networks, tools
from agents.algorithms import ppo
from agents.tools import loop

NETWORKS = {
    "dense": networks.NetworkConfig(layers=(8,)),
    "shared": networks.NetworkConfig(layers=(8,), shared=True),
    "gru": networks.NetworkConfig(layers=(8, {"type": "gru", "units": 6})),
    "lstm": networks.NetworkConfig(layers=({"type": "lstm", "units": 6},)),
}


class Noise(gymnasium.Env):
    """Observes noise; episodes have the given durations in turn."""

    def __init__(self, durations=(3, 5), truncate=False, discrete=False, seed=0):
        self.observation_space = gs.Box(-np.inf, np.inf, (3,))
        self.action_space = gs.Discrete(4) if discrete else gs.Box(-1, 1, (2,))
        self._durations, self._truncate = durations, truncate
        self._episode, self._time = -1, 0
        self._random = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._random, self._episode = np.random.default_rng(seed), -1
        self._episode, self._time = self._episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        done = self._time == self._durations[self._episode % len(self._durations)]
        flags = (False, done) if self._truncate else (done, False)
        reward = self._random.normal() + float(np.sum(action))
        return self._observe(), reward, *flags, {}

    def _observe(self):
        return self._random.normal(1, 3, 3).astype(np.float32)


class Kept(ppo.PPO):
    """Never trains by itself, so that the memory stays full."""

    def train(self):
        pass


def batch(*envs):
    return tools.InGraphBatchEnv(tools.BatchEnv(list(envs), blocking=True))


def noise_batch(count=4, durations=((3, 5), (4,), (2, 1), (6,)), **kwargs):
    return batch(
        *(Noise(durations[i % len(durations)], seed=i, **kwargs) for i in range(count))
    )


def settings(network="dense", **changes):
    """Config that makes small and quick updates."""
    defaults = {
        "update_every": 5,
        "unroll_length": 8,
        "chunk_length": 4,
        "epochs": 2,
        "minibatch_size": 100,
        "jit": False,
        "network": NETWORKS[network],
    }
    return ppo.Config(**effective({**defaults, **changes}))


def make(envs, config, seed=0, cls=ppo.PPO, max_length=6):
    spaces = envs.observation_space, envs.action_space
    return cls(*spaces, len(envs), max_length, config, seed)


def rows(*indices):
    return tf.constant(indices, tf.int32)


def numpy(structure):
    return [x.numpy() for x in tf.nest.flatten(structure)]


def filled(config, cls=Kept, **kwargs):
    """Algorithm that did not train yet, and the data in its full memory."""
    envs = noise_batch(**kwargs)
    agent = make(envs, config, cls=cls)
    randomize(agent)
    while not agent.memory.full():
        eagerly(envs, agent, 1)
    return agent, *agent.memory.data()


def randomize(agent, seed=0, scale=0.5):
    """Change the network, whose outputs are nearly constant at first."""
    for i, variable in enumerate(agent.network.trainable_variables):
        if len(variable.shape) > 1:
            noise = tf.random.stateless_normal(variable.shape, [seed, i])
            variable.assign(variable + scale * noise)


def interact(agent, envs_rows, steps, seed=0, flags=None):
    """Call the functions by hand with random numbers; returns the transitions."""
    rng = np.random.default_rng(seed)
    count = len(envs_rows)
    transitions = []
    index = tf.constant(envs_rows, tf.int32)
    agent.begin_episodes(index)
    observation = tf.constant(rng.normal(size=[count, 3]), tf.float32)
    for step in range(steps):
        action = agent.perform(index, observation)
        following = tf.constant(rng.normal(size=[count, 3]), tf.float32)
        reward = tf.constant(rng.normal(size=[count]), tf.float32)
        terminated, truncated = flags[step] if flags else ([False] * count,) * 2
        flag = (tf.constant(terminated), tf.constant(truncated))
        agent.experience(index, observation, action, reward, *flag, following)
        transitions.append((observation, reward, *flag, following))
        observation = following
    return transitions


def value_of(agent, observation):
    """Value of observations `[K, 3]` by a dense network."""
    observation = agent.observations(observation)
    return agent.network.step(observation, ((), ()))[1].numpy()


def seeded(envs):
    envs.discontinue(tf.constant(loop.phase_seeds(0, 0, len(envs))))
    return envs
