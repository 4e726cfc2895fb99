"""Different optimizers for different parts of the variables."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers

SEED = tf.constant([1, 2])


def parts(**values):
    """Variables with these values, and losses that are the variables times 1, 2, ..."""
    variables = {name: [keras.Variable([value])] for name, value in values.items()}

    def loss_of(name, factor):
        def loss_fn(items):
            loss = factor * sum(x[0].value[0] for x in variables.values())
            return loss, {"loss": loss, f"{name}_factor": tf.constant(factor)}

        return loss_fn

    losses = {
        name: loss_of(name, float(number)) for number, name in enumerate(values, 1)
    }
    return variables, losses


def test_every_part_moves_its_own_variables_by_its_own_loss(compiled):
    variables, losses = parts(policy=10.0, value=20.0)
    optimizer = optimizers.Plus(
        policy=optimizers.Gradient("sgd", 1.0), value=optimizers.Gradient("sgd", 0.5)
    )
    optimizer.build(variables)
    metrics = compiled(lambda: optimizer.step(losses, variables))()
    # Both losses depend on both variables, and the parts step one after the other.
    assert variables["policy"][0].numpy() == [9]
    assert variables["value"][0].numpy() == [19]
    assert {name: float(x) for name, x in metrics.items()} == {
        "loss": 30,
        "policy_factor": 1,
        "gradient_norm": 1,
        "learning_rate": 1,
        "value_loss": 58,
        "value_factor": 2,
        "value_gradient_norm": 2,
        "value_learning_rate": 0.5,
    }


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ({"a": "adam"}, ["gradient_norm", "learning_rate"]),
        (
            {"a": "natural_gradient", "b": "adam"},
            ["gradient_norm", "cg_residual", "b_gradient_norm", "learning_rate"],
        ),
        (
            {"a": "adam", "b": "synchronization", "c": "sgd"},
            ["gradient_norm", "learning_rate", "c_gradient_norm", "c_learning_rate"],
        ),
    ],
)
def test_names_of_metrics_are_prefixed_where_they_collide(kinds, names):
    optimizer = optimizers.create({"type": "plus", **kinds})
    assert list(optimizer.metric_names) == names
    variables, losses = parts(**dict.fromkeys(kinds, 1.0))
    optimizer.build(variables)
    metrics = optimizer.step(
        losses,
        variables,
        kl=lambda items, local: tf.reduce_sum(variables["a"][0].value ** 2),
        source=[tf.ones([1])],
    )
    own = {name for name in metrics if "loss" not in name and "factor" not in name}
    assert own == set(names)


def test_needs_what_its_parts_need():
    kinds = {"a": "natural_gradient", "b": "evolutionary", "c": "adam"}
    assert optimizers.create({"type": "plus", **kinds}).needs == {"kl", "parts", "seed"}


def test_schedules_all_parts():
    rate = {"type": "linear", "from": 1e-2, "to": 0, "over": 100}
    adam = {"type": "adam", "learning_rate": rate}
    optimizer = optimizers.create({"type": "plus", "a": adam, "b": adam})
    variables, losses = parts(a=1.0, b=1.0)
    optimizer.build(variables)
    optimizer.schedule(tf.constant(50))
    metrics = optimizer.step(losses, variables)
    rates = [metrics["learning_rate"], metrics["b_learning_rate"]]
    np.testing.assert_allclose(rates, [5e-3, 5e-3], 1e-6)


def test_every_part_has_a_seed_of_its_own(move):
    variables = {name: [keras.Variable(tf.zeros([2], tf.int32))] for name in "ab"}
    losses = dict.fromkeys("ab", lambda items: (0.0, {}))
    optimizer = optimizers.Plus(a=move(lambda *x: x[1]), b=move(lambda *x: x[1]))
    optimizer.step(losses, variables, seed=SEED)
    first, second = (tuple(x[0].numpy()) for x in variables.values())
    assert first != second
