"""Every hyperparameter that may be a schedule works as a schedule."""

import dataclasses
import typing

import numpy as np
import pytest
import simulated

from agents.experiments import config as experiment
from agents.tools import schedules, sections

UNROLLS = {"memory": "unrolls", "unroll_length": 8, "jit": False}
REPLAY = {"capacity": 64, "start_size": 8, "batch_size": 8, "jit": False}
REPLAY |= {"replay_ratio": 0.25}
KINDS = {
    "ppo": {**UNROLLS, "epochs": 2, "minibatch_size": 8},
    "clip": {"type": "ppo", "objective": "clip", **UNROLLS, "epochs": 2},
    "a2c": UNROLLS,
    "trpo": {**UNROLLS, "value_optimizer": {"type": "adam"}},
    "impala": {"unroll_length": 4, "jit": False},
    "dqn": {**REPLAY, "target_period": 2, "prioritized": True},
    "sac": REPLAY,
    "td3": REPLAY,
}
NUMBERS = {
    **{"value_clip": 0.3, "target_entropy": -0.7},
    **{"learning_rate": 1e-3, "value_learning_rate": 1e-3},
}
"""For what is none by default."""


def weights(kind, values, steps=8):
    """Return the variables learned with some settings."""
    continuous = kind in ("sac", "td3")
    envs = simulated.batch(*(simulated.Endless(True, not continuous) for _ in range(2)))
    values = {"type": kind, "network": {"layers": [8]}, **KINDS[kind], **values}
    cls = experiment.algorithm_class(values["type"])
    settings = sections.build(experiment.algorithm_config(values["type"]), values)
    agent = cls(envs.observation_space, envs.action_space, 2, 8, settings)
    result = [simulated.numbers(agent.acting())]
    for _ in range(2):
        simulated.eagerly(envs, agent, steps)
        result.append(simulated.numbers(agent.acting()))
    return result


def scheduled(kind):
    """Numbers of all hyperparameters that may be schedules and have an effect."""
    cls = experiment.algorithm_config(KINDS[kind].get("type", kind))
    hints = typing.get_type_hints(cls)
    defaults = sections.build(cls, KINDS[kind])
    unused = defaults.without_effect()
    result = {}
    for field in dataclasses.fields(cls):
        may = schedules.Schedule in typing.get_args(hints[field.name])
        if may and field.name not in unused:
            value = getattr(defaults, field.name)
            value = NUMBERS.get(field.name, 0.5) if value is None else value
            result[field.name] = schedules.ends(value)[0]
    return result


@pytest.mark.quick("dqn", "clip", "impala")
@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_schedule_is_its_number(kind):
    numbers = scheduled(kind)
    assert len(numbers) >= 3
    constant = {k: {"type": "constant", "from": x} for k, x in numbers.items()}
    *_, ours = weights(kind, numbers)
    before, *_, theirs = weights(kind, constant)
    assert not simulated.same(before, theirs)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)


def test_updates_are_counted():
    """One update is learned from, the others are not."""
    stop = {"type": "piecewise", "values": [1e-2, 0], "boundaries": [1]}
    stop["unit"] = "updates"
    values = {"learning_rate": stop, "value_learning_rate": None}
    policies = [x[:4] for x in weights("ppo", values)]
    assert not simulated.same(policies[0], policies[1])
    assert simulated.same(policies[1], policies[2])


def test_target_networks_and_norms_follow_schedules():
    fall = {"type": "linear", "from": 1.0, "to": 0.5, "over": 10}
    descent = {"type": "sgd", "learning_rate": 0.1}
    results = [
        weights("dqn", {"target_tau": fall, "optimizer": {**descent, "clip_norm": x}})[
            -1
        ]
        for x in (fall, {"type": "constant", "from": 1.0}, 1e-9)
    ]
    assert not simulated.same(results[0], results[2])
