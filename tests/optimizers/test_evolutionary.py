"""Descent without derivatives."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers

SEED = tf.constant([1, 2])


def linear(x, y):
    """Loss that is linear in a vector and a matrix, and its gradient."""
    slopes = [np.float32([1, -2]), np.float32([[3], [0], [0.5]])]

    def loss_fn(items):
        loss = tf.reduce_sum(x.value * slopes[0]) + tf.reduce_sum(y.value * slopes[1])
        return loss, {"loss": loss}

    return loss_fn, np.concatenate([slope.ravel() for slope in slopes])


def noise(num_samples, batch, compiled=lambda function: function):
    """Perturbations of both variables, `[num_samples, 5]`; others if compiled by XLA."""
    rows = []

    @compiled
    def normal(seed):
        sizes = zip((2, 3), seed, strict=True)
        return [
            tf.random.stateless_normal([batch, n], x, alg="philox") for n, x in sizes
        ]

    for index in range(-(-num_samples // batch)):
        seeds = [
            tf.random.experimental.stateless_fold_in(SEED, n, alg="philox")
            for n in (2 * index, 2 * index + 1)
        ]
        rows.append(np.concatenate(normal(seeds), 1))
    return np.concatenate(rows)[:num_samples]


@pytest.mark.parametrize(
    ("num_samples", "batch"),
    [(3, None), (7, 3), (6, 3), (5, 8), (4, 1)],
)
def test_estimate_by_hand(num_samples, batch):
    variables = [keras.Variable(tf.zeros([2])), keras.Variable(tf.zeros([3, 1]))]
    loss_fn, slope = linear(*variables)
    optimizer = optimizers.Evolutionary(1.0, num_samples, 0.02, batch, "sgd")
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step():
        return optimizer.step(loss_fn, variables, seed=SEED)

    metrics = step()
    samples = noise(num_samples, batch or num_samples)
    assert samples.shape == (num_samples, 5)
    # Differences of a linear loss are exact: the mean of (g . eps) eps.
    expected = (samples @ slope) @ samples / num_samples
    change = np.concatenate([-x.numpy().ravel() for x in variables])
    np.testing.assert_allclose(change, expected, 1e-4, 1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], np.linalg.norm(expected), 1e-4)
    assert float(metrics["loss"]) == 0  # That of the unperturbed variables.


def test_estimate_in_all_modes(compiled):
    variables = [keras.Variable(tf.zeros([2])), keras.Variable(tf.zeros([3, 1]))]
    loss_fn, slope = linear(*variables)
    optimizer = optimizers.Evolutionary(1.0, 7, 0.02, 3, "sgd")
    optimizer.build(variables)
    compiled(lambda: optimizer.step(loss_fn, variables, seed=SEED))()
    samples = noise(7, 3, compiled)
    change = np.concatenate([-x.numpy().ravel() for x in variables])
    np.testing.assert_allclose(change, samples @ slope @ samples / 7, 1e-4, 1e-4)


def test_estimate_tends_to_the_gradient():
    """And does not depend on even terms, since perturbations come in pairs."""
    x = keras.Variable([0.0, 0.0])
    optimizer = optimizers.Evolutionary(1.0, 20000, 0.1, 5000, "sgd")
    optimizer.build([x])

    def loss_fn(items):
        return 2.0 * x.value[0] - x.value[1] + 50 * tf.reduce_sum(x.value**2), {}

    tf.function(lambda: optimizer.step(loss_fn, [x], seed=SEED), autograph=False)()
    np.testing.assert_allclose(x, [-2, 1], atol=0.1)


def test_finds_the_minimum_of_a_quadratic():
    x, y = keras.Variable([5.0]), keras.Variable([3.0])
    optimizer = optimizers.Evolutionary(0.1, 8)
    optimizer.build([x, y])

    def loss_fn(items):
        loss = (x.value[0] - 1.0) ** 2 + 3 * (y.value[0] + 2.0) ** 2
        return loss, {"loss": loss}

    @tf.function(autograph=False)
    def step(seed):
        return optimizer.step(loss_fn, [x, y], seed=seed)

    for index in range(150):
        metrics = step(tf.constant([0, index]))
    np.testing.assert_allclose([*x.numpy(), *y.numpy()], [1, -2], atol=0.02)
    assert float(metrics["loss"]) < 1e-3


def test_variables_are_not_left_perturbed(compiled):
    start = np.float32([1 / 3, 1e-20, 7e4])
    x = keras.Variable(start)
    optimizer = optimizers.Evolutionary(0.0, 4, batch_size=3)
    optimizer.build([x])

    @compiled
    def step():
        return optimizer.step(lambda _: (tf.reduce_sum(x.value**2), {}), [x], seed=SEED)

    assert float(step()["gradient_norm"]) > 0
    np.testing.assert_array_equal(x, start)


def test_keras_network_with_items():
    initializer = keras.initializers.RandomNormal(seed=0)
    network = keras.Sequential(
        [
            keras.layers.Dense(4, "tanh", kernel_initializer=initializer),
            keras.layers.Dense(1, kernel_initializer=initializer),
        ]
    )
    network.build([None, 2])
    inputs = np.random.default_rng(0).normal(size=[20, 2]).astype(np.float32)
    items = {"x": inputs, "y": inputs[:, :1] - 0.5 * inputs[:, 1:]}

    def loss_fn(items):
        loss = tf.reduce_mean((network(items["x"]) - items["y"]) ** 2)
        return loss, {"loss": loss}

    variables = network.trainable_weights
    optimizer = optimizers.Evolutionary(0.03, 16)
    optimizer.build(variables)

    @tf.function(autograph=False)
    def step(items, seed):
        return optimizer.step(loss_fn, variables, items=items, seed=seed)

    losses = [step(items, tf.constant([0, i]))["loss"] for i in range(100)]
    assert losses[-1] < 0.05 * losses[0]


def test_steps_are_decided_by_the_seed():
    results = []
    for seed in ([1, 2], [1, 2], [1, 3], [2, 2]):
        x = keras.Variable([1.0, 1.0])
        optimizer = optimizers.Evolutionary(0.1, 4, optimizer="sgd")
        optimizer.build([x])
        loss_fn = lambda _: (tf.reduce_sum(x.value**2), {})  # noqa: B023, E731
        optimizer.step(loss_fn, [x], seed=tf.constant(seed))
        results.append(tuple(x.numpy()))
    assert results[0] == results[1]
    assert len(set(results)) == 3
