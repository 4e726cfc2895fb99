"""Environments of EnvPool, which steps them in C++ threads of this process."""

import functools
import warnings
from typing import Any

import numpy as np

from agents.tools import batch_env, spaces


class EnvPool(batch_env.Backend):
    """Batch of one kind of EnvPool's environments.

    EnvPool takes seeds when it is constructed only, so resetting all rows with seeds
    constructs it anew; single rows cannot be seeded. Where a terminal state falls on the
    limit of episodes, EnvPool would only say that they are truncated, so they are
    truncated here, one step before it would.

    Args:
      id: Name that EnvPool knows.
      num_envs: Number of environments.
      num_threads: Threads that step them; by default as many as EnvPool sees fit.
      max_length: Steps after which episodes are truncated, by default its own limit.
      kwargs: Further settings of the environment.
      first_row: What errors add to rows, where this is a part of a larger batch.

    Raises:
      ImportError: if EnvPool is not installed.
      LookupError: if it does not have the environment.
    """

    def __init__(
        self,
        id: str,
        num_envs: int,
        num_threads: int | None = None,
        max_length: int | None = None,
        kwargs: dict[str, Any] | None = None,
        first_row: int = 0,
    ):
        import envpool

        if id not in envpool.list_all_envs():
            raise LookupError(f"EnvPool has no environment {id!r}.")
        self.first_row = first_row
        settings = {"num_envs": num_envs, "num_threads": num_threads or 0}
        if max_length is not None:
            settings["max_episode_steps"] = max_length
        settings |= kwargs or {}
        self.max_length = envpool.make_spec(id, **settings).config.max_episode_steps
        settings["max_episode_steps"] = self.max_length + 1
        self._elapsed = np.zeros(num_envs, np.int64)
        self._create = functools.partial(
            envpool.make, id, env_type="gymnasium", **settings
        )
        self._env = self._connect()
        self._everyone = np.arange(num_envs, dtype=np.int32)
        found = self._env.observation_space, self._env.action_space
        super().__init__(*found, batch_env.Arrays.create(*found, num_envs))

    def __getitem__(self, index: int) -> Any:
        """The pool, since EnvPool gives no access to single environments."""
        return self._env

    def close(self):
        self._env.close()

    def _start(self, restart: bool):
        actions = batch_env.actions(self.action_space, self._arrays.action)
        self._env.send(actions, self._everyone)

    def _finish(self, restart: bool) -> dict:
        observation, reward, terminated, truncated, info = self._env.recv()
        rows = info["env_id"]
        numbers = self._arrays.numbers
        numbers[rows, batch_env.REWARD] = reward
        numbers[rows, batch_env.TERMINATED] = terminated
        numbers[rows, batch_env.TRUNCATED] = truncated
        self._write(self._arrays.observation, observation, rows)
        self._elapsed += 1
        numbers[self._elapsed >= self.max_length, batch_env.TRUNCATED] = 1
        done = np.flatnonzero(
            numbers[:, [batch_env.TERMINATED, batch_env.TRUNCATED]].any(1)
        )
        if restart and len(done):
            self._begin(self._arrays.following, done)
        return {}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        if seeds is not None:
            if len(rows) < len(self):
                raise ValueError("EnvPool can seed all environments, not some of them.")
            ordered = np.empty(len(self), np.int64)
            ordered[rows] = seeds % (2**31 - 1)
            self._env.close()
            self._env = self._connect(seed=ordered.tolist())
        self._begin(self._arrays.observation, rows)

    def _connect(self, **seed: Any) -> Any:
        """New pool, without the warnings about the precision of its bounds."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered.*")
            env = self._create(**seed)
            _ = env.observation_space, env.action_space
        return env

    def _begin(self, targets: list[np.ndarray], rows: np.ndarray):
        """Reset rows and store their first observations."""
        self._elapsed[rows] = 0
        observation, info = self._env.reset(np.asarray(rows, np.int32))
        self._write(targets, observation, info["env_id"])

    def _write(self, targets: list[np.ndarray], observation: Any, rows: np.ndarray):
        for target, leaf in zip(targets, spaces.flatten(observation), strict=True):
            target[rows] = leaf
