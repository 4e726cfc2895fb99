"""Measurement of speed and bottlenecks."""

import contextlib
import dataclasses
import functools
import types

import environments_for_tests
import numpy as np
import pytest
from gymnasium import spaces as gs

from agents import tools
from agents.environments import Environment, make
from agents.experiments import config as experiment
from agents.experiments import runs, speed
from agents.tools import algorithm as algorithm_

WORKERS = Environment("CartPole-v1", "workers")
PARTS = {"environment": 2.0, "crossing": 1.0, "acting": 1.0, "remembering": 1.0}


@pytest.mark.parametrize("worst", [*PARTS, "learning"])
def test_bottleneck_is_named(worst):
    parts = {**PARTS, "learning": 1.0, worst: 9.0}
    advice = speed._advice(parts, 15.0, WORKERS)
    assert advice.startswith(f"{worst} takes most (60% of a step); use ")


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
    environment = dataclasses.replace(WORKERS, id=id, backend=backend)
    advice = speed._advice(PARTS, 5.0, environment)
    assert f"more processors, or {hint}" in advice


def test_environments_that_do_nothing_are_cut_off_at_different_times():
    found = gs.Box(-1, 1, (2,)), gs.Discrete(2)
    nothing = speed._Nothing(make.Description(*found, 6), 3)
    batch = tools.InGraphBatchEnv(nothing)

    class Constant(algorithm_.Algorithm):
        def perform(self, agent_indices, observation, training=True):
            return np.zeros(3, np.int64)

    ended = tools.simulate(batch, Constant(), 12, training=False)
    done = ended["done"].numpy()
    assert np.array_equal(
        np.argwhere(done), [[1, 2], [3, 1], [5, 0], [7, 2], [9, 1], [11, 0]]
    )
    assert (ended["length"].numpy()[7:][done[7:]] == 6).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [{"type": "vpg", "update_every": 2}, {"type": "dqn", "start_size": 200}],
    ids=lambda x: x["type"],
)
def test_learning_is_measured_once_it_has_begun(monkeypatch, algorithm):
    """Updates of the one happen at ends of episodes, of the other after 200 steps."""
    monkeypatch.setattr(speed, "SECONDS", 0.1)
    environment = {"id": "CartPole-v1", "backend": "serial", "num_agents": 4}
    settings = {"jit": False, "network": "small", **algorithm}
    config = experiment.resolve(
        {
            "name": "speed",
            "environment": environment,
            "algorithm": settings,
            "train": {"steps": 1000},
        }
    )
    agents = []
    create = runs.algorithm

    def keep(*args):
        agents.append(create(*args))
        return agents[-1]

    monkeypatch.setattr(runs, "algorithm", keep)
    result = speed.measure(config, True, 400)
    assert agents[0].updates.numpy() > 0
    assert all(x.updates.numpy() == 0 for x in agents[1:])
    assert set(result["parts_us"]) == {*PARTS, "learning"}


@pytest.mark.parametrize(
    "action_space",
    [gs.Discrete(2), gs.Discrete(3, start=5), gs.MultiDiscrete([2, 3], start=[1, 0])],
    ids=str,
)
def test_action_masks_are_obeyed(monkeypatch, action_space):
    monkeypatch.setattr(speed, "SECONDS", 0.05)
    environment = Environment(
        functools.partial(environments_for_tests.Strict, action_space),
        "serial",
        3,
        action_mask=True,
    )
    config = types.SimpleNamespace(environment=environment)
    assert speed._environments(config) > 0
    assert speed.bare(make.constructor(environment), 0.05, 4)[1] > 0
    with contextlib.closing(make.batch(environment)) as batch:
        found = batch.observation_space, batch.action_space
    nothing = speed._Nothing(make.Description(*found, 6), 50)
    assert (nothing.reset()["action_mask"] == 1).all()
