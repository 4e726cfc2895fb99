"""Ranges of numbers that configs may hold, declared with the type of a field."""

import dataclasses
import functools
import math
import typing
from typing import Annotated, Any

from agents.tools import schedules


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Numbers from `least` to `most`, also in sequences and as values of schedules."""

    least: float
    most: float = math.inf
    open: bool = False
    """Whether `least` itself is outside."""

    def refuse(self, value: Any) -> str | None:
        """Demand that a value does not meet, or none."""
        numbers = _numbers(value)
        low = [x for x in numbers if not self._above(x)]
        if not low and all(x <= self.most for x in numbers):
            return None
        if self.most <= 1:
            above = "more than " if self.open else ""
            return f"must be {above}{self.least} to {self.most}, got {value}."
        if not low:
            return f"must be at most {self.most:,}, got {value}."
        if self.open or self.least == 1:
            return f"must be positive, got {value}."
        return f"must be at least {self.least}, got {value}."

    def _above(self, number: float) -> bool:
        return number > self.least or (number == self.least and not self.open)


POSITIVE, NOT_NEGATIVE = Bounds(0, open=True), Bounds(0)
FRACTION, SHARE = Bounds(0, 1), Bounds(0, 1, open=True)
COUNT = Bounds(1, 10**15)
"""Of what time alone limits."""
SIZE, WHOLE = Bounds(1, 2**31 - 1), Bounds(0, 2**31 - 1)
"""Of a dimension of an array; a number of things that may be zero."""
UNITS = Bounds(1, 2**20)
"""Of a layer."""
SEED = Bounds(0, 2**62)

Positive = Annotated[schedules.Scalar, POSITIVE]
NotNegative = Annotated[schedules.Scalar, NOT_NEGATIVE]
Fraction = Annotated[schedules.Scalar, FRACTION]
Share = Annotated[schedules.Scalar, SHARE]
PositiveFloat = Annotated[float, POSITIVE]
NotNegativeFloat = Annotated[float, NOT_NEGATIVE]
FractionFloat = Annotated[float, FRACTION]
Count = Annotated[int, COUNT]
Size = Annotated[int, SIZE]
Whole = Annotated[int, WHOLE]


class OutOfBounds(ValueError):
    """A field or option whose value is outside of its range.

    Attributes:
      field: Its name.
      text: Demand that the value does not meet, such as `must be positive, got 0.`
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field} {text}")
        self.field, self.text = field, text


def require(config: Any) -> None:
    """Raise OutOfBounds unless all fields of a dataclass are within their bounds.

    What a subclass says of the type of a field does not widen its range, unless it has
    another range.
    """
    for field, allowed in _declared(type(config)).items():
        if text := allowed.refuse(getattr(config, field)):
            raise OutOfBounds(field, text)


def require_options(allowed: Bounds, **options: Any) -> None:
    """Raise OutOfBounds for options outside of a range."""
    for name, option in options.items():
        if text := allowed.refuse(option):
            raise OutOfBounds(name, text)


def _numbers(value: Any) -> list[float]:
    """Numbers of a value, schedule or sequence; other things have none."""
    if isinstance(value, schedules.Schedule):
        return list(schedules.ends(value))
    if isinstance(value, list | tuple):
        return [x for part in value for x in _numbers(part)]
    return [value] if isinstance(value, int | float) else []


@functools.cache
def _declared(cls: type) -> dict[str, Bounds]:
    """Ranges by the names of fields, those of subclasses instead of those of bases."""
    found = {}
    for base in reversed(cls.__mro__):
        for name, hint in typing.get_type_hints(base, include_extras=True).items():
            for part in (hint, *typing.get_args(hint)):
                for note in getattr(part, "__metadata__", ()):
                    if isinstance(note, Bounds):
                        found[name] = note
    return found
