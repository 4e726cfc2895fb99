"""Environments in other processes."""

import os
import sys
import threading
import time

import cloudpickle
import numpy as np
import psutil
import pytest

from agents.testing import mocks
from agents.tools import processes, wrappers

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Custom(mocks.MockEnvironment):
    """Mock with something to read and to call."""

    answer = 42
    lock = property(lambda self: threading.Lock())

    def add(self, x, y=1):
        return x + y

    def fail(self):
        raise KeyError("inner")

    def wait(self, seconds):
        time.sleep(seconds)

    def render(self):
        return "picture"


@pytest.fixture
def external():
    """Custom environment in another process."""
    env = wrappers.ExternalProcess(lambda: Custom(durations=[3]))
    yield env
    env.close()
    assert not psutil.Process().children()


def test_external_process_steps_like_the_environment(external):
    assert external.observation_space == Custom().observation_space
    assert external.action_space == Custom().action_space
    observation, info = external.reset(seed=1, options={})
    assert observation.tolist() == [0, 0]
    assert info == {}
    action = external.action_space.sample()
    observation, *rest = external.step(action)
    assert observation.tolist() == [1, 1]
    assert rest == [1.0, False, False, {}]


def test_promises_wait_for_results(external):
    promise = external.reset(blocking=False)
    assert promise()[0].tolist() == [0, 0]
    promise = external.step(np.zeros(1), blocking=False)
    with pytest.raises(RuntimeError, match="promise"):
        external.step(np.zeros(1))
    assert promise()[0].tolist() == [1, 1]
    assert promise()[0].tolist() == [1, 1]
    assert external.step(np.zeros(1))[0].tolist() == [2, 2]


def test_attributes_and_calls_are_forwarded(external):
    assert external.answer == 42
    assert external.call("add", 1)() == 2
    assert external.call("add", 1, y=5)() == 6
    assert external.render() == "picture"
    for name in ("missing", "lock", "add", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(external, name)
    assert not hasattr(external, "other")
    assert external.answer == 42


def test_errors_of_the_environment_end_the_process(external):
    external.reset()
    with pytest.raises(processes.EnvProcessError, match="fail(.|\n)*KeyError: 'inner'"):
        external.call("fail")()
    assert not psutil.Process().children()
    with pytest.raises(RuntimeError, match="closed"):
        external.step(np.zeros(1))


def test_calls_that_take_too_long_end_the_process():
    env = wrappers.ExternalProcess(Custom, timeout=0.5)
    with pytest.raises(processes.EnvProcessError, match="within 0.5 s.*wait"):
        env.call("wait", 1000)()
    assert not psutil.Process().children()


def test_starting_does_not_wait(tmp_path):
    def construct():
        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 5:  # All of them are at work at once.
            time.sleep(0.01)
        return Custom()

    envs = [wrappers.ExternalProcess(construct) for _ in range(4)]
    (tmp_path / "begin").touch()  # Nothing is constructed before.
    for env in envs:
        env.reset()
    closing = [env.close(blocking=False) for env in envs]
    for promise in closing:
        promise()
    assert not psutil.Process().children()
