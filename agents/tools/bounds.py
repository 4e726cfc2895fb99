"""Values that configs may hold: numbers in a range, and settings with an effect."""

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Sequence
from typing import Annotated, Any

from agents.tools import errors, schedules


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Interval from `least` to `most` for numbers, sequences and schedules."""

    least: float
    most: float = math.inf
    open: bool = False
    """Exclude `least` itself."""

    def refuse(self, value: Any) -> str | None:
        """Return the requirement that a value violates, or None."""
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
"""Count that is limited by time only."""
SIZE, WHOLE = Bounds(1, 2**31 - 1), Bounds(0, 2**31 - 1)
"""Size of an array dimension; and a number of things that may be zero."""
UNITS = Bounds(1, 2**20)
"""Units of a layer."""
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


class OutOfBounds(errors.Mistake):
    """Value of a field or option that is outside of its range, or has no effect.

    Attributes:
      field: Name of the field.
      text: Requirement that the value violates, like `must be positive, got 0.`
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field} {text}")
        self.field, self.text = field, text


def require(config: Any) -> None:
    """Raise OutOfBounds unless all fields of a dataclass are within their bounds.

    A field that a subclass declares again keeps its range, unless the new type has
    another range.
    """
    for field, allowed in ranges(type(config)).items():
        if text := allowed.refuse(getattr(config, field)):
            raise OutOfBounds(field, text)


def require_effect(config: Any) -> None:
    """Raise OutOfBounds for a field that is set, though it has no effect.

    The method `without_effect` of a dataclass returns the fields that have no effect
    given its other values: a dict from names, or `field.inner`, to the reason. These
    fields must have their defaults.
    """
    reasons = getattr(config, "without_effect", dict)()
    for name, reason in reasons.items():
        value, default = operator.attrgetter(name)(config), default_of(config, name)
        if value != default:
            raise OutOfBounds(
                name,
                f"is {_plain(value)!r} but has no effect {reason}; leave it out, or at "
                f"{_plain(default)!r}.",
            )


def require_known(config: Any, field: str, known: Sequence[str]) -> None:
    """Raise OutOfBounds unless a field has one of the known values."""
    value = getattr(config, field)
    if value not in known:
        raise OutOfBounds(field, f"must be one of {', '.join(known)}, got {value!r}.")


def require_options(allowed: Bounds, **options: Any) -> None:
    """Raise OutOfBounds if an option is outside of a range."""
    for name, option in options.items():
        if text := allowed.refuse(option):
            raise OutOfBounds(name, text)


def _numbers(value: Any) -> list[float]:
    """Collect the numbers of a value, schedule or sequence; none for others."""
    if isinstance(value, schedules.Schedule):
        return list(schedules.ends(value))
    if isinstance(value, list | tuple):
        return [x for part in value for x in _numbers(part)]
    return [value] if isinstance(value, int | float) else []


def default_of(config: Any, name: str) -> Any:
    """Return the default of a field, or of `field.inner` of a nested dataclass."""
    name, _, inner = name.partition(".")
    field = type(config).__dataclass_fields__[name]
    made = field.default_factory is not dataclasses.MISSING
    default = field.default_factory() if made else field.default
    return operator.attrgetter(inner)(default) if inner else default


def _plain(value: Any) -> Any:
    """Convert a value to its form in config files."""
    if isinstance(value, schedules.Schedule):
        return value.to_dict()
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


@functools.cache
def ranges(cls: type) -> dict[str, Bounds]:
    """Map names of fields to their ranges; subclasses override their bases."""
    found = {}
    for base in reversed(cls.__mro__):
        for name, hint in typing.get_type_hints(base, include_extras=True).items():
            for part in (hint, *typing.get_args(hint)):
                for note in getattr(part, "__metadata__", ()):
                    if isinstance(note, Bounds):
                        found[name] = note
    return found
