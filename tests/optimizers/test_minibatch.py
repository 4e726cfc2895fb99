"""Epochs of random minibatches."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers

SEED = tf.constant([1, 2])


def run(count, epochs, size, seed=SEED, mode="dynamic"):
    """Items of every step, in order, and the returned metrics."""
    seen, variable = [], keras.Variable([0.0])
    optimizer = optimizers.Minibatch(optimizers.Gradient("sgd", 1.0), epochs, size)
    optimizer.build([variable])

    def record(number, *arrays):
        assert number == -len(seen)  # Every step waits for the one before.
        seen.append([array.tolist() for array in arrays])
        return np.float32(1)

    def loss_fn(items):
        inputs = [variable.value[0], items["x"], *items["y"]]
        one = tf.numpy_function(record, inputs, tf.float32)
        mean = tf.reduce_mean(items["x"])
        return one * variable.value[0], {"mean": mean, "one": tf.constant(1.0)}

    def steps(x, seed):
        items = {"x": x, "y": (x[:, None] * [1.0, -1.0],)}
        return optimizer.step(loss_fn, [variable], items=items, seed=seed)

    if mode != "eager":
        shape = [None] if mode == "dynamic" else [count]
        signature = [tf.TensorSpec(shape), tf.TensorSpec([2], tf.int32)]
        steps = tf.function(steps, autograph=False, input_signature=signature)
    metrics = steps(tf.range(count, dtype=tf.float32), seed)
    return seen, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("mode", ["dynamic", "static", "eager"])
@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (12, 4, [4, 4, 4]),
        (13, 4, [4, 4, 4, 1]),
        (7, 10, [7]),
        (5, 1, [1] * 5),
        (1, 3, [1]),
        (6, None, [6]),
    ],
)
def test_every_item_is_used_once_per_epoch(count, size, sizes, mode):
    seen, metrics = run(count, 3, size, mode=mode)
    assert [len(x) for x, _ in seen] == sizes * 3
    per_epoch = len(sizes)
    for epoch in range(3):
        steps = seen[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(sum((x for x, _ in steps), [])) == list(range(count))
    for x, y in seen:  # Leaves stay together.
        assert y == [[n, -n] for n in x]
    assert metrics["one"] == pytest.approx(1, rel=1e-6)
    expected = np.mean([np.mean(x) for x, _ in seen])
    assert metrics["mean"] == pytest.approx(expected, rel=1e-5)
    assert metrics["learning_rate"] == pytest.approx(1, rel=1e-6)


def test_order_is_new_in_every_epoch_and_decided_by_the_seed():
    seen, _ = run(50, 4, 49)
    orders = [tuple(x + y) for (x, _), (y, _) in zip(seen[::2], seen[1::2], strict=1)]
    assert len(set(orders)) == 4
    for mode in ("static", "eager"):
        assert run(50, 4, 49, mode=mode)[0] == seen
    other, _ = run(50, 4, 49, seed=tf.constant([1, 3]))
    assert not {order[:49] for order in orders} & {tuple(x) for x, _ in other}


def test_items_meet_at_random():
    """Every item is in the first minibatch about as often as in any other."""
    seen, _ = run(10, 400, 2)
    first = np.bincount(np.int64(sum((x for x, _ in seen[::5]), [])), minlength=10)
    assert first.sum() == 800
    assert (np.abs(first - 80) < 4 * 80**0.5).all()


def decay(epochs, size):
    """Every step has the new value 0.9 old + sum of the items."""
    variable = keras.Variable([0.0])
    optimizer = optimizers.Minibatch(optimizers.Gradient("sgd", 1.0), epochs, size)
    optimizer.build([variable])

    def loss_fn(items):
        x = variable.value[0]
        return 0.05 * x**2 - x * tf.reduce_sum(items), {"before": 1.0 * x}

    return variable, lambda x: optimizer.step(loss_fn, [variable], items=x, seed=SEED)


def test_steps_happen_one_after_the_other(compiled):
    variable, step = decay(5, 4)
    metrics = compiled(step)(tf.ones([8]))
    values = [0.0]
    for _ in range(10):
        values.append(0.9 * values[-1] + 4)
    np.testing.assert_allclose(variable, values[-1:], 1e-5)
    np.testing.assert_allclose(metrics["before"], np.mean(values[:-1]), 1e-5)


@pytest.mark.parametrize("size", [3, 20, None])
def test_compiled_steps_are_the_same(size):
    results = []
    for jit in (False, True):
        variable, step = decay(2, size)
        function = tf.function(step, autograph=False, jit_compile=jit)
        metrics = function(tf.range(7.0))
        results.append([*variable.numpy(), *map(float, metrics.values())])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


@pytest.mark.parametrize("size", [None, 2])
def test_every_step_has_a_seed_of_its_own(compiled, move, size):
    steps = 4 if size is None else 12
    x = keras.Variable(tf.zeros([steps, 2], tf.int32))
    append = move(lambda old, seed: tf.concat([old[1:], seed[None]], 0))
    optimizer = optimizers.Minibatch(append, 4, size)
    assert optimizer.needs == {"items", "seed"}

    @compiled
    def step(items):
        return optimizer.step(lambda items: (0.0, {}), [x], items=items, seed=SEED)

    step(tf.zeros([5]))
    assert len({tuple(pair) for pair in x.numpy().tolist()}) == steps


@pytest.mark.parametrize("valid", [8, 7, 3, 1, 0])
@pytest.mark.parametrize("mode", ["program", "graph", "eager"])
def test_no_step_is_made_on_padding(valid, mode):
    variable = keras.Variable([0.0])
    optimizer = optimizers.Minibatch(optimizers.Gradient("sgd", 1.0), 2, 3)
    optimizer.build([variable])

    def loss_fn(items):
        count = tf.reduce_sum(items["mask"])
        used = tf.reduce_sum(items["x"] * items["mask"][:, 0])
        return -variable.value[0] * used, {"count": count, "steps": 1.0}

    def steps(items):
        return optimizer.step(loss_fn, [variable], items=items, seed=SEED)

    x = 2.0 ** tf.range(8, dtype=tf.float32)
    places = np.random.default_rng(valid).permutation(8)[:valid]
    mask = np.zeros([8, 2], np.float32)
    mask[places, 0] = 1.0
    if mode != "eager":
        jit = mode == "program"
        steps = tf.function(steps, autograph=False, jit_compile=jit)
    metrics = steps({"x": x, "mask": tf.constant(mask)})
    number = max(-(-valid // 3), 1)
    assert float(metrics["count"]) == pytest.approx(valid / number)  # Mean of steps.
    total = 2 * sum(2.0**place for place in places)  # Each once per epoch.
    np.testing.assert_allclose(variable, [total])
