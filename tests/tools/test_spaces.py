"""Structures of arrays for Gymnasium spaces."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents.tools import spaces, transitions

NESTED = gs.Dict(
    {
        "z": gs.Discrete(3),
        "a": gs.Tuple((gs.Box(-1, 1, (2,)), gs.Dict({"y": gs.MultiBinary(4)}))),
        "m": gs.Box(0, 255, (4, 4, 3), np.uint8),
    }
)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (gs.Box(-1, 1, (2, 3)), (2, 3), np.float32),
        (gs.Box(-1, 1, (2,), np.float64), (2,), np.float32),
        (gs.Box(-1, 1, (), np.float16), (), np.float32),
        (gs.Box(0, 255, (8, 8, 3), np.uint8), (8, 8, 3), np.uint8),
        (gs.Box(-5, 5, (1,), np.int32), (1,), np.int32),
        (gs.Discrete(4), (), np.int64),
        (gs.Discrete(4, start=-2), (), np.int64),
        (gs.MultiDiscrete([2, 3]), (2,), np.int64),
        (gs.MultiDiscrete([[2, 3], [4, 5]]), (2, 2), np.int64),
        (gs.MultiBinary(3), (3,), np.int8),
        (gs.MultiBinary([2, 3]), (2, 3), np.int8),
    ],
)
def test_spec_of_leaves(space, shape, dtype):
    spec = spaces.spec(space)
    assert spec == spaces.Spec(shape, np.dtype(dtype))
    zeros = spec.zeros(5, 6)
    assert zeros.shape == (5, 6, *shape)
    assert zeros.dtype == dtype
    sample = np.asarray(space.sample())
    np.testing.assert_allclose(sample.astype(spec.dtype), sample, rtol=1e-6)


def test_spec_of_nested_spaces():
    assert spaces.spec(NESTED) == {
        "a": (
            spaces.Spec((2,), np.dtype(np.float32)),
            {"y": spaces.Spec((4,), np.dtype(np.int8))},
        ),
        "m": spaces.Spec((4, 4, 3), np.dtype(np.uint8)),
        "z": spaces.Spec((), np.dtype(np.int64)),
    }


@pytest.mark.parametrize(
    "space",
    [
        gs.Text(5),
        gs.Sequence(gs.Discrete(2)),
        gs.Graph(gs.Discrete(2), None),
        gs.OneOf((gs.Discrete(2), gs.Discrete(3))),
        gs.Dict({"a": gs.Discrete(2), "b": gs.Tuple((gs.Text(5),))}),
    ],
)
def test_ragged_spaces_raise(space):
    with pytest.raises(spaces.UnsupportedSpaceError, match="not supported; use Box"):
        spaces.spec(space)


@pytest.mark.parametrize(
    "space",
    [
        gs.Box(-1, 1, (0,)),
        gs.Box(-1, 1, (3, 0)),
        gs.Dict({}),
        gs.Tuple([]),
        gs.Dict({"a": gs.Tuple([gs.Box(0, 1, (0,))]), "b": gs.Dict({})}),
    ],
)
def test_spaces_without_any_number_raise(space):
    with pytest.raises(spaces.UnsupportedSpaceError, match="must hold a number"):
        spaces.spec(space)


def test_parts_may_be_empty_beside_others():
    space = gs.Dict({"a": gs.Box(0, 1, (0,)), "b": gs.Dict({}), "c": gs.Discrete(2)})
    assert [x.shape for x in spaces.flatten(spaces.spec(space))] == [(0,), ()]


def test_keys_that_cannot_be_sorted_raise():
    space = gs.Tuple([gs.Dict({1: gs.Discrete(2), "a": gs.Discrete(3)})])
    for function in (spaces.spec, spaces.flatten):
        with pytest.raises(spaces.UnsupportedSpaceError, match="1, 'a'. cannot be sor"):
            function(space)


def test_flatten_goes_by_sorted_keys_and_unflatten_is_its_inverse():
    structure = {"z": 1, "a": (2, {"y": 3}), "m": 4}
    leaves = spaces.flatten(structure)
    assert leaves == [2, 3, 4, 1]
    assert spaces.unflatten(structure, [20, 30, 40, 10]) == {
        "a": (20, {"y": 30}),
        "m": 40,
        "z": 10,
    }
    assert spaces.flatten(7) == [7]
    assert spaces.unflatten(7, [8]) == 8


def test_leaves_line_up_with_those_of_tensorflow():
    marked = spaces.unflatten(spaces.spec(NESTED), [0, 1, 2, 3])
    assert tf.nest.flatten(marked) == [0, 1, 2, 3]
    leaves = spaces.flatten(NESTED)
    assert [type(leaf) for leaf in leaves] == [
        gs.Box,
        gs.MultiBinary,
        gs.Box,
        gs.Discrete,
    ]
    specs = spaces.flatten(spaces.spec(NESTED))
    assert [leaf.shape for leaf in leaves] == [spec.shape for spec in specs]


def test_samples_have_the_structure_of_the_spec():
    NESTED.seed(0)
    sample = spaces.flatten(NESTED.sample())
    for leaf, spec in zip(sample, spaces.flatten(spaces.spec(NESTED)), strict=True):
        assert np.shape(leaf) == spec.shape


def test_paths_name_the_leaves():
    assert spaces.paths(spaces.spec(NESTED)) == ["a/0", "a/1/y", "m", "z"]
    assert spaces.paths(spaces.spec(gs.Discrete(2))) == [""]


def test_spaces_are_structures_themselves():
    leaves = spaces.flatten(NESTED)
    again = spaces.unflatten(NESTED, leaves)
    assert again == NESTED
    assert all(x is y for x, y in zip(spaces.flatten(again), leaves, strict=True))
    assert spaces.transform(lambda x: gs.Discrete(2), NESTED)["m"] == gs.Discrete(2)
    keys = [("a", 0), ("a", 1, "y"), ("m",), ("z",)]
    assert list(spaces.by_keys(NESTED)) == keys


def test_lists_are_leaves_and_named_tuples_keep_their_class():
    assert spaces.flatten({"b": [1, 2], "a": 3}) == [3, [1, 2]]
    parts = transitions.Parts(1, 2, (3,), 4)
    assert spaces.transform(str, parts) == transitions.Parts("1", "2", ("3",), "4")


@pytest.mark.parametrize(
    ("low", "high", "dtype", "count"),
    [
        (-128, 127, np.int8, 256),
        (2**60, 2**60 + 3, np.int64, 4),
        (2**64 - 5, 2**64 - 1, np.uint64, 5),
        (-(2**63), 2**63 - 1, np.int64, 2**62),
        (0, 1, bool, 2),
    ],
)
def test_numbers_of_values_are_exact_and_limited(low, high, dtype, count):
    _, found = spaces.integer_range(gs.Box(low, high, (2,), dtype))
    assert found.tolist() == [count] * 2
