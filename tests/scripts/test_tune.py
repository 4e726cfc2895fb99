"""The command that searches."""

import contextlib
import csv
import signal
import sys

import psutil
import pytest

from agents.experiments import records, runs
from agents.scripts import tune
from agents.tools import config_files
from agents.tuning import trials


@pytest.fixture
def arguments(tmp_path):
    """Command line of a study of the learning rate."""
    text = "algorithm.learning_rate: {low: 1e-4, high: 1e-2, log: true}"
    path = tmp_path / "space.yaml"
    path.write_text(text)
    directories = ("--space", path, "--logdir", tmp_path / "logdir")
    return ("--config", "debug", *directories, "--name", "study")


def test_without_optuna(call, arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, output, errors = call(tune, *arguments, "--trials", 1)
    assert (code, output) == (2, "")
    assert "pip install 'agents-in-graph[tune]'" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--set", "train.eval_episodes=0"], "'train.eval_episodes' is 0"),
        (["--set", "algorithm.epoch=1"], "did you mean 'epochs'?"),
        (["--space", "missing.yaml"], "cannot read missing.yaml"),
        (["--set", "environment.id=Missing-v1"], "Missing-v1"),
    ],
)
def test_mistakes_are_found_before_a_trial(call, arguments, tmp_path, extra, message):
    code, output, errors = call(tune, *arguments, "--trials", 1, *extra)
    assert (code, output) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "logdir").exists()


def test_a_study_is_tuned_by_one_process(call, arguments, tmp_path):
    with runs.alone(tmp_path / "logdir" / "study", "--name"):
        code, _, errors = call(tune, *arguments, "--trials", 1)
    assert code == 2
    assert "another process works on" in errors
    assert errors.endswith("wait for it, or use another --name.\n")


@pytest.mark.parametrize("name", ["../x", "..", "a/b"])
def test_a_study_stays_in_the_log_directory(call, arguments, tmp_path, name):
    code, output, errors = call(tune, *arguments[:-1], name, "--trials", 1)
    assert (code, output) == (2, "")
    assert f"--name is {name!r}, but directories are named by it" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "logdir").exists()


def test_terminals_show_the_start_and_the_trials(call, arguments, monkeypatch):
    shown = []

    @contextlib.contextmanager
    def status(text):
        shown.append(text)
        yield shown.append

    @contextlib.contextmanager
    def train(program, directory, name, chosen):
        shown.append("process")
        yield iter([(256, 20.0), (512, 21.25)])

    monkeypatch.setattr(tune.commands, "status", status)
    monkeypatch.setattr(tune.trainer, "train", train)
    monkeypatch.setattr(
        tune.commands, "start_tensorflow", lambda: shown.append("tensorflow")
    )
    code, output, errors = call(tune, *arguments, "--trials", 1)
    assert (code, errors) == (0, "")
    assert "trial    0  complete" in output
    assert shown == [
        *("Starting TensorFlow", "tensorflow"),
        *("trial-0000-debug: starting", "process"),
        "trial-0000-debug: 256 of 512 steps, return 20.0",
        "trial-0000-debug: 512 of 512 steps, return 21.2",
    ]


@pytest.mark.slow
def test_study_of_real_runs_is_interrupted_and_goes_on(
    start, arguments, tmp_path, gate
):
    directory = tmp_path / "logdir" / "study"
    first = directory / "trial-0000-debug"
    arguments = (*arguments, "--trials", 1, *gate.settings("CartPole-v1"))
    arguments = (*arguments, "--set", "train.steps=1536")

    def scores():
        if not (first / "metrics.jsonl").exists():
            return {}
        return records.phase_scores(
            records.read_rows(first / "metrics.jsonl"), "evaluate"
        )

    gate.close(first, reports=4)
    script = start("tune", *arguments)
    script.wait_for(scores)
    script.signal(signal.SIGINT)
    line = script.process.stdout.readline()
    assert "Stopping when the phase of the trial is over" in line
    gate.open()
    code, output, errors = script.wait()
    assert (code, errors) == (130, "")
    assert "Stopped with 0 of 1 trials finished. To go on, repeat" in output
    saved = scores()
    timing = (first / "timing.jsonl").read_text()
    assert 0 < len(saved) < 4

    gate.close(first, reports=8)
    script = start("tune", *arguments)
    script.wait_for(lambda: len(scores()) > len(saved))
    children = script.workers()
    assert children
    script.process.kill()
    gone, alive = psutil.wait_procs(children, timeout=60)
    assert gone
    assert not alive
    gate.open()

    code, output, errors = start("tune", *arguments).wait()
    assert (code, errors) == (0, "")
    best = directory / "best.yaml"
    assert output.endswith(f"agents train --config {best}\n")
    assert len(scores()) == 6
    assert saved.items() <= scores().items()
    assert (first / "timing.jsonl").read_text().startswith(timing)  # It went on.
    assert list(directory.glob("trial-*")) == [first]
    names = {path.name for path in directory.iterdir()}
    assert {"config.yaml", "space.yaml", "best.yaml", "study.png"} <= names
    with (directory / "trials.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["run"] == first.name
    assert float(row["value"]) == trials.final_score(list(scores().values()))
    assert int(row["steps"]) == 1536
    trained = config_files.load(first / "config.yaml")
    assert trained == config_files.load(directory / "best.yaml")
