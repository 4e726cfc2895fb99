"""How algorithms are divided among workers."""

import types

import pytest

from agents.distributed import cluster, executor
from agents.experiments import named
from agents.memories import hindsight

HINDSIGHT = types.SimpleNamespace(memory=object.__new__(hindsight.Hindsight))


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (object(), "without a memory; only Episodes, Unrolls, Queue and Replay divide"),
        (HINDSIGHT, "with Hindsight as its memory; only Episodes"),
    ],
)
def test_algorithms_that_cannot_be_divided(agent, text):
    with pytest.raises(cluster.DistributedError, match=f"cannot run on Ray {text}"):
        executor.topology(agent)


def test_runs_end_at_the_score_of_the_config():
    executor_ = object.__new__(executor.RayExecutor)
    config = named.load("cartpole_impala", ["train.stop_at=475"])
    executor_._config = config
    executor_._loop = types.SimpleNamespace(step=100, run=lambda: [])
    executor_.run(50)
    plan = executor_._loop.plan
    assert (plan.steps, plan.stop_at) == (150, 475)


def test_halves_are_refused():
    config = named.load("debug", ["environment.action_lag=true"])
    with pytest.raises(cluster.DistributedError, match="environment.action_lag lets"):
        executor.RayLoop(config, None, [4], None, None)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "without the attribute steps"),
        ({"steps": 0}, "without the attribute generator"),
        ({"steps": 0, "generator": 0}, "without variables in acting"),
    ],
)
def test_own_algorithms_without_what_ray_needs_are_refused(more, text):
    """Else workers would keep their first weights without a word."""
    memory = types.SimpleNamespace(topology="synchronous")
    agent = types.SimpleNamespace(memory=memory, acting=lambda: [], **more)
    with pytest.raises(cluster.DistributedError, match=text):
        executor.topology(agent)
