"""What Gymnasium spaces look like as arrays: structures of leaves.

A space is a structure (dict, tuple or a single leaf) of arrays. Dicts are ordered
by their sorted keys, as `tf.nest` does, so leaves line up on both sides.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces


class UnsupportedSpaceError(ValueError):
    """A space that the toolkit, or the chosen algorithm, cannot handle."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Shape and dtype of one leaf for one environment, without batch dimension."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def zeros(self, *leading: int) -> np.ndarray:
        """Zeros of shape `[*leading, *shape]`."""
        return np.zeros((*leading, *self.shape), self.dtype)


def spec(space: spaces.Space) -> Any:
    """Structure of `Spec` for a space.

    Floating point boxes become float32; integer and boolean boxes keep their dtype;
    Discrete and MultiDiscrete are int64; MultiBinary is int8.

    Raises:
      UnsupportedSpaceError: for Text, Graph, Sequence and other ragged spaces.
    """
    if isinstance(space, spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        return Spec(space.shape, np.dtype(np.float32 if floating else space.dtype))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return Spec(space.shape, np.dtype(np.int64))
    if isinstance(space, spaces.MultiBinary):
        return Spec(space.shape, np.dtype(np.int8))
    if isinstance(space, spaces.Dict):
        return {key: spec(space.spaces[key]) for key in sorted(space.spaces)}
    if isinstance(space, spaces.Tuple):
        return tuple(spec(child) for child in space.spaces)
    raise UnsupportedSpaceError(
        f"Space {space} is not supported; use Box, Discrete, MultiDiscrete, "
        "MultiBinary, or a Dict or Tuple of these."
    )


def flatten(structure: Any) -> list:
    """Leaves of a structure of dicts (by sorted key) and tuples."""
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in flatten(structure[key])]
    if isinstance(structure, tuple):
        return [leaf for child in structure for leaf in flatten(child)]
    return [structure]


def unflatten(structure: Any, leaves: list) -> Any:
    """Structure like the given one, with these leaves."""
    iterator = iter(leaves)
    return transform(lambda _: next(iterator), structure)


def transform(function: Callable, structure: Any) -> Any:
    """Apply a function to every leaf of a structure."""
    if isinstance(structure, dict):
        return {key: transform(function, structure[key]) for key in sorted(structure)}
    if isinstance(structure, tuple):
        return tuple(transform(function, child) for child in structure)
    return function(structure)


def paths(structure: Any, prefix: str = "") -> list[str]:
    """Readable names of the leaves, like `camera/left`; a single leaf has none."""
    if isinstance(structure, dict):
        items = [(key, structure[key]) for key in sorted(structure)]
    elif isinstance(structure, tuple):
        items = list(enumerate(structure))
    else:
        return [prefix]
    return [
        path
        for key, child in items
        for path in paths(child, f"{prefix}/{key}" if prefix else str(key))
    ]


def leaf_spaces(space: spaces.Space) -> list[spaces.Space]:
    """Leaf spaces in the order of `flatten(spec(space))`."""
    if isinstance(space, spaces.Dict):
        return [
            leaf for key in sorted(space.spaces) for leaf in leaf_spaces(space[key])
        ]
    if isinstance(space, spaces.Tuple):
        return [leaf for child in space.spaces for leaf in leaf_spaces(child)]
    return [space]
