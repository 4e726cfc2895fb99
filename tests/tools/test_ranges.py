"""Observations inside and outside of their space."""

import logging

import numpy as np
import pytest
from gymnasium import spaces

from agents.tools import checks, ranges, transitions
from agents.tools import spaces as spaces_


def check(space, *values):
    """A checker, and leaves of these values of a space."""
    structure = spaces_.spec(space)
    columns = zip(*map(spaces_.flatten, values), strict=True)
    specs = spaces_.flatten(structure)
    leaves = [np.array(x, y.dtype) for x, y in zip(columns, specs, strict=True)]
    return ranges.RangeChecker(space, transitions.NUMBERS), leaves


def holds(space, *values):
    """Return the verdict of a checker on values in the form that backends have."""
    checker, leaves = check(space, *values)
    floats = [x.reshape(len(x), -1) for x in leaves if x.dtype == np.float32]
    others = [x for x in leaves if x.dtype != np.float32]
    numbers = np.concatenate([np.zeros((len(values), 0), np.float32), *floats], 1)
    head = np.zeros((len(values), transitions.NUMBERS), np.float32)
    whole = checker.holds(np.concatenate([head, numbers], 1), others)
    assert checker.holds(numbers, others, headless=True) == whole
    return whole


@pytest.mark.parametrize(
    ("space", "outside"),
    [
        (spaces.Discrete(5), (-1, 5, 7, 2**62, -(2**63))),
        (spaces.Discrete(3, start=-1), (-2, 2, 2**63 - 1)),
        (spaces.Discrete(3, start=4), (3, 7, 0)),
        (spaces.MultiBinary(2), ([0, 2], [-1, 0])),
        (spaces.MultiDiscrete([2, 3]), ([2, 0], [0, 3], [0, -1])),
        (spaces.MultiDiscrete([2, 3], start=[1, -1]), ([0, 0], [1, 2], [3, 0])),
        (spaces.Box(-1, 1, (2,)), ([0, 1.1], [-9, 0], [np.nan, 0], [0, np.inf])),
        (spaces.Box(-np.inf, 1, (2,)), ([0, 1.1], [-np.inf, 0], [np.nan, 0])),
        (spaces.Box(-np.inf, np.inf, (2,)), ([0, np.nan], [np.inf, 0])),
        (spaces.Box(0, 3, (2,), np.uint8), ([0, 4], [255, 0])),
        (spaces.Box(-2, 3, (2,), np.int16), ([0, 4], [-3, 0], [-(2**15), 0])),
    ],
)
def test_every_space_is_told_from_what_is_outside(space, outside):
    space.seed(0)
    inside = [space.sample() for _ in range(20)]
    assert holds(space, *inside)
    for value in outside:
        finite = np.isfinite(value).all()
        assert not finite or not space.contains(np.array(value, space.dtype))
        assert not holds(space, *inside, value)
        both = spaces.Dict(a=spaces.Box(-np.inf, np.inf, (1,)), b=space)
        assert not holds(both, {"a": [0.0], "b": value})


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (2,), np.uint8),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(-1e300, 1e300, (2,), np.float64),
        spaces.Box(0, 1, (2,), bool),
    ],
)
def test_what_cannot_be_outside_is_not_looked_at(space):
    checker, _ = check(space, np.zeros(2, space.dtype))
    assert not any(leaf.watched for leaf in checker._leaves)


def test_rounding_is_not_outside(caplog):
    high = np.nextafter(np.float32(0.1), 1)
    checker, leaves = check(spaces.Box(-0.1, 0.1, (2,), np.float64), [high, 0.1])
    checker.require(leaves, [0])
    assert not caplog.records


def test_discrete_values_outside_are_errors():
    checker, leaves = check(
        spaces.Dict(x=spaces.MultiDiscrete([2, 3])), *[{"x": [0, 3]}]
    )
    with pytest.raises(checks.EnvDataError) as caught:
        checker.require(leaves, [7])
    assert str(caught.value) == (
        "Environment row 7: observation x[1] is 3, outside of its space, which goes from "
        "0 to 2."
    )


def test_boxes_are_warned_of_once(caplog):
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(0, 3, (), np.int32))
    checker, leaves = check(space, {"a": [0, 5], "b": 9}, {"a": [9, 9], "b": 9})
    with caplog.at_level(logging.WARNING):
        checker.require(leaves, [3, 4])
        checker.require(leaves, [3, 4])
    (record,) = caplog.records
    assert record.getMessage() == (
        "Environment row 3: observation a[1] is 5.0, outside of its space, which goes "
        "from -1.0 to 1.0. Such values are used as they are; this is said once."
    )
    numbers = np.full((1, transitions.NUMBERS + 2), 5, np.float32)
    assert checker.holds(numbers, leaves[1:])
    numbers[0, -1] = np.nan  # Other things are still looked at.
    assert not checker.holds(numbers, leaves[1:])
