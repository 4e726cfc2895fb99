"""Variables that follow those of a source."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


@pytest.mark.parametrize(
    ("period", "tau", "expected"),
    [
        (1, 1.0, [8, 8, 8, 8, 8, 8]),
        (3, 1.0, [0, 0, 8, 8, 8, 8]),
        (1, 0.5, [4, 6, 7, 7.5, 7.75, 7.875]),
        (2, 0.5, [0, 4, 4, 6, 6, 7]),
        (1, 0.25, [2, 3.5, 4.625, 5.46875, 6.1015625, 6.576171875]),
        (7, 1.0, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_values_by_hand(compiled, period, tau, expected):
    target, source = keras.Variable([[0.0]]), keras.Variable([[8.0]])
    optimizer = optimizers.Synchronization(period, tau)
    optimizer.build([target])

    @compiled
    def step():
        return optimizer.step(None, [target], source=[source])

    values = []
    for _ in range(6):
        assert step() == {}
        values.append(float(target.numpy()[0, 0]))
    assert values == expected
    assert source.numpy() == [[8]]


def test_follows_a_source_that_moves():
    target, source = keras.Variable([0.0]), keras.Variable([0.0])
    optimizer = optimizers.Synchronization(3)
    values = []
    for index in range(1, 8):
        source.assign([float(index)])
        optimizer.step(None, [target], source=[source])
        values.append(float(target.numpy()[0]))
    assert values == [0, 0, 3, 3, 3, 6, 6]


@pytest.mark.parametrize("wrap", [keras.Variable, tf.Variable])
def test_copy_is_a_copy(wrap):
    values = [np.float32([1 / 3, 2.0]), np.float32(7.0)]
    source = [wrap(x) for x in values]
    target = [keras.Variable(0 * x) for x in values]
    optimizers.Synchronization().step(None, target, source=source)
    for variable, value in zip(source, values, strict=True):
        np.testing.assert_array_equal(variable, value)
        variable.assign(99 + value)
    for variable, value in zip(target, values, strict=True):
        np.testing.assert_array_equal(variable, value)
        variable.assign(0 * value)
    np.testing.assert_array_equal(source[0], 99 + values[0])


def test_count_survives_a_checkpoint(tmp_path):
    target, source = keras.Variable([0.0]), keras.Variable([8.0])
    optimizer = optimizers.Synchronization(3)
    for _ in range(2):
        optimizer.step(None, [target], source=[source])
    path = tf.train.Checkpoint(x=optimizer).write(str(tmp_path / "x"))
    other = optimizers.Synchronization(3)
    tf.train.Checkpoint(x=other).read(path).assert_consumed()
    other.step(None, [target], source=[source])
    assert target.numpy() == [8]


@pytest.mark.parametrize(("period", "tau"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, 1.1)])
def test_bad_arguments(period, tau):
    with pytest.raises(ValueError, match="period must be positive and tau"):
        optimizers.Synchronization(period, tau)
