"""Optimizers from nested configs."""

import keras
import pytest
import tensorflow as tf

from agents import optimizers
from agents.optimizers import gradient
from agents.tools import config, config_files

TRUST_REGION = """
type: line_search
max_iterations: 5
optimizer: {type: natural_gradient, max_kl: 0.02, cg_damping: 1e-3}
"""
SEVERAL = (
    "{type: multi_step, num_steps: 5, optimizer: {type: adam, learning_rate: 1e-3}}"
)
BOTH = "{type: plus, policy: " + SEVERAL + ", value: rmsprop}"


def attributes(optimizer, path):
    """Classes on the way to an inner optimizer."""
    names = [type(optimizer).__name__]
    while hasattr(optimizer, path):
        optimizer = getattr(optimizer, path)
        names.append(type(optimizer).__name__)
    return names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("adam", ["Gradient", "Adam"]),
        ("sgd", ["Gradient", "SGD"]),
        ("gradient", ["Gradient", "Adam"]),
        ("{type: gradient, optimizer: rmsprop}", ["Gradient", "RMSprop"]),
        ("natural_gradient", ["NaturalGradient"]),
        ("evolutionary", ["Evolutionary"]),
        ("synchronization", ["Synchronization"]),
        (TRUST_REGION, ["LineSearch", "NaturalGradient"]),
        (SEVERAL, ["MultiStep", "Gradient", "Adam"]),
        (BOTH, ["Plus"]),
        (
            "{type: minibatch, size: 4, optimizer: {type: clipped, optimizer: nadam}}",
            ["Minibatch", "Clipped", "Gradient", "Nadam"],
        ),
    ],
)
def test_nested_configs(text, names):
    optimizer = optimizers.create(config_files.parse(text, "x"))
    variables = [keras.Variable([1.0])]
    parts = {"policy": variables, "value": variables}
    optimizer.build(parts if names == ["Plus"] else variables)
    assert attributes(optimizer, "optimizer") == names


def test_options_arrive():
    search = optimizers.create(config_files.parse(TRUST_REGION, "x"))
    assert search.max_kl == search.optimizer.max_kl == 0.02
    x = keras.Variable([1.0])
    loss_fn = lambda items: (x.value[0] ** 2, {"one": tf.constant(1.0)})  # noqa: E731
    spec = config_files.parse(BOTH, "x")
    optimizer = optimizers.create(spec)
    assert spec == config_files.parse(BOTH, "x")  # Is not changed.
    variables = {"policy": [x], "value": [x]}
    optimizer.build(variables)
    metrics = optimizer.step({"policy": loss_fn, "value": loss_fn}, variables)
    assert float(metrics["learning_rate"]) == pytest.approx(1e-3)
    assert float(metrics["value_one"]) == 1


@pytest.mark.parametrize("epsilon", ["1e-5", "0.00001", "'1e-5'"])
def test_options_of_keras(epsilon):
    text = "{type: rmsprop, learning_rate: 2e-3, rho: 0.95, centered: true, "
    text += "weight_decay: 1e-4, gradient_accumulation_steps: 2, "
    spec = config_files.parse(text + f"epsilon: {epsilon}, clip_norm: 2}}", "x")
    optimizer = optimizers.create(spec)
    optimizer.build([keras.Variable([1.0])])
    inner = optimizer.optimizer
    assert (inner.rho, inner.epsilon, inner.centered) == (0.95, 1e-5, True)
    assert float(inner.learning_rate) == pytest.approx(2e-3)
    assert (inner.weight_decay, inner.gradient_accumulation_steps) == (1e-4, 2)
    assert isinstance(inner.gradient_accumulation_steps, int)


@pytest.mark.parametrize("kind", gradient.OPTIMIZERS)
def test_all_optimizers_of_keras(kind):
    optimizer, x = optimizers.create(kind), keras.Variable([[1.0, 2.0]])
    optimizer.build([x])
    optimizer.step(lambda items: (tf.reduce_sum(x.value**2), {}), [x])
    assert (x.numpy() < [1, 2]).all()


def test_schedule():
    rate = {"type": "linear", "from": 1e-2, "to": 0, "over": 100}
    adam = {"type": "adam", "learning_rate": rate}
    optimizer = optimizers.create({"type": "clipped", "optimizer": adam})
    optimizer.build([keras.Variable([1.0])])
    optimizer.schedule(tf.constant(25, tf.int64))
    inner = optimizer.optimizer.optimizer
    assert float(inner.learning_rate) == pytest.approx(7.5e-3)


def test_optimizers_are_returned_as_they_are():
    adam = optimizers.Gradient()
    assert optimizers.create(adam) is adam
    outer = optimizers.create({"type": "multi_step", "optimizer": adam})
    assert outer.optimizer is adam


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Types.
        ("adamm", "'a.type' is 'adamm'; did you mean 'adam'?"),
        ("Adam", "'a.type' is 'Adam'; did you mean 'adam'?"),
        ("zzz", "'a.type' is 'zzz'; choose from adadelta, "),
        ("multioptimizer", "'a.type' is 'multioptimizer'; "),
        (
            "{type: line_search, optimizer: {type: natural_gradien}}",
            "'a.optimizer.type' is 'natural_gradien'; did you mean 'natural_gradient'?",
        ),
        ("{type: plus, value: {type: plux}}", "'a.value.type' is 'plux'"),
        (
            "{max_kl: 1}",
            "'a' must be a name or a mapping with a 'type', got {'max_kl': 1}",
        ),
        ("3", "'a' must be a name or a mapping with a 'type', got 3"),
        ("null", "'a' must be a name or a mapping with a 'type', got None"),
        (
            "{type: plus, policy: 3}",
            "'a.policy' must be a name or a mapping with a 'type', got 3",
        ),
        # Options.
        ("{type: adam, beta1: 0.5}", "'a.beta1'; did you mean 'beta_1'?"),
        ("{type: adam, clipnorm: 1}", "'a.clipnorm'; did you mean 'clip_norm'?"),
        ("{type: adam, optimizer: sgd}", "'a.optimizer'"),
        ("{type: gradient, rho: 0.9}", "'a.rho'"),
        ("{type: multi_step, num_stps: 3}", "'a.num_stps'; did you mean 'num_steps'?"),
        (
            "{type: plus, p: {type: multi_step, optimizer: {type: adam, rho: 1}}}",
            "'a.p.optimizer.rho'",
        ),
        # Values.
        ("{type: adam, learning_rate: fast}", "'a.learning_rate' must be"),
        (
            "{type: adam, learning_rate: {type: linear, from: 1}}",
            "without 'to', 'over'",
        ),
        ("{type: adam, block: 2.5}", "'a.block' must be int, got 2.5"),
        ("{type: adam, beta_1: true}", "'a.beta_1' must be float, got True"),
        ("{type: adam, amsgrad: 1}", "'a.amsgrad' must be bool, got 1"),
        ("{type: rmsprop, rho: abc}", "'a.rho' must be float, got 'abc'"),
        ("{type: rmsprop, weight_decay: abc}", "'a.weight_decay' must be "),
        ("{type: gradient, optimizer: 3}", "'a.optimizer' must be str, got 3"),
        (
            "{type: gradient, optimizer: adm}",
            "'a' (gradient): optimizer 'adm' is unknown",
        ),
        ("{type: evolutionary, optimizer: adm}", "; did you mean 'adam'?"),
        ("{type: natural_gradient, max_kl: [1]}", "'a.max_kl' must be float, got [1]"),
        ("{type: synchronization, tau: 2}", "'a' (synchronization): period must be"),
        ("{type: natural_gradient, subsampling_fraction: 2}", "subsampling_fraction"),
        # Nested optimizers.
        ("line_search", "'a' (line_search): missing 1 required positional argument"),
        ("{type: clipped, optimizer: null}", "'a.optimizer' must be a name or"),
        ("{type: plus, p: {type: minibatch}}", "'a.p' (minibatch): missing"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(config.ConfigError) as error:
        optimizers.create(config_files.parse(text, "x"), "a")
    assert message in str(error.value)
    assert "config key 'a" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "provided", "message"),
    [
        (TRUST_REGION, ["items", "seed"], "needs 'kl', "),
        ("natural_gradient", ["items", "seed"], "ppo, trpo, vpg and a2c provide it"),
        (
            "{type: plus, policy: natural_gradient, value: adam}",
            ["items", "seed"],
            "needs 'kl', ",
        ),
        ("{type: line_search, max_kl: 1, optimizer: adam}", [], "needs 'kl', "),
        ("synchronization", ["items", "kl", "seed"], "needs 'source', "),
        ("{type: minibatch, optimizer: adam}", ["seed"], "needs 'items', "),
        ("evolutionary", ["items"], "needs 'seed', "),
        (TRUST_REGION, ["kl"], None),
        (TRUST_REGION, None, None),
        ("{type: natural_gradient, subsampling_fraction: 0.1}", ["kl"], "'items'"),
        ("{type: line_search, optimizer: adam}", [], None),
        ("{type: multi_step, optimizer: adam}", [], None),
        ("synchronization", ["source"], None),
    ],
)
def test_functions_that_are_not_provided(text, provided, message):
    spec = config_files.parse(text, "x")
    if message is None:
        optimizers.create(spec, "a", provided)
        return
    with pytest.raises(config.ConfigError, match="^config key 'a' ") as error:
        optimizers.create(spec, "a", provided)
    assert message in str(error.value)
    assert "not provided there; " in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "spec",
    [
        "plus",
        {"type": "plus", "a": "adam"},
        {"type": "clipped", "max_norm": 1.0, "optimizer": {"type": "plus", "a": "sgd"}},
    ],
)
def test_fields_of_algorithms_take_no_plus(spec):
    with pytest.raises(config.ConfigError, match=r"'algorithm\.optimizer'.* than plus"):
        optimizers.create(spec, "algorithm.optimizer", ("items", "seed"))
