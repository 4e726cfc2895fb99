"""Batches of environments: the contract of all backends, and the plain one."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from agents.tools import checks, processes, spaces

EnvDataError = checks.EnvDataError


class Arrays(NamedTuple):
    """The arrays of a batch of N environments, each with leading dimension N."""

    observation: list[np.ndarray]
    action: list[np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @classmethod
    def create(
        cls,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        length: int,
        allocate: Callable[[tuple, np.dtype], Any] = np.zeros,
    ) -> "Arrays":
        """Make all arrays by `allocate(shape, dtype)`, called in a fixed order."""

        def leaves(space):
            specs = spaces.flatten(spaces.spec(space))
            return [allocate((length, *leaf.shape), leaf.dtype) for leaf in specs]

        return cls(
            leaves(observation_space),
            leaves(action_space),
            allocate((length,), np.dtype(np.float32)),
            allocate((length,), np.dtype(bool)),
            allocate((length,), np.dtype(bool)),
        )

    def results(self) -> list[np.ndarray]:
        """All arrays that a step fills in."""
        return [*self.observation, self.reward, self.terminated, self.truncated]

    def writer(self, observation_space: gymnasium.Space) -> checks.ResultWriter:
        """Writer of results of environments to these arrays."""
        results = self.reward, self.terminated, self.truncated
        return checks.ResultWriter(observation_space, self.observation, *results)


class Backend(abc.ABC):
    """A batch of N environments that are stepped together.

    Observations and actions are structures (dict, tuple or leaf) of arrays whose
    shapes and dtypes are those of `spaces.spec` with a leading dimension. Arrays that
    are returned are fresh: nothing that happens later changes them.

    - `step(actions)` returns observation `[N, ...]`, reward float32 `[N]`, terminated
      and truncated bool `[N]`, and an info dict. All rows must be running: nothing is
      reset on the way, and the observation of a done row is the last of its episode.
    - `reset(indices=None, seeds=None)` begins episodes in K rows and returns their
      observation `[K, ...]`. Other rows do not change.
    - `len()` is N, `[i]` is the environment of a row, `close()` may be repeated.

    Subclasses implement `_step` and `_reset`, which read actions from `self._arrays`
    and write results there, `__getitem__`, and `close`.

    Raises:
      ValueError: for actions outside of the space, and for wrong indices or seeds,
        before any environment is touched.
      RuntimeError: from `step` if a row is done, or new, and has not been reset.
      EnvDataError: for results that are not finite or do not fit the space.
      processes.EnvProcessError: if an environment process fails; all processes of the
        batch have ended then.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        arrays: Arrays,
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self._arrays = arrays
        self._write_actions = checks.ActionWriter(action_space, arrays.action)
        self._structure = spaces.spec(observation_space)
        self._names = checks.names("observation", self._structure)
        self._done = np.ones(len(arrays.reward), bool)

    def __len__(self) -> int:
        return len(self._done)

    def step(
        self, actions: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step all environments; see the class for what is returned and raised."""
        if self._done.any():
            rows = np.flatnonzero(self._done).tolist()
            raise RuntimeError(f"Environment rows {rows} are done; reset them first.")
        self._write_actions(actions)
        info = self._step()
        arrays = self._arrays
        reward, terminated = arrays.reward.copy(), arrays.terminated.copy()
        truncated = arrays.truncated.copy()
        self._done = terminated | truncated
        checks.require_finite("reward", reward)
        return self._observe(), reward, terminated, truncated, info

    def reset(self, indices: Any = None, seeds: Any = None) -> Any:
        """Begin episodes and return their first observation `[K, ...]`.

        Args:
          indices: Distinct rows, integers `[K]`; by default all.
          seeds: Non-negative integers `[K]`; by default the environments go on with
            their random numbers.
        """
        rows = np.arange(len(self)) if indices is None else self._rows(indices)
        if seeds is not None:
            seeds = checks.integers("seeds", seeds)
            if seeds.shape != rows.shape or (seeds < 0).any():
                raise ValueError(
                    f"Expected {len(rows)} seeds that are not negative, got {seeds}."
                )
        self._done[rows] = True
        if len(rows):
            self._reset(rows, seeds)
        observation = self._observe(rows)
        self._done[rows] = False
        return observation

    def _rows(self, indices: Any) -> np.ndarray:
        """Validated indices, int64 `[K]`."""
        rows = checks.integers("indices", indices)
        known = ((rows >= 0) & (rows < len(self))).all()
        if not known or len(np.unique(rows)) < len(rows):
            raise ValueError(
                f"Expected distinct rows below {len(self)} as indices, got {rows}."
            )
        return rows

    def _observe(self, rows: np.ndarray | None = None) -> Any:
        """Fresh and checked observation of some rows, or all."""
        leaves = self._arrays.observation
        leaves = [leaf.copy() if rows is None else leaf[rows] for leaf in leaves]
        for name, leaf in zip(self._names, leaves, strict=True):
            checks.require_finite(name, leaf, rows)
        return spaces.unflatten(self._structure, leaves)

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Access to the environment of one row."""

    @abc.abstractmethod
    def close(self):
        """Close all environments and release what they use."""

    @abc.abstractmethod
    def _step(self) -> dict:
        """Apply the actions to all rows, write all results, and return the info."""

    @abc.abstractmethod
    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        """Begin episodes in these rows and write their observations."""


class BatchEnv(Backend):
    """Plain batch over a list of environments.

    The info of a step is `{"rows": [info of each environment]}`.

    Args:
      envs: Environments with the Gymnasium interface, or `wrappers.ExternalProcess`.
      blocking: Whether to step one environment after the other. Otherwise `step`,
        `reset` and `close` are called with `blocking=False` and return promises, as
        those of `ExternalProcess` do, so that the environments run in parallel.

    Raises:
      ValueError: if the spaces of the environments differ.
    """

    def __init__(self, envs: Sequence[Any], blocking: bool):
        self._envs = list(envs)
        self._options = {} if blocking else {"blocking": False}
        found = [
            self._guard(row, lambda env=env: (env.observation_space, env.action_space))
            for row, env in enumerate(self._envs)
        ]
        found = checks.common_spaces(found)
        super().__init__(*found, Arrays.create(*found, len(self._envs)))
        self._writer = self._arrays.writer(self.observation_space)
        self._split = checks.splitter(self.action_space)

    def __getitem__(self, index: int) -> Any:
        return self._envs[index]

    def close(self):
        closing = [env.close(**self._options) for env in self._envs]
        if self._options:
            for promise in closing:
                promise()

    def _step(self) -> dict:
        actions = enumerate(self._split(self._arrays.action))
        started = [
            (row, self._guard(row, self._envs[row].step, action, **self._options))
            for row, action in actions
        ]
        return {"rows": self._finish(started, self._writer.step)}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        seeds = [None] * len(rows) if seeds is None else seeds.tolist()
        started = [
            (row, self._guard(row, self._envs[row].reset, seed=seed, **self._options))
            for row, seed in zip(rows.tolist(), seeds, strict=True)
        ]
        self._finish(started, self._writer.reset)

    def _finish(self, started: list[tuple[int, Any]], write: Callable) -> list:
        """Write all results, or what promises of them return; return the infos."""
        if self._options:
            started = [(row, self._guard(row, promise)) for row, promise in started]
        return [write(row, result) for row, result in started]

    def _guard(self, row: int, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """Call a function and say in its errors which row they are about."""
        try:
            return function(*args, **kwargs)
        except processes.EnvProcessError as error:
            self.close()
            text = str(error).removeprefix("External environment: ")
            text = f"Environment row {row}: {text}"
            raise processes.EnvProcessError(text) from None
        except Exception as error:
            error.add_note(f"This is environment row {row}.")
            raise
