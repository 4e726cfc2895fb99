"""Ray on this machine, once for all tests of a module."""

import contextlib
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from agents import distributed
from agents.distributed import cluster, phases
from agents.experiments import named, runs
from agents.tools import loop


@pytest.fixture(scope="module")
def ray():
    """Ray with two CPUs."""
    with cluster.connected(None, 2, 2):
        import ray

        yield ray


@pytest.fixture
def execute(ray):
    """Make executors, which are closed when the test is over."""
    with contextlib.ExitStack() as stack:

        def function(name, *overrides, num_workers=1, **options):
            config = named.load(name, overrides)
            options = phases.Options(**options)
            executor = distributed.RayExecutor(config, num_workers, options=options)
            return stack.enter_context(executor)

        yield function


@pytest.fixture
def kill(ray):
    """Kill the process of an actor, and wait until Ray knows; returns its number."""

    def function(actor):
        number = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
        os.kill(number, signal.SIGKILL)
        with contextlib.suppress(ray.exceptions.RayActorError):
            while True:
                ray.get(actor.__ray_call__.remote(lambda _: None))
        return number

    return function


@pytest.fixture
def run_here():
    """Run a config without Ray; returns the algorithm and the finished reports."""

    def function(name, steps, *overrides):
        config = named.load(name, overrides)
        agent = runs.algorithm(config, runs.describe(config))
        env = runs.environments(config, backend="serial")
        train = config.train
        plan = loop.Plan(steps, train.eval_every, train.eval_episodes)
        reports = loop.Loop(env, agent, plan, config.seed).run()
        return agent, [report for report in reports if report.finished]

    return function


@pytest.fixture
def assert_same():
    """Compare two algorithms by all that a checkpoint holds, except for memories."""

    def function(ours, theirs, tolerance=1e-5):
        ours, theirs = variables(ours), variables(theirs)
        assert len(ours) == len(theirs) > 10
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)

    return function


def variables(algorithm):
    """Values of variables, in a fixed order."""
    persistent = {**algorithm.persistent(), "memory": {}}
    root = tf.train.Checkpoint(**persistent)
    found = tf.train.TrackableView(root).descendants()
    found = [x for x in found if isinstance(x, tf.Variable)]
    networks = [x for x in persistent.values() if isinstance(x, list)]
    found += [x for network in networks for x in network]
    return [np.asarray(x) for x in found if not isinstance(x, tf.Module)]
