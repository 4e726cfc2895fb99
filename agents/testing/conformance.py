"""Rules of conformance, with one-line errors."""

import copy
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np

from agents.tools import errors, spaces


class ConformanceError(errors.Failure, AssertionError):
    """Broken rule, with its place, and expected and actual values."""


def require(holds: Any, rule: str, where: str, expected: Any, got: Any) -> None:
    """Raise ConformanceError, in one line, unless the rule holds."""
    if not holds:
        fail(rule, where, expected, got)


def fail(rule: str, where: str, expected: Any, got: Any) -> NoReturn:
    """Raise ConformanceError, in one line."""
    raise ConformanceError(line(rule, where, expected, got))


def line(rule: str, where: str, expected: Any, got: Any) -> str:
    """Return the text of a ConformanceError."""
    return " ".join(f"{rule}; {where}: expected {expected}, got {got}.".split())


def require_raises(
    error: type[Exception], rule: str, where: str, function: Callable, *args: Any
) -> None:
    """Raise ConformanceError unless the function raises the error."""
    try:
        function(*args)
    except error:
        return
    except Exception as other:
        fail(rule, where, error.__name__, errors.reason(other))
    fail(rule, where, error.__name__, "no error")


def require_fits(
    rule: str, where: str, space: gymnasium.Space, size: int, value: Any
) -> None:
    """Raise ConformanceError unless a value contains `size` elements of a space.

    Structure, shapes `[size, ...]` and dtypes are those of `spaces.spec`, numbers are
    finite, and choices exist. Bounds of floats are not checked.
    """
    expected = spaces.transform(lambda x: x.zeros(size), spaces.spec(space))
    require_same_types(rule, where, expected, value)
    for (name, leaf), part in zip(
        leaves(value).items(), spaces.flatten(space), strict=True
    ):
        place = _join(where, name)
        finite = np.isfinite(leaf)
        require(finite.all(), rule, place, "finite numbers", leaf[~finite][:1])
        bounds = _choices(part)
        if bounds is not None:
            outside = (leaf < bounds[0]) | (leaf > bounds[1])
            require(not outside.any(), rule, place, part, leaf[outside][:1])


def require_same(
    rule: str, where: str, expected: Any, got: Any, tolerance: float = 0.0
) -> None:
    """Raise ConformanceError unless two structures of arrays are equal.

    The tolerance applies to floats: absolute, and relative to an array's largest.
    """
    require_same_types(rule, where, expected, got)
    got = leaves(got)
    for name, left in leaves(expected).items():
        equal = _equal(left, got[name], tolerance)
        if not equal.all():
            index = tuple(np.argwhere(~equal)[0])
            place = f"{_join(where, name)}{[int(x) for x in index]}"
            fail(rule, place, left[index], got[name][index])


def require_same_types(rule: str, where: str, expected: Any, got: Any) -> None:
    """Raise ConformanceError unless structures, shapes and dtypes are equal."""
    expected, got = leaves(expected), leaves(got)
    require(expected.keys() == got.keys(), rule, where, _names(expected), _names(got))
    for name in expected:
        left, right = (
            f"{x[name].dtype} {list(x[name].shape)}" for x in (expected, got)
        )
        require(left == right, rule, _join(where, name), left, right)


def same(expected: Any, got: Any) -> bool:
    """Return whether two structures of arrays are equal."""
    try:
        require_same("", "", expected, got)
    except ConformanceError:
        return False
    return True


def leaves(structure: Any) -> dict[str, np.ndarray]:
    """Return arrays of nested mappings and sequences by path, without None."""
    found = spaces.by_keys(structure, children).items()
    return {spaces.path(x): np.asarray(leaf) for x, leaf in found if leaf is not None}


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return keys and children as in `spaces.children`, also for lists."""
    return list(enumerate(node)) if isinstance(node, list) else spaces.children(node)


def samples(space: gymnasium.Space, seed: int, *leading: int) -> Any:
    """Draw random elements of a space, a structure of arrays `[*leading, ...]`."""
    space = copy.deepcopy(space)
    for index, leaf in enumerate(spaces.flatten(space)):
        leaf.seed(seed + 1000 * index)  # Seeding whole structures is slow.
    specs = spaces.flatten(spaces.spec(space))
    drawn = [spaces.flatten(space.sample()) for _ in range(int(np.prod(leading)))]
    columns = zip(*drawn, strict=True) if drawn else [[] for _ in specs]
    arrays = [
        np.array(column, spec.dtype).reshape(*leading, *spec.shape)
        for column, spec in zip(columns, specs, strict=True)
    ]
    return spaces.unflatten(spaces.spec(space), arrays)


def _equal(left: np.ndarray, right: np.ndarray, tolerance: float) -> np.ndarray:
    """Compare elements, bool of their shape; NaN is equal to NaN."""
    if not np.issubdtype(left.dtype, np.floating):
        return np.asarray(left == right)
    equal = np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))
    if tolerance and left.size:
        finite = np.abs(left[np.isfinite(left)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        with np.errstate(invalid="ignore"):  # Infinity minus infinity.
            equal |= np.abs(left - right) <= tolerance * scale
    return equal


def _choices(space: gymnasium.Space) -> tuple[Any, Any] | None:
    """Return first and last choice of a space without floats, or None."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return 0, 1
    return None


def _names(arrays: dict[str, np.ndarray]) -> str:
    if list(arrays) == [""]:
        return "one array"
    return f"the parts {sorted(arrays)}" if arrays else "nothing"


def _join(where: str, name: str) -> str:
    return f"{where} {name}" if name else where
