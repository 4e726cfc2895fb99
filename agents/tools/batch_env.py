"""Batches of environments: the contract of all backends, and the plain one."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np

from agents.tools import checks, limits, processes, ranges, spaces

EnvDataError = checks.EnvDataError


REWARD, TERMINATED, TRUNCATED, SCORE, LENGTH, NUMBERS = range(6)
"""Columns of `Arrays.numbers`; float32 leaves begin at column `NUMBERS`."""


class Arrays(NamedTuple):
    """The arrays of a batch of N environments, each with leading dimension N.

    All that is float32 shares one array, since what crosses into the graph costs by
    the array rather than by the byte.

    Attributes:
      numbers: float32 `[N, NUMBERS + 2 W]`: reward and flags, two columns of the
        caller, then the float32 leaves of both observations.
      observation: Leaves after the step; where done, the true last ones. Views of
        `numbers` if they are float32.
      following: The same, but of the next episode, in rows that the step restarted.
      action: Leaves of the action.
    """

    numbers: np.ndarray
    observation: list[np.ndarray]
    following: list[np.ndarray]
    action: list[np.ndarray]

    @classmethod
    def create(
        cls,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        length: int,
        allocate: Callable[[tuple, np.dtype], Any] = np.zeros,
    ) -> "Arrays":
        """Make all arrays by `allocate(shape, dtype)`, called in a fixed order."""
        specs = spaces.flatten(spaces.spec(observation_space))
        numbers = allocate((length, row_width(specs)), np.dtype(np.float32))
        others = [
            [
                allocate((length, *spec.shape), spec.dtype)
                for spec in specs
                if spec.dtype != np.float32
            ]
            for _ in range(2)
        ]
        action = [
            allocate((length, *spec.shape), spec.dtype)
            for spec in spaces.flatten(spaces.spec(action_space))
        ]
        if numbers is None:  # The allocator only counts.
            return cls(None, [], [], [])
        return cls(numbers, *unpack(specs, numbers, *others), action)

    def part(self, rows: slice) -> "Arrays":
        """The same arrays, of some rows only."""

        def cut(leaves):
            return [leaf[rows] for leaf in leaves]

        cuts = map(cut, (self.observation, self.following, self.action))
        return Arrays(self.numbers[rows], *cuts)

    def others(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Leaves of observation and following that are not part of `numbers`."""
        lists = self.observation, self.following
        observation, following = ([x for x in y if x.dtype != "f4"] for y in lists)
        return observation, following

    def writers(
        self, observation_space: gymnasium.Space, first_row: int = 0
    ) -> tuple[checks.ResultWriter, checks.ResultWriter]:
        """Writers of results to the observation, and to the following one."""
        flags = [self.numbers[:, x] for x in (REWARD, TERMINATED, TRUNCATED)]
        observation, following = (
            checks.ResultWriter(observation_space, leaves, *flags, first_row)
            for leaves in (self.observation, self.following)
        )
        return observation, following


class Results(NamedTuple):
    """What a step of N rows gave; all arrays are fresh.

    Attributes:
      numbers: As in `Arrays`; both observations are the same where not restarted.
      observation, following: Leaves that are not part of `numbers`.
      done: bool `[N]`.
      restarted: Whether new episodes have begun where done.
      info: What the environments said besides.
    """

    numbers: np.ndarray
    observation: list[np.ndarray]
    following: list[np.ndarray]
    done: np.ndarray
    restarted: bool
    info: dict


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
    - `start(actions, restart)` and `finish()` are the two halves of a step, so that
      the caller can do something else in between.
    - `len()` is N, `[i]` is the environment of a row, `close()` may be repeated.

    Subclasses implement `_start`, `_finish` and `_reset`, which read actions from
    `self._arrays` and write results there, `__getitem__`, and `close`.

    Observations outside of a Box are used; the first one is logged as a warning.

    Attributes:
      ranges: What says so; the halves of a batch share it.

    Raises:
      ValueError: for actions outside of the space, and for wrong indices or seeds,
        before any environment is touched.
      RuntimeError: from `step` if a row is done, or new, and has not been reset.
      EnvDataError: for results that are not finite or do not fit the space, and for
        action masks that forbid all actions.
      processes.EnvError: if an environment raises; `EnvProcessError` if its process
        failed, and all processes of the batch have ended then.
    """

    first_row = 0
    """What errors add to rows, where this is a part of a larger batch."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        arrays: Arrays,
    ):
        self.observation_space = observation_space
        self.action_space = action_space
        self._arrays = arrays
        self._others = arrays.others()
        self._write_actions = checks.ActionWriter(
            action_space, arrays.action, self.first_row
        )
        self._structure = spaces.spec(observation_space)
        self._specs = spaces.flatten(self._structure)
        self.ranges = ranges.RangeChecker(observation_space, NUMBERS)
        self._check_masks = checks.MaskChecker(observation_space, action_space)
        self._width = (arrays.numbers.shape[1] - NUMBERS) // 2
        self._done = np.ones(len(arrays.numbers), bool)
        self._none = np.zeros(len(arrays.numbers), bool)
        self._none.flags.writeable = False

    def __len__(self) -> int:
        return len(self._done)

    def step(
        self, actions: Any
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Step all environments; see the class for what is returned and raised."""
        self.start(actions)
        result = self.finish()
        numbers = result.numbers
        leaves, _ = unpack(self._specs, numbers, result.observation, result.following)
        return (
            spaces.unflatten(self._structure, [leaf.copy() for leaf in leaves]),
            numbers[:, REWARD].copy(),
            numbers[:, TERMINATED] > 0,
            numbers[:, TRUNCATED] > 0,
            result.info,
        )

    def start(self, actions: Any, restart: bool = False):
        """Begin a step with these actions; `finish` must be the next call.

        Args:
          actions: Structure of arrays `[N, ...]`.
          restart: Begin a new episode, without seed, in rows whose episode ends.
        """
        if self._done is not self._none and self._done.any():
            rows = (np.flatnonzero(self._done) + self.first_row).tolist()
            raise RuntimeError(f"Environment rows {rows} are done; reset them first.")
        self._write_actions(actions)
        self._restart = restart
        self._start(restart)

    def finish(self) -> Results:
        """Wait for the end of the step that was started."""
        info = self._finish(self._restart)
        numbers = self._arrays.numbers.copy()
        flags = numbers[:, TERMINATED : TRUNCATED + 1]
        done = flags.any(1) if np.count_nonzero(flags) else self._none
        observation, following = ([x.copy() for x in y] for y in self._others)
        last = numbers[:, NUMBERS : NUMBERS + self._width]
        new = numbers[:, NUMBERS + self._width :]
        if done is self._none or not self._restart:
            new[:], following = last, observation
        else:
            new[~done] = last[~done]
            for leaf, copy in zip(observation, following, strict=True):
                copy[~done] = leaf[~done]
        self._done = self._none if self._restart else done
        result = Results(numbers, observation, following, done, self._restart, info)
        holds = self.ranges.holds(numbers[:, : NUMBERS + self._width], observation)
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
        self._done = self._done.copy()
        self._done[rows] = True
        if len(rows):
            self._reset(rows, seeds)
        leaves = [leaf[rows] for leaf in self._arrays.observation]
        self.ranges.require(leaves, rows + self.first_row)
        if self._check_masks.needed:
            self._check_masks(leaves, rows + self.first_row)
        self._done[rows] = False
        return spaces.unflatten(self._structure, leaves)

    def _rows(self, indices: Any) -> np.ndarray:
        """Validated indices, int64 `[K]`."""
        rows = checks.integers("indices", indices)
        known = ((rows >= 0) & (rows < len(self))).all()
        if not known or len(np.unique(rows)) < len(rows):
            raise ValueError(
                f"Expected distinct rows below {len(self)} as indices, got {rows}."
            )
        return rows

    def _complain(self, result: Results):
        """Raise the error about numbers that are not finite or outside, or warn."""
        rows = np.arange(len(self)) + self.first_row
        checks.require_finite("reward", result.numbers[:, REWARD], rows)
        for leaves in unpack(
            self._specs, result.numbers, result.observation, result.following
        ):
            self.ranges.require(leaves, rows)

    def _require_actions(self, result: Results):
        """Raise EnvDataError if rows whose episode goes on are allowed no action."""
        rows = np.flatnonzero(result.restarted | ~result.done)
        _, leaves = unpack(
            self._specs, result.numbers, result.observation, result.following
        )
        self._check_masks([leaf[rows] for leaf in leaves], rows + self.first_row)

    @abc.abstractmethod
    def __getitem__(self, index: int) -> Any:
        """Access to the environment of one row."""

    @abc.abstractmethod
    def close(self):
        """Close all environments and release what they use."""

    @abc.abstractmethod
    def _start(self, restart: bool):
        """Apply the actions to all rows, without waiting if that is possible."""

    @abc.abstractmethod
    def _finish(self, restart: bool) -> dict:
        """Write all results, `following` of restarted rows too; return the info."""

    @abc.abstractmethod
    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        """Begin episodes in these rows and write their observations."""


def actions(space: gymnasium.Space, leaves: Sequence[np.ndarray]) -> Any:
    """Structure of actions `[N, ...]` with the dtypes of their space."""
    pairs = zip(leaves, spaces.leaf_spaces(space), strict=True)
    typed = [leaf.astype(part.dtype) for leaf, part in pairs]
    return spaces.unflatten(spaces.spec(space), typed)


def row_width(specs: Sequence[spaces.Spec]) -> int:
    """Columns of `Arrays.numbers` for observations with these leaves."""
    leaves = [math.prod(spec.shape) for spec in specs if spec.dtype == np.float32]
    return NUMBERS + 2 * sum(leaves)


def unpack(
    specs: Sequence[spaces.Spec], numbers: np.ndarray, *others: list[np.ndarray]
) -> list[list[np.ndarray]]:
    """Leaves of observation and following: views of numbers, and the others."""
    column, result = NUMBERS, []
    for rest in map(iter, others):
        leaves = []
        for spec in specs:
            if spec.dtype != np.float32:
                leaves.append(next(rest))
                continue
            size = math.prod(spec.shape)
            view = numbers[:, column : column + size].view()
            view.shape = len(numbers), *spec.shape  # Raises rather than copies.
            leaves.append(view)
            column += size
        result.append(leaves)
    return result


class BatchEnv(Backend):
    """Plain batch over a list of environments.

    The info of a step is `{"rows": [info of each environment]}`.

    Args:
      envs: Environments with the Gymnasium interface, or `wrappers.ExternalProcess`.
      blocking: Whether to step one environment after the other. Otherwise `step`,
        `reset` and `close` are called with `blocking=False` and return promises, as
        those of `ExternalProcess` do, so that the environments run in parallel.
      first_row: What errors add to rows, where this is a part of a larger batch.

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
        super().__init__(*found, Arrays.create(*found, len(self._envs)))
        self._writer, self._following = self._arrays.writers(
            self.observation_space, first_row
        )
        self._split = checks.splitter(self.action_space)

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
            self._started = self._begin_steps()

    def _finish(self, restart: bool) -> dict:
        started = self._started if self._options else self._begin_steps()
        infos = self._complete(started, self._writer.step)
        if restart:
            flags = self._arrays.numbers[:, TERMINATED : TRUNCATED + 1]
            self._begin_episodes(np.flatnonzero(flags.any(1)), None, self._following)
        return {"rows": infos}

    def _reset(self, rows: np.ndarray, seeds: np.ndarray | None):
        self._begin_episodes(rows, seeds, self._writer)

    def _begin_steps(self) -> list[tuple[int, Any]]:
        """Rows with the results of their steps, or with promises of them."""
        return [
            (row, self._guard(row, "step", self._envs[row].step, x, **self._options))
            for row, x in enumerate(self._split(self._arrays.action))
        ]

    def _begin_episodes(
        self,
        rows: np.ndarray,
        seeds: np.ndarray | None,
        writer: checks.ResultWriter,
    ):
        """Reset rows and let the writer have their observations."""
        seeds = [None] * len(rows) if seeds is None else seeds.tolist()
        options = [{"seed": seed, **self._options} for seed in seeds]
        started = [
            (row, self._guard(row, "reset", self._envs[row].reset, **given))
            for row, given in zip(rows.tolist(), options, strict=True)
        ]
        self._complete(started, writer.reset)

    def _complete(self, started: list, write: Callable) -> list:
        """Write all results, or what promises of them return; return the infos."""
        if self._options:
            started = [
                (row, self._guard(row, "wait", promise)) for row, promise in started
            ]
        return [write(row, result) for row, result in started]

    def _guard(
        self, row: int, command: str, function: Callable, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function and say in its errors which row they are about."""
        place = f"Environment row {row + self.first_row}"
        try:
            return function(*args, **kwargs)
        except processes.EnvProcessError as error:
            self.close()
            text = str(error).removeprefix("External environment")
            raise processes.EnvProcessError(place + text) from None
        except EnvDataError as error:
            raise checks.located(place, error) from error
        except SystemExit as error:  # Within a graph, it would end the program.
            raise processes.failure(place, command, error) from error
        except Exception as error:
            self._fail(place, command, error)

    def _fail(self, place: str, command: str, error: Exception) -> NoReturn:
        """Raise what an environment of this process raised."""
        error.add_note(f"This is {place[0].lower()}{place[1:]}.")
        raise error
