"""Environments whose observations have goals."""

from typing import Any

import gymnasium
import numpy as np


class BitFlipping(gymnasium.Env):
    """Row of bits to make equal to a goal; Andrychowicz et al. (2017), section 3.1.

    Every action flips a bit. Each step costs a reward of 1 unless it reaches the goal,
    which ends the episode. Episodes are truncated after one step per bit, so a return
    above minus the number of bits means success. Without hindsight, agents almost never
    see the goal if there are many bits.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, bits: int = 15, render_mode: str | None = None) -> None:
        """Create a row of this number of bits."""
        self.render_mode = render_mode
        row = gymnasium.spaces.MultiBinary(bits)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, row))
        self.action_space = gymnasium.spaces.Discrete(bits)
        self._bits = self._goal = np.zeros(bits, np.int8)
        self._time = 0

    def reset(self, *, seed=None, options=None):
        """Draw bits and a goal that differs from them."""
        super().reset(seed=seed)
        self._time, size = 0, len(self._bits)
        self._bits = self.np_random.integers(0, 2, size, np.int8)
        self._goal = self._bits
        while (self._goal == self._bits).all():
            self._goal = self.np_random.integers(0, 2, size, np.int8)
        return self._observe(), {}

    def step(self, action):
        """Flip the bit of this index."""
        self._bits = self._bits.copy()
        self._bits[action] ^= 1
        self._time += 1
        goals = self._bits, self._goal
        terminated = self.compute_terminated(*goals, {})
        truncated = self._time >= len(self._bits)
        return (
            self._observe(),
            self.compute_reward(*goals, {}),
            terminated,
            truncated,
            {},
        )

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        """Return 0 for the goal, otherwise -1."""
        del info
        return float((achieved_goal == desired_goal).all()) - 1

    def compute_terminated(
        self, achieved_goal: Any, desired_goal: Any, info: Any
    ) -> bool:
        """Return whether the goal is achieved."""
        del info
        return bool((achieved_goal == desired_goal).all())

    def _observe(self) -> dict[str, np.ndarray]:
        return {
            "observation": self._bits,
            "achieved_goal": self._bits,
            "desired_goal": self._goal,
        }
