"""Dead processes are replaced, failures stop the run, and nothing is left behind."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import gymnasium
import psutil
import pytest
import tensorflow as tf

from agents.distributed import cluster, phases, workers
from agents.environments import make
from agents.experiments import named
from agents.scripts import commands, train

QUICK = ("algorithm.jit=false", "train.eval_episodes=0", "environment.backend=serial")


def pids(executor):
    """Processes of the workers."""
    import ray

    actors = executor._loop._workers._actors
    return ray.get(
        [x.__ray_call__.remote(lambda _: os.getpid()) for x in actors.values()]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["debug", "cartpole_impala"])
def test_killed_worker_is_replaced(execute, name, monkeypatch):
    executor = execute(name, *QUICK, "train.eval_every=100000", num_workers=2)
    victim, arrive = pids(executor)[1], phases.Phase.arrive

    def kill(self, chunk):
        monkeypatch.undo()
        os.kill(victim, signal.SIGKILL)
        arrive(self, chunk)

    monkeypatch.setattr(phases.Phase, "arrive", kill)
    (report,) = executor.run(20_000)
    assert report.metrics["worker_restarts"] == 1
    assert report.metrics["episodes"] > 100
    assert report.step >= 20_000
    assert int(executor.algorithm.steps) == report.step
    assert victim not in pids(executor)


def make_once(path):
    """Create an environment; the first time, the process dies."""
    if not os.path.exists(path):
        pathlib.Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return gymnasium.make("CartPole-v1")


@pytest.mark.slow
def test_worker_that_dies_while_it_starts_is_replaced(ray, tmp_path):
    source = f"environment.kwargs={{path: {tmp_path / 'made'}}}"
    id = f"environment.id={__name__}:make_once"
    length = "environment.max_length=200"
    (tmp_path / "made").touch()
    config = named.load("debug", [*QUICK, id, source, length])
    description = make.describe(config.environment)
    (tmp_path / "made").unlink()
    made = workers.RayWorkers(config, description, [config.environment.num_agents], 8)
    assert (made.present, made.restarts) == ([0], 1)
    made.close()


@pytest.mark.slow
def test_killed_worker_of_a_replay_memory_is_replaced(execute, kill):
    options = ("train.eval_every=1000", "algorithm.replay_ratio=0.1")
    executor = execute("cartpole_dqn", *QUICK, *options, num_workers=2)
    executor.run(2_000)
    kill(executor._loop._workers._actors[0])
    reports = executor.run(4_000)
    assert reports[-1].metrics["worker_restarts"] == 1
    agent = executor.algorithm
    due = int((int(agent._counted) + 1e-6) * 0.1)
    assert int(agent.updates) == due > 300  # The replay ratio is what was asked for.


@pytest.mark.slow
def test_missing_resources_leave_the_other_workers(execute, kill, monkeypatch, ray):
    executor = execute("debug", *QUICK, num_workers=2)
    executor.run(256)
    monkeypatch.setattr(workers, "START_TIMEOUT", 5.0)

    @ray.remote(num_cpus=1)
    class Other:
        def here(self):
            """Tell that it has started."""

    other = Other.remote()  # Waits for the CPU of the worker.
    kill(executor._loop._workers._actors[0])
    ray.get(other.here.remote())
    reports = executor.run(1024)
    assert executor._loop._workers.present == [1]
    assert reports[-1].step == 256 + 1024
    assert int(executor.algorithm.steps) == 256 + 1024


def stop(executor):
    """Let no code of the second worker run."""
    os.kill(pids(executor)[1], signal.SIGSTOP)


def block(executor):
    """Let no step of the second worker return."""
    import ray

    def function(actor):
        actor._env._envs[0].start = lambda *_, **__: time.sleep(1000)

    ray.get(executor._loop._workers._actors[1].__ray_call__.remote(function))


@pytest.mark.slow
@pytest.mark.parametrize("hang", [stop, block])
def test_hanging_worker_is_replaced(execute, hang):
    executor = execute("debug", *QUICK, "environment.timeout=3", num_workers=2)
    executor.run(256)
    victim = pids(executor)[1]
    hang(executor)
    reports = executor.run(512)
    assert reports[-1].metrics["worker_restarts"] >= 1
    assert reports[-1].step == 256 + 512
    assert victim not in pids(executor)


@pytest.fixture
def registered():
    """Id of an environment that only this process knows."""
    gymnasium.register("Here-v0", lambda: gymnasium.make("CartPole-v1"))
    yield "Here-v0"
    del gymnasium.registry["Here-v0"]


@pytest.mark.slow
def test_environment_that_workers_do_not_know(execute, registered):
    name = (f"environment.id={registered}", "environment.max_length=50")
    with pytest.raises(cluster.DistributedError, match=r"on a worker.*module:function"):
        execute("debug", *QUICK, *name)


def test_errors_of_processes_are_one_line():
    def cause(error):
        return workers.cause(types.SimpleNamespace(cause=error), "Worker 1")

    nan = tf.errors.InvalidArgumentError(None, None, "TD errors : had NaN values")
    assert cause(nan) is nan  # As locally.
    text = "Environment row 2: it failed"
    assert str(cause(ValueError(text))) == "Worker 1, environment row 2: it failed"
    other = cause(KeyError("first", "second"))
    assert isinstance(other, cluster.WorkerError)
    assert str(other) == "Worker 1: KeyError: ('first', 'second')"


@pytest.mark.slow
def test_failing_learner_gives_one_line(ray, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(commands, "start_tensorflow", lambda debug=False: None)
    monkeypatch.setattr(commands, "use_threads", lambda config: None)
    code = train.main(
        [
            *("--config", "debug", "--logdir", str(tmp_path), "--timestamp", "1"),
            *("--executor", "ray", "--num_workers", "1", "--quiet"),
            *("--set", "algorithm.learning_rate=1e30", *_set(QUICK)),
        ]
    )
    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: stopped at step ")
    assert "is not finite" in error
    assert error.count("\n") == 1


def _set(values):
    return [x for value in values for x in ("--set", value)]


def start(logdir, *arguments, until="checkpoints/step-*"):
    """Start a training on Ray; returns when there is a new such file of the run."""
    before = set(logdir.glob(f"1-debug/{until}"))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "agents.scripts.train", "--config", "debug"),
            *("--executor", "ray", "--num_workers", "2", *arguments),
            *("--logdir", logdir, "--timestamp", "1"),
            *("--set", "train.steps=100000000", *_set(QUICK)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while set(logdir.glob(f"1-debug/{until}")) <= before:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


@pytest.mark.slow
def test_interrupt_saves_and_the_run_goes_on(tmp_path):
    steps = []
    for _ in range(2):
        process = start(tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
        output, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (130, b"")
        assert b"Saved. To go on, repeat the command" in output
        rows = (tmp_path / "1-debug/metrics.jsonl").read_text().splitlines()
        steps.append(json.loads(rows[-1])["step"])
        assert len(rows) * 256 == steps[-1]
        assert list(tmp_path.glob(f"1-debug/checkpoints/step-{steps[-1]:012d}"))
    assert steps[1] > steps[0]
    assert b"Resuming at step" in output


@pytest.mark.slow
def test_second_interrupt_stops_at_once(tmp_path):
    endless = "train.eval_every=10000000"
    process = start(tmp_path, "--set", endless, until="timing.jsonl")
    while b"starting" not in process.stdout.readline():
        assert process.poll() is None
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    while b"Stopping when this phase is over" not in process.stdout.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, b"")
    assert b"Stopped at once." in output
    _, alive = psutil.wait_procs(children, timeout=60)
    assert [x for x in alive if "Actor" in x.name() and x.status() != "zombie"] == []


def names(process):
    """Processes that one has started, with their names."""
    children = psutil.Process(process.pid).children(recursive=True)
    return {child: child.name() for child in children}


def assert_end(children):
    """Wait until processes have ended, but for Ray's agents.

    These do nothing, and look for Ray's other processes for a minute.
    """
    children = [child for child, name in children.items() if "Agent" not in name]
    deadline = time.monotonic() + 60
    while alive := [x for x in children if x.is_running() and x.status() != "zombie"]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)


@pytest.mark.slow
def test_nothing_outlives_a_killed_driver(tmp_path):
    process = start(tmp_path, "--quiet")
    children = names(process)
    assert sum("Actor" in name for name in children.values()) == 2
    process.kill()
    assert process.communicate() == (b"", b"")
    assert_end(children)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_dead_ray_ends_the_run_with_one_line(tmp_path, name):
    process = start(tmp_path, "--quiet")
    children = names(process)
    (victim,) = (child for child in children if children[child] == name)
    victim.kill()
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (1, b"")
    assert re.fullmatch(DIED.format(name), errors.decode())
    assert_end(children)


DIED = r"error: Ray's {0} has died; see \S+/{0}\.out on its machine, and resume .*\.\n"

PUTS = """
import psutil
from agents.distributed import cluster

with cluster.connected(None, 1, 1):
    import ray

    (raylet,) = (x for x in psutil.Process().children() if x.name() == "raylet")
    raylet.kill()
    raylet.wait()
    ray.put(bytes(1_000_000))
    print("Ray raises an error; the guard is not needed any more.")
"""


@pytest.mark.slow
def test_the_reason_is_told_when_ray_ends_the_process():
    process = subprocess.run([sys.executable, "-c", PUTS], capture_output=True)
    assert (process.returncode, process.stdout) == (1, b"")
    assert re.search(DIED.format("raylet") + r"\Z", process.stderr.decode())
