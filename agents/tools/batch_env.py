"""Batches of environments: the contract of all backends, and a plain one."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np

from agents.tools import actions, checks, limits, processes, ranges, transitions

EnvDataError = checks.EnvDataError


class Results(NamedTuple):
    """Results of a step of N rows, in arrays that nothing else refers to.

    Attributes:
      numbers: Columns of `transitions.Buffers`; both observations are equal in rows
        without restart.
      observation, following: Leaves that `numbers` does not contain.
      done: bool `[N]`.
      restarted: Whether new episodes have begun in rows that are done.
      info: Additional information from the environments.
    """

    numbers: np.ndarray
    observation: list[np.ndarray]
    following: list[np.ndarray]
    done: np.ndarray
    restarted: bool
    info: dict


class Backend(abc.ABC):
    """Batch of N environments that are stepped together.

    Observations and actions are structures (dict, tuple or leaf) of arrays whose shapes
    and dtypes are those of `spaces.spec` with a leading dimension. Returned arrays are
    fresh: later calls never change them.

    - `step(actions)` returns observation `[N, ...]`, reward float32 `[N]`, terminated
      and truncated bool `[N]`, and an info dict. All rows must be running. No row is
      reset automatically: the observation of a done row is the last of its episode.
    - `reset(indices=None, seeds=None)` begins episodes in K rows and returns their
      observation `[K, ...]`. Other rows do not change.
    - `start(actions, restart)` and `finish()` are the two halves of a step, so that the
      caller can do other work in between.
    - `len()` is N, `[i]` is the environment of a row, `close()` may be repeated.

    Subclasses implement `_start`, `_finish` and `_reset`, which read actions from
    `self._buffers` and write results there, `__getitem__`, and `close`.

    Observations outside of a Box are passed on; the first one logs a warning.

    Attributes:
      ranges: Checker of those ranges; the halves of a batch share it.

    Raises:
      ValueError: for actions outside of the space, and for wrong indices or seeds,
        before any environment changes.
      RuntimeError: from `step` if a row is done, or new, and has not been reset.
      EnvDataError: for results that are not finite or do not fit the space, and for
        action masks that forbid all actions; a pool of processes may be closed then.
      processes.EnvError: if an environment raises; `EnvProcessError` if its process
        failed, after which all processes of the batch have ended.
    """

    first_row = 0
    """Offset of the row numbers in errors, if this is part of a larger batch."""
    seeds_rows = True
    """Seeds for some of the rows are possible, rather than only for all of them."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        buffers: transitions.Buffers,
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self._buffers = buffers
        self._others = buffers.others()
        self._write_actions = actions.ActionWriter(
            action_space, buffers.action, self.first_row
        )
        self._columns = transitions.Columns(observation_space)
        self.ranges = ranges.RangeChecker(observation_space, transitions.NUMBERS)
        self._check_masks = checks.MaskChecker(observation_space, action_space)
        self._done = np.ones(len(buffers.numbers), bool)
        self._none = np.zeros(len(buffers.numbers), bool)
        self._none.flags.writeable = False

    def __len__(self) -> int:
        return len(self._done)

    def step(
        self, actions: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step all environments; see the class for results and errors."""
        self.start(actions)
        result = self.finish()
        reward, flags, leaves, _ = self._split(result)
        observation = self._columns.structure([leaf.copy() for leaf in leaves])
        terminated, truncated = flags.T > 0
        return observation, reward.copy(), terminated, truncated, result.info

    def start(self, actions: Any, restart: bool = False):
        """Begin a step with these actions; `finish` must be the next call.

        Args:
          actions: Structure of arrays `[N, ...]`.
          restart: Whether to begin an unseeded episode in rows whose episode ends.

        Raises:
          RuntimeError: if rows are done and were not reset.
          ValueError: for actions of another structure or shape, or outside of the space.
        """
        if self._done is not self._none and self._done.any():
            rows = (np.flatnonzero(self._done) + self.first_row).tolist()
            raise RuntimeError(f"Environment rows {rows} are done; reset them first.")
        self._write_actions(actions)
        self._restart = restart
        self._start(restart)

    def finish(self) -> Results:
        """Wait for the end of the step that was started, and return its results."""
        info = self._finish(self._restart)
        numbers = self._buffers.numbers.copy()
        flags = numbers[:, transitions.FLAGS]
        done = flags.any(1) if np.count_nonzero(flags) else self._none
        observation, following = ([x.copy() for x in y] for y in self._others)
        last, new = numbers[:, self._columns.last], numbers[:, self._columns.following]
        if done is self._none or not self._restart:
            new[:], following = last, observation
        else:
            new[~done] = last[~done]
            for leaf, copy in zip(observation, following, strict=True):
                copy[~done] = leaf[~done]
        self._done = self._none if self._restart else done
        result = Results(numbers, observation, following, done, self._restart, info)
        holds = self.ranges.holds(numbers[:, : self._columns.last.stop], observation)
        if following is not observation:
            begun = [leaf[done] for leaf in following]
            holds &= self.ranges.holds(new[done], begun, headless=True)
        if not holds:
            self._complain(result)
        if self._check_masks.needed:
            self._check_masks.steps += 1
            self._require_actions(result)
        return result

    def reset(self, indices: Any = None, seeds: Any = None) -> Any:
        """Begin episodes; return their first observations `[K, ...]`.

        Args:
          indices: Distinct rows, integers `[K]`; all rows by default.
          seeds: Non-negative integers `[K]`; by default the environments continue their
            random sequences.

        Raises:
          ValueError: for rows that do not exist or repeat, and for wrong seeds.
        """
        rows = np.arange(len(self)) if indices is None else self._rows(indices)
        if seeds is not None:
            seeds = checks.integers("seeds", seeds)
            if seeds.shape != rows.shape or (seeds < 0).any():
                raise ValueError(
                    f"Expected {len(rows)} seeds that are not negative, got {seeds}."
                )
            if not self.seeds_rows and len(rows) < len(self):
                raise ValueError(
                    f"{type(self).__name__} can seed all environments, not some of them."
                )
        self._done = self._done.copy()
        self._done[rows] = True
        if len(rows):
            self._reset(rows, seeds)
        leaves = [leaf[rows] for leaf in self._buffers.observation]
        self.ranges.require(leaves, rows + self.first_row)
        if self._check_masks.needed:
            self._check_masks(leaves, rows + self.first_row)
        self._done[rows] = False
        return self._columns.structure(leaves)

    def _split(self, result: Results) -> transitions.Parts:
        """Return views of the parts of a result."""
        others = result.observation, result.following
        return self._columns.split(result.numbers, *others)

    def _rows(self, indices: Any) -> np.ndarray:
        """Return validated indices, int64 `[K]`."""
        rows = checks.integers("indices", indices)
        known = ((rows >= 0) & (rows < len(self))).all()
        if not known or len(np.unique(rows)) < len(rows):
            raise ValueError(
                f"Expected distinct rows below {len(self)} as indices, got {rows}."
            )
        return rows

    def _complain(self, result: Results):
        """Raise the error for numbers that are not finite or out of range, or warn."""
        rows = np.arange(len(self)) + self.first_row
        reward, _, last, following = self._split(result)
        checks.require_finite("reward", reward, rows)
        self.ranges.require(last, rows)
        self.ranges.require(following, rows)

    def _require_actions(self, result: Results):
        """Raise EnvDataError if the mask of a running row allows no action."""
        rows = np.flatnonzero(result.restarted | ~result.done)
        leaves = self._split(result).following
        self._check_masks([leaf[rows] for leaf in leaves], rows + self.first_row)

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Return the environment of one row, or access to it."""

    @abc.abstractmethod
    def close(self):
        """Close all environments and release their resources."""

    @abc.abstractmethod
    def _start(self, restart: bool):
        """Apply the actions to all rows, if possible without waiting."""

    @abc.abstractmethod
    def _finish(self, restart: bool) -> dict:
        """Write all results, with `following` of restarted rows; return the info."""

    @abc.abstractmethod
    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        """Begin episodes in these rows; write their observations."""


class BatchEnv(Backend):
    """Plain batch over a list of environments.

    The info of a step is `{"rows": [info of each environment]}`.

    Args:
      envs: Environments with the Gymnasium interface, or `wrappers.ExternalProcess`.
      blocking: Whether to step one environment after the other. Otherwise `step`,
        `reset` and `close` are called with `blocking=False` and return promises, as in
        `ExternalProcess`, so that the environments run in parallel.
      first_row: Offset of the row numbers in errors.

    Raises:
      ValueError: if the spaces of the environments differ.
    """

    def __init__(self, envs: Sequence[Any], blocking: bool, first_row: int = 0):
        self.first_row = first_row
        self._envs = list(envs)
        self._closed = False
        self._options = {} if blocking else {"blocking": False}
        found = [
            self._guard(
                row, "start", lambda env=env: (env.observation_space, env.action_space)
            )
            for row, env in enumerate(self._envs)
        ]
        found = checks.common_spaces(found)
        buffers = transitions.Buffers.create(*found, len(self._envs))
        super().__init__(*found, buffers)
        self._writer, self._following = self._buffers.writers(
            self.observation_space, first_row
        )
        self._split_actions = actions.splitter(self.action_space)

    def __getitem__(self, index: int) -> Any:
        return self._envs[index]

    def close(self):
        if self._options:
            for promise in [env.close(**self._options) for env in self._envs]:
                promise()
        elif not self._closed:
            limits.close([env.close for env in self._envs])
        self._closed = True

    def _start(self, restart: bool):
        if self._options:
            self._started = list(self._begin_steps())

    def _finish(self, restart: bool) -> dict:
        started = self._started if self._options else self._begin_steps()
        infos = self._complete(started, self._writer.step)
        if restart:
            flags = self._buffers.numbers[:, transitions.FLAGS]
            self._begin_episodes(np.flatnonzero(flags.any(1)), None, self._following)
        return {"rows": infos}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        self._begin_episodes(rows, seeds, self._writer)

    def _begin_steps(self) -> Iterator[tuple[int, Any]]:
        """Start steps; yield rows with their results, or with promises of them."""
        for row, action in enumerate(self._split_actions(self._buffers.action)):
            step = self._envs[row].step
            yield row, self._guard(row, "step", step, action, **self._options)

    def _begin_episodes(
        self,
        rows: np.ndarray,
        seeds: np.ndarray | None,
        writer: transitions.ResultWriter,
    ):
        """Reset rows, and pass their observations to the writer."""
        seeds = [None] * len(rows) if seeds is None else seeds.tolist()
        options = [{"seed": seed, **self._options} for seed in seeds]
        started = (
            (row, self._guard(row, "reset", self._envs[row].reset, **given))
            for row, given in zip(rows.tolist(), options, strict=True)
        )
        self._complete(started, writer.reset)

    def _complete(self, started: Iterable, write: Callable) -> list:
        """Write all results, waiting for promises; return the infos.

        A result is written before the next step, as environments may share arrays.
        Promises are all made before the first is waited for.
        """
        if self._options:
            started = self._wait(list(started))
        return [write(row, result) for row, result in started]

    def _wait(self, promises: list) -> list[tuple[int, Any]]:
        """Return rows with their results, all of which are taken even after an error."""
        results, wrong = [], []
        for row, promise in promises:
            try:
                results.append((row, self._guard(row, "wait", promise)))
            except EnvDataError as error:
                wrong.append(error)
        if wrong:
            raise wrong[0]
        return results

    def _guard(
        self, row: int, command: str, function: Callable, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function; name the row in its errors."""
        place = f"Environment row {row + self.first_row}"
        try:
            return function(*args, **kwargs)
        except processes.EnvProcessError as error:
            self.close()
            text = str(error).removeprefix("External environment")
            raise processes.EnvProcessError(place + text) from None
        except EnvDataError as error:
            raise checks.located(place, error) from error
        except SystemExit as error:  # It would end the program from inside a graph.
            raise processes.failure(place, command, error) from error
        except Exception as error:
            self._fail(place, command, error)

    def _fail(self, place: str, command: str, error: Exception) -> NoReturn:
        """Raise the exception of an environment of this process."""
        error.add_note(f"This is {place[0].lower()}{place[1:]}.")
        raise error
