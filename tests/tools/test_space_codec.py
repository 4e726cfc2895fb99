"""Spaces are read back exactly as they were saved."""

import collections
import json
import pickle

import numpy as np
import pytest
from gymnasium import spaces as gs

from agents.tools import space_codec, spaces

INFINITY = float("inf")
SPACES = {
    "image": gs.Box(0, 255, (4, 4, 3), np.uint8),
    "infinite": gs.Box(-INFINITY, INFINITY, (3,)),
    "half infinite": gs.Box(
        np.array([-INFINITY, -0.0, 0.1]),
        np.array([0.0, INFINITY, 0.3]),
        dtype=np.float64,
    ),
    "digits": gs.Box(np.float32(-1 / 3), np.float32(3.4e38), (2, 2)),
    "half": gs.Box(-1, 1, (2,), np.float16),
    "other bytes": gs.Box(-1, 1, (2,), np.dtype(">f4")),
    "scalar": gs.Box(-1, 1, ()),
    "empty": gs.Tuple([gs.Box(-1, 1, (0, 2)), gs.Box(-1, 1, (1,))]),
    "flags": gs.Box(0, 1, (3,), np.bool_),
    "long": gs.Box(
        np.array([-(2**62) - 1, 3]), np.array([2**53 + 1, 4]), dtype=np.int64
    ),
    "unbounded integers": gs.Box(-INFINITY, INFINITY, (2,), np.int32),
    "discrete": gs.Discrete(5),
    "discrete from": gs.Discrete(3, start=-1),
    "small discrete": gs.Discrete(3, start=250, dtype=np.uint8),
    "multi discrete": gs.MultiDiscrete([3, 3]),
    "nested multi discrete": gs.MultiDiscrete(
        np.array([[2, 3], [4, 5]]), np.int32, start=np.array([[0, -1], [2, 3]])
    ),
    "multi binary": gs.MultiBinary(4),
    "multi binary table": gs.MultiBinary([2, 3]),
    "dict": gs.Dict({"z": gs.Discrete(2), "a": gs.Dict({"b": gs.Box(-1, 1, (2,))})}),
    "ordered": gs.Dict(collections.OrderedDict(z=gs.Discrete(2), a=gs.Discrete(3))),
    "numbered": gs.Dict({2: gs.Discrete(2), 1: gs.Discrete(3)}),
    "tuple": gs.Tuple([gs.Discrete(2), gs.Tuple([]), gs.MultiBinary(1)]),
}


class OwnBox(gs.Box):
    """A class that is not Gymnasium's."""


def contents(space):
    """All that makes up a space, without its random generator."""
    if isinstance(space, gs.Dict):
        return [type(space), [(key, contents(x)) for key, x in space.spaces.items()]]
    if isinstance(space, gs.Tuple):
        return [type(space), [contents(x) for x in space.spaces]]
    parts = {k: v for k, v in vars(space).items() if k not in ("_np_random", "seed")}
    return [type(space), {k: exactly(v) for k, v in sorted(parts.items())}]


def exactly(value):
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype.str, value.shape, value.tobytes()
    return value


def through_json(space):
    return json.loads(json.dumps(space_codec.encode(space), allow_nan=False))


@pytest.mark.parametrize("name", SPACES)
def test_exactly_the_same_space_without_pickle(name, monkeypatch):
    def fail(*_):
        raise AssertionError("It is pickled.")

    monkeypatch.setattr(pickle, "dumps", fail)
    monkeypatch.setattr(pickle, "loads", fail)
    space = SPACES[name]
    again = space_codec.decode(through_json(space))
    assert contents(again) == contents(space)
    assert again == space
    assert spaces.spec(again) == spaces.spec(space)
    space.seed(3)
    again.seed(3)
    assert repr(again.sample()) == repr(space.sample())


def test_images_are_short():
    assert len(json.dumps(through_json(gs.Box(0, 255, (210, 160, 3), np.uint8)))) < 200


def test_own_classes_need_permission_wherever_they_are():
    own = OwnBox(-1, 2, (3,))
    for space in (own, gs.Tuple([own]), gs.Dict({"x": own})):
        saved = through_json(space)
        with pytest.raises(space_codec.SpaceCodecError) as error:
            space_codec.decode(saved)
        assert f"{__name__}.OwnBox is pickled" in str(error.value)
        assert "allow_pickle=True" in str(error.value)
        assert "\n" not in str(error.value)
        again = space_codec.decode(saved, allow_pickle=True)
        assert contents(again) == contents(space)


def test_what_cannot_be_saved_or_read():
    class Local(gs.Box):
        pass

    with pytest.raises(space_codec.SpaceCodecError, match="Local cannot be saved"):
        space_codec.encode(Local(-1, 1, (2,)))
    saved = through_json(OwnBox(-1, 2, (3,)))
    saved["data"] = saved["data"][:-20]
    with pytest.raises(space_codec.SpaceCodecError, match="OwnBox cannot be read"):
        space_codec.decode(saved, allow_pickle=True)
    with pytest.raises(
        space_codec.SpaceCodecError, match="'Text' is not a type of space"
    ):
        space_codec.decode({"type": "Text"})
