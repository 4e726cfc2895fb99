"""Properties of all optimizers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers
from agents.optimizers import optimizer as optimizer_
from agents.tools import schedules

SEED = tf.constant([1, 2])
RATE = schedules.Schedule("linear", 1e-2, 0.0, 100)
ADAM = {"type": "adam", "learning_rate": RATE}
NATURAL = {"type": "natural_gradient", "max_kl": 0.01}
SPECS = {
    "gradient": ADAM,
    "blocks": {**ADAM, "block": 4, "clip_norm": 1.0},
    "clipped": {"type": "clipped", "max_norm": 0.01, "optimizer": ADAM},
    "evolutionary": {
        "type": "evolutionary",
        "learning_rate": RATE,
        "num_samples": 5,
        "batch_size": 3,
    },
    "guarded": {"type": "guarded", "max_failures": 2, "optimizer": ADAM},
    "line_search": {"type": "line_search", "optimizer": ADAM},
    "minibatch": {"type": "minibatch", "epochs": 2, "size": 4, "optimizer": ADAM},
    "multi_step": {"type": "multi_step", "num_steps": 3, "optimizer": ADAM},
    "natural_gradient": {**NATURAL, "subsampling_fraction": 0.5},
    "synchronization": {"type": "synchronization", "period": 2},
    "trust region": {"type": "line_search", "optimizer": NATURAL},
    "nested": {
        "type": "multi_step",
        "num_steps": 2,
        "optimizer": {
            "type": "minibatch",
            "size": 4,
            "optimizer": {"type": "clipped", "max_norm": 0.1, "optimizer": ADAM},
        },
    },
    "plus": {
        "type": "plus",
        "policy": {"type": "line_search", "optimizer": NATURAL},
        "value": {"type": "minibatch", "size": 4, "optimizer": ADAM},
    },
}


def problem(name):
    """Optimizer, variables, step on a small regression, and items."""
    optimizer = optimizers.create(SPECS[name])
    x = np.random.default_rng(0).normal(size=[10, 2]).astype(np.float32)
    variables = [keras.Variable(np.float32([0.5, -0.5])), keras.Variable(np.float32(0))]
    items = {"x": x, "y": x @ np.float32([1, 2]) - 1, "mask": np.ones(10, np.float32)}
    items["old"] = x @ np.float32([0.5, -0.5])
    items = tf.nest.map_structure(tf.constant, items)

    def output(items):
        product = tf.linalg.matvec(items["x"], variables[0].value)
        return product + tf.convert_to_tensor(variables[1])

    def loss_fn(items):
        loss = tf.reduce_mean((output(items) - items["y"]) ** 2)
        return loss, {"loss": loss}

    def kl(items, local=False):
        new = output(items)
        old = tf.stop_gradient(new) if local else items["old"]
        return 0.5 * tf.reduce_mean((new - old) ** 2)

    functions = {
        "kl": kl,
        "source": [tf.constant([1.0, 2.0]), tf.constant(3.0)],
        "seed": SEED,
    }
    parts = loss_fn, variables
    if name == "plus":
        parts = (
            {"policy": loss_fn, "value": loss_fn},
            {"policy": variables[:1], "value": variables[1:]},
        )
    optimizer.build(parts[1])

    def step(items):
        return optimizer.step(*parts, items=items, **functions)

    return optimizer, variables, step, items


def values(variables):
    return [x for variable in variables for x in variable.numpy().ravel()]


def names_of_metrics(name, optimizer):
    loss = {"synchronization": set(), "plus": {"loss", "value_loss"}}
    return loss.get(name, {"loss"}) | set(optimizer.metric_names)


@pytest.mark.parametrize("name", SPECS)
def test_metrics_are_those_of_the_loss_and_those_announced(name):
    optimizer, variables, step, items = problem(name)
    before = values(variables)
    if name != "blocks":  # Which compile by themselves.
        step = tf.function(step, autograph=False, jit_compile=True)
    metrics = step(items)
    assert set(metrics) == names_of_metrics(name, optimizer)
    assert len(set(optimizer.metric_names)) == len(optimizer.metric_names)
    for metric in metrics.values():
        assert metric.shape == []
        assert metric.dtype == tf.float32
        assert np.isfinite(metric)
    # The period of the synchronization is two steps.
    assert (before == values(variables)) == (name == "synchronization")


@pytest.mark.parametrize("name", SPECS)
def test_improves_and_survives_a_checkpoint(name, tmp_path):
    optimizer, variables, step, items = problem(name)
    step = tf.function(step, autograph=False)
    history = [step(items) for _ in range(3)]
    assert set(history[0]) == names_of_metrics(name, optimizer)
    if name != "synchronization":
        assert history[-1]["loss"] < history[0]["loss"]
    saved = tf.train.Checkpoint(optimizer=optimizer, variables=variables)
    path = saved.write(str(tmp_path / "x"))
    other, others, other_step, _ = problem(name)
    restored = tf.train.Checkpoint(optimizer=other, variables=others)
    restored.read(path).assert_consumed()
    assert values(others) == values(variables)
    other_step = tf.function(other_step, autograph=False)
    for _ in range(2):
        before = values(variables)
        step(items)
        other_step(items)
        assert values(others) == values(variables)
    assert values(variables) != before or name == "synchronization"


@pytest.mark.parametrize("name", SPECS)
def test_schedules_reach_the_optimizers_inside(name):
    optimizer, _, step, items = problem(name)
    for steps, rate in ((None, 1e-2), (75, 2.5e-3), (200, 0.0)):
        if steps is not None:
            optimizer.schedule(tf.constant(steps, tf.int64))
        metrics = step(items)
        assert set(metrics) == names_of_metrics(name, optimizer)
        for metric, value in metrics.items():
            if metric.endswith("learning_rate"):
                np.testing.assert_allclose(value, rate, 1e-5)


@pytest.mark.parametrize("name", SPECS)
def test_state_can_be_found(name):
    """Where updates are undone."""
    optimizer, variables, step, items = problem(name)
    found = [
        x
        for x in tf.train.TrackableView(optimizer).descendants()
        if isinstance(x, tf.Variable | keras.Variable)
    ]
    before = [x.numpy() for x in found]
    start = values(variables)
    results = []
    for _ in range(2):
        for _ in range(2):
            step(items)
        results.append(values(variables))
        for x, old in zip(found, before, strict=True):
            x.assign(old)
        variables[0].assign(start[:2])
        variables[1].assign(start[2])
    assert results[0] == results[1]


def test_repeat_sums_metrics(compiled):
    def run(count):
        return optimizer_.repeat(
            3, lambda i: {"i": tf.cast(i, tf.float32) + count, "one": tf.constant(1.0)}
        )

    metrics = compiled(run)(tf.constant(10.0))
    assert {name: float(x) for name, x in metrics.items()} == {"i": 33, "one": 3}
