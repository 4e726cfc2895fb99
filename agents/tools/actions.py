"""Conversion of batches of actions: from callers to arrays, then to environments."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from agents.tools import checks, spaces


class ActionWriter:
    """Writer of batches of actions to arrays, which checks them against their space.

    Args:
      space: Action space of one environment.
      targets: Leaves `[N, ...]` to write.
      first_row: Offset of the row numbers in errors.
    """

    def __init__(
        self, space: gymnasium.Space, targets: list[np.ndarray], first_row: int = 0
    ):
        self._first_row = first_row
        self._leaves = [
            (name, path, target, *checks.bounds(leaf))
            for (name, path, _), target, leaf in zip(
                checks.leaves("action", space),
                targets,
                spaces.flatten(space),
                strict=True,
            )
        ]

    def __call__(self, actions: Any):
        """Write actions; clip those that exceed their bounds by at most 1e-6.

        Raises:
          ActionError: naming the row and the leaf, with expected and actual values.
        """
        for name, path, target, low, high, below, above in self._leaves:
            leaf = np.asarray(
                checks.lookup(checks.ActionError, None, name, actions, path)
            )
            if leaf.shape != target.shape or not checks.fits(
                leaf, target.dtype, exact=False
            ):
                raise checks.ActionError(
                    f"Expected {name} to be {target.dtype} {list(target.shape)}, got "
                    f"{checks.summary(leaf)}."
                )
            np.maximum(leaf, low, out=target, casting="unsafe")
            np.minimum(target, high, out=target)
            if np.count_nonzero(target == leaf) == leaf.size:  # Faster than `all`.
                continue
            valid = (leaf >= below) & (leaf <= above)
            if not valid.all():
                row = int(np.argwhere(~valid)[0][0])
                raise checks.ActionError(
                    f"Environment row {row + self._first_row}: {name} {leaf[row]} "
                    "is not finite or not "
                    f"between {low} and {high}."
                )


def splitter(space: gymnasium.Space) -> Callable[[list[np.ndarray]], list]:
    """Create a function from leaves `[K, ...]` to a list of K environment actions.

    Discrete actions become Python integers; others have the dtype of their space. They
    share no memory with the leaves, so environments may keep them.
    """
    structure = spaces.spec(space)
    columns = [_column(leaf) for leaf in spaces.flatten(space)]
    if not isinstance(structure, dict | tuple):
        return lambda leaves: columns[0](leaves[0])

    build = _builder(structure)

    def split(leaves):
        rows = zip(*(f(leaf) for f, leaf in zip(columns, leaves)))  # noqa: B905
        return [build(iter(row)) for row in rows]

    return split


def _builder(structure: Any) -> Callable:
    """Create a function from leaves to a structure that is faster than `unflatten`."""
    found = spaces.children(structure)
    if found is None:
        return next
    parts = [(key, _builder(child)) for key, child in found]
    if isinstance(structure, dict):
        return lambda leaves: {key: build(leaves) for key, build in parts}
    return lambda leaves: tuple([build(leaves) for _, build in parts])


def typed(space: gymnasium.Space, leaves: Sequence[np.ndarray]) -> Any:
    """Convert leaves `[N, ...]` to a structure with the dtypes of their space."""
    if spaces.children(space) is None:
        return _typed(leaves[0], space)
    pairs = zip(leaves, spaces.flatten(space), strict=True)
    return spaces.unflatten(spaces.spec(space), [_typed(*pair) for pair in pairs])


def _typed(leaf: np.ndarray, space: gymnasium.Space) -> np.ndarray:
    """Return a copy of a leaf `[N, ...]` with the dtype of its space."""
    typed = leaf.astype(space.dtype)
    if space.dtype == np.float64:  # Rounding to float32 may exceed the bounds.
        np.clip(typed, space.low, space.high, out=typed)
    return typed


def _column(space: gymnasium.Space) -> Callable[[np.ndarray], list]:
    """Create a function from a leaf `[K, ...]` to a list of K environment values."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda leaf: leaf.tolist()
    split = list if space.shape else _scalars
    return lambda leaf: split(_typed(leaf, space))


def _scalars(leaf: np.ndarray) -> list[np.ndarray]:
    """Split a leaf `[K]` into arrays without dimensions, rather than scalars."""
    return [leaf[row, ...] for row in range(len(leaf))]


def sample_allowed(
    action_space: gymnasium.Space, mask: Any, random: np.random.Generator
) -> np.ndarray:
    """Draw uniform actions among those that a mask of `spaces.mask_sizes` allows.

    Args:
      action_space: Discrete or MultiDiscrete space.
      mask: Mask of one action, or of a batch `[K, ...]` of them.
      random: Source of random numbers.
    """
    low, counts = spaces.integer_range(action_space)
    mask = np.concatenate(spaces.flatten(mask), -1)
    chance = random.random(mask.shape) * (mask != 0)
    parts = np.split(chance, np.cumsum(counts)[:-1], -1)
    choice = np.stack([part.argmax(-1) for part in parts], -1)
    shape = (*mask.shape[:-1], *action_space.shape)
    return (choice.reshape(shape) + low).astype(action_space.dtype)[()]
