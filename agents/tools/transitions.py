"""Transitions of a batch of environments as arrays: layout and writers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from agents.tools import arrays, checks, spaces

REWARD, TERMINATED, TRUNCATED, SCORE, LENGTH, NUMBERS = range(6)
"""Columns of `Buffers.numbers`; float32 leaves begin at column `NUMBERS`."""

FLAGS = slice(TERMINATED, TRUNCATED + 1)
RECORD = slice(TERMINATED, LENGTH + 1)
"""Columns of a `steps.record`, which begin with both flags."""

SUMS = slice(SCORE, LENGTH + 1)

ADAPT = (
    "Adapt the old interface in the function that makes the environment: "
    "return agents.tools.wrappers.OldGym(env)."
)

_FLAG_TYPES = bool, np.bool_


class Parts(NamedTuple):
    """Parts of a batch of transitions, as arrays or tensors.

    Attributes:
      reward: float32 `[N]`.
      flags: float32 `[N, 2]`, terminated and truncated.
      last: Leaves `[N, ...]` of the observation after the step.
      following: Leaves `[N, ...]` of the next observation, see `Buffers`.
    """

    reward: Any
    flags: Any
    last: list
    following: list


class Columns:
    """Layout of the numbers `[N, width]` of a batch of transitions.

    Attributes:
      width: Number of columns.
      last, following: Columns of the float32 leaves of both observations.
      others: Specs of other leaves of an observation, which have separate arrays.
    """

    def __init__(self, observation_space: gymnasium.Space):
        self._structure = spaces.spec(observation_space)
        specs = spaces.flatten(self._structure)
        self._floats = [spec.dtype == np.float32 for spec in specs]
        floats = [x for x in specs if x.dtype == np.float32]
        self.others = [x for x in specs if x.dtype != np.float32]
        number, pair = (spaces.Spec(x, np.dtype(np.float32)) for x in ((), (2,)))
        self._layout = arrays.Layout([number, pair, pair, *floats, *floats])
        self.width = self._layout.width
        middle = (NUMBERS + self.width) // 2
        self.last, self.following = slice(NUMBERS, middle), slice(middle, self.width)

    def split(self, numbers: Any, last: Sequence, following: Sequence) -> Parts:
        """Split into parts: views of arrays, or tensors.

        Args:
          numbers: `[N, width]`.
          last, following: Other leaves `[N, ...]` of both observations.
        """
        reward, flags, _, *floats = self._layout.split(numbers)
        floats = iter(floats)
        return Parts(
            *(reward, flags, self._leaves(floats, last)),
            self._leaves(floats, following),
        )

    def structure(self, leaves: Sequence[Any]) -> Any:
        """Build an observation from its leaves."""
        return spaces.unflatten(self._structure, leaves)

    def _leaves(self, floats: Iterator, others: Sequence) -> list:
        """Collect the leaves of one observation."""
        others = iter(others)
        return [next(floats if x else others) for x in self._floats]


class Buffers(NamedTuple):
    """Arrays of a batch of N environments, each with leading dimension N.

    Every step overwrites them. All float32 values share one array, since the cost of
    passing data to the graph depends on the number of arrays, not on bytes.

    Attributes:
      numbers: float32 `[N, width]`, see `Columns`. The caller sets score and length.
      observation: Leaves after the step, the true last ones where done. They are views
        of `numbers` if float32.
      following: Like observation, but of the new episode in restarted rows.
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
    ) -> "Buffers":
        """Create all arrays by `allocate(shape, dtype)`, called in a fixed order."""
        columns = Columns(observation_space)
        actions = spaces.flatten(spaces.spec(action_space))
        numbers = allocate((length, columns.width), np.dtype(np.float32))
        last, following, action = (
            [allocate((length, *spec.shape), spec.dtype) for spec in specs]
            for specs in (columns.others, columns.others, actions)
        )
        if numbers is None:  # The allocator only counts.
            return cls(None, [], [], [])
        parts = columns.split(numbers, last, following)
        return cls(numbers, parts.last, parts.following, action)

    def part(self, rows: slice) -> "Buffers":
        """Return views of some rows."""

        def cut(leaves):
            return [leaf[rows] for leaf in leaves]

        cuts = map(cut, (self.observation, self.following, self.action))
        return Buffers(self.numbers[rows], *cuts)

    def others(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return leaves of observation and following that are not in `numbers`."""
        lists = self.observation, self.following
        observation, following = ([x for x in y if x.dtype != "f4"] for y in lists)
        return observation, following

    def writers(
        self, observation_space: gymnasium.Space, first_row: int = 0
    ) -> tuple["ResultWriter", "ResultWriter"]:
        """Create writers for the observation and for the following one."""
        flags = [self.numbers[:, x] for x in (REWARD, TERMINATED, TRUNCATED)]
        observation, following = (
            ResultWriter(observation_space, leaves, *flags, first_row)
            for leaves in (self.observation, self.following)
        )
        return observation, following


class ResultWriter:
    """Writer of environment results to their rows in the arrays of a batch.

    Args:
      space: Observation space of one environment.
      observation: Leaves `[N, ...]`.
      reward, terminated, truncated: float32 `[N]`; flags are zero or one.
      first_row: Offset of the row numbers in errors.
    """

    def __init__(
        self,
        space: gymnasium.Space,
        observation: list[np.ndarray],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        first_row: int = 0,
    ):
        self._first_row = first_row
        self._targets = observation
        self._columns = reward, terminated, truncated
        self._leaves = [
            (name, path, [leaf[row, ...] for row in range(len(leaf))])
            for (name, path, _), leaf in zip(
                checks.leaves("observation", space), observation, strict=True
            )
        ]
        # Scalars are stored faster through memory views than through arrays.
        self._reward = memoryview(reward)
        self._terminated = memoryview(terminated)
        self._truncated = memoryview(truncated)

    def step(self, row: int, result: Any) -> dict:
        """Write the result of an environment's `step`; return its info.

        Raises:
          EnvDataError: naming the row and the leaf, with expected and actual values.
        """
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise checks.EnvDataError(
                f"{self._place(row)}: step must return observation, reward, "
                f"terminated, truncated, info; got {checks.summary(result)}. {ADAPT}"
            ) from None
        try:
            self._reward[row] = reward
        except Exception:  # The conversion is foreign code.
            self._reward[row] = checks.number(self._place(row), reward)
        if type(terminated) not in _FLAG_TYPES or type(truncated) not in _FLAG_TYPES:
            terminated = checks.flag(self._place(row), "terminated", terminated)
            truncated = checks.flag(self._place(row), "truncated", truncated)
        self._terminated[row] = 1.0 if terminated else 0.0
        self._truncated[row] = 1.0 if truncated else 0.0
        self._observation(row, observation)
        return info

    def steps(self, results: list) -> None:
        """Write the `step` results of all environments, in the order of their rows.

        Raises:
          EnvDataError: as in `step`.
        """
        try:
            observations, rewards, terminated, truncated, _ = zip(*results, strict=True)
            leaves = [
                np.array(_column_of(observations, path)) for _, path, _ in self._leaves
            ]
            rewards = np.array(rewards)
            terminated, truncated = np.array(terminated), np.array(truncated)
        except Exception:  # Results may be any objects, with any conversion to arrays.
            fitting = False
        else:
            shape = (len(results),)
            fitting = rewards.shape == terminated.shape == truncated.shape == shape
            fitting &= rewards.dtype.kind in "fiub"
            fitting &= terminated.dtype.kind == truncated.dtype.kind == "b"
            fitting = fitting and all(
                leaf.shape == target.shape and checks.fits(leaf, target.dtype)
                for leaf, target in zip(leaves, self._targets, strict=True)
            )
        if not fitting:  # Row by row, each is taken or named in an error.
            for row, result in enumerate(results):
                self.step(row, result)
            return
        for leaf, target in zip(leaves, self._targets, strict=True):
            target[...] = leaf
        self._columns[0][:] = rewards
        self._columns[1][:] = terminated
        self._columns[2][:] = truncated

    def reset(self, row: int, result: Any) -> dict:
        """Write the result of an environment's `reset`; return its info.

        Raises:
          EnvDataError: naming the row and the leaf, with expected and actual values.
        """
        if not (isinstance(result, tuple) and len(result) == 2):
            raise checks.EnvDataError(
                f"{self._place(row)}: reset must return observation, info; got "
                f"{checks.summary(result)}. {ADAPT}"
            )
        observation, info = result
        self._observation(row, observation)
        return info

    def _observation(self, row: int, observation: Any):
        """Write an observation after checking its structure, shapes and dtypes."""
        for name, path, views in self._leaves:
            leaf, view = observation, views[row]
            if path:
                leaf = checks.lookup(
                    checks.EnvDataError, row + self._first_row, name, observation, path
                )
            array = leaf if type(leaf) is np.ndarray else checks.array(leaf)
            if array.shape != view.shape or not checks.fits(array, view.dtype):
                given = leaf if array.dtype == object else array
                raise checks.EnvDataError(
                    f"{self._place(row)}: expected {name} to be {view.dtype} "
                    f"{list(view.shape)}, got {checks.summary(given)}."
                )
            view[...] = array

    def _place(self, row: int) -> str:
        """Return the name of a row in errors."""
        return f"Environment row {row + self._first_row}"


def _column_of(structures: Sequence[Any], path: tuple) -> Sequence[Any]:
    """Return one leaf of each of many structures."""
    for key in path:
        structures = [structure[key] for structure in structures]
    return structures
