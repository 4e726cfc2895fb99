"""Steps of limited length."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


@pytest.mark.parametrize(
    ("max_norm", "expected"),
    [
        (1.0, [[0.6, 1.0], [0.8]]),  # The change is (3, 0) and 4, its norm 5.
        (2.5, [[1.5, 1.0], [2.0]]),
        (5.0, [[3.0, 1.0], [4.0]]),
        (100.0, [[3.0, 1.0], [4.0]]),
    ],
)
def test_change_by_hand(compiled, move, max_norm, expected):
    variables = [keras.Variable([0.0, 1.0]), keras.Variable([0.0])]
    inner = move(lambda old, seed: old + [3.0, 0.0], lambda old, seed: old + 4.0)
    optimizer = optimizers.Clipped(inner, max_norm)

    @compiled
    def step():
        return optimizer.step(lambda items: (0.0, {}), variables)

    assert float(step()["step_norm"]) == 5
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable, value, 1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_norm_is_limited_and_the_direction_kept(move, seed):
    rng = np.random.default_rng(seed)
    old, change = rng.normal(size=[2, 50]).astype(np.float32)
    change *= 10.0 ** rng.uniform(-3, 3)
    variable = keras.Variable(old)
    optimizer = optimizers.Clipped(move(lambda old, seed: old + change), 1.0)
    optimizer.step(lambda items: (0.0, {}), [variable])
    new = variable.numpy() - old
    assert np.linalg.norm(new) <= 1 + 1e-5
    size = min(np.linalg.norm(change), 1.0)
    np.testing.assert_allclose(new, change / np.linalg.norm(change) * size, 1e-3, 1e-6)


def test_short_steps_are_unchanged_bit_for_bit(compiled, move):
    """The new value is not the old one plus a rounded difference."""
    old, new = (
        np.array(x, np.float32) for x in ([1.0, 0.1, 1 / 3], [1e-9, 1 / 3, 0.7])
    )
    variable = keras.Variable(old)
    optimizer = optimizers.Clipped(move(lambda old, seed: tf.constant(new)), 2.0)
    compiled(lambda: optimizer.step(lambda items: (0.0, {}), [variable]))()
    np.testing.assert_array_equal(variable, new)


def test_no_step_is_no_step(move):
    variable = keras.Variable([1 / 3])
    optimizer = optimizers.Clipped(move(lambda old, seed: old))
    metrics = optimizer.step(lambda items: (0.0, {}), [variable])
    assert float(metrics["step_norm"]) == 0
    np.testing.assert_array_equal(variable, np.float32([1 / 3]))


def test_clips_the_steps_of_momentum_not_its_gradients():
    variable = keras.Variable([0.0])
    inner = optimizers.Gradient("sgd", 1.0, momentum=0.5)
    optimizer = optimizers.Clipped(inner, 1.0)
    optimizer.build([variable])
    loss_fn = lambda items: (variable.value[0] * items, {})  # noqa: E731
    norms = []
    for item in (-4.0, 0.0, 0.0, 0.0):  # Velocities of 4, 2, 1, 1/2.
        metrics = optimizer.step(loss_fn, [variable], items=tf.constant(item))
        norms.append(float(metrics["step_norm"]))
    assert norms == [4, 2, 1, 0.5]
    np.testing.assert_allclose(variable, [3.5])
