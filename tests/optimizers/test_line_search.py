"""Steps that are shortened until they are good enough."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


def shift(amount):
    return lambda old, seed: old + amount


@pytest.mark.parametrize(
    ("bend", "ratio", "max_kl", "iterations", "fraction"),
    [
        # The improvement of a fraction f is f - bend f^2, and f is expected.
        (0.0, 1.0, None, 10, 1),
        (0.5, 0.1, None, 10, 1),
        (0.875, 0.125, None, 10, 1),
        (0.95, 0.1, None, 10, 1 / 2),
        (2.0, 0.1, None, 10, 1 / 4),  # Improvements of -1, 0 and 1/8.
        (2.0, 0.6, None, 10, 1 / 8),
        (2.0, 0.1, None, 3, 1 / 4),
        (2.0, 0.1, None, 2, 0),
        (1000.0, 0.1, None, 5, 0),
        (0.0, 1.01, None, 10, 0),
        # The divergence of a fraction f is f.
        (0.0, 0.1, 1.0, 10, 1),
        (0.0, 0.1, 0.3, 10, 1 / 4),
        (0.0, 0.1, 0.25, 10, 1 / 4),
        (2.0, 0.1, 0.1, 10, 1 / 16),
        (0.0, 0.1, 1e-9, 10, 0),
    ],
)
def test_fraction_by_hand(move, bend, ratio, max_kl, iterations, fraction):
    variable = keras.Variable([0.0])
    optimizer = optimizers.LineSearch(move(shift(1.0)), iterations, ratio, max_kl)

    @tf.function(autograph=False)
    def step():
        return optimizer.step(loss_fn, [variable], kl=kl)

    def loss_fn(items):
        loss = 5.0 - variable.value[0] + bend * variable.value[0] ** 2
        return loss, {"loss": loss}

    def kl(items, local=False):
        return variable.value[0]

    metrics = step()
    assert float(metrics["step_fraction"]) == fraction
    # The result is applied, while modular_rl searches and then takes the full step.
    assert variable.numpy() == [fraction]
    improvement = fraction - bend * fraction**2
    np.testing.assert_allclose(metrics["improvement"], improvement, 1e-6)
    assert float(metrics["loss"]) == 5
    assert float(metrics["moved"]) == 1


def test_modes(compiled, move):
    variable = keras.Variable([0.0])
    optimizer = optimizers.LineSearch(move(shift(1.0)), max_kl=0.2)

    @compiled
    def step():
        loss_fn = lambda items: (2 * variable.value[0] ** 2 - variable.value[0], {})  # noqa: E731
        kl = lambda items: variable.value[0]  # noqa: E731
        return optimizer.step(loss_fn, [variable], kl=kl)

    assert float(step()["step_fraction"]) == 1 / 8
    assert variable.numpy() == [1 / 8]


@pytest.mark.parametrize("ratio", [0.99, 1.0, 1.01])
def test_expected_improvement_is_that_of_the_gradient(move, ratio):
    """Of all variables, and the gradient is that at the beginning."""
    x, y = keras.Variable([1.0, 2.0]), keras.Variable(3.0)
    inner = move(shift([4.0, 0.0]), shift(-8.0))

    def loss_fn(items):  # The gradient is (-2, 1) and 3, and the change promises 32.
        point = tf.convert_to_tensor(x)
        return 3 * tf.convert_to_tensor(y) + tf.reduce_sum(point * [-2.0, 1.0]), {}

    metrics = optimizers.LineSearch(inner, 3, ratio).step(loss_fn, [x, y])
    assert float(metrics["improvement"]) == (32 if ratio <= 1 else 0)
    assert y.numpy() == (-5 if ratio <= 1 else 3)


BAD = {
    "worse": lambda x: (x - START) ** 2,
    "equal": lambda x: 0 * x,
    "nan": lambda x: np.nan * x,
    "nan later": lambda x: tf.where(x == START, x, np.nan),
    "minus infinity": lambda x: tf.where(x == START, x, -np.inf),
}
START = np.array([1 / 3, 1e-20, 7e4], np.float32)


@pytest.mark.parametrize("kind", BAD)
def test_nothing_good_restores_bit_for_bit(compiled, move, kind):
    """Not so in tianshou, where the last and shortest step stays."""
    variable = keras.Variable(START)
    optimizer = optimizers.LineSearch(move(shift([0.1, 1e7, 1.0])), 4)

    @compiled
    def step():
        def loss_fn(items):
            return tf.reduce_sum(BAD[kind](variable.value)), {}

        return optimizer.step(loss_fn, [variable])

    metrics = step()
    np.testing.assert_array_equal(variable, START)
    assert float(metrics["step_fraction"]) == float(metrics["improvement"]) == 0


@pytest.mark.parametrize("kl", [0.2, np.nan, np.inf])
def test_divergence_that_is_too_large_restores(move, kl):
    variable = keras.Variable(START)
    optimizer = optimizers.LineSearch(move(shift(1.0)), max_kl=0.1)
    loss_fn = lambda items: (-tf.reduce_sum(variable.value), {})  # noqa: E731
    metrics = optimizer.step(loss_fn, [variable], kl=lambda items: tf.constant(kl))
    np.testing.assert_array_equal(variable, START)
    assert float(metrics["step_fraction"]) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_losses_that_are_not_finite_are_passed_over(move, bad):
    variable = keras.Variable([0.0])

    def loss_fn(items):
        x = variable.value[0]
        return tf.where(x > 0.3, bad, -x), {}

    metrics = optimizers.LineSearch(move(shift(1.0))).step(loss_fn, [variable])
    assert variable.numpy() == [0.25]
    assert float(metrics["step_fraction"]) == 0.25


def test_step_that_is_not_finite_restores(move):
    variable = keras.Variable(START)
    loss_fn = lambda items: (-tf.reduce_sum(variable.value), {})  # noqa: E731
    optimizers.LineSearch(move(shift(np.nan))).step(loss_fn, [variable])
    np.testing.assert_array_equal(variable, START)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("max_kl", [0.001, 0.1, 1.0])
def test_accepted_steps_keep_what_they_promise(seed, max_kl):
    """Of a softmax policy, whose divergence is not quadratic."""
    rng = np.random.default_rng(seed)
    items = tf.constant(rng.normal(size=[20, 3]), tf.float32)
    gain = tf.constant(rng.normal(size=[20, 4]), tf.float32)
    variable = keras.Variable(rng.normal(size=[3, 4]).astype(np.float32))
    old = tf.nn.log_softmax(items @ variable.value)

    def log_probs():
        return tf.nn.log_softmax(items @ variable.value)

    def loss_fn(items):
        loss = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_probs()) * gain, 1))
        return loss, {"loss": loss}

    def kl(items, local=False):
        new = log_probs()
        base = tf.stop_gradient(new) if local else old
        return tf.reduce_mean(tf.reduce_sum(tf.exp(base) * (base - new), 1))

    natural = optimizers.NaturalGradient(max_kl, cg_damping=1e-3)
    optimizer = optimizers.LineSearch(natural)
    before = loss_fn(items)[0]

    @tf.function(autograph=False)
    def step():
        return optimizer.step(loss_fn, [variable], items=items, kl=kl)

    metrics = step()
    improvement = before - loss_fn(items)[0]
    assert improvement > 0
    np.testing.assert_allclose(metrics["improvement"], improvement, 1e-3, 1e-6)
    assert 0 < kl(items) <= max_kl * 1.0001
    assert kl(items) > max_kl / 8  # But not shorter than necessary.
    assert metrics["step_fraction"] > 0


def test_divergence_is_that_of_the_natural_gradient():
    natural = optimizers.NaturalGradient(0.07)
    assert optimizers.LineSearch(natural).max_kl == 0.07
    assert optimizers.LineSearch(natural, max_kl=0.2).max_kl == 0.2
    adam = optimizers.Gradient()
    for max_kl in (None, 0.2):
        search = optimizers.LineSearch(adam, max_kl=max_kl)
        assert search.max_kl == max_kl
        assert search.needs == ({"kl"} if max_kl else set())


def test_losses_of_a_search_draw_the_same_dropout():
    layer = keras.layers.Dropout(0.5, seed=0)
    layer.build([4, 50])
    variable = keras.Variable(tf.ones([50]))
    optimizer = optimizers.LineSearch(optimizers.Gradient("sgd", 1e-9))
    optimizer.build([variable])

    def loss(_):
        return tf.reduce_mean(
            layer(tf.ones([4, 50]) * variable.value, training=True)
        ), {}

    state = [x for x in layer.variables if not x.trainable]
    assert state
    for _ in range(3):
        metrics = optimizer.step(loss, [variable], state=state)
        assert abs(float(metrics["improvement"])) < 1e-6
