"""Runs in separate processes."""

import signal
import subprocess
import sys

import pytest

from agents.experiments import named
from agents.scripts import tune
from agents.tools import files
from agents.tuning import space, trainer, trials
from agents.tuning import study as study_

CONFIG = named.load("debug")
DIMENSIONS = {"algorithm.epochs": space.Range(1, 8, int=True)}


@pytest.mark.slow
def test_full_disk_is_no_result_of_a_trial(tmp_path, full_disk):
    study_.prepare(tmp_path, CONFIG, space.Space(DIMENSIONS))
    chosen = {"environment.backend": "serial"}
    with (
        full_disk(100_000),
        pytest.raises(files.WriteError) as error,
        trainer.train(tune.PROGRAM, tmp_path, "trial-0000-debug", chosen) as scores,
    ):
        list(scores)
    assert str(error.value).startswith("trial-0000-debug: stopped at step 256: cannot ")
    assert "\n" not in str(error.value)


def test_run_that_cannot_be_made(tmp_path):
    config = named.load("debug", ["environment.id=missing_module:make"])
    study_.prepare(tmp_path, config, space.Space(DIMENSIONS))
    arguments = (tune.PROGRAM, tmp_path, "trial-0000-debug", {"algorithm.epochs": 1})
    expected = pytest.raises(trainer.TrialError, match=r"exit code 2: .*missing_module")
    with trainer.train(*arguments) as scores, expected as error:
        list(scores)
    assert error.value.state == trials.REFUSED


def test_run_that_is_killed_says_so_whatever_it_printed(tmp_path):
    program = (
        "import os, sys; print('a warning', file=sys.stderr); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", program]
    expected = pytest.raises(trainer.TrialError, match="^killed by SIGKILL; memory may")
    with trainer.train(command, tmp_path, "trial-0", {}) as scores, expected as error:
        list(scores)
    assert error.value.state == trials.FAILED


def test_interrupt_between_two_scores_says_what_happens(tmp_path, capsys):
    program = [sys.executable, "-c", "import time; time.sleep(1000)"]
    run = trainer.train(program, tmp_path, "trial-0", {})
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt
    assert "Stopping when the phase of the trial is over" in capsys.readouterr().out


def test_stubborn_run_is_killed(monkeypatch):
    program = """
import os, signal, time
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"no\\n"))
os.write(1, b"ready\\n")
while True:
    time.sleep(1)
"""
    monkeypatch.setattr(trainer, "PATIENCE", (0.2, 0.2))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        trainer._stop(process)
        assert process.stdout.read() == "no\nno\n"
    assert process.returncode == -signal.SIGKILL


def test_every_score_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "POLL", 0.02)
    program = f"""
import json, pathlib, time
for steps in ([1], [1, 2], [1], [1, 2, 3]):  # A resumed run repeats some rows.
    rows = [{{"phase": "evaluate", "step": x, "score": 2.0 * x}} for x in steps]
    text = "".join(json.dumps(row) + "\\n" for row in rows)
    pathlib.Path({str(tmp_path / "trial-0" / "metrics.jsonl")!r}).write_text(text)
    time.sleep(0.3)
"""
    command = [sys.executable, "-c", program]
    with trainer.train(command, tmp_path, "trial-0", {}) as scores:
        assert list(scores) == [(1, 2.0), (2, 4.0), (3, 6.0)]


def test_reason_of_an_end_is_the_last_error_that_was_printed(tmp_path):
    text = "error: of before\nerror: no room\nTraceback of it\n"
    program = f"import sys; sys.stderr.write({text!r}); sys.exit(3)"
    command = [sys.executable, "-c", program]
    expected = pytest.raises(trainer.TrialError, match="^exit code 3: no room$")
    with trainer.train(command, tmp_path, "trial-0", {}) as scores, expected as error:
        list(scores)
    assert error.value.state == trials.FAILED
