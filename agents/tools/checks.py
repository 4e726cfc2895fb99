"""Checks of data that goes into environments and comes out of them."""

import numbers
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import errors, spaces

_TOLERANCE = 1e-6


def require_apart(envs: Sequence[Any], first_row: int = 0):
    """Raise EnvDataError if two rows have the same environment."""
    inner = [getattr(env, "unwrapped", env) for env in envs]  # So ids stay unique.
    rows: dict[int, int] = {}
    for row, env in enumerate(inner, first_row):
        other = rows.setdefault(id(env), row)
        if other != row:
            raise EnvDataError(
                f"Environment rows {other} and {row} are the same object; the function "
                "must create an environment whenever it is called."
            )


class EnvDataError(errors.Failure, ValueError):
    """Data from an environment that its spaces do not allow."""


class ActionError(errors.Mistake):
    """Actions that their space does not allow."""


def located(place: str, error: EnvDataError) -> EnvDataError:
    """Prefix an error with its place, unless the text already names a row."""
    text = str(error)
    known = text.startswith("Environment row")
    return EnvDataError(text if known else f"{place}: {text}")


class MaskChecker:
    """Checker that each action mask of a batch, if any, allows an action.

    Attributes:
      needed: Whether observations hold masks; see `spaces.mask_sizes`.
      steps: Batch steps so far, counted by the caller for error messages.
    """

    def __init__(
        self, observation_space: gymnasium.Space, action_space: gymnasium.Space
    ):
        self.steps = 0
        try:
            sizes = spaces.mask_sizes(observation_space, action_space)
        except spaces.UnsupportedSpaceError:  # Users of masks refuse it.
            sizes = None
        self.needed = sizes is not None
        if not self.needed:
            return
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._leaves = [
            index
            for index, keys in enumerate(spaces.by_keys(spaces.spec(observation_space)))
            if keys[0] == spaces.ACTION_MASK
        ]

    def __call__(self, leaves: Sequence[np.ndarray], rows: Sequence[int]):
        """Raise `EnvDataError` if an observation of the leaves allows no action.

        Leaves are `[K, ...]`; the error uses the row numbers `[K]`.
        """
        found = self.forbidding(leaves)
        if found is not None:
            raise EnvDataError(
                f"Environment row {rows[found[0]]} after step {self.steps} of the "
                f"batch: observation {found[1]}"
            )

    def forbidding(self, leaves: Sequence[np.ndarray]) -> tuple[int, str] | None:
        """Return index and reason of the first observation without allowed action."""
        allowed = np.logical_or.reduceat(self._mask(leaves), self._starts, 1)
        if allowed.all():
            return None
        index, part = np.argwhere(~allowed)[0].tolist()
        several = len(self._starts) > 1
        what = f"value of action {part}" if several else "action"
        return index, f"{spaces.ACTION_MASK} allows no {what}, all are zero."

    def forbidden(self, leaves: Sequence[np.ndarray], action: np.ndarray) -> np.ndarray:
        """Return which actions `[K, ...]`, counted from zero, are forbidden, `[K]`."""
        chosen = self._starts + action.reshape(len(action), -1)
        return ~np.take_along_axis(self._mask(leaves) != 0, chosen, 1).all(1)

    def _mask(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Join the masks of all parts of actions side by side, `[K, values]`."""
        return np.concatenate([leaves[index] for index in self._leaves], 1)


def common_spaces(found: Sequence[tuple[gymnasium.Space, gymnasium.Space]]) -> tuple:
    """Return the observation and action space that all rows share.

    Raises:
      EnvDataError: naming the first row that differs, and both spaces.
    """
    if not found:
        raise ValueError("A batch needs at least one environment.")
    for row, other in enumerate(found):
        for kind, ours, theirs in zip(
            ("observation", "action"), found[0], other, strict=True
        ):
            if ours != theirs:
                raise EnvDataError(
                    f"All environments of a batch need the same {kind} space, but row "
                    f"0 has {ours} and row {row} has {theirs}."
                )
    return found[0]


def positive_integer(name: str, value: Any, kind: type[Exception]) -> int:
    """Return a positive integer of any type as a Python integer; else raise `kind`."""
    if not isinstance(value, numbers.Integral) or value < 1:
        raise kind(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


def require_finite(name: str, leaf: np.ndarray, rows: Sequence[int] | None = None):
    """Raise `EnvDataError` if a float leaf `[K, ...]` of these rows is not finite."""
    if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
        index = int(np.argwhere(~np.isfinite(leaf))[0][0])
        row = index if rows is None else rows[index]
        raise EnvDataError(
            f"Environment row {row}: {name} {leaf[index]} is not finite."
        )


def require_dtype(name: str, leaf: np.ndarray, dtype: np.dtype):
    """Raise `EnvDataError` unless a dtype can hold a leaf `[N, ...]`."""
    if not fits(leaf, dtype):
        raise EnvDataError(f"Expected {name} to be {dtype}, got {summary(leaf)}.")


def integers(name: str, values: Any) -> np.ndarray:
    """Convert values to int64 `[K]`, or raise ValueError."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"Expected {name} to be integers [K], got {summary(array)}.")
    return array.astype(np.int64)


def names(prefix: str, structure: Any) -> list[str]:
    """Return the names of a structure's leaves for error messages."""
    return [f"{prefix} {path}".strip() for path in spaces.paths(structure)]


def leaves(prefix: str, space: gymnasium.Space) -> list[tuple[str, tuple, spaces.Spec]]:
    """List name for errors, key path and spec of each leaf of a space."""
    structure = spaces.spec(space)
    pairs = zip(
        names(prefix, structure), spaces.by_keys(structure).items(), strict=True
    )
    return [(name, *pair) for name, pair in pairs]


def lookup(error: type, row: int | None, name: str, structure: Any, path: tuple) -> Any:
    """Return a leaf of a structure, or raise an error that names it."""
    leaf = structure
    try:
        for key in path:
            leaf = leaf[key]
    except (KeyError, IndexError, TypeError):
        place = "" if row is None else f"Environment row {row}: "
        raise error(f"{place}{name} is missing in {summary(structure)}.") from None
    return leaf


def array(leaf: Any) -> np.ndarray:
    """Convert a leaf to an array, of dtype object if that is impossible."""
    try:
        return np.asarray(leaf)
    except Exception:  # The conversion is foreign code.
        return np.asarray(None)


def fits(leaf: np.ndarray, dtype: np.dtype, exact: bool = True) -> bool:
    """Return whether a dtype can hold a leaf: integers exactly, floats rounded."""
    if not holds(dtype, leaf.dtype):
        return False
    if not exact or dtype.kind == "f" or leaf.dtype == dtype:
        return True
    return bool((leaf.astype(dtype) == leaf).all())


def holds(dtype: Any, other: Any) -> bool:
    """Return whether a dtype may store arrays of another one, if their values fit."""
    dtype, other = np.dtype(dtype), np.dtype(other)
    if dtype == other:
        return True
    return dtype.kind in "fiu" and other.kind in (
        "fiub" if dtype.kind == "f" else "iub"
    )


def number(place: str, reward: Any) -> float:
    """Convert a reward, possibly in an array, to float; raise `EnvDataError`."""
    given = array(reward)
    if given.size != 1 or given.dtype.kind not in "fiub":
        raise EnvDataError(
            f"{place}: expected reward to be a number, got {summary(reward)}."
        )
    return float(given.astype(np.float64).item())


def column(name: str, values: Any, length: int, first_row: int) -> np.ndarray:
    """Check rewards or flags `[length]` of a vector environment.

    Raises:
      EnvDataError: naming the row, if any, with expected and actual values.
    """
    given = array(values)
    if given.shape != (length,):
        raise EnvDataError(
            f"The vector environment gives {name} as {summary(values)}, expected one "
            f"for each of {length} rows."
        )
    if given.dtype.kind in ("fiub" if name == "reward" else "b"):
        return given
    places = [f"Environment row {row + first_row}" for row in range(length)]
    pairs = zip(places, values, strict=True)
    if name == "reward":
        return np.array([number(place, value) for place, value in pairs])
    return np.array([flag(place, name, value) for place, value in pairs])


def flag(place: str, name: str, value: Any) -> bool:
    """Convert a flag, possibly a number or an array, or raise `EnvDataError`."""
    given = array(value)
    if given.size != 1 or given.dtype.kind not in "fiub" or given.item() not in (0, 1):
        raise EnvDataError(
            f"{place}: expected {name} to be true or false, got {summary(value)}."
        )
    return bool(given.item())


def bounds(space: gymnasium.Space) -> tuple:
    """Return the bounds of a leaf space, without and then with tolerance."""
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


def summary(value: Any) -> str:
    """Describe type and size of a value, short enough for an error message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"dict with keys {list(value)}"
    return f"{type(value).__name__} {value!r:.80}"
