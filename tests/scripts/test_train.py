"""The command that trains."""

import contextlib
import datetime
import json
import re

import equal_runs
import numpy as np
import pytest
import tensorflow as tf

from agents.experiments import runs
from agents.memories import replay
from agents.networks import torsos
from agents.scripts import commands, train
from agents.tools import files


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_run_directory(trained):
    run, _, _ = trained
    assert {path.name for path in run.iterdir()} == {
        "checkpoints",
        "config.yaml",
        "curve.png",
        "evaluate",
        "metrics.jsonl",
        "origin.json",
        "timing.jsonl",
        "train",
        "versions.txt",
    }
    checkpoints = run / "checkpoints"
    names = sorted(path.name for path in checkpoints.iterdir())
    assert names == ["best", "step-000000000256", "step-000000000512"]
    for phase in ("train", "evaluate"):
        assert list((run / phase).glob("events.out.tfevents.*"))
    versions = (run / "versions.txt").read_text()
    assert "\ntensorflow 2." in versions
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_origin(trained):
    run, _, _ = trained
    origin = json.loads((run / "origin.json").read_text())
    assert origin["command"] == (
        f"agents train --config debug --logdir {run.parent} --timestamp 1"
    )
    assert re.fullmatch(r".+, \d+ cores, \d+ GB.*", origin["machine"])
    assert datetime.datetime.fromisoformat(origin["date"])
    assert origin["defaults"]["train"]["steps"] == 1_000_000
    assert origin["defaults"]["environment"]["id"] == "CartPole-v1"


def test_output_shows_progress_and_the_next_commands(trained):
    run, output, errors = trained
    assert errors == ""
    lines = output.splitlines()
    assert lines[0] == "debug: ppo on CartPole-v1, 4 agents, seed 0"
    assert lines[1] == f"Writing to {run}"
    for command in (
        f"agents evaluate --logdir {run}",
        f"agents visualize --logdir {run} --outdir {run}/videos",
        f"agents report {run} --outdir {run}/report",
    ):
        assert any(line.endswith(command) for line in lines)
    assert sum("steps/s  return" in line for line in lines) == 4


def test_size_of_the_replay_memory_is_said_before_it_is_taken(
    call, tmp_path, monkeypatch
):
    def allocate(structure, entries):
        raise runs.RunError("It is taken now.")

    monkeypatch.setattr(replay, "_allocate", allocate)
    arguments = ["--config", "cartpole_dqn", "--set", "algorithm.capacity=1000000"]
    for quiet in (False, True):
        options = ["--logdir", tmp_path / str(quiet), *["--quiet"] * quiet]
        code, output, errors = call(train, *arguments, *options)
        assert (code, errors) == (2, "error: It is taken now.\n")
        assert quiet or output.splitlines()[2:] == ["replay memory of 44.0 MB"]
        assert not quiet or output == ""


def test_reports(trained):
    run, _, _ = trained
    rows = read(run / "metrics.jsonl")
    positions = [(row["phase"], row["step"]) for row in rows]
    assert positions == [
        ("train", 256),
        ("evaluate", 256),
        ("train", 512),
        ("evaluate", 512),
    ]
    for row in rows:
        assert {"score", "length", "episodes"} < set(row)
        assert row["length"] <= 40
        assert row["score"] == row["length"]  # CartPole pays one per step.
        if row["phase"] == "train":
            assert {"kl", "entropy", "value_loss", "learning_rate"} < set(row)
        else:
            assert row["episodes"] == 4
        clock = ("second", "time", "date", "_per_")
        assert not [key for key in row if any(word in key for word in clock)]
    timing = read(run / "timing.jsonl")
    assert [(row["phase"], row["step"]) for row in timing] == positions
    seconds = [row["seconds"] for row in timing]
    assert seconds == sorted(seconds)
    assert all(row["env_steps_per_second"] > 0 for row in timing)


def test_config_file_of_a_run_repeats_it_quietly(trained, run, tmp_path):
    original, _, _ = trained
    path = original / "config.yaml"
    arguments = ["--config", path, "--logdir", tmp_path, "--timestamp", 1, "--quiet"]
    assert run("train", *arguments) == (0, "", "")
    repeated = tmp_path / "1-debug"
    assert (repeated / "config.yaml").read_bytes() == path.read_bytes()
    metrics = (original / "metrics.jsonl").read_bytes()
    assert (repeated / "metrics.jsonl").read_bytes() == metrics


def test_another_seed_gives_another_run(trained, call, tmp_path):
    arguments = ["--config", "debug", "--logdir", tmp_path, "--timestamp", 1]
    assert call(train, *arguments, "--seed", 1, "--quiet") == (0, "", "")
    original, other = trained[0], tmp_path / "1-debug"
    for ours, theirs in zip(
        read(other / "metrics.jsonl"), read(original / "metrics.jsonl"), strict=True
    ):
        assert ours["step"] == theirs["step"]
        if ours["phase"] == "train":
            assert ours["value_loss"] != theirs["value_loss"]


def test_halves_give_the_same_numbers_again_and_while_debugging(
    call, tmp_path, monkeypatch
):
    arguments = ["--config", "debug", "--quiet", "--set", "environment.action_lag=true"]
    arguments += ["--set", "train.steps=256"]
    for name in ("first", "second"):
        where = ["--logdir", tmp_path / name, "--timestamp", 1]
        assert call(train, *arguments, *where) == (0, "", "")
    first, second, eager = (
        tmp_path / x / "1-debug" for x in ("first", "second", "eager")
    )
    metrics = [x / "metrics.jsonl" for x in (first, second)]
    assert metrics[0].read_bytes() == metrics[1].read_bytes()
    where = ["--logdir", tmp_path / "eager", "--timestamp", 1, "--debug"]
    monkeypatch.setattr(commands, "start_tensorflow", tf.config.run_functions_eagerly)
    try:
        assert call(train, *arguments, *where) == (0, "", "")
    finally:
        tf.config.run_functions_eagerly(False)
    configs = [
        x / "config.yaml" for x in (first, eager)
    ]  # Each may go on as the other.
    assert configs[0].read_bytes() == configs[1].read_bytes()
    for ours, theirs in zip(
        read(eager / "metrics.jsonl"), read(metrics[0]), strict=True
    ):
        assert ours.pop("phase") == theirs.pop("phase")
        np.testing.assert_allclose(
            list(ours.values()), list(theirs.values()), rtol=1e-5, atol=1e-5
        )


def test_functional_environments_can_be_debugged(call, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "start_tensorflow", tf.config.run_functions_eagerly)
    changes = ["environment.num_agents=2", "train.eval_episodes=2"]
    changes += ["train.steps=64", "train.eval_every=64", "algorithm.unroll_length=8"]
    arguments = [x for change in changes for x in ("--set", change)]
    where = ["--logdir", tmp_path, "--timestamp", 1, "--quiet", "--debug"]
    try:
        code, *texts = call(train, "--config", "memory_impala", *arguments, *where)
    finally:
        tf.config.run_functions_eagerly(False)
    assert (code, texts) == (0, ["", ""])
    rows = read(tmp_path / "1-memory_impala" / "metrics.jsonl")
    assert [row["phase"] for row in rows] == ["train", "evaluate"]


@pytest.mark.slow
def test_debugging_gives_the_same_numbers(trained, run, tmp_path):
    arguments = ["--logdir", tmp_path, "--timestamp", 1, "--debug", "--quiet"]
    assert run("train", "--config", "debug", *arguments) == (0, "", "")
    original, eager = trained[0], tmp_path / "1-debug"
    for ours, theirs in zip(
        read(eager / "metrics.jsonl"), read(original / "metrics.jsonl"), strict=True
    ):
        assert list(ours) == list(theirs)
        assert ours.pop("phase") == theirs.pop("phase")
        np.testing.assert_allclose(
            list(ours.values()), list(theirs.values()), rtol=1e-5, atol=1e-5
        )


def test_without_evaluation(call, tmp_path):
    code, _, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--timestamp", 1, "--quiet"),
        *("--set", "train.eval_episodes=0", "--set", "environment.backend=serial"),
    )
    assert (code, errors) == (0, "")
    rows = read(tmp_path / "1-debug" / "metrics.jsonl")
    assert [(row["phase"], row["step"]) for row in rows] == [
        ("train", 256),
        ("train", 512),
    ]
    assert (tmp_path / "1-debug" / "curve.png").exists()


def test_images_and_endless_episodes_need_no_settings(call, tmp_path):
    torsos._say.cache_clear()  # An earlier test may have made it say the same.
    code, output, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path),
        *("--set", "environment.id=environments_for_tests:Pictures"),
        *("--set", "environment.max_length=null"),
        *("--set", "environment.backend=serial"),
        *("--set", "train.steps=128", "--set", "train.eval_every=128"),
        *("--set", "environment.num_agents=2", "--set", "algorithm.unroll_length=16"),
    )
    assert (code, errors) == (0, "")
    assert output.count("The image camera [36, 40, 3] passes through") == 1
    assert output.count("an evaluation lasts until 4 have ended") == 1


@pytest.fixture
def trained_on(run, tmp_path):
    """Train on an environment; returns the run, whose metrics tell of kernels."""

    def function(id, name):
        code, _, errors = run(
            *("train", "--config", "debug", "--logdir", tmp_path / name),
            *("--set", f"environment.id={id}", "--set", "environment.max_length=5"),
            *("--set", "train={steps: 128, eval_every: 128, eval_episodes: 0}"),
            *("--set", "train.callbacks=[environments_for_tests:kernels]"),
            *("--timestamp", 0),
        )
        assert code == 0, errors
        return tmp_path / name / "0-debug"

    return function


PICTURES = "environments_for_tests:Pictures"


@pytest.mark.slow
def test_policies_that_see_images_use_kernels_for_convolutions(trained_on):
    run = trained_on(PICTURES, "a")
    assert read(run / "metrics.jsonl")[0]["onednn"] == 1.0


@pytest.mark.slow
def test_kernels_for_convolutions_change_nothing_else(trained_on):
    equal_runs.assert_same(*(trained_on(PICTURES, name) for name in "ab"))
    numbers = trained_on("CartPole-v1", "c")
    assert read(numbers / "metrics.jsonl")[0]["onednn"] == 0.0


WRONG = "algorithm.network={layers: [{type: conv2d, filters: 8, kernel_size: 3}]}"


def failing(event):
    raise OSError("the disk of others")


def replacing(event):
    return {"step": 3.0}


@pytest.mark.parametrize("name", ["failing", "replacing"])
def test_callbacks_that_fail_end_a_run_with_exit_code_1(call, tmp_path, name):
    code, _, errors = call(
        train,
        *("--config", "debug", "--logdir", tmp_path, "--timestamp", 1, "--quiet"),
        *("--set", "environment.backend=serial", "--set", "train.steps=256"),
        *("--set", f"train.callbacks=[{__name__}:{name}]"),
    )
    assert code == 1
    line, *below = errors.splitlines()
    assert line.startswith("error: ")
    assert "callback" in line
    assert bool(below) == (name == "failing")  # It has a traceback.
    assert (tmp_path / "1-debug" / "config.yaml").exists()


def test_a_config_that_cannot_be_built_leaves_no_directory(call, tmp_path):
    arguments = "--config", "debug", "--logdir", tmp_path / "runs", "--timestamp", "1"
    code, _, errors = call(train, *arguments, "--set", WRONG)
    assert code == 2
    assert "cannot take what has the shape (4,)" in errors
    assert not list((tmp_path / "runs").iterdir())


def test_a_run_that_begins_at_the_same_time_as_others_gets_another_directory(
    call, tmp_path
):
    now = datetime.datetime.now()
    moments = [now + datetime.timedelta(seconds=x) for x in range(60)]
    others = [tmp_path / f"{x:%Y%m%dT%H%M%S}-debug" for x in moments]
    arguments = "--config", "debug", "--logdir", tmp_path, "--set", WRONG
    with contextlib.ExitStack() as stack:
        for path in others:
            path.mkdir()
            stack.enter_context(files.alone(path))
        code, _, errors = call(train, *arguments)
    assert code == 2
    assert "cannot take what has the shape (4,)" in errors
    assert sorted(tmp_path.iterdir()) == others


def test_a_directory_of_others_stays_if_a_config_cannot_be_built(call, tmp_path):
    note = tmp_path / "1-debug" / "note.txt"
    note.parent.mkdir()
    note.write_text("mine")
    arguments = "--config", "debug", "--logdir", tmp_path, "--timestamp", "1"
    assert call(train, *arguments, "--set", WRONG)[0] == 2
    assert note.read_text() == "mine"
