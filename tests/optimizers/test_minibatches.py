"""Epochs of random minibatches."""

import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers

SEED = tf.constant([1, 2])


def run(count, epochs, size, seed=SEED, dynamic=True):
    """Items of every step, in order, and the returned metrics."""
    seen = []

    def record(*arrays):
        seen.append([array.tolist() for array in arrays])

    def step(items):
        tf.numpy_function(record, [items["x"], *items["y"]], [])
        return {"mean": tf.reduce_mean(items["x"]), "one": tf.constant(1.0)}

    shape = [None] if dynamic else [count]

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec(shape), tf.TensorSpec([2], tf.int32)],
    )
    def steps(x, seed):
        items = {"x": x, "y": (x[:, None] * [1.0, -1.0],)}
        return optimizers.minibatch_steps(
            step, ("one", "mean"), items, epochs, size, seed
        )

    metrics = steps(tf.range(count, dtype=tf.float32), seed)
    return seen, {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (12, 4, [4, 4, 4]),
        (13, 4, [4, 4, 4, 1]),
        (7, 10, [7]),
        (10, 10, [10]),
        (5, 1, [1] * 5),
        (1, 3, [1]),
        (6, None, [6]),
    ],
)
def test_every_item_is_used_once_per_epoch(count, size, sizes, dynamic):
    seen, metrics = run(count, 3, size, dynamic=dynamic)
    assert [len(x) for x, _ in seen] == sizes * 3
    per_epoch = len(sizes)
    for epoch in range(3):
        steps = seen[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(sum((x for x, _ in steps), [])) == list(range(count))
    for x, y in seen:  # Leaves stay together.
        assert y == [[n, -n] for n in x]
    assert metrics["one"] == 1
    expected = np.mean([np.mean(x) for x, _ in seen])
    assert metrics["mean"] == pytest.approx(expected, rel=1e-5)


def test_order_is_new_in_every_epoch_and_decided_by_the_seed():
    seen, _ = run(50, 4, 50)
    orders = [tuple(x) for x, _ in seen]
    assert len(set(orders)) == 4
    assert run(50, 4, 50)[0] == seen
    other, _ = run(50, 4, 50, seed=tf.constant([1, 3]))
    assert not set(orders) & {tuple(x) for x, _ in other}


def test_items_meet_at_random():
    """Every item is in the first minibatch about as often as in any other."""
    seen, _ = run(10, 400, 2)
    first = np.bincount(np.int64(sum((x for x, _ in seen[::5]), [])), minlength=10)
    assert first.sum() == 800
    assert (np.abs(first - 80) < 4 * 80**0.5).all()


def test_steps_happen_one_after_the_other():
    variable = tf.Variable(0.0)

    @tf.function(autograph=False)
    def steps(x):
        def step(items):
            before = tf.convert_to_tensor(variable)
            variable.assign(before * 2 + tf.reduce_sum(items))
            return {"before": before}

        return optimizers.minibatch_steps(step, ("before",), x, 5, 4, SEED)

    steps(tf.ones([8]))
    assert variable.numpy() == 4 * (2**10 - 1)


@pytest.mark.parametrize("size", [3, 7, 20, None])
def test_compiled_steps_are_the_same(size):
    variable = tf.Variable(0.0)

    def steps(x):
        def step(items):
            variable.assign(variable * 0.9 + tf.reduce_sum(items))
            return {"value": tf.convert_to_tensor(variable)}

        return optimizers.minibatch_steps(step, ("value",), x, 2, size, SEED)

    results = []
    for jit in (False, True):
        variable.assign(0.0)
        function = tf.function(steps, autograph=False, jit_compile=jit)
        results.append((float(function(tf.range(7.0))["value"]), float(variable)))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
