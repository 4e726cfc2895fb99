"""Bounds of numbers, declared with the types of fields."""

import dataclasses
import math
from typing import Annotated

import pytest

from agents.tools import bounds, config, schedules, sections


@dataclasses.dataclass(frozen=True)
class Base:
    rate: bounds.Positive = 1.0
    share: bounds.Share = 0.5
    fraction: bounds.Fraction | None = None
    count: bounds.Count = 3
    size: bounds.Size | None = None
    whole: bounds.Whole = 0
    seed: Annotated[int, bounds.SEED] = 0
    layers: Annotated[tuple[int | str, ...], bounds.UNITS] = (64, "lstm")
    free: float = -1.0

    def __post_init__(self):
        bounds.require(self)


@dataclasses.dataclass(frozen=True)
class Sub(Base):
    rate: float = 2.0  # Says nothing of bounds, so they stay.
    count: Annotated[int, bounds.Bounds(5, 7)] = 6


def test_within():
    Base(5.0, 1, 0, 1, 2**31 - 1, 0, 2**62, (1, "x", 2**20), math.inf)
    falling = schedules.Schedule("linear", 1.0, 0.5, 9.0)
    Base(falling, falling, fraction=schedules.Schedule("linear", 1.0, 0.0, 9.0))
    Sub(count=5)
    Sub(count=7)


@pytest.mark.parametrize(
    ("cls", "field", "value", "demand"),
    [
        (Base, "rate", 0.0, "positive"),
        (Base, "rate", -1.0, "positive"),
        (Base, "rate", math.nan, "positive"),
        (Base, "share", 0.0, "more than 0 to 1"),
        (Base, "fraction", 1.5, "0 to 1"),
        (Base, "count", 0, "positive"),
        (Base, "count", 10**16, "at most 1,000,000,000,000,000"),
        (Base, "size", 0, "positive"),
        (Base, "size", 2**31, "at most 2,147,483,647"),
        (Base, "whole", -1, "at least 0"),
        (Base, "seed", -1, "at least 0"),
        (Base, "layers", (64, 0), "positive"),
        (Base, "layers", ("lstm", 2**20 + 1), "at most 1,048,576"),
        (Sub, "rate", 0.0, "positive"),
        (Sub, "count", 4, "at least 5"),
        (Sub, "count", 8, "at most 7"),
    ],
)
def test_outside(cls, field, value, demand):
    with pytest.raises(bounds.OutOfBounds) as error:
        cls(**{field: value})
    assert str(error.value) == f"{field} must be {demand}, got {value}."
    if value == value:
        with pytest.raises(config.ConfigError) as error:
            sections.build(cls, {field: value}, "a.b")
        assert str(error.value).startswith(
            f"config key 'a.b.{field}' must be {demand}, got"
        )


def test_schedules_stay_within():
    rising = schedules.Schedule("linear", 0.5, 2.0, 9.0)
    with pytest.raises(bounds.OutOfBounds, match="^fraction must be 0 to 1, got Sched"):
        Base(fraction=rising)
    pieces = schedules.Schedule("piecewise", values=(1.0, 0.0), boundaries=(5.0,))
    with pytest.raises(bounds.OutOfBounds, match="^rate must be positive"):
        Base(rate=pieces)


def test_options():
    bounds.require_options(bounds.POSITIVE, epochs=1, size=None)
    with pytest.raises(bounds.OutOfBounds, match="^size must be positive, got 0"):
        bounds.require_options(bounds.POSITIVE, epochs=1, size=0)
