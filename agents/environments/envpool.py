"""Environments of EnvPool, which steps them in C++ threads of this process."""

import functools
import warnings
from typing import Any

import numpy as np

from agents.environments import config
from agents.tools import actions, batch_env, spaces, transitions

SEEDS = 2**31 - 1
"""Number of seeds that EnvPool knows."""

NO_LIMIT = 2**31 - 1
"""Length of episodes that stands for none in EnvPool."""


SET = {"num_envs", "batch_size", "env_type", "num_threads", "seed", "max_episode_steps"}
"""Arguments of pools that follow from the description of the environment."""


class EnvPool(batch_env.Backend):
    """Batch of environments of one kind from EnvPool.

    EnvPool only takes seeds at its construction, so resetting all rows with seeds
    recreates the pool; single rows cannot be seeded. If a terminal state coincided with
    the limit of episodes, EnvPool would only report truncation, so episodes are
    truncated here, one step earlier.

    Args:
      id: Name of the environment in EnvPool.
      num_envs: Number of environments.
      num_threads: Threads that step the environments; by default EnvPool's choice.
      max_length: Steps after which to truncate episodes; by default its own limit.
      kwargs: Further settings of the environment.
      first_row: Offset of the row numbers in errors.

    Raises:
      ImportError: if EnvPool is not installed.
      LookupError: if it does not have the environment.
      BackendError: for settings that the other arguments decide.
    """

    seeds_rows = False

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
        for name in SET & {*(kwargs or {})}:
            raise config.BackendError(
                f"Backend envpool sets {name!r} itself; leave it out of "
                "environment.kwargs."
            )
        seeds = np.random.SeedSequence().generate_state(num_envs) % SEEDS
        settings = {"num_envs": num_envs, "num_threads": num_threads or 0}
        settings["seed"] = seeds.tolist()  # Else those of all pools would be equal.
        if max_length is not None:
            settings["max_episode_steps"] = max_length
        settings |= kwargs or {}
        self._limit = envpool.make_spec(id, **settings).config.max_episode_steps
        self.max_length = self._limit if self._limit < NO_LIMIT else None
        settings["max_episode_steps"] = min(self._limit + 1, NO_LIMIT)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._create = functools.partial(
            envpool.make, id, env_type="gymnasium", **settings
        )
        self._env = self._connect()
        self._everyone = np.arange(num_envs, dtype=np.int32)
        found = self._env.observation_space, self._env.action_space
        buffers = transitions.Buffers.create(*found, num_envs)
        super().__init__(*found, buffers)

    def __getitem__(self, index: int) -> Any:
        """Return the pool, since EnvPool gives no access to single environments."""
        range(len(self))[index]  # noqa: B018
        return self._env

    def close(self):
        if self._env is not None:
            self._env.close()
        self._env = None

    def _start(self, restart: bool):
        self._require_open()
        typed = actions.typed(self.action_space, self._buffers.action)
        self._env.send(typed, self._everyone)

    def _finish(self, restart: bool) -> dict:
        observation, reward, terminated, truncated, info = self._env.recv()
        rows = info["env_id"]
        numbers = self._buffers.numbers
        numbers[rows, transitions.REWARD] = reward
        numbers[rows, transitions.TERMINATED] = terminated
        numbers[rows, transitions.TRUNCATED] = truncated
        self._write(self._buffers.observation, observation, rows)
        self._elapsed += 1
        numbers[self._elapsed >= self._limit, transitions.TRUNCATED] = 1
        done = np.flatnonzero(numbers[:, transitions.FLAGS].any(1))
        if restart and len(done):
            self._begin(self._buffers.following, done)
        return {}

    def _require_open(self):
        if self._env is None:
            raise RuntimeError("This batch of environments has been closed.")

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        self._require_open()
        if seeds is not None:
            ordered = np.empty(len(self), np.int64)
            ordered[rows] = seeds % SEEDS
            self._env.close()
            self._env = self._connect(seed=ordered.tolist())
        self._begin(self._buffers.observation, rows)

    def _connect(self, **seed: Any) -> Any:
        """Create a pool, without the warnings about the precision of its bounds."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered.*")
            env = self._create(**seed)
            _ = env.observation_space, env.action_space
        return env

    def _begin(self, targets: list[np.ndarray], rows: np.ndarray):
        """Reset rows, and store their first observations."""
        self._elapsed[rows] = 0
        observation, info = self._env.reset(np.asarray(rows, np.int32))
        self._write(targets, observation, info["env_id"])

    def _write(self, targets: list[np.ndarray], observation: Any, rows: np.ndarray):
        for target, leaf in zip(targets, spaces.flatten(observation), strict=True):
            target[rows] = leaf


def create(environment: config.Environment, size: int, first_row: int) -> Any:
    """Create a batch of this number of environments that EnvPool steps.

    Raises:
      BackendError: if EnvPool is not installed, or does not have the environment.
    """
    id, limit = environment.id, environment.max_length
    if callable(id):
        raise config.BackendError(
            "EnvPool makes environments by name; use backend workers."
        )
    args = id, size, environment.num_workers, limit, environment.kwargs
    try:
        return EnvPool(*args, first_row)
    except ModuleNotFoundError as error:
        if error.name != "envpool":
            raise
        raise config.BackendError(
            "Backend envpool needs EnvPool; install the extra [envpool], or use "
            "backend workers."
        ) from None
    except LookupError as error:
        raise config.BackendError(f"{error.args[0]} Use backend workers.") from None
