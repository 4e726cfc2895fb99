"""Environments that do what they are told, and batches of them."""

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.tools import batch_env


class Script(gymnasium.Env):
    """Returns what it is told to, whatever that is."""

    def __init__(self, observation_space, action_space=None, observation=None):
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(3, start=2)
        self.observation = observation
        self.reward = 0.0
        self.received = []

    def reset(self, *, seed=None, options=None):
        return self.observation, {}

    def step(self, action):
        self.received.append(action)
        return self.observation, self.reward, False, False, {"seen": action}


def make(observation_space=None, action_space=None, observation=None, size=2):
    space = spaces.Box(-1, 1, (2,)) if observation_space is None else observation_space
    observation = np.zeros(2, np.float32) if observation is None else observation
    envs = [Script(space, action_space, observation) for _ in range(size)]
    return envs, batch_env.BatchEnv(envs, blocking=True)
