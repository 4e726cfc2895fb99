"""What Gymnasium spaces look like as arrays: structures of leaves.

A space is a structure (dict, tuple or a single leaf) of arrays. Dicts are ordered
by their sorted keys, as `tf.nest` does, so leaves line up on both sides.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from agents.tools import errors

ACTION_MASK = "action_mask"
"""Key at the top of a Dict of observations that tells which actions are allowed."""


class UnsupportedSpaceError(errors.Mistake):
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


def choices(action_space: spaces.Space) -> list[int] | None:
    """Numbers of values to choose from that action masks tell about.

    One number for Discrete, one per dimension for MultiDiscrete, none for others.
    """
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return action_space.nvec.ravel().tolist()
    return None


def integer_range(space: spaces.Space) -> tuple[np.ndarray, np.ndarray]:
    """Lowest values, and numbers of values, of a space of integers; int64 `shape`."""
    if isinstance(space, spaces.Discrete):
        return np.array(space.start, np.int64), np.array(space.n, np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.int64), space.nvec.astype(np.int64)
    low, high = (x.astype(np.float64) for x in (space.low, space.high))
    counts = np.minimum(high - low + 1, 2**62)
    return space.low.astype(np.int64), counts.astype(np.int64)


def mask_sizes(
    observation_space: spaces.Space, action_space: spaces.Space
) -> list[int] | None:
    """The `choices` of the action space if observations hold a mask of them.

    The mask is the part `action_mask` of a Dict, nonzero where a value is allowed:
    `[n]` for Discrete(n); `[sum of nvec]`, or a Tuple of `[nvec_i]`, for MultiDiscrete.

    Raises:
      UnsupportedSpaceError: for masks that do not fit the action space, and where
        nothing else is observed.
    """
    if not isinstance(observation_space, spaces.Dict):
        return None
    if ACTION_MASK not in observation_space.spaces:
        return None
    sizes = choices(action_space)
    if sizes is None:
        raise UnsupportedSpaceError(
            f"Observation {ACTION_MASK} needs a Discrete or MultiDiscrete action space,"
            f" got {action_space}; rename it if it is no mask."
        )
    mask = observation_space[ACTION_MASK]
    parts = [(size,) for size in sizes]
    multiple = isinstance(action_space, spaces.MultiDiscrete)
    if isinstance(mask, spaces.Tuple) and multiple:
        fits = [part.shape for part in mask.spaces] == parts
    else:
        fits = mask.shape == (sum(sizes),)
    if not fits:
        tuples = f" or a Tuple of {', '.join(map(str, parts))}" if multiple else ""
        given = mask if mask.shape is None else mask.shape
        raise UnsupportedSpaceError(
            f"Observation {ACTION_MASK} must have shape ({sum(sizes)},){tuples} for "
            f"{action_space}, got {given}."
        )
    if len(observation_space.spaces) == 1:
        raise UnsupportedSpaceError(
            f"Observation space {observation_space} holds nothing but {ACTION_MASK}."
        )
    return sizes
