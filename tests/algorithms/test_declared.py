"""Agents with declared networks learn tasks that need all parts of these."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gs
from simulated import batch

from agents import networks, tools
from agents.algorithms import ppo
from agents.tools import schedules, sections


class Agreement(gymnasium.Env):
    """Pays 1 for telling whether the bright half of an image is the one that is meant.

    Without the image, or without the vector, one can only guess.
    """

    observation_space = gs.Dict(
        {
            "image": gs.Box(0, 255, (8, 8, 1), np.uint8),
            "meant": gs.Box(-1, 1, (2,)),
        }
    )
    action_space = gs.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._observe(), {}

    def step(self, action):
        reward = float(action == (self._bright == self._meant))
        self._time += 1
        return self._observe(), reward, self._time == 10, False, {}

    def _observe(self):
        self._bright, self._meant = self.np_random.integers(2, size=2)
        image = self.np_random.integers(0, 128, (8, 8, 1)).astype(np.uint8)
        image[4 * self._bright : 4 * self._bright + 4] += 100
        meant = np.zeros(2, np.float32)
        meant[self._meant] = 1.0
        return {"image": image, "meant": meant}


BOTH = {
    "streams": {
        "image": [
            {"type": "conv2d", "filters": 8, "kernel_size": 4, "strides": 4},
            "flatten",
            32,
        ],
        "meant": [32],
    },
    "join": "product",
    "layers": [32],
}
BLIND = {**BOTH, "streams": {"image": [{"type": "pooling", "by": "max"}, 32]}}
BLIND["streams"]["meant"] = [32]


def score(envs, agent, steps):
    """Mean reward of the best actions."""
    result = tools.simulate(envs, agent, steps, training=False, reset=True)
    return float(np.sum(result["score"]) / (10 * np.sum(result["done"])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "low", "high"), [(BOTH, 0.97, 1.0), (BLIND, 0.4, 0.65)]
)
def test_image_and_vector_are_both_needed(network, low, high):
    steps = 300
    settings = ppo.Config(
        memory="unrolls",
        unroll_length=10,
        objective="clip",
        epochs=6,
        minibatch_size=80,
        discount=0.0,
        gae_lambda=0.0,
        entropy_coef=0.01,
        learning_rate=schedules.Schedule("linear", 3e-3, 0.0, steps * 32),
        value_learning_rate=None,
        normalize_observations=False,
        jit=False,
        network=sections.build(networks.NetworkConfig, network),
    )
    envs = batch(*(Agreement() for _ in range(32)))
    spaces = envs.observation_space, envs.action_space
    agent = ppo.PPO(*spaces, 32, 10, settings)
    assert score(envs, agent, 50) < 0.65
    tools.simulate(envs, agent, steps, reset=True)
    assert low <= score(envs, agent, 100) <= high
