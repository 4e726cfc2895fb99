"""Gymnasium spaces as structures of arrays.

A space is a structure of arrays. Its dicts are in the order of `tf.nest`, by keys.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from agents.tools import errors

ACTION_MASK = "action_mask"
"""Key at the top of a Dict of observations with the mask of allowed actions."""


class UnsupportedSpaceError(errors.Mistake):
    """Space that the toolkit, or the chosen algorithm, cannot handle."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Shape and dtype of one leaf for one environment, without batch dimension."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def zeros(self, *leading: int) -> np.ndarray:
        """Return zeros of shape `[*leading, *shape]`."""
        return np.zeros((*leading, *self.shape), self.dtype)


def spec(space: spaces.Space) -> Any:
    """Return the structure of `Spec` for a space.

    Floating point boxes become float32; integer and boolean boxes keep their dtype;
    Discrete and MultiDiscrete are int64; MultiBinary is int8.

    Raises:
      UnsupportedSpaceError: for Text, Graph, Sequence and other ragged spaces, keys that
        cannot be sorted, and spaces without any number.
    """
    found = _spec(space, "")
    if not sum(np.prod(leaf.shape) for leaf in flatten(found)):
        raise UnsupportedSpaceError(f"Space {space!s:.40} must hold a number.")
    return found


def _spec(space: spaces.Space, path: str) -> Any:
    """Return the structure of `Spec` for a space, which is part `path` of another."""
    if isinstance(space, spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        return Spec(space.shape, np.dtype(np.float32 if floating else space.dtype))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return Spec(space.shape, np.dtype(np.int64))
    if isinstance(space, spaces.MultiBinary):
        return Spec(space.shape, np.dtype(np.int8))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        found = {key: _spec(child, f"{path}/{key}") for key, child in children(space)}
        return found if isinstance(space, spaces.Dict) else tuple(found.values())
    part = f"{type(space).__name__} of part {path[1:]!r}" if path else f"{space!s:.40}"
    raise UnsupportedSpaceError(
        f"Space {part} is not supported; use Box, Discrete, MultiDiscrete, MultiBinary, "
        "a Dict or Tuple of these, or leave it out with environment.wrappers."
    )


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return keys and children of a mapping (sorted) or tuple; None for a leaf.

    A Dict or Tuple is a structure of spaces. Lists are leaves, because observations and
    actions may be lists of numbers.
    """
    if isinstance(node, Mapping):
        try:
            return [(key, node[key]) for key in sorted(node)]
        except TypeError:
            text = f"Keys {[*node]} cannot be sorted; use strings only."
            raise UnsupportedSpaceError(text) from None
    if isinstance(node, tuple | spaces.Tuple):
        return list(enumerate(node))
    return None


def by_keys(structure: Any, inside: Callable = children) -> dict[tuple, Any]:
    """Map key paths to leaves, in the order of `flatten`.

    Args:
      structure: Mappings and tuples.
      inside: Function like `children`, for other kinds of structures.
    """
    found = inside(structure)
    if found is None:
        return {(): structure}
    return {
        (key, *keys): leaf
        for key, child in found
        for keys, leaf in by_keys(child, inside).items()
    }


def flatten(structure: Any, inside: Callable = children) -> list:
    """Return the leaves of a structure as a list."""
    return list(by_keys(structure, inside).values())


def paths(structure: Any) -> list[str]:
    """Return readable names of leaves, like `camera/left`; empty for a single leaf."""
    return [path(keys) for keys in by_keys(structure)]


def path(keys: tuple) -> str:
    """Join the keys that lead to a leaf to a readable name."""
    return "/".join(map(str, keys))


def unflatten(structure: Any, leaves: Iterable) -> Any:
    """Build a structure like the given one with other leaves."""
    iterator = iter(leaves)
    return transform(lambda _: next(iterator), structure)


def transform(function: Callable, structure: Any, inside: Callable = children) -> Any:
    """Apply a function to every leaf of a structure, in the order of `flatten`."""
    found = inside(structure)
    if found is None:
        return function(structure)
    results = {key: transform(function, child, inside) for key, child in found}
    if isinstance(structure, spaces.Dict):
        return spaces.Dict(results)
    if isinstance(structure, Mapping):
        return results
    if isinstance(structure, spaces.Tuple):
        return spaces.Tuple(list(results.values()))
    if hasattr(structure, "_fields"):
        return structure.__class__(*results.values())
    kind = list if isinstance(structure, list) else tuple
    return kind(results.values())  # TensorFlow wraps lists of modules.


def choices(action_space: spaces.Space) -> list[int] | None:
    """Return the numbers of choices that action masks refer to.

    Discrete has one number, MultiDiscrete one per dimension, other spaces None.
    """
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return action_space.nvec.ravel().tolist()
    return None


def integer_range(space: spaces.Space) -> tuple[np.ndarray, np.ndarray]:
    """Return lowest values and numbers of values of an integer space, int64."""
    if isinstance(space, spaces.Discrete):
        return np.array(space.start, np.int64), np.array(space.n, np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.int64), space.nvec.astype(np.int64)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int64), np.full(space.shape, 2, np.int64)
    size = np.subtract(space.high, space.low, dtype=np.uint64, casting="unsafe")
    return space.low.astype(np.int64), np.minimum(size, 2**62 - 1).astype(np.int64) + 1


def mask_sizes(
    observation_space: spaces.Space, action_space: spaces.Space
) -> list[int] | None:
    """Return the `choices` of the action space if observations contain a mask.

    The mask is the part `action_mask` of a Dict, nonzero where a value is allowed:
    `[n]` for Discrete(n); `[sum of nvec]`, or a Tuple of `[nvec_i]`, for MultiDiscrete.

    Raises:
      UnsupportedSpaceError: if the mask does not fit the action space, or nothing else
        is observed.
    """
    if not isinstance(observation_space, spaces.Dict):
        return None
    if ACTION_MASK not in observation_space.spaces:
        return None
    sizes = choices(action_space)
    if sizes is None:
        raise UnsupportedSpaceError(
            f"Observation {ACTION_MASK} needs a Discrete or MultiDiscrete action space,"
            f" got {action_space}; rename it if it is not a mask."
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
