"""Runs in processes of their own, which are followed and can be stopped.

So the memory and TensorFlow of every run are its own, however many there are.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from agents.scripts import plot, space, trials
from agents.scripts import train as train_script
from agents.tools import files, processes

PATIENCE = (60.0, 10.0)
"""Seconds after the first interrupt, to finish the phase, and after the second."""
POLL = 0.2
"""Seconds between looks at the metrics of a run."""


class TrialError(Exception):
    """Why a run has ended early, with its state in `trials.STATES`."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@contextlib.contextmanager
def train(
    directory: pathlib.Path, name: str, chosen: dict[str, Any]
) -> Iterator[Iterator[tuple[int, float]]]:
    """Train in a process of its own, which is stopped and saved with the context.

        with train(directory, name, chosen) as scores:
            for step, score in scores: ...

    The iterator gives environment steps and score of every evaluation, those before a
    restart too. It raises `TrialError` if the run cannot be trained to the end, and
    `WriteError` if that is because the disk is full.

    Args:
      directory: Of the study, with the config.
      name: Of the run directory in it; a run that is there already goes on.
      chosen: Values of the config to replace.
    """
    logdir = directory / name
    logdir.mkdir(exist_ok=True)
    with files.alone(logdir, wait=True):
        pass  # The run of a study that was killed ends soon after it.
    timestamp = "-".join(name.split("-")[:2])  # Of trial-0007-CONFIG.
    command = [sys.executable, "-c", CHILD, str(os.getpid()), "--quiet"]
    command += ["--config", str(directory / "config.yaml")]
    command += ["--logdir", str(directory), "--timestamp", timestamp]
    command += [f"--set={assignment}" for assignment in space.assignments(chosen)]
    with (logdir / "stderr.txt").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for us, who pass it on once.
        )
    try:
        yield _follow(process, logdir)
    except KeyboardInterrupt:
        print(
            "Stopping when the phase of the trial is over; Ctrl-C again stops at once.",
            flush=True,
        )
        raise
    finally:
        _stop(process)


CHILD = """
import sys
from agents.scripts import trainer
sys.exit(trainer.child(sys.argv[1:]))
"""
"""Program of a run's process."""


def child(argv: Sequence[str]) -> int:
    """Train as long as the process whose id is the first argument lives."""
    parent, *arguments = argv
    watch = threading.Thread(target=processes.watch_parent, args=[int(parent)])
    watch.daemon = True
    watch.start()
    return train_script.main(arguments)


def _follow(
    process: subprocess.Popen, logdir: pathlib.Path
) -> Iterator[tuple[int, float]]:
    """Evaluations of a run, until its process has ended."""
    metrics = logdir / "metrics.jsonl"
    seen, size, ended = 0, 0, False
    while not ended:
        try:
            process.wait(POLL)
            ended = True
        except subprocess.TimeoutExpired:
            pass
        if not metrics.exists() or metrics.stat().st_size == size:
            continue
        size = metrics.stat().st_size
        scores = plot.phase_scores(plot.read_rows(metrics), "evaluate")
        yield from list(scores.items())[seen:]
        seen = max(seen, len(scores))  # A run that goes on repeats some rows.
    if process.returncode:
        reason = _reason((logdir / "stderr.txt").read_text(errors="replace"))
        if any(os.strerror(number) in reason for number in files.NO_ROOM):
            raise files.WriteError(f"{logdir.name}: {reason}")
        state = trials.REFUSED if process.returncode == 2 else trials.FAILED
        raise TrialError(state, f"exit code {process.returncode}: {reason}")


def _reason(text: str) -> str:
    """Line that says why a run has ended; below it may be the traceback of a user."""
    lines = [line for line in text.split("\n") if line.strip()] or ["no message"]
    said = [line for line in lines if line.startswith("error: ")]
    return (said or lines)[-1].removeprefix("error: ")


def _stop(process: subprocess.Popen) -> None:
    """End a run: when its phase is saved, then at once, then without its consent."""
    interrupt = None
    for patience in PATIENCE:
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt as error:
            interrupt = error
    if process.poll() is None:
        process.kill()
        process.wait()
    if interrupt:
        raise interrupt
