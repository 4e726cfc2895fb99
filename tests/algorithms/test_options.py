"""Fields of configs that have no effect beside others, and learning rates."""

import copy
import operator

import numpy as np
import pytest
import simulated
import tensorflow as tf

from agents import optimizers
from agents.algorithms import ppo
from agents.experiments import config as experiment
from agents.experiments import named
from agents.tools import bounds, config, config_files, schedules, sections

ADAM = {"type": "adam", "learning_rate": 0.5}
RATES = "on optimizers with rates of their own"
NATURE = {"memory": "unrolls", "network": {"convolutions": [[4, 3, 2]], "layers": [4]}}
GRU = {"layers": [4, {"type": "gru", "units": 3}]}
UNROLLS = {"memory": "unrolls", "jit": False}
BOTH = {"optimizer": ADAM, "value_optimizer": ADAM}
SHARED = {"network": {"shared": True}}
TABLE = [
    ("ppo", {"memory": "unrolls"}, "update_every", 60, "memory unrolls"),
    ("ppo", {}, "unroll_length", 32, "whole episodes"),
    ("ppo", {}, "chunk_length", 8, "not recurrent"),
    ("ppo", {"normalize_rewards": "none"}, "reward_clip", 5.0, "rewards none"),
    ("ppo", {}, "value_coef", 1.0, "losses of their own"),
    *(
        ("ppo", {"objective": "clip"}, key, 0.5, "objective clip")
        for key in ("kl_target", "kl_cutoff_factor", "kl_cutoff_coef", "kl_penalty")
    ),
    ("ppo", {}, "clip", 0.1, "objective kl"),
    ("ppo", {"kl_cutoff_coef": 0.0}, "kl_cutoff_factor", 3.0, "kl_cutoff_coef 0"),
    ("ppo", {"minibatch_size": 8}, "block_size", 8, "minibatches"),
    ("ppo", {"memory": "unrolls"}, "block_size", 8, "compiled"),
    ("ppo", {**NATURE, "jit": True}, "block_size", 8, "compiled"),
    ("ppo", NATURE, "block_size", 8, None),
    ("ppo", {"optimizer": ADAM}, "learning_rate", 0.1, RATES),
    ("ppo", {"value_optimizer": ADAM}, "value_learning_rate", 0.1, RATES),
    ("ppo", SHARED, "value_learning_rate", 0.1, "shared network"),
    *(
        ("ppo", BOTH, key, value, "optimizer and value_optimizer")
        for key, value in {
            **{"epochs": 3, "minibatch_size": 8, "block_size": 8},
            **{"adam_epsilon": 0.1, "clip_norm": 0.5},
        }.items()
    ),
    ("a2c", {}, "update_every", 60, "memory unrolls"),
    ("a2c", {"optimizer": ADAM}, "learning_rate", 0.1, RATES),
    ("vpg", {}, "unroll_length", 32, "whole episodes"),
    ("vpg", BOTH, "learning_rate", 0.1, RATES),
    ("trpo", {}, "value_coef", 1.0, "losses of their own"),
    ("trpo", {"value_optimizer": ADAM}, "learning_rate", 0.1, RATES),
    ("impala", {"normalize_rewards": "soft_asymmetric"}, "reward_clip", 5.0, "soft_"),
    ("impala", {"optimizer": ADAM}, "learning_rate", 0.1, RATES),
    ("dqn", {}, "priority_alpha", 0.5, "prioritized"),
    ("dqn", {}, "priority_beta", 0.5, "prioritized"),
    ("dqn", {"noisy_std": 0.5}, "epsilon", 0.1, "noisy_std"),
    ("dqn", {}, "value_range", [0.0, 1.0], "atoms"),
    ("dqn", {"atoms": 3}, "huber_delta", 2.0, "divergence"),
    ("dqn", {"optimizer": ADAM}, "learning_rate", 0.1, RATES),
    ("dqn", {}, "network.shared", True, "replay"),
    ("apex", {"epsilon": 0.0}, "epsilon_alpha", 2.0, "epsilon 0"),
    ("apex", {"prioritized": False}, "priority_alpha", 0.5, "prioritized"),
    ("sac", {}, "network.output_scale", 0.5, "replay"),
    ("sac", {}, "network.continuous", "beta", "replay"),
    (
        *("sac", {"temperature_optimizer": {"type": "sgd", "learning_rate": 0.0}}),
        *("target_entropy", -3.0, "stays as it is"),
    ),
    (
        *("sac", dict.fromkeys(["optimizer", "critic_optimizer"], ADAM)),
        *("learning_rate", 0.1, None),  # The temperature has it.
    ),
    ("td3", {"noise_std": 0.0}, "noise", "ornstein_uhlenbeck", "noise_std 0"),
    ("td3", {"target_noise": 0.0}, "target_noise_clip", 0.1, "target_noise 0"),
    (
        *("td3", dict.fromkeys(["optimizer", "critic_optimizer"], ADAM)),
        *("learning_rate", 0.1, RATES),
    ),
    ("td3", {}, "network.initial_std", 0.2, "replay"),
    ("ppo", {"network": {"layers": []}}, "network.activation", "elu", "without layers"),
    (
        *("ppo", {"network": {"continuous": "beta"}}),
        *("network.mean_activation", "sigmoid", "continuous beta"),
    ),
    (
        *("ppo", {"network": {"join": "keras.layers:Concatenate"}}),
        *("network.convolutions", [[4, 3, 2]], "with join"),
    ),
]
"""Algorithm, its settings, a field, a value, and why it has no effect; or that it has."""


def build(kind, values, key=None, value=None):
    """Config of an algorithm with one more value."""
    values = copy.deepcopy({"type": kind, **values})
    if key:
        section, _, name = key.rpartition(".")
        (values.setdefault(section, {}) if section else values)[name] = value
    return sections.build(experiment.algorithm_config(kind), values, "algorithm")


@pytest.mark.parametrize(("kind", "values", "key", "value", "reason"), TABLE)
def test_what_has_no_effect_is_refused(kind, values, key, value, reason):
    default = build(kind, values)
    if reason is None:
        build(kind, values, key, value)
        return
    with pytest.raises(config.ConfigError) as caught:
        build(kind, values, key, value)
    text = str(caught.value)
    assert text.startswith(
        f"config key 'algorithm.{key}' is {value!r} but has no effect"
    )
    assert reason in text
    usual = operator.attrgetter(key)(default)
    usual = usual.to_dict() if isinstance(usual, schedules.Schedule) else usual
    usual = list(usual) if isinstance(usual, tuple) else usual
    assert text.endswith(f"; leave it out, or at {usual!r}.")
    build(kind, values, key, usual)


def test_the_message_says_what_to_do():
    values = {"update_every": 60, "memory": "unrolls"}
    with pytest.raises(config.ConfigError) as caught:
        sections.build(ppo.Config, values, "algorithm")
    assert str(caught.value) == (
        "config key 'algorithm.update_every' is 60 but has no effect with memory "
        "unrolls; leave it out, or at 25."
    )
    with pytest.raises(
        bounds.OutOfBounds, match="update_every is 60 but has no effect"
    ):
        ppo.Config(**values)


@pytest.mark.parametrize("network", ["small", "nature", "convolutional", "residual"])
@pytest.mark.parametrize("kind", ["dqn", "sac", "td3"])
def test_presets_of_networks_suit_all_algorithms(kind, network):
    """Though they say how heads are made, which some have not."""
    settings = build(kind, {"network": network})
    assert sections.build(type(settings), sections.to_dict(settings)) == settings


@pytest.mark.parametrize("name", named.EXPERIMENTS)
def test_complete_configs_load_again(name):
    settings = named.load(name)
    values = sections.to_dict(settings)
    assert experiment.resolve(values) == settings
    changed = experiment.resolve(config_files.override(values, ["train.steps=7"]))
    assert changed.algorithm == settings.algorithm


def other(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        others = {"gaussian": "ornstein_uhlenbeck", "normal": "beta"}
        return others.get(value, "elu")
    if isinstance(value, tuple):
        return tuple(x / 2 for x in value) if value else ((4, 3, 2),)
    if isinstance(value, int):
        return value + 3
    return (
        0.625 if value is None or isinstance(value, schedules.Schedule) else value / 2
    )


def with_others(settings):
    """Unchecked copy in which all is changed that has no effect, and the names."""
    changed = copy.copy(settings)
    names = settings.without_effect()
    for name in names:
        section, _, inner = name.rpartition(".")
        target = changed
        if section:
            target = copy.copy(getattr(changed, section))
            object.__setattr__(changed, section, target)
        object.__setattr__(target, inner, other(getattr(target, inner)))
    return changed, names


CASES = {
    "ppo kl": ("ppo", {"epochs": 2, "minibatch_size": 8, **UNROLLS}),
    "ppo kl 0": ("ppo", {"kl_cutoff_coef": 0.0, **UNROLLS}),
    "ppo clip": ("ppo", {"objective": "clip", "epochs": 2, **UNROLLS}),
    "ppo gru": ("ppo", {**UNROLLS, "epochs": 2, "chunk_length": 4, "network": GRU}),
    "ppo shared": ("ppo", {**UNROLLS, **SHARED, "epochs": 2}),
    "ppo both": ("ppo", {**UNROLLS, **BOTH}),
    "ppo episodes": ("ppo", {"update_every": 2, "epochs": 2, "jit": False}),
    "ppo none": ("ppo", {**UNROLLS, "normalize_rewards": "none"}),
    "ppo linear": ("ppo", {**UNROLLS, "network": {"layers": []}}),
    "a2c": ("a2c", UNROLLS),
    "a2c sgd": ("a2c", {**UNROLLS, "optimizer": {"type": "sgd"}}),
    "a2c rate": ("a2c", {**UNROLLS, "optimizer": ADAM}),
    "vpg": ("vpg", {"update_every": 2, "jit": False, **BOTH}),
    "trpo": ("trpo", {**UNROLLS, "optimizer": ADAM}),
    "impala": ("impala", {"jit": False, "normalize_rewards": "soft_asymmetric"}),
    "dqn": ("dqn", {}),
    "dqn noisy": ("dqn", {"noisy_std": 0.5, "prioritized": True}),
    "dqn atoms": ("dqn", {"atoms": 3, "optimizer": ADAM}),
    "apex": ("apex", {"prioritized": False, "epsilon": 1.0}),
    "sac": (
        *("sac", {"temperature_optimizer": {"type": "sgd", "learning_rate": 0.0}}),
    ),
    "td3": ("td3", {"noise_std": 0.0, "target_noise": 0.0}),
}
SHORT = {"unroll_length": 4}
REPLAY = {"capacity": 64, "start_size": 8, "batch_size": 8, "replay_ratio": 0.25}


def short(name):
    """Config of a case that learns soon."""
    kind, values = CASES[name]
    values = {"network": {"layers": [4]}, **values}
    if "capacity" in experiment.algorithm_config(kind).__dataclass_fields__:
        values = {**REPLAY, "jit": False, **values}
    elif kind == "impala" or values.get("memory") == "unrolls":
        values = {**SHORT, **values}
    return build(kind, values)


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_effect_changes_no_optimizer(name, monkeypatch):
    """Descriptions are compared, which `create` would make optimizers of."""
    settings = short(name)
    changed, names = with_others(settings)
    assert names
    monkeypatch.setattr(optimizers, "create", lambda spec, *_: spec)
    for method in ("create_optimizer", "create_optimizers"):
        if hasattr(settings, method):
            assert getattr(changed, method)() == getattr(settings, method)()


def weights(settings):
    """Train briefly; return the variables of acting."""
    kind = settings.type
    discrete = kind not in ("sac", "td3")
    envs = simulated.batch(*(simulated.Endless(True, discrete) for _ in range(2)))
    cls = experiment.algorithm_class(kind)
    agent = cls(envs.observation_space, envs.action_space, 2, 8, settings, 3)
    before = simulated.numbers(agent.network.variables if discrete else agent.acting())
    simulated.eagerly(envs, agent, 16)
    after = simulated.numbers(agent.network.variables if discrete else agent.acting())
    return before, after


@pytest.mark.quick("dqn noisy", "ppo clip")
@pytest.mark.parametrize("name", CASES)
def test_what_has_no_effect_changes_nothing_that_is_learned(name):
    settings = short(name)
    before, ours = weights(settings)
    assert not simulated.same(before, ours)
    _, theirs = weights(with_others(settings)[0])
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(left, right)


# Learning rates.


def rates(settings, monkeypatch):
    """Learning rates of all that a config makes optimizers of."""
    found = []

    def look(spec):
        if isinstance(spec, dict):
            found.extend([spec["learning_rate"]] if "learning_rate" in spec else [])
            for value in spec.values():
                look(value)

    monkeypatch.setattr(optimizers, "create", lambda spec, *_: spec)
    if hasattr(settings, "create_optimizers"):
        look(dict(enumerate(settings.create_optimizers())))
    else:
        look(settings.create_optimizer()[0])
    return found


@pytest.mark.parametrize("kind", ["ppo", "vpg", "a2c", "trpo", "impala"])
def test_optimizers_of_policies_may_be_names(kind, monkeypatch):
    monkeypatch.setattr(optimizers, "create", lambda spec, *_: spec)
    specs = "adam", {"type": "adam"}
    found = [build(kind, {"optimizer": x}).create_optimizer() for x in specs]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["dqn", "apex", "sac", "td3"])
def test_optimizers_of_values_may_be_names(kind, monkeypatch):
    monkeypatch.setattr(optimizers, "create", lambda spec, *_: spec)
    specs = "adam", {"type": "adam"}
    found = [build(kind, {"optimizer": x}).create_optimizers() for x in specs]
    assert found[0] == found[1]


RATE = schedules.Schedule("linear", 0.1, 0.0, 50.0)


@pytest.mark.parametrize("rate", [0.125, RATE])
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        *(("a2c", 1), ("trpo", 1), ("impala", 1), ("dqn", 1)),
        *(("apex", 1), ("sac", 3), ("td3", 2), ("ppo", 1)),
    ],
)
def test_one_rate_for_all_optimizers(kind, count, rate, monkeypatch):
    values = {"value_learning_rate": None, **SHARED} if kind == "ppo" else {}
    declared = rate if isinstance(rate, float) else rate.to_dict()
    settings = build(kind, values, "learning_rate", declared)
    assert rates(settings, monkeypatch) == [rate] * count


def test_values_of_vpg_have_their_own_rate(monkeypatch):
    settings = build("vpg", {"learning_rate": 0.125})
    assert rates(settings, monkeypatch) == [0.125, 1e-3]


@pytest.mark.parametrize("kind", ["a2c", "vpg", "impala", "dqn", "apex"])
def test_a_declared_rate_stays_even_if_it_is_the_default(kind, monkeypatch):
    default = build(kind, {})
    declared = {**default.optimizer, "learning_rate": default.learning_rate}
    settings = build(kind, {"optimizer": declared})
    assert rates(settings, monkeypatch)[0] == default.learning_rate
    with pytest.raises(config.ConfigError, match=RATES):
        build(kind, {"optimizer": declared, "learning_rate": 0.125})


def test_a_declared_rate_stays_beside_optimizers_that_take_the_common_one(monkeypatch):
    declared = {"type": "adam", "learning_rate": 3e-4}
    settings = build("sac", {"optimizer": declared, "learning_rate": 0.125})
    assert rates(settings, monkeypatch) == [0.125, 3e-4, 0.125]


def test_optimizers_that_are_set_take_the_rate_unless_they_have_one(monkeypatch):
    rated = {"learning_rate": 0.125}
    inner = {"type": "minibatch", "epochs": 2, "optimizer": {"type": "sgd"}}
    for spec in ({"type": "sgd"}, inner, {"type": "evolutionary"}):
        settings = build("a2c", {**rated, "optimizer": spec})
        assert rates(settings, monkeypatch) == [0.125]
        monkeypatch.undo()
    critics = {"type": "sgd", "learning_rate": 0.25}
    settings = build("sac", {**rated, "critic_optimizer": critics})
    assert rates(settings, monkeypatch) == [0.25, 0.125, 0.125]
    monkeypatch.undo()
    trust = {"type": "natural_gradient"}
    assert optimizers.rated(trust, 0.1) is trust


def test_optimizers_of_ppo_take_a_rate_each(monkeypatch):
    own = {"optimizer": {"type": "sgd"}, "value_optimizer": {"type": "rmsprop"}}
    both = {"learning_rate": 0.125, "value_learning_rate": 0.25}
    settings = build("ppo", {**own, **both})
    assert rates(settings, monkeypatch) == [0.125, 0.25]
    monkeypatch.undo()
    settings = build("ppo", {**own, **both, "value_learning_rate": None})
    assert rates(settings, monkeypatch) == [0.125, 0.125]


def test_the_rate_is_that_of_the_optimizer():
    settings = build("a2c", {"learning_rate": 0.125})
    optimizer, _ = settings.create_optimizer()
    variables = [tf.keras.Variable(1.0)]
    optimizer.build(variables)
    metrics = optimizer.step(lambda _: (variables[0] * 1.0, {}), variables)
    assert metrics["learning_rate"] == 0.125


def test_the_rate_of_a_named_config_can_be_set():
    for name in named.EXPERIMENTS:
        settings = named.load(name, ["algorithm.learning_rate=1e-5"])
        assert settings.algorithm.learning_rate == 1e-5
