"""Values of spaces as checked, flat lists of arrays."""

from typing import Any

import gymnasium
import numpy as np

from agents.tools import checks, spaces


class Leaves:
    """Converter between values of a space and lists of arrays, one for each leaf.

    Attributes:
      name: Name of the whole value.
      names: Names of the leaves, for example `observation/camera/left`.
      specs: Specs of the leaves of one value.
    """

    def __init__(
        self,
        space: gymnasium.Space,
        name: str,
        error: type[ValueError],
        within: bool = False,
    ) -> None:
        """Create a converter that raises `error`, with the name, for wrong values.

        Values must be finite; those of discrete spaces must be members. Bounds of
        Boxes, which are often declared carelessly, only matter with `within`; values
        that exceed them by at most 1e-6 are then clipped.
        """
        self._structure = spaces.spec(space)
        self.specs, self.name = spaces.flatten(self._structure), name
        self._error = error
        self._bounds = [
            checks.bounds(x)
            if within or not isinstance(x, gymnasium.spaces.Box)
            else None
            for x in spaces.flatten(space)
        ]
        paths = spaces.paths(self._structure)
        self.names = [f"{name}/{x}" if x else name for x in paths]

    def zeros(self, rows: int) -> list[np.ndarray]:
        """Return zeros `[rows, ...]` for each leaf."""
        return [spec.zeros(rows) for spec in self.specs]

    def unflatten(self, leaves: list) -> Any:
        """Convert leaves to a structure."""
        return spaces.unflatten(self._structure, leaves)

    def batch(self, value: Any, rows: int, single: bool) -> list[np.ndarray]:
        """Check values and return leaves `[rows, ...]`; raises the error."""
        try:
            leaves = self._matching(self._structure, value)
        except (TypeError, KeyError, ValueError):
            expected = ", ".join(self.names)
            raise self._error(
                f"the {self.name} has another structure than its space, which has the "
                f"leaves {expected}; got {_outline(value)}."
            ) from None
        leading = () if single else (rows,)
        result = []
        for path, spec, bounds, leaf in zip(
            self.names, self.specs, self._bounds, leaves, strict=True
        ):
            given = checks.array(leaf)
            wanted = (*leading, *spec.shape)
            if given.shape != wanted:
                raise self._error(
                    f"{path} must have the shape {wanted}, got {given.shape}."
                )
            given = stored(given, path, spec.dtype, self._error)
            if bounds is not None:
                given = self._inside(given, path, bounds)
            result.append(given.reshape(rows, *spec.shape))
        return result

    def _inside(self, value: np.ndarray, path: str, bounds: tuple) -> np.ndarray:
        """Clip a value to its bounds; raises the error if it is far outside."""
        low, high, below, above = bounds
        outside = np.argwhere((value < below) | (value > above))
        if len(outside):
            place = tuple(outside[0])
            least, most, got = (
                np.broadcast_to(x, value.shape)[place].item()
                for x in (low, high, value)
            )
            raise self._error(f"{path} must be from {least} to {most}, got {got}.")
        return np.clip(value, low, high).astype(value.dtype, copy=False)

    def _matching(self, specs: Any, value: Any) -> list:
        """Return the leaves of a value; raise if the structure does not fit."""
        if isinstance(specs, dict):
            if set(specs) != set(value.keys() if hasattr(value, "keys") else ()):
                raise KeyError
            return [
                x for k in sorted(specs) for x in self._matching(specs[k], value[k])
            ]
        if isinstance(specs, tuple):
            if not isinstance(value, tuple | list):
                raise TypeError
            pairs = zip(specs, value, strict=True)
            return [x for pair in pairs for x in self._matching(*pair)]
        if isinstance(value, dict):
            raise TypeError
        return [value]


def stored(
    value: np.ndarray, name: str, dtype: np.dtype, error: type[ValueError]
) -> np.ndarray:
    """Copy a finite array as this dtype, or raise the error."""
    try:
        checks.require_dtype(name, value, dtype)
    except checks.EnvDataError:
        raise error(f"{name} must be {dtype}, got {value.dtype}.") from None
    with np.errstate(over="ignore"):
        value = value.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(value).all():
        raise error(f"{name} must be finite, got {value[~np.isfinite(value)][0]}.")
    return value


def column(
    value: Any, name: str, rows: int, dtype: Any, error: type[ValueError]
) -> np.ndarray:
    """Check and return values `[rows]` of one or several numbers or flags."""
    given = checks.array(value)
    if given.shape not in ((), (rows,)) and given.shape != (1,) * given.ndim:
        raise error(f"{name} must have the shape {(rows,)}, got {given.shape}.")
    if dtype is bool and given.dtype != bool:
        if given.dtype.kind not in "fiu" or not np.isin(given, (0, 1)).all():
            raise error(f"{name} must be true or false, got {value!r:.80}.")
        given = given != 0
    given = stored(given, name, np.dtype(dtype), error)
    return np.broadcast_to(given.reshape(-1), [rows])


def _outline(value: Any) -> str:
    """Describe the structure of a value in a few words."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_outline(x)}" for k, x in value.items()) + "}"
    if isinstance(value, tuple | list) and len(value) < 5:
        return "(" + ", ".join(map(_outline, value)) + ")"
    return f"{type(value).__name__} {list(np.shape(value))}"
