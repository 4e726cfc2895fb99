"""Several steps in a row."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


@pytest.mark.parametrize("count", [1, 3])
def test_every_step_sees_the_one_before(compiled, count):
    x = keras.Variable([8.0])
    optimizer = optimizers.MultiStep(optimizers.Gradient("sgd", 0.5), count)
    optimizer.build([x])

    @compiled
    def step():
        loss_fn = lambda items: (0.5 * x.value[0] ** 2, {"x": 1.0 * x.value[0]})  # noqa: E731
        return optimizer.step(loss_fn, [x])

    metrics = step()
    assert x.numpy() == [8 / 2**count]
    mean = {1: 8, 3: (8 + 4 + 2) / 3}[count]
    assert set(metrics) == {"x", *optimizer.metric_names}
    np.testing.assert_allclose(metrics["x"], mean, 1e-6)
    np.testing.assert_allclose(metrics["gradient_norm"], mean, 1e-6)
    np.testing.assert_allclose(metrics["learning_rate"], 0.5)


def test_every_step_has_a_seed_of_its_own(compiled, move):
    x = keras.Variable(tf.zeros([4, 2], tf.int32))
    append = move(lambda old, seed: tf.concat([old[1:], seed[None]], 0))
    optimizer = optimizers.MultiStep(append, 4)

    @compiled
    def step(seed):
        return optimizer.step(lambda items: (0.0, {}), [x], seed=seed)

    seen = []
    for seed in ([1, 2], [1, 2], [1, 3]):
        step(tf.constant(seed))
        seen.append({tuple(pair) for pair in x.numpy().tolist()})
    assert [len(pairs) for pairs in seen] == [4, 4, 4]
    assert seen[0] == seen[1]
    assert not seen[0] & seen[2]


def test_loss_is_traced_once():
    x, traces = keras.Variable([8.0]), []

    def loss_fn(items):
        traces.append(1)
        return 0.5 * x.value[0] ** 2, {}

    optimizer = optimizers.MultiStep(optimizers.Gradient("sgd", 0.5), 7)
    optimizer.build([x])
    tf.function(lambda: optimizer.step(loss_fn, [x]), autograph=False)()
    assert len(traces) == 1
    assert x.numpy() == [8 / 2**7]
