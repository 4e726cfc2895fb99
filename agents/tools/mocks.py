"""Environments whose behavior is declared beforehand, for exact tests."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np


class MockEnvironment(gymnasium.Env):
    """Environment whose k-th episode has `durations[k % len(durations)]` steps.

    Every element of an observation is `1000 * episode + time`, where the first episode
    is 0 and time counts the steps of the episode; `decode` tells them apart. The reward
    is the time after the step. All observations are the same array, changed in place,
    as those of careless environments are.

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
        """Episodes and times, int64 `[...]`, of observations with shape `[...]`."""
        return np.divmod(np.asarray(observation).astype(np.int64), 1000)

    def _observe(self) -> np.ndarray:
        """The buffer, with the current observation in it."""
        self._buffer[...] = 1000 * (len(self.lengths) - 1) + self.lengths[-1]
        return self._buffer
