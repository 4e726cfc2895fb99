"""Helpers of tests of several algorithms: ways to drive them, and an environment."""

import contextlib

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import tools


class Endless(gymnasium.Env):
    """Pays 1 at every step; episodes are cut off, or end, after 8."""

    observation_space = gs.Box(-1, 1, (2,))

    def __init__(self, truncate, discrete=True):
        self._truncate = truncate
        self.action_space = gs.Discrete(2) if discrete else gs.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        self._time += 1
        over = self._time == 8
        flags = (False, over) if self._truncate else (over, False)
        return self._observe(), 1.0, *flags, {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def batch(*envs):
    """Batch whose rows have their numbers as seeds."""
    envs = tools.InGraphBatchEnv(tools.BatchEnv(list(envs), blocking=True))
    envs.discontinue(np.arange(len(envs)))
    return envs


@contextlib.contextmanager
def without_graphs():
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def eagerly(envs, agent, steps, **kwargs):
    """Simulate; quicker than tracing for a few steps."""
    with without_graphs():
        return tools.simulate(envs, agent, steps, **kwargs)


def collected(agent, envs):
    """Items of the first full memory."""
    taken = []

    def keep(data, mask, *_):
        taken.append(agent.prepare(data, mask))
        raise StopIteration

    agent._update = keep
    with pytest.raises(StopIteration):
        eagerly(envs, agent, 100)
    return taken[0]


def numbers(variables):
    return [tf.convert_to_tensor(x).numpy().copy() for x in variables]


def same(left, right):
    return all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


def effective(values):
    """Return only those lengths that have an effect with the memory and the network."""
    unrolls = values.get("memory") == "unrolls"
    unused = {"update_every" if unrolls else "unroll_length"}
    if not values["network"].recurrent:
        unused.add("chunk_length")
    return {key: value for key, value in values.items() if key not in unused}
