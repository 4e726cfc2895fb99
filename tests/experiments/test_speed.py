"""Measurement of speed and bottlenecks."""

import dataclasses

import pytest

from agents.environments import Environment
from agents.experiments import speed

WORKERS = Environment("CartPole-v1", "workers")


def test_bottleneck_is_named():
    rates = {"env": 100.0, "policy": 1e4, "transport": 1e4, "end_to_end": 90.0}
    assert "environments take most (90% of" in speed._advice(rates, WORKERS, False)
    rates |= {"env": 1e4, "policy": 100.0}
    assert "policy takes most (90%" in speed._advice(rates, WORKERS, True)
    rates |= {"policy": 1e4, "end_to_end": 100.0}
    assert "learning takes most (97%" in speed._advice(rates, WORKERS, True)


@pytest.mark.parametrize(
    ("id", "backend", "hint"),
    [
        ("HalfCheetah-v5", "workers", "backend mujoco"),
        ("HalfCheetah-v5", "mujoco", "simpler environments"),
        ("CartPole-v1", "workers", "a backend that is native"),
        ("CartPole-v1", "serial", "backend workers"),
        ("agents.environments.functional:Catch", "compiled", "simpler environments"),
    ],
)
def test_faster_backends_are_named(id, backend, hint):
    rates = {"env": 100.0, "policy": 1e4, "transport": 1e4, "end_to_end": 90.0}
    environment = dataclasses.replace(WORKERS, id=id, backend=backend)
    advice = speed._advice(rates, environment, False)
    assert f"more processors, or {hint}" in advice
