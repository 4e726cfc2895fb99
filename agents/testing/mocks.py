"""Environments with predefined behavior, for exact tests."""

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import spaces


class MockEnvironment(gymnasium.Env):
    """Environment whose k-th episode has `durations[k % len(durations)]` steps.

    Every element of an observation is `1000 * episode + time`, where the first episode
    is 0 and time counts the steps of the episode; `decode` separates them. The reward
    is the time after the step. All observations are one array, changed in place, as in
    careless environments.

    Args:
      observation_shape: Shape of observations, float32.
      action_shape: Shape of actions, float32 between -1 and 1.
      durations: Lengths of episodes.
      truncate: Whether episodes are truncated rather than terminated.

    Attributes:
      lengths: Number of steps made in each episode so far.
      actions: All actions so far.
    """

    def __init__(
        self,
        observation_shape: Sequence[int] = (2,),
        action_shape: Sequence[int] = (1,),
        durations: Sequence[int] = (3, 5),
        truncate: bool = False,
    ):
        box = gymnasium.spaces.Box
        self.observation_space = box(-np.inf, np.inf, tuple(observation_shape))
        self.action_space = box(-1, 1, tuple(action_shape))
        self.lengths: list[int] = []
        self.actions: list[np.ndarray] = []
        self._durations = tuple(durations)
        self._truncate = truncate
        self._buffer = np.zeros(observation_shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.lengths.append(0)
        return self._observe(), {}

    def step(self, action: np.ndarray):
        duration = self._durations[(len(self.lengths) - 1) % len(self._durations)]
        if not self.lengths or self.lengths[-1] >= duration:
            raise RuntimeError("The episode is over; call reset first.")
        self.actions.append(action)
        self.lengths[-1] += 1
        done = self.lengths[-1] == duration
        flags = (False, done) if self._truncate else (done, False)
        return self._observe(), float(self.lengths[-1]), *flags, {}

    @staticmethod
    def decode(observation: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return episodes and times, int64 `[...]`, of observations `[...]`."""
        return np.divmod(np.asarray(observation).astype(np.int64), 1000)

    def _observe(self) -> np.ndarray:
        """Write the current observation to the buffer, and return it."""
        self._buffer[...] = 1000 * (len(self.lengths) - 1) + self.lengths[-1]
        return self._buffer


class RandomEnvironment(gymnasium.Env):
    """Environment with random observations from any space and random lengths.

    Half of the episodes are truncated, the others terminate. Everything is a function
    of the seed; rewards also depend on actions.

    Args:
      observation_space, action_space: Spaces of the environment.
      max_length: Longest episode; lengths from 1 on are equally probable.

    Raises:
      ValueError: for actions outside of the space.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        max_length: int = 5,
    ):
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space
        self._max_length = max_length
        size = gymnasium.spaces.flatdim(action_space)
        self._weights = np.linspace(0.0, 1.0, size)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        for leaf in spaces.flatten(self.observation_space):
            leaf.seed(int(self.np_random.integers(2**31)))
        self._left = int(self.np_random.integers(self._max_length)) + 1
        self._truncate = bool(self.np_random.integers(2))
        return self.observation_space.sample(), {}

    def step(self, action: Any):
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is not in {self.action_space}.")
        self._left -= 1
        done = self._left == 0
        flags = (False, done) if self._truncate else (done, False)
        flat = gymnasium.spaces.flatten(self.action_space, action)
        reward = float(self.np_random.normal() + self._weights @ flat)
        return self.observation_space.sample(), reward, *flags, {}
