"""Runs that are interrupted in any way end as if they had not been."""

import json
import random
import signal
import socket
import subprocess
import sys

import equal_runs
import numpy as np
import psutil
import pytest

from agents.experiments import named, runs
from agents.scripts import evaluate, plot
from agents.scripts import train as train_
from agents.tools import checkpoint, files

RUNS = {
    "cartpole": [
        *("--config", "debug", "--set", "train.steps=2048"),
        *("--set", "algorithm.memory=episodes", "--set", "algorithm.update_every=50"),
        *("--set", "algorithm.unroll_length=128"),
    ],
    "pendulum": [
        *("--config", "pendulum", "--set", "environment.num_agents=10"),
        *("--set", "train.steps=40000", "--set", "train.eval_every=4000"),
    ],
    "dqn": [
        *("--config", "cartpole_dqn", "--set", "environment.num_agents=30"),
        *("--set", "environment.max_length=50", "--set", "train.eval_episodes=30"),
        *("--set", "algorithm.capacity=270000", "--set", "algorithm.start_size=240000"),
        *("--set", "algorithm.prioritized=true", "--set", "algorithm.epsilon=1.0"),
        *("--set", "algorithm.replay_ratio=0.01"),
        *("--set", "train.steps=300000", "--set", "train.eval_every=15000"),
    ],
    "impala": [
        *("--config", "cartpole_impala", "--set", "environment.max_length=100"),
        *("--set", "algorithm.queue_size=2", "--set", "train.eval_episodes=8"),
        *("--set", "train.steps=40000", "--set", "train.eval_every=4000"),
    ],
    "compiled": [
        *("--config", "cartpole_compiled", "--set", "train.eval_episodes=8"),
        *(
            "--set",
            "algorithm.unroll_length=32",
            "--set",
            "algorithm.minibatch_size=64",
        ),
        *("--set", "train.steps=400000", "--set", "train.eval_every=40000"),
    ],
    "cheetah": [
        *("--config", "cheetah", "--set", "environment.num_agents=10"),
        *("--set", "environment.max_length=200", "--set", "train.eval_episodes=10"),
        *("--set", "train.steps=40000", "--set", "train.eval_every=4000"),
    ],
}
RUNS["native"] = [*RUNS["cheetah"], "--set", "environment.backend=mujoco"]


IN_PROCESS = ("compiled", "native")
IDS = {"pendulum": "Pendulum-v1", "cheetah": "HalfCheetah-v5"}


@pytest.fixture
def train(start, gate):
    """Function that starts a run, or resumes it."""

    def function(logdir, name, *arguments):
        settings = gate.settings(IDS.get(name, "CartPole-v1"))
        if name in IN_PROCESS:  # Nothing stands still.
            settings = []
        arguments = ["--logdir", logdir, "--timestamp", 1, *arguments]
        return start("train", *RUNS[name], *settings, *arguments)

    return function


def lines(run):
    """Number of reports of a run so far."""
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.fixture
def stop(train, gate):
    """Function that sends a signal to a run somewhere in a phase.

    It returns how the script ended.
    """

    def function(number, run, name, *arguments):
        goal = lines(run) + random.randint(1, 3)
        gate.close(run, goal, random.randint(0, 8))
        script = train(run.parent, name, *arguments)
        script.wait_for(lambda: lines(run) >= goal)
        workers = script.workers()
        assert workers or name in (*IN_PROCESS, "dqn")
        if number == signal.SIGKILL:
            script.process.kill()
            script.process.wait()
        else:
            script.signal(number)
        gate.open()
        result = script.wait(timeout=600)
        _, alive = psutil.wait_procs(workers, timeout=60)
        assert alive == []
        return result

    return function


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        "cartpole",
        pytest.param("pendulum", marks=pytest.mark.slow),
        pytest.param("cheetah", marks=pytest.mark.slow),
        pytest.param("compiled", marks=pytest.mark.slow),
        pytest.param("native", marks=pytest.mark.slow),
        pytest.param("dqn", marks=pytest.mark.slow),
        pytest.param("impala", marks=pytest.mark.slow),
    ],
)
def test_interrupted_run_ends_as_if_it_was_not(train, stop, tmp_path, name):
    script = train(tmp_path / "whole", name, "--quiet")
    assert script.wait(timeout=600) == (0, "", "")
    (whole,) = (tmp_path / "whole").iterdir()
    logdir = tmp_path / "parts"
    run = logdir / whole.name

    assert stop(signal.SIGKILL, run, name, "--quiet") == (-signal.SIGKILL, "", "")

    code, output, errors = stop(signal.SIGINT, run, name)
    assert (code, errors) == (130, "")
    assert "\nStopping when this phase is over; Ctrl-C again stops at once." in output
    assert output.splitlines()[-1] == (
        f"Saved. To go on, repeat the command with --logdir {logdir} --timestamp 1"
    )
    assert equal_runs.state(run)["metrics"] == (run / "metrics.jsonl").stat().st_size

    for _ in range(0 if name == "cartpole" else 2):
        assert stop(signal.SIGKILL, run, name, "--quiet") == (-signal.SIGKILL, "", "")

    assert lines(run) < lines(whole)
    code, output, errors = train(logdir, name).wait(timeout=600)
    assert (code, errors) == (0, "")
    assert "\nResuming at step " in output
    equal_runs.assert_same(run, whole)


CURRICULUM = (
    "kwargs={gravity: {type: linear, from: 5, to: 20, over: 900}, "
    "force_mag: {type: uniform, low: 5, high: 15}, "
    "sutton_barto_reward: {type: piecewise, values: [0, 1], boundaries: [300]}}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    ["backend=serial", "id=robots:Varied", pytest.param(CURRICULUM, id="curriculum")],
)
def test_longer_run_is_the_one_that_had_as_many_steps(call, tmp_path, setting):
    arguments = ["--config", "debug", "--timestamp", 1, "--quiet"]
    arguments += ["--set", f"environment.{setting}"]
    longer = [*arguments, "--set", "train.steps=1024"]
    run, whole = (tmp_path / name / "1-debug" for name in ("parts", "whole"))
    assert call(train_, *arguments, "--logdir", run.parent)[0] == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4
    for logdir in (run.parent, whole.parent):
        assert call(train_, *longer, "--logdir", logdir)[0] == 0
    equal_runs.assert_same(run, whole)
    assert (run / "config.yaml").read_bytes() == (whole / "config.yaml").read_bytes()

    code, _, errors = call(train_, *arguments, "--logdir", run.parent)
    assert code == 2
    assert "another config: train.steps: 1024 -> 512; use another --times" in errors
    more = ["--logdir", run.parent, "--set", "train.steps=2048", "--seed", 7]
    code, _, errors = call(train_, *arguments, *more)
    assert code == 2
    assert "another config: seed: 0 -> 7; use another --timestamp" in errors
    assert (run / "config.yaml").read_bytes() == (whole / "config.yaml").read_bytes()


@pytest.fixture
def short(call):
    """Train a short run, of so many steps, as `call` does."""

    def train_short(logdir, steps, *more):
        arguments = ["--config", "debug", "--logdir", logdir, "--timestamp", 1]
        arguments += ["--set", "environment.backend=serial"]
        arguments += ["--set", f"train.steps={steps}"]
        return call(train_, *arguments, *more)

    return train_short


@pytest.mark.slow
def test_full_disk_leaves_the_last_checkpoint_and_the_run_goes_on(
    short, tmp_path, full_disk
):
    run, whole = (tmp_path / name / "1-debug" for name in ("parts", "whole"))
    assert short(whole.parent, 1024, "--quiet") == (0, "", "")
    assert short(run.parent, 512, "--quiet") == (0, "", "")
    before = equal_runs.state(run), equal_runs.variables(run)
    with full_disk(60_000):
        code, output, errors = short(run.parent, 1024)
    path = run / "checkpoints" / "step-000000000768"
    assert code == 1
    assert errors.startswith(
        f"error: stopped at step 768: cannot write {path}: File too large; it needs "
    )
    assert errors.endswith(" are free.\n")
    assert errors.count("\n") == 1
    assert output.splitlines()[-1] == (
        "The last checkpoint is as it was. To go on, repeat the command with --logdir "
        f"{run.parent} --timestamp 1"
    )
    assert equal_runs.state(run) == before[0]
    others = {x.name for x in path.parent.iterdir() if not x.name.startswith("step-")}
    assert others == {"best"}
    for ours, theirs in zip(
        equal_runs.variables(run).values(), before[1].values(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert short(run.parent, 1024, "--quiet") == (0, "", "")
    equal_runs.assert_same(run, whole)


OWNER = """
import sys
from agents.tools import files
with files.alone(sys.argv[1]):
    print("alone", flush=True)
    sys.stdin.readline()
"""


def test_two_trainers_of_one_run(short, call, tmp_path):
    """The second one is refused, others look on, and a killed one is no obstacle."""
    run = tmp_path / "1-debug"
    assert short(tmp_path, 256, "--quiet") == (0, "", "")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command = [sys.executable, "-c", OWNER, str(run)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as owner:
        assert owner.stdout.readline() == "alone\n"
        code, output, errors = short(tmp_path, 512)
        assert (code, output) == (2, "")
        assert errors == (
            f"error: another process works on {run} (pid {owner.pid} on "
            f"{socket.gethostname()}); wait for it, or use another --timestamp.\n"
        )
        assert call(evaluate, "--logdir", run, "--num_episodes", 1)[0] == 0
        assert call(plot, run, "--outfile", tmp_path / "curve.png")[0] == 0
        owner.kill()
    lock = run / files.LOCK
    assert lock.exists()
    lock.unlink()
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert after == before
    lock.write_text("pid 1 on somewhere")
    assert short(tmp_path, 512, "--quiet") == (0, "", "")
    assert not lock.exists()


@pytest.mark.quick("True")
@pytest.mark.parametrize("quiet", [True, False])
def test_lost_reports_are_said(short, tmp_path, quiet):
    run = tmp_path / "1-debug"
    assert short(tmp_path, 512, "--quiet") == (0, "", "")
    path = run / "metrics.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:2]) + rows[2][:30])
    code, output, errors = short(tmp_path, 768, *["--quiet"] * quiet)
    assert code == 0
    said = errors if quiet else output
    size = len("".join(rows[:2]))
    assert f"{path} has lost reports: it goes on behind its first {size} bytes" in said
    assert errors.count("\n") == quiet
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == [256, 256, 768, 768]


def test_checkpoints_of_something_else_are_refused(short, tmp_path):
    run = tmp_path / "1-debug"
    assert short(tmp_path, 256, "--quiet") == (0, "", "")
    metrics = (run / "metrics.jsonl").read_bytes()
    config = named.load(str(run / "config.yaml"))
    algorithm = runs.algorithm(config, runs.describe(config))
    checkpoints = checkpoint.Checkpoints(run / "checkpoints")
    checkpoints.save(999, algorithm.persistent(), {"step": 999, "other": 1})
    code, output, errors = short(tmp_path, 256, "--quiet")
    assert (code, output) == (2, "")
    assert errors == f"error: {run / 'checkpoints'} is not that of a run.\n"
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_second_interrupt_stops_at_once(start, tmp_path):
    run = tmp_path / "1-debug"
    script = start(
        "train",
        *("--config", "debug", "--logdir", tmp_path, "--timestamp", 1),
        *("--set", "train.steps=1000000000", "--set", "train.eval_every=500000000"),
    )
    script.wait_for(lambda: list(run.glob("timing.jsonl")))
    script.wait_for(lambda: len(script.workers()) > 0)
    output = [script.process.stdout.readline() for _ in range(4)]
    assert output[-1].startswith("train ")  # It is in the first phase.
    workers = script.workers()
    script.signal(signal.SIGINT)
    while "Stopping when this phase is over" not in output[-1]:
        output.append(script.process.stdout.readline())
    assert script.process.poll() is None
    script.signal(signal.SIGINT)
    code, rest, errors = script.wait()  # Which the end of the phase would not give.
    assert (code, errors) == (130, "")
    assert "Stopped at once. To go on, " in rest
    assert lines(run) == 0
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
