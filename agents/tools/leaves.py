"""Values of spaces, checked, as flat lists of arrays."""

from typing import Any

import gymnasium
import numpy as np

from agents.tools import spaces


class Leaves:
    """Values of a space as lists of arrays, one for each leaf.

    Attributes:
      name: Of the whole value.
      names: Of the leaves, for example `observation/camera/left`.
      specs: Of one value, as many.
    """

    def __init__(
        self, space: gymnasium.Space, name: str, error: type[ValueError]
    ) -> None:
        """Expect values of a space; `error` is raised for others, with that name."""
        self._structure = spaces.spec(space)
        self.specs, self.name = spaces.flatten(self._structure), name
        self._error = error
        paths = spaces.paths(self._structure)
        self.names = [f"{name}/{x}" if x else name for x in paths]

    def zeros(self, rows: int) -> list[np.ndarray]:
        """Arrays `[rows, ...]`."""
        return [spec.zeros(rows) for spec in self.specs]

    def pack(self, leaves: list) -> Any:
        """Structure of leaves."""
        return spaces.unflatten(self._structure, leaves)

    def structure(self, leaves: list[np.ndarray], single: bool) -> Any:
        """What the environment takes, of one or of many."""
        if not single:
            return self.pack(leaves)
        values = [x[0] if x[0].shape else x[0].item() for x in leaves]
        return self.pack(values)

    def batch(self, value: Any, rows: int, single: bool) -> list[np.ndarray]:
        """Checked leaves `[rows, ...]`; raises the error."""
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
        for path, spec, leaf in zip(self.names, self.specs, leaves, strict=True):
            array = np.asarray(leaf)
            wanted = (*leading, *spec.shape)
            if array.shape != wanted:
                raise self._error(
                    f"{path} must have the shape {wanted}, got {array.shape}."
                )
            if not np.can_cast(array.dtype, spec.dtype, "same_kind"):
                raise self._error(f"{path} must be {spec.dtype}, got {array.dtype}.")
            result.append(array.reshape(rows, *spec.shape).astype(spec.dtype))
        return result

    def _matching(self, specs: Any, value: Any) -> list:
        """Leaves of a value with the structure of the specs."""
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


def _outline(value: Any) -> str:
    """Structure of a value, in a few words."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_outline(x)}" for k, x in value.items()) + "}"
    if isinstance(value, tuple | list) and len(value) < 5:
        return "(" + ", ".join(map(_outline, value)) + ")"
    return f"{type(value).__name__} {list(np.shape(value))}"
