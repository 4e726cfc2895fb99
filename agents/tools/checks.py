"""What goes into environments and comes out of them, checked at the boundary."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import spaces

_TOLERANCE = 1e-6
_FLAGS = bool, np.bool_


class EnvDataError(ValueError):
    """An environment produced data that its spaces do not allow."""


class ActionError(ValueError):
    """Actions that their space does not allow."""


def located(place: str, error: EnvDataError) -> EnvDataError:
    """The error with its place in front, if an environment raised it, which has none."""
    text = str(error)
    known = text.startswith("Environment row")
    return EnvDataError(text if known else f"{place}: {text}")


class ResultWriter:
    """Writes what environments return to their rows of the arrays of a batch.

    Args:
      space: Observation space of one environment.
      observation: Leaves `[N, ...]`.
      reward, terminated, truncated: float32 `[N]`, flags as zero or one.
      first_row: Added to the rows that errors name.
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
                leaves("observation", space), observation, strict=True
            )
        ]
        # Scalars are stored faster through views of memory than through arrays.
        self._reward = memoryview(reward)
        self._terminated = memoryview(terminated)
        self._truncated = memoryview(truncated)

    def step(self, row: int, result: Any) -> dict:
        """Write what `step` of an environment returned, and return its info.

        Raises:
          EnvDataError: naming the row, the leaf, what was expected, what came.
        """
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise EnvDataError(
                f"{self._place(row)}: step must return observation, reward, "
                f"terminated, truncated, info; got {summary(result)}. Wrap "
                "environments with the old Gym interface by `wrappers.OldGym`."
            ) from None
        try:
            self._reward[row] = reward
        except Exception:  # Its conversion is foreign code.
            self._reward[row] = number(self._place(row), reward)
        if type(terminated) not in _FLAGS or type(truncated) not in _FLAGS:
            terminated = flag(self._place(row), "terminated", terminated)
            truncated = flag(self._place(row), "truncated", truncated)
        self._terminated[row] = 1.0 if terminated else 0.0
        self._truncated[row] = 1.0 if truncated else 0.0
        self._observation(row, observation)
        return info

    def steps(self, results: list) -> None:
        """Write what `step` of all environments returned, in the order of their rows.

        Raises:
          EnvDataError: as `step` does.
        """
        try:
            observations, rewards, terminated, truncated, _ = zip(*results, strict=True)
            leaves = [
                np.array(_column_of(observations, path)) for _, path, _ in self._leaves
            ]
            rewards = np.array(rewards)
            terminated, truncated = np.array(terminated), np.array(truncated)
        except Exception:  # They may be anything, with any conversion to arrays.
            fitting = False
        else:
            shape = (len(results),)
            fitting = rewards.shape == terminated.shape == truncated.shape == shape
            fitting &= rewards.dtype.kind in "fiub"
            fitting &= terminated.dtype.kind == truncated.dtype.kind == "b"
            fitting = fitting and all(
                leaf.shape == target.shape and _fits(leaf, target.dtype)
                for leaf, target in zip(leaves, self._targets, strict=True)
            )
        if not fitting:  # Row by row, which says what is wrong, or takes it.
            for row, result in enumerate(results):
                self.step(row, result)
            return
        for leaf, target in zip(leaves, self._targets, strict=True):
            target[...] = leaf
        self._columns[0][:] = rewards
        self._columns[1][:] = terminated
        self._columns[2][:] = truncated

    def reset(self, row: int, result: Any) -> dict:
        """Write what `reset` of an environment returned, and return its info.

        Raises:
          EnvDataError: naming the row, the leaf, what was expected, what came.
        """
        if not (isinstance(result, tuple) and len(result) == 2):
            raise EnvDataError(
                f"{self._place(row)}: reset must return observation, info; got "
                f"{summary(result)}. Wrap environments with the old Gym interface "
                "by `wrappers.OldGym`."
            )
        observation, info = result
        self._observation(row, observation)
        return info

    def _observation(self, row: int, observation: Any):
        """Write an observation after checking its structure, shapes and dtypes."""
        for name, path, views in self._leaves:
            leaf, view = observation, views[row]
            if path:
                leaf = lookup(
                    EnvDataError, row + self._first_row, name, observation, path
                )
            array = leaf if type(leaf) is np.ndarray else _array(leaf)
            if array.shape != view.shape or not _fits(array, view.dtype):
                given = leaf if array.dtype == object else array
                raise EnvDataError(
                    f"{self._place(row)}: expected {name} to be {view.dtype} "
                    f"{list(view.shape)}, got {summary(given)}."
                )
            view[...] = array

    def _place(self, row: int) -> str:
        """How errors call a row."""
        return f"Environment row {row + self._first_row}"


class ActionWriter:
    """Checks batches of actions against their space and writes them to arrays.

    Args:
      space: Action space of one environment.
      targets: Leaves `[N, ...]` to write.
      first_row: Added to the rows that errors name.
    """

    def __init__(
        self, space: gymnasium.Space, targets: list[np.ndarray], first_row: int = 0
    ):
        self._first_row = first_row
        self._leaves = [
            (name, path, target, *bounds(leaf))
            for (name, path, _), target, leaf in zip(
                leaves("action", space),
                targets,
                spaces.leaf_spaces(space),
                strict=True,
            )
        ]

    def __call__(self, actions: Any):
        """Write actions, moving those that are outside by up to 1e-6 inside.

        Raises:
          ActionError: naming the row, the leaf, what was expected, what came.
        """
        for name, path, target, low, high, below, above in self._leaves:
            leaf = np.asarray(lookup(ActionError, None, name, actions, path))
            if leaf.shape != target.shape or not _fits(leaf, target.dtype, exact=False):
                raise ActionError(
                    f"Expected {name} to be {target.dtype} {list(target.shape)}, got "
                    f"{summary(leaf)}."
                )
            np.maximum(leaf, low, out=target, casting="unsafe")
            np.minimum(target, high, out=target)
            if (target == leaf).all():
                continue
            valid = (leaf >= below) & (leaf <= above)
            if not valid.all():
                row = int(np.argwhere(~valid)[0][0])
                raise ActionError(
                    f"Environment row {row + self._first_row}: {name} {leaf[row]} "
                    "is not finite or not "
                    f"between {low} and {high}."
                )


class MaskChecker:
    """Checks that the action masks of a batch, if it has any, allow an action.

    Attributes:
      needed: Whether observations hold masks; see `spaces.mask_sizes`.
      steps: Steps of the batch so far, which the caller counts for error messages.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ):
        self.steps = 0
        try:
            sizes = spaces.mask_sizes(observation_space, action_space)
        except spaces.UnsupportedSpaceError:  # Who uses masks refuses it.
            sizes = None
        self.needed = sizes is not None
        if not self.needed:
            return
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._leaves = [
            index
            for index, path in enumerate(_paths(spaces.spec(observation_space)))
            if path[0] == spaces.ACTION_MASK
        ]

    def __call__(self, leaves: Sequence[np.ndarray], rows: Sequence[int]):
        """Raise `EnvDataError` if observations, leaves `[K, ...]`, forbid all actions.

        Rows are what the error calls them, `[K]`.
        """
        found = self.forbidding(leaves)
        if found is not None:
            raise EnvDataError(
                f"Environment row {rows[found[0]]} after step {self.steps} of the "
                f"batch: observation {found[1]}"
            )

    def forbidding(self, leaves: Sequence[np.ndarray]) -> tuple[int, str] | None:
        """First of observations, leaves `[K, ...]`, that forbids all actions, and how."""
        allowed = np.logical_or.reduceat(self._mask(leaves), self._starts, 1)
        if allowed.all():
            return None
        index, part = np.argwhere(~allowed)[0].tolist()
        several = len(self._starts) > 1
        what = f"value of action {part}" if several else "action"
        return index, f"{spaces.ACTION_MASK} allows no {what}, all are zero."

    def forbidden(self, leaves: Sequence[np.ndarray], action: np.ndarray) -> np.ndarray:
        """Which of actions `[K, ...]`, counted from zero, observations forbid, `[K]`."""
        chosen = self._starts + action.reshape(len(action), -1)
        return ~np.take_along_axis(self._mask(leaves) != 0, chosen, 1).all(1)

    def _mask(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Masks of all parts of actions side by side, `[K, values]`."""
        return np.concatenate([leaves[index] for index in self._leaves], 1)


def splitter(space: gymnasium.Space) -> Callable[[list[np.ndarray]], list]:
    """Function from leaves `[K, ...]` to the K actions that environments expect.

    Discrete actions are Python integers, others have the dtype of their space. They
    share no memory with the leaves, so environments may keep them.
    """
    structure = spaces.spec(space)
    columns = [_column(leaf) for leaf in spaces.leaf_spaces(space)]
    if not isinstance(structure, dict | tuple):
        return lambda leaves: columns[0](leaves[0])

    def split(leaves):
        rows = zip(*(f(leaf) for f, leaf in zip(columns, leaves)))  # noqa: B905
        return [spaces.unflatten(structure, list(row)) for row in rows]

    return split


def common_spaces(found: Sequence[tuple[gymnasium.Space, gymnasium.Space]]) -> tuple:
    """The observation and action space that all rows agree on.

    Raises:
      ValueError: naming the first row that differs and both spaces.
    """
    if not found:
        raise ValueError("A batch needs at least one environment.")
    for row, other in enumerate(found):
        for kind, ours, theirs in zip(
            ("observation", "action"), found[0], other, strict=True
        ):
            if ours != theirs:
                raise ValueError(
                    f"All environments of a batch need the same {kind} space, but row "
                    f"0 has {ours} and row {row} has {theirs}."
                )
    return found[0]


def require_finite(name: str, leaf: np.ndarray, rows: Sequence[int] | None = None):
    """Raise `EnvDataError` if a float leaf `[K, ...]` of these rows is not finite."""
    if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
        index = int(np.argwhere(~np.isfinite(leaf))[0][0])
        row = index if rows is None else rows[index]
        raise EnvDataError(
            f"Environment row {row}: {name} {leaf[index]} is not finite."
        )


def require_dtype(name: str, leaf: np.ndarray, dtype: np.dtype):
    """Raise `EnvDataError` unless a leaf `[N, ...]` can be stored as this dtype."""
    if not _fits(leaf, dtype):
        raise EnvDataError(f"Expected {name} to be {dtype}, got {summary(leaf)}.")


def integers(name: str, values: Any) -> np.ndarray:
    """Values as int64 `[K]`, or a ValueError."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"Expected {name} to be integers [K], got {summary(array)}.")
    return array.astype(np.int64)


def names(prefix: str, structure: Any) -> list[str]:
    """How errors call the leaves of a structure."""
    return [f"{prefix} {path}".strip() for path in spaces.paths(structure)]


def leaves(prefix: str, space: gymnasium.Space) -> list[tuple[str, tuple, spaces.Spec]]:
    """What errors call the leaves of a space, keys that lead there, and specs."""
    structure = spaces.spec(space)
    columns = names(prefix, structure), _paths(structure), spaces.flatten(structure)
    return list(zip(*columns, strict=True))


def _paths(structure: Any) -> list[tuple]:
    """Keys that lead to each leaf, in the order of `spaces.flatten`."""
    if isinstance(structure, dict):
        items: Iterable = sorted(structure.items())
    elif isinstance(structure, tuple):
        items = enumerate(structure)
    else:
        return [()]
    return [(key, *path) for key, child in items for path in _paths(child)]


def _column_of(structures: Sequence[Any], path: tuple) -> Sequence[Any]:
    """The same leaf of many structures."""
    for key in path:
        structures = [structure[key] for structure in structures]
    return structures


def lookup(error: type, row: int | None, name: str, structure: Any, path: tuple) -> Any:
    """Leaf of a structure, or an error that names it."""
    leaf = structure
    try:
        for key in path:
            leaf = leaf[key]
    except (KeyError, IndexError, TypeError):
        place = "" if row is None else f"Environment row {row}: "
        raise error(f"{place}{name} is missing in {summary(structure)}.") from None
    return leaf


def _array(leaf: Any) -> np.ndarray:
    """A leaf that is no array as one; of dtype object if that is impossible."""
    try:
        return np.asarray(leaf)
    except Exception:  # Its conversion is foreign code.
        return np.asarray(None)


def _fits(leaf: np.ndarray, dtype: np.dtype, exact: bool = True) -> bool:
    """Whether a dtype can hold a leaf: integers exactly, floats rounded."""
    if not holds(dtype, leaf.dtype):
        return False
    if not exact or dtype.kind == "f" or leaf.dtype == dtype:
        return True
    return bool((leaf.astype(dtype) == leaf).all())


def holds(dtype: Any, other: Any) -> bool:
    """Whether arrays of the other dtype may be stored as this one, if values fit."""
    dtype, other = np.dtype(dtype), np.dtype(other)
    if dtype == other:
        return True
    return dtype.kind in "fiu" and other.kind in (
        "fiub" if dtype.kind == "f" else "iub"
    )


def number(place: str, reward: Any) -> float:
    """Reward that is wrapped into an array, or an `EnvDataError` about a place."""
    array = _array(reward)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise EnvDataError(
            f"{place}: expected reward to be a number, got {summary(reward)}."
        )
    return float(array.astype(np.float64).item())


def column(name: str, values: Any, length: int, first_row: int) -> np.ndarray:
    """Rewards or flags `[length]` of a vector environment.

    Raises:
      EnvDataError: naming the row, if there is one, what was expected, what came.
    """
    array = _array(values)
    if array.shape != (length,):
        raise EnvDataError(
            f"The vector environment gives {name} as {summary(values)}, expected one "
            f"for each of {length} rows."
        )
    if array.dtype.kind in ("fiub" if name == "reward" else "b"):
        return array
    places = [f"Environment row {row + first_row}" for row in range(length)]
    pairs = zip(places, values, strict=True)
    if name == "reward":
        return np.array([number(place, value) for place, value in pairs])
    return np.array([flag(place, name, value) for place, value in pairs])


def flag(place: str, name: str, value: Any) -> bool:
    """Flag that is written as a number or an array, or an `EnvDataError`."""
    array = _array(value)
    if array.size != 1 or array.dtype.kind not in "fiub" or array.item() not in (0, 1):
        raise EnvDataError(
            f"{place}: expected {name} to be true or false, got {summary(value)}."
        )
    return bool(array.item())


def bounds(space: gymnasium.Space) -> tuple:
    """Lowest and highest value of a leaf space, without and with tolerance."""
    if isinstance(space, gymnasium.spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        low, high = 0, 1
    elif space.dtype.kind != "f":
        low, high = space.low, space.high
    else:
        limit = np.finfo(np.float32)
        low = np.clip(space.low, limit.min, limit.max).astype(np.float32)
        high = np.clip(space.high, limit.min, limit.max).astype(np.float32)
        with np.errstate(over="ignore"):
            below = low - _TOLERANCE * np.maximum(1, np.abs(low))
            above = high + _TOLERANCE * np.maximum(1, np.abs(high))
        return low, high, below.clip(limit.min), above.clip(None, limit.max)
    return low, high, low, high


def _column(space: gymnasium.Space) -> Callable[[np.ndarray], list]:
    """Function from a leaf `[K, ...]` to the K values that environments expect."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda leaf: leaf.tolist()
    split = list if space.shape else _scalars
    if space.dtype == np.float64:  # Its bounds may be off when rounded to float32.
        return lambda leaf: split(leaf.astype(np.float64).clip(space.low, space.high))
    return lambda leaf: split(leaf.astype(space.dtype))


def _scalars(leaf: np.ndarray) -> list[np.ndarray]:
    """The K arrays without dimensions, rather than scalars, of a leaf `[K]`."""
    return [leaf[row, ...] for row in range(len(leaf))]


def summary(value: Any) -> str:
    """Type and size of a value, short enough for an error message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"dict with keys {list(value)}"
    return f"{type(value).__name__} {value!r:.80}"
