"""Small agents with replay memories, and environments for them."""

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import batch

from agents import networks
from agents.algorithms import apex, dqn, sac, td3

CLASSES = {"dqn": dqn.DQN, "apex": apex.Apex, "sac": sac.SAC, "td3": td3.TD3}
CONFIGS = {
    "dqn": dqn.Config,
    "apex": apex.Config,
    "sac": sac.Config,
    "td3": td3.Config,
}
DISCRETE = ("dqn", "apex")
SGD = {"type": "sgd", "learning_rate": 0.1}
TABLE = networks.NetworkConfig(layers=())
SMALL = networks.NetworkConfig(layers=(32, 32), activation="tanh")


class Chain(gymnasium.Env):
    """Three states in a row: right moves on, left goes back; the last step pays 1.

    Action 1 in state 2 ends the episode with reward 1, action 0 in state 0 pays 0.1.
    """

    observation_space = gs.Discrete(3)
    action_space = gs.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._time = int(self.np_random.integers(3)), 0
        return self._state, {}

    def step(self, action):
        self._time += 1
        truncated = self._time == 10
        if action == 1 and self._state == 2:
            return 2, 1.0, True, truncated, {}
        reward = 0.1 if action == 0 and self._state == 0 else 0.0
        self._state = min(self._state + 1, 2) if action else max(self._state - 1, 0)
        return self._state, reward, False, truncated, {}


class Identity(gymnasium.Env):
    """Pays for actions that equal the observation."""

    def __init__(self, action_space):
        self.observation_space = gs.Box(-1, 1, (2,))
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        if isinstance(self.action_space, gs.Box):
            low, high = self.action_space.low[0], self.action_space.high[0]
            unit = 2 * (float(action[0]) - low) / (high - low) - 1
            reward = 1 - min(abs(unit - 0.8 * self._seen[0]), 1)
        else:
            start = np.ravel(self.action_space.start)
            goal = (self._seen > 0).astype(int)[: len(start)]
            reward = float(np.mean(np.ravel(action) - start == goal))
        self._time += 1
        return self._observe(), reward, self._time == 10, False, {}

    def _observe(self):
        self._seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._seen


def make(name, envs, **changes):
    defaults = {
        "capacity": 500,
        "batch_size": 8,
        "start_size": 16,
        "jit": False,
        "network": SMALL,
    }
    config = CONFIGS[name](**{**defaults, **changes})
    spaces = envs.observation_space, envs.action_space
    return CLASSES[name](*spaces, len(envs), 500, config)


def table(agent, values, network=None):
    """Set the values of states (rows) and actions of a network without layers."""
    kernel, bias = (network or agent.network).trainable_variables
    kernel.assign(values)
    bias.assign(tf.zeros_like(bias))


def items(**changes):
    """Four transitions of the chain: state, action, reward, discount, next state."""
    defaults = {
        "observation": tf.constant([0, 1, 2, 2], tf.int64),
        "action": tf.constant([[1], [1], [1], [0]], tf.int64),
        "reward": tf.constant([0.0, 0.5, 1.0, -1.0]),
        "discount": tf.constant([0.9, 0.81, 0.0, 0.9]),
        "next_observation": tf.constant([1, 2, 0, 1], tf.int64),
        "weight": tf.constant([1.0, 0.5, 1.0, 0.25]),
    }
    return {**defaults, **changes}


ONLINE = [[1.0, 2.0], [3.0, 0.0], [0.0, 5.0]]
TARGET = [[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]


def outputs(actor, *biases):
    """Make every network of an actor, or critics, answer with its biases."""
    variables = actor.trainable_variables
    for kernel in variables[::2]:
        kernel.assign(tf.zeros_like(kernel))
    for variable, value in zip(variables[1::2], biases, strict=True):
        variable.assign(value)


def continuous(name, **changes):
    """Agent with networks of one layer for actions of one number."""
    return make(name, batch(Identity(gs.Box(-2, 1, (1,)))), network=TABLE, **changes)


def steps_of_one_number(**changes):
    """Two transitions; the second one terminated."""
    return {
        "observation": tf.zeros([2, 2]),
        "action": tf.constant([[0.5], [-0.5]]),
        "reward": tf.constant([1.0, 2.0]),
        "discount": tf.constant([0.9, 0.0]),
        "next_observation": tf.zeros([2, 2]),
        "weight": tf.constant([1.0, 0.25]),
        **changes,
    }
