"""Gradient descent."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers
from agents.tools import schedules


def make(values=(3.0, 4.0), rate=0.5, kind="sgd", **options):
    variables = [keras.Variable(tf.constant([value])) for value in values]
    optimizer = optimizers.Gradient(kind, rate, **options)
    optimizer.build(variables)
    return variables, optimizer


def loss_for(variables):
    """Sum of products of variables and items, averaged over valid steps."""

    def loss_fn(items):
        mask = items["mask"]
        each = sum(
            variable.value * items["x"][..., i] for i, variable in enumerate(variables)
        )
        loss = tf.reduce_sum(each * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)
        return loss, {"loss": loss, "double": 2 * loss}

    return loss_fn


def items(x, mask=None):
    x = tf.constant(x, tf.float32)
    mask = tf.ones(x.shape[:-1]) if mask is None else tf.constant(mask, tf.float32)
    return {"x": x, "mask": mask}


def numbers(variables):
    return [float(variable.value[0]) for variable in variables]


def test_step_by_hand(compiled):
    variables, optimizer = make()

    @compiled
    def step(items):
        return optimizer.step(loss_for(variables), variables, items=items)

    metrics = step(items([[3, 4], [3, -12]]))
    # Gradient is the mean item, [3, -4].
    assert numbers(variables) == [1.5, 6]
    assert {k: float(v) for k, v in metrics.items()} == {
        **{"loss": -7, "double": -14},
        **{"gradient_norm": 5, "learning_rate": 0.5},
    }


@pytest.mark.parametrize("name", ["sgd", "SGD", keras.optimizers.SGD()])
def test_keras_optimizers_and_their_names(name):
    variables, optimizer = make(kind=name)
    optimizer.step(loss_for(variables), variables, items=items([[3, -4]]))
    assert numbers(variables) == [1.5, 6]


def test_options_of_keras_optimizers():
    variables, optimizer = make(rate=1.0, momentum=0.5)
    for _ in range(3):
        optimizer.step(loss_for(variables), variables, items=items([[1, -1]]))
    velocity = 1 + 1.5 + 1.75
    assert numbers(variables) == [3 - velocity, 4 + velocity]


def test_gradients_are_clipped_by_their_global_norm():
    variables, optimizer = make(clip_norm=1.0)
    loss_fn = loss_for(variables)
    metrics = optimizer.step(loss_fn, variables, items=items([[3, -4]]))
    assert float(metrics["gradient_norm"]) == 5  # That before clipping.
    np.testing.assert_allclose(numbers(variables), [3 - 0.3, 4 + 0.4], rtol=1e-6)
    variables, optimizer = make(clip_norm=10.0)
    optimizer.step(loss_for(variables), variables, items=items([[3, -4]]))
    assert numbers(variables) == [1.5, 6]


@pytest.mark.parametrize("block", [1, 2, 5, 100])
@pytest.mark.parametrize("graph", [False, True])
def test_blocks_add_up_to_the_whole(block, graph):
    rng = np.random.default_rng(0)
    x = rng.normal(size=[5, 4, 2])
    mask = rng.random([5, 4]) < 0.6
    mask[1] = False  # One item has no valid step at all.

    def run(size):
        variables, optimizer = make(clip_norm=0.5, block=size)

        def step(items):
            return optimizer.step(loss_for(variables), variables, items=items)

        if graph:
            step = tf.function(step, autograph=False)
        metrics = step(items(x, mask))
        return [
            *numbers(variables),
            *(float(metrics[name]) for name in sorted(metrics)),
        ]

    np.testing.assert_allclose(run(block), run(None), rtol=1e-5)


def test_padding_of_blocks_is_made_of_real_items():
    """Statistics of a batch, which a mask does not reach, must be real ones."""
    variables, optimizer = make(block=4)
    loss = loss_for(variables)

    def lowest(items):
        return loss(items)[0], {"lowest": tf.reduce_min(items["x"])}

    found = items(np.full([6, 1, 2], 3.0), np.ones([6, 1]))
    metrics = optimizer.step(lowest, variables, items=found)
    assert float(metrics["lowest"]) == pytest.approx(3.0)


def test_loss_is_the_mean_of_those_of_the_blocks():
    """Weighted by valid steps, for losses that are no mean over steps."""
    variables, optimizer = make(values=(0.0,), rate=1.0, block=2)

    def loss_fn(items):
        mean = tf.reduce_sum(items["x"][..., 0] * items["mask"])
        mean /= tf.maximum(tf.reduce_sum(items["mask"]), 1.0)
        return variables[0].value[0] * mean**2, {"square": mean**2}

    x = np.array([1.0, 2, 3, 999, 5])[:, None]
    metrics = optimizer.step(loss_fn, variables, items=items(x, [1, 1, 1, 0, 1]))
    # The blocks are 1, 2 and 3 and 5.
    expected = (2 * 1.5**2 + 1 * 3.0**2 + 1 * 5.0**2) / 4
    np.testing.assert_allclose(metrics["square"], expected)
    np.testing.assert_allclose(metrics["gradient_norm"], expected)
    np.testing.assert_allclose(numbers(variables), [-expected])


def test_learning_rate_can_be_scheduled_in_the_graph():
    rate = schedules.Schedule("linear", 1.0, 0.0, 4)
    variables, optimizer = make(rate=rate)

    @tf.function(autograph=False)
    def step(steps):
        optimizer.schedule(steps)
        return optimizer.step(
            loss_for(variables), variables, items=items([[3.0, -4.0]])
        )

    assert float(step(tf.constant(4, tf.int64))["learning_rate"]) == 0
    assert numbers(variables) == [3, 4]
    assert float(step(tf.constant(3, tf.int64))["learning_rate"]) == 0.25
    assert numbers(variables) == [2.25, 5]
    step(tf.constant(0, tf.int64))
    assert numbers(variables) == [-0.75, 9]


@pytest.mark.parametrize("name", ["rate", "clip_norm"])
def test_schedules_that_stand_still_are_said_once(name, caplog):
    line = schedules.Schedule("linear", 1.0, 0.5, 4)
    for follow in (False, True):
        variables, optimizer = make(**{name: line})
        if follow:
            optimizer.schedule(2)
        for _ in range(2):
            optimizer.step(loss_for(variables), variables, items=items([[3.0, -4.0]]))
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == (not follow)
        assert all("stands still; call optimizer.schedule(steps)" in x for x in said)
        caplog.clear()


def test_adam_equals_its_definition():
    variables, optimizer = make(kind="adam", rate=0.1)
    mean, square, expected = np.zeros(2), np.zeros(2), np.array([3.0, 4.0])
    for step in range(1, 6):
        gradient = np.array([step, -3.0])
        optimizer.step(loss_for(variables), variables, items=items([gradient]))
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        corrected = mean / (1 - 0.9**step), square / (1 - 0.999**step)
        expected -= 0.1 * corrected[0] / (corrected[1] ** 0.5 + 1e-7)
    np.testing.assert_allclose(numbers(variables), expected, rtol=1e-5)


def test_adam_steps_along_means_of_accumulated_gradients():
    variables, optimizer = make(kind="adam", rate=0.1, gradient_accumulation_steps=2)
    others, other = make(kind="adam", rate=0.1)
    for each in ([1, -3], [4, 2]):
        for sign in (1, -1):
            found = items([np.array(each) + sign])
            optimizer.step(loss_for(variables), variables, items=found)
        other.step(loss_for(others), others, items=items([each]))
        np.testing.assert_allclose(numbers(variables), numbers(others), rtol=1e-6)


def test_slots_exist_before_the_first_step_and_survive_a_checkpoint(tmp_path):
    variables, optimizer = make(kind="adam")
    count = len(optimizer.optimizer.variables)
    optimizer.step(loss_for(variables), variables, items=items([[3, -4]]))
    assert len(optimizer.optimizer.variables) == count
    path = tf.train.Checkpoint(x=optimizer).write(str(tmp_path / "x"))
    others, other = make(kind="adam")
    tf.train.Checkpoint(x=other).read(path).assert_consumed()
    for ours, theirs in zip(
        optimizer.optimizer.variables, other.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    for variable, value in zip(others, numbers(variables), strict=True):
        variable.assign([value])
    for _ in range(2):
        optimizer.step(loss_for(variables), variables, items=items([[1, 2]]))
        other.step(loss_for(others), others, items=items([[1, 2]]))
        assert numbers(variables) == numbers(others)


def test_moves_its_own_variables_only():
    variables, optimizer = make()
    stranger = keras.Variable(tf.constant([2.0]))

    def loss_fn(items):
        loss, metrics = loss_for(variables)(items)
        return loss * stranger.value[0], metrics

    optimizer.step(loss_fn, variables, items=items([[3, -4]]))
    assert numbers([stranger]) == [2]
    assert numbers(variables) == [0, 8]


def test_variables_that_the_loss_does_not_depend_on_stay():
    variables, optimizer = make()
    loss_fn = loss_for(variables[:1])
    optimizer.step(loss_fn, variables, items=items([[3, -4]]))
    assert numbers(variables) == [1.5, 4]


def test_apply_moves_by_given_gradients():
    variables, optimizer = make(clip_norm=1.0)
    metrics = optimizer.apply([tf.constant([0.0]), tf.constant([4.0])], variables)
    assert set(metrics) == set(optimizer.metric_names)
    assert float(metrics["gradient_norm"]) == 4
    assert numbers(variables) == [3, 3.5]


@pytest.mark.parametrize(
    ("options", "square"), [({}, 0.0), ({"initial_square": 1.0}, 1)]
)
def test_rmsprop_begins_with_a_mean_square(options, square):
    options |= {"rho": 0.75, "epsilon": 1e-9}
    variables, optimizer = make(rate=1.0, kind="rmsprop", **options)
    gradients, steps, squares = np.array([2.0, -4.0]), 0.0, np.full(2, square)
    for _ in range(2):
        optimizer.step(loss_for(variables), variables, items=items([gradients]))
        squares = 0.75 * squares + 0.25 * gradients**2
        steps += gradients / np.sqrt(squares)
        np.testing.assert_allclose(numbers(variables), [3, 4] - steps, rtol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "adamw", "rmsprop", "adagrad", "lamb"])
def test_repeated_rows_of_an_embedding_count_together(kind):
    """As in a product with one-hot vectors, whose gradient is dense."""
    indices, weights = tf.constant([1, 1, 1, 1, 2]), tf.constant([[1.0, 2.0]] * 5)
    results = []
    for sparse in (True, False):
        table = keras.Variable(tf.ones([5, 2]))
        optimizer = optimizers.Gradient(kind, 0.1, clip_norm=5.0)
        optimizer.build([table])

        def loss(_, table=table, sparse=sparse):
            chosen = tf.one_hot(indices, 5) @ table.value
            if sparse:
                chosen = tf.gather(table.value, indices)
            return tf.reduce_sum(chosen * weights), {}

        metrics = optimizer.step(loss, [table])
        results.append((metrics["gradient_norm"], table.value))
    assert float(results[0][0]) == pytest.approx(85**0.5)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_norm_of_gradients_follows_its_schedule():
    fall = schedules.Schedule("linear", 1.0, 0.5, 10)
    x = keras.Variable([0.0])
    optimizer = optimizers.Gradient("sgd", 1.0, clip_norm=fall)
    optimizer.build([x])
    for steps, norm in ((0, 1.0), (10, 0.5)):
        x.assign([0.0])
        optimizer.schedule(steps)
        optimizer.step(lambda _: (9.0 * x.value[0], {}), [x])
        np.testing.assert_allclose(x, [-norm])
