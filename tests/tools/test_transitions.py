"""Results of environments on their way into arrays."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from scripted import make

from agents.tools import batch_env, transitions


@pytest.mark.parametrize(
    "flag", [1, 0.0, np.bool_(True), np.array(1), np.array([True])]
)
def test_flags_of_all_common_types_are_accepted(flag):
    expected = bool(np.asarray(flag).item())
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, flag, False, {})
    assert batch.step(np.array([2, 2]))[2].tolist() == [False, expected]
    assert written([True, flag], [False, False])[:, 1].tolist() == [1, expected]
    assert written([False, False], [True, flag])[:, 2].tolist() == [1, expected]


@pytest.mark.parametrize("flag", ["no", "", None, 2, np.nan, [], np.zeros(2, bool)])
def test_other_flags_are_refused(flag):
    envs, batch = make()
    batch.reset()
    envs[1].step = lambda action: (envs[1].observation, 0.0, flag, False, {})
    text = "row 1: expected terminated to be true or false, got"
    with pytest.raises(batch_env.EnvDataError, match=text):
        batch.step(np.array([2, 2]))
    with pytest.raises(batch_env.EnvDataError, match=text):
        written([True, flag], [False, False])
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected truncated"):
        written([False, False], [True, flag])


def written(terminated, truncated, reward=(0.0, 0.0), observation=(0, 0)):
    """Numbers `[2, ...]` that workers make of these results of two environments."""
    buffers = transitions.Buffers.create(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), 2)
    writer, _ = buffers.writers(spaces.Box(-1, 1, (1,)))
    observation = [np.array([x], np.float32) if x == 0 else x for x in observation]
    columns = observation, reward, terminated, truncated, [{}, {}]
    writer.steps(list(zip(*columns, strict=True)))
    return buffers.numbers


class Hostile:
    """Raises whatever is made of it."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")

    def __float__(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize("value", ["1.0", None, 1j, 10**400, [1.0, 2.0], Hostile()])
def test_results_of_many_that_are_wrong_name_the_row(value):
    no = [False, False]
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected reward to be a"):
        written(no, no, reward=(0.0, value))
    with pytest.raises(batch_env.EnvDataError, match="row 1: expected observation to"):
        written(no, no, observation=(0, value))


@pytest.mark.parametrize("wrap", [np.asarray, tf.constant])
def test_all_columns_of_transitions_are_found(wrap):
    space = spaces.Dict(
        {"b": spaces.Box(-1, 1, (2, 1)), "a": spaces.Discrete(3), "c": spaces.Box(0, 1)}
    )
    columns = transitions.Columns(space)
    assert columns.width == transitions.NUMBERS + 6
    numbers = np.arange(22, dtype=np.float32).reshape(2, 11)
    others = [wrap([1, 2])], [wrap([3, 4])]
    parts = columns.split(wrap(numbers), *others)
    np.testing.assert_array_equal(parts.reward, numbers[:, transitions.REWARD])
    np.testing.assert_array_equal(parts.flags, numbers[:, transitions.FLAGS])
    last, following = (columns.structure(x) for x in (parts.last, parts.following))
    assert np.asarray(last["b"]).tolist() == [[[5], [6]], [[16], [17]]]
    assert np.asarray(following["c"]).tolist() == [[10], [21]]
    assert [np.asarray(x["a"]).tolist() for x in (last, following)] == [[1, 2], [3, 4]]
    record = numbers[:, transitions.RECORD]
    assert record.shape[1] == 4
    assert record[0, -1] == transitions.LENGTH
