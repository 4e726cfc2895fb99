"""Worker processes: their failures, leftovers and costs."""

import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import cloudpickle
import gymnasium
import numpy as np
import psutil
import pytest

from agents.environments import Environment, make, workers
from agents.testing import mocks
from agents.tools import batch_env, processes, wrappers

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TwoArguments(Exception):
    """Cannot be unpickled by default."""

    def __init__(self, one, two):
        super().__init__(one)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def hard_exit():
    os._exit(3)


def soft_exit():
    sys.exit(4)


def sleep():
    time.sleep(1000)


def unpicklable():
    class Local(Exception):
        def __reduce__(self):
            raise TypeError

    raise Local("this one")


def two_arguments():
    raise TwoArguments("first one", "second one")


class Faulty(mocks.MockEnvironment):
    """Misbehaves in its second step, second reset, or constructor."""

    def __init__(self, fault=None, where="step"):
        super().__init__(durations=[100])
        self.fault = fault or (lambda: None)
        self.where = where
        if where == "construct":
            self.fault()

    def reset(self, **kwargs):
        if self.where == "reset" and self.lengths:
            self.fault()
        return super().reset(**kwargs)

    def step(self, action):
        if self.where == "step" and self.lengths[-1] == 1:
            self.fault()
        return super().step(action)


def constructors(fault, where="step", size=4, faulty=2):
    """Constructors of environments of which one misbehaves."""
    result = [Faulty] * size
    result[faulty] = functools.partial(Faulty, fault, where)
    return result


def children():
    """Living descendants of this process."""
    return {
        child.pid
        for child in psutil.Process().children(recursive=True)
        if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    }


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """After each test there are no processes and file descriptors left."""
    gc.collect()  # Of what other tests have left.
    pids, descriptors = children(), psutil.Process().num_fds()
    yield
    deadline = time.monotonic() + 60
    while children() - pids and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children() <= pids
    gc.collect()
    assert psutil.Process().num_fds() <= descriptors


def foreign():
    error = OSError("boom")
    error.where = ("file.c", 3)
    raise error


FAULTS = [
    (kill, "killed by SIGKILL", ""),
    (hard_exit, "exit code 3", ""),
    (soft_exit, "exit code 4", "SystemExit: 4"),
    (sleep, "within 3 s", "still running"),
    (unpicklable, "exit code 1", "this one"),
    (foreign, "exit code 1", "OSError: boom"),
    (two_arguments, "exit code 1", "TwoArguments: first one"),
]


def workers_batch(made, timeout=60):
    return workers.Workers(made, num_workers=2, timeout=timeout)


def process_batch(made, timeout=60):
    envs = [wrappers.ExternalProcess(constructor, timeout) for constructor in made]
    return batch_env.BatchEnv(envs, blocking=False)


@pytest.mark.quick(
    "soft_exit-exit code 4-SystemExit: 4-process_batch",
    "two_arguments-exit code 1-TwoArguments: first one-workers_batch",
    "sleep-within 3 s-still running-process_batch",
    "unpicklable-exit code 1-this one-workers_batch",
    "hard_exit-exit code 3--workers_batch",
)
@pytest.mark.parametrize("backend", [workers_batch, process_batch])
@pytest.mark.parametrize(("fault", "status", "text"), FAULTS)
def test_faults_in_steps_are_reported(backend, fault, status, text):
    batch = backend(constructors(fault), 3 if fault is sleep else 60)
    batch.reset()
    batch.step(np.zeros((4, 1)))
    start = time.monotonic()
    with pytest.raises(processes.EnvProcessError) as caught:
        batch.step(np.zeros((4, 1)))
    assert time.monotonic() - start < 30
    message = str(caught.value)
    assert message.startswith("Environment row 2:")
    assert "step" in message.splitlines()[0]
    assert status in message
    assert text in message
    assert "worker process" in message
    if text and fault is not sleep:
        assert "Traceback" in message
        assert fault.__name__ in message
    assert not children()
    with pytest.raises(RuntimeError, match="closed"):
        batch.step(np.zeros((4, 1)))
    batch.close()


@pytest.mark.parametrize("backend", [workers_batch, process_batch])
def test_faults_in_resets_are_reported(backend):
    batch = backend(constructors(kill, "reset"))
    batch.reset()
    batch.reset([0, 1, 3])
    with pytest.raises(processes.EnvProcessError, match="row 2: .*SIGKILL.* reset"):
        batch.reset([1, 2])
    assert not children()


@pytest.mark.quick("unpicklable-this one-process_batch", "kill-SIGKILL-workers_batch")
@pytest.mark.parametrize("backend", [workers_batch, process_batch])
@pytest.mark.parametrize(
    ("fault", "text"), [(kill, "SIGKILL"), (unpicklable, "this one")]
)
def test_faults_in_constructors_are_reported(backend, fault, text):
    with pytest.raises(processes.EnvProcessError) as caught:
        backend(constructors(fault, "construct"))
    assert str(caught.value).startswith("Environment row 2:")
    assert text in str(caught.value)
    assert "start" in str(caught.value)
    gc.collect()
    assert not children()


@pytest.mark.slow
def test_constructors_that_hang_are_reported():
    made = constructors(sleep, "construct", faulty=0)
    with pytest.raises(processes.EnvProcessError, match="row 0: .*within 5 s"):
        # A busy machine needs over a second until the process has imported NumPy.
        workers.Workers(made, num_workers=2, start_timeout=5)


def test_time_limits_are_for_each_environment():
    class Slow(mocks.MockEnvironment):
        def reset(self, **kwargs):
            time.sleep(0.3)
            return super().reset(**kwargs)

    batch = workers.Workers([Slow] * 6, num_workers=1, timeout=1.0)
    batch.reset()
    batch.close()


def test_killed_worker_is_reported_when_idle():
    batch = workers_batch([Faulty] * 4)
    batch.reset()
    pid = max(children())
    os.kill(pid, signal.SIGTERM)
    with pytest.raises(processes.EnvProcessError, match=f"rows .*{pid}.*SIGTERM"):
        batch.step(np.zeros((4, 1)))


def test_different_spaces_are_refused():
    made = [mocks.MockEnvironment, functools.partial(mocks.MockEnvironment, (3,))]
    with pytest.raises(ValueError, match="row 0 has .* row 1 has"):
        workers.Workers(made)


def test_constructors_that_cannot_be_sent_are_refused():
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="Cannot send the environment constructor"):
        workers.Workers([lambda: lock])


@pytest.mark.parametrize("count", [0, -1])
def test_number_of_workers_is_checked(count):
    with pytest.raises(ValueError, match="workers"):
        workers.Workers([Faulty], count)


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_many_creations_do_not_hang(count):
    for seed in range(count):
        batch = make.batch(Environment("CartPole-v1", "workers", 8, 1 + (seed == 0)))
        batch.reset(seeds=np.arange(8))
        batch.step(np.zeros(8, int))
        batch.close()


def test_dropping_the_batch_ends_the_workers():
    batch = workers_batch([Faulty] * 2)
    assert len(children()) == 2
    del batch
    gc.collect()
    assert not children()


class Inspect(gymnasium.Wrapper):
    """Tells about its process."""

    def modules(self):
        return {name.partition(".")[0] for name in sys.modules}

    def environ(self):
        return dict(os.environ)


def test_workers_are_light_and_anonymous():
    made = make.constructor(
        Environment(lambda: Inspect(gymnasium.make("HalfCheetah-v5")))
    )
    batch = workers.Workers([made] * 8, num_workers=2)
    batch.reset()
    batch.step(np.zeros((8, 6)))
    assert not batch[0].call("modules")() & {"tensorflow", "keras", "ray", "pytest"}
    environ = batch[0].call("environ")()
    assert environ["OMP_NUM_THREADS"] == "1"
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    for pid in children():
        process = psutil.Process(pid)
        assert process.memory_info().rss < 120e6
        assert not [x for x in process.memory_maps() if x.path.startswith("/dev/shm")]
    batch.close()


SCRIPT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore it.
import numpy as np
import gymnasium
from agents.environments import Environment, make

class Env(gymnasium.Wrapper):
    def step(self, action):
        if action == 1:
            os.write(1, b"hanging\\n")  # In one piece, as others write here, too.
            time.sleep(1000)
        return super().step(action)

def construct():
    return Env(gymnasium.make("CartPole-v1"))

workers = 2 if {backend!r} == "workers" else None
batch = make.batch(Environment(construct, {backend!r}, 4, workers))
batch.reset(seeds=np.arange(4))
batch.step(np.zeros(4, int))
print("ready", flush=True)
sys.stdin.readline()
{end}
"""


@pytest.fixture
def run_script():
    """Start scripts without a main guard; return each with its workers once it runs."""
    with contextlib.ExitStack() as scripts:

        def run(backend, end):
            code = textwrap.dedent(SCRIPT).format(backend=backend, end=end)
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            script = subprocess.Popen([sys.executable, "-c", code], **pipes)
            scripts.enter_context(script)
            scripts.callback(script.kill)
            assert script.stdout.readline() == b"ready\n"
            found = psutil.Process(script.pid).children(recursive=True)
            assert found
            script.stdin.write(b"\n")
            script.stdin.flush()
            return script, found

        yield run


def finish(script, found):
    """Exit code and errors of a script whose workers must end as well."""
    errors = script.communicate(timeout=120)[1].decode()
    _, alive = psutil.wait_procs(found, timeout=60)
    assert not alive
    return script.returncode, errors


BACKENDS = pytest.mark.parametrize("backend", ["process", "workers"])


@BACKENDS
def test_script_without_main_guard_works_and_needs_no_close(run_script, backend):
    script, found = run_script(backend, "")
    assert finish(script, found) == (0, "")


@BACKENDS
def test_exception_in_the_main_thread_ends_everything(run_script, backend):
    script, found = run_script(backend, "raise KeyError('mine')")
    code, errors = finish(script, found)
    assert code == 1
    assert errors.count("Traceback") == 1


@BACKENDS
def test_interrupt_ends_everything_quietly(run_script, backend):
    script, found = run_script(backend, "time.sleep(100)")
    for process in (*found, script):  # As from a terminal.
        process.send_signal(signal.SIGINT)
    code, errors = finish(script, found)
    assert code != 0
    assert errors.count("KeyboardInterrupt") == 1


@pytest.mark.quick("idle-workers", "hanging-process")
@BACKENDS
@pytest.mark.parametrize(
    "end", ["time.sleep(100)", "batch.step(np.ones(4, int))"], ids=["idle", "hanging"]
)
def test_killing_the_trainer_ends_everything(run_script, backend, end):
    script, found = run_script(backend, end)
    if "step" in end:
        assert script.stdout.readline() == b"hanging\n"
    script.kill()
    assert finish(script, found) == (-signal.SIGKILL, "")


class Sharing(gymnasium.Env):
    """Observes its own number, in an array that all environments share."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    shared = np.zeros(1, np.float32)

    def __init__(self, number):
        self.number = number

    def reset(self, *, seed=None, options=None):
        self.shared[0] = self.number
        return self.shared, {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


def test_rows_of_a_worker_may_share_an_array():
    batch = workers.Workers([lambda x=x: Sharing(x) for x in range(3)], num_workers=1)
    batch.reset()
    for _ in range(3):
        np.testing.assert_array_equal(batch.step(np.zeros(3, int))[0], [[0], [1], [2]])
    batch.close()
