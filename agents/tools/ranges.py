"""Range checks of observations for a whole batch at once."""

import logging
from collections.abc import Sequence

import gymnasium
import numpy as np

from agents.tools import checks, spaces

_NOTES = logging.getLogger(__name__)


class RangeChecker:
    """Checker that observations are finite and within the bounds of their space.

    Values outside of Discrete, MultiDiscrete and MultiBinary parts are errors. Boxes
    are often declared carelessly, so the first value outside of one logs a warning, and
    their bounds are not checked any more.

    Args:
      space: Observation space of one environment.
      head: Number of columns before the float32 leaves; they must be finite.
    """

    def __init__(self, space: gymnasium.Space, head: int):
        parts = spaces.flatten(space)
        specs = spaces.flatten(spaces.spec(space))
        names = checks.names("observation", spaces.spec(space))
        self._head = head
        self._leaves = [
            _Leaf(*triple) for triple in zip(names, parts, specs, strict=True)
        ]
        self._watch()

    def holds(
        self, numbers: np.ndarray, others: Sequence[np.ndarray], headless: bool = False
    ) -> bool:
        """Return whether all values are finite and in range.

        Args:
          numbers: float32 `[K, head + W]`, or `[K, W]`: head columns, then float32
            leaves side by side.
          others: Other leaves `[K, ...]`.
          headless: Whether numbers have no head columns.
        """
        bounds = self._without_head if headless else self._bounds
        if bounds is None:
            inside = np.isfinite(numbers)
        else:  # Comparisons with NaN are false.
            inside = numbers >= bounds[0]
            inside &= numbers <= bounds[1]
        if np.count_nonzero(inside) < inside.size:  # Faster than `all`.
            return False
        return not self._others or all(
            leaf.holds(others[i]) for i, leaf in self._others
        )

    def require(self, leaves: Sequence[np.ndarray], rows: Sequence[int]):
        """Raise an error or log a warning if leaves `[K, ...]` are wrong; name the row.

        Raises:
          EnvDataError: for values that are not finite or not in a discrete space.
        """
        for leaf, values in zip(self._leaves, leaves, strict=True):
            checks.require_finite(leaf.name, values, rows)
            if not leaf.watched:
                continue
            text = leaf.complaint(values, rows)
            if text and leaf.strict:
                raise checks.EnvDataError(text)
            if text:
                _NOTES.warning(
                    "%s Such values are used as they are; this is said once.", text
                )
                for other in self._leaves:
                    other.watched &= other.strict
                self._watch()

    def _watch(self):
        """Select the leaves and bounds that `holds` must check."""
        floats = [leaf for leaf in self._leaves if leaf.dtype == np.float32]
        others = [leaf for leaf in self._leaves if leaf.dtype != np.float32]
        self._others = [(i, leaf) for i, leaf in enumerate(others) if leaf.watched]
        self._bounds = self._without_head = None
        if any(leaf.watched for leaf in floats):
            limit = np.full(self._head, np.finfo(np.float32).max, np.float32)
            low = np.concatenate([-limit, *(leaf.low.ravel() for leaf in floats)])
            high = np.concatenate([limit, *(leaf.high.ravel() for leaf in floats)])
            self._bounds = low, high
            self._without_head = low[self._head :], high[self._head :]


class _Leaf:
    """Bounds of one leaf.

    Attributes:
      strict: Whether values outside are errors.
      watched: Whether values outside are possible and to be reported.
    """

    def __init__(self, name: str, space: gymnasium.Space, spec: spaces.Spec):
        self.name, self.dtype, self._space = name, spec.dtype, space
        self.strict = not isinstance(space, gymnasium.spaces.Box)
        *_, low, high = checks.bounds(space)
        self.low, self.high = (
            np.array(np.broadcast_to(x, spec.shape), spec.dtype) for x in (low, high)
        )
        kind = spec.dtype.kind
        self.watched = kind != "b"
        if kind == "b":
            return
        limit = (np.finfo if kind == "f" else np.iinfo)(spec.dtype)
        self.watched = bool(
            (self.low > limit.min).any() | (self.high < limit.max).any()
        )
        if kind != "f":  # As unsigned offsets, small values become large.
            self._start = self.low if self.low.any() else None
            span = self.high.astype(object) - self.low.astype(object)
            self._span = np.array(span, f"u{spec.dtype.itemsize}")

    def holds(self, values: np.ndarray) -> bool:
        """Return whether integers `[K, ...]` are inside."""
        offsets = values if self._start is None else values - self._start
        inside = offsets.view(self._span.dtype) <= self._span
        return np.count_nonzero(inside) == inside.size

    def complaint(self, values: np.ndarray, rows: Sequence[int]) -> str | None:
        """Describe the first of values `[K, ...]` outside, or return None."""
        wrong = np.argwhere((values < self.low) | (values > self.high))
        if not len(wrong):
            return None
        index, *place = wrong[0].tolist()
        bounds = checks.bounds(self._space)[:2]
        low, high = (np.broadcast_to(x, self.low.shape)[tuple(place)] for x in bounds)
        where = str(place) if place else ""
        return (
            f"Environment row {rows[index]}: {self.name}{where} is "
            f"{values[tuple(wrong[0])].item()}, outside of its space, which goes from "
            f"{low} to {high}."
        )
