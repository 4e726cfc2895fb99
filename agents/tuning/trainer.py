"""Runs in separate processes, which can be followed and stopped.

Each run has its own memory and TensorFlow.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from agents.experiments import records
from agents.tools import errors, files, processes
from agents.tuning import space, trials

PATIENCE = (60.0, 10.0)
"""Seconds after the first interrupt, to finish the phase, and after the second."""
POLL = 0.2
"""Seconds between reads of the metrics of a run."""


class TrialError(errors.Failure):
    """Reason of the early end of a run, with its state in `trials.STATES`."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@contextlib.contextmanager
def train(
    program: Sequence[str], directory: pathlib.Path, name: str, chosen: dict[str, Any]
) -> Iterator[Iterator[tuple[int, float]]]:
    """Train in a separate process, which saves and stops when the context ends.

        with train(program, directory, name, chosen) as scores:
            for step, score in scores: ...

    The iterator yields environment steps and score of every evaluation, including those
    before a restart. It raises `TrialError` if the run cannot be trained to the end,
    and `WriteError` if the disk is full.

    Args:
      program: Command that trains like `agents train`, as long as the process with the
        id in its first argument lives; further arguments follow.
      directory: Directory of the study, with the config.
      name: Name of the run directory in it; an existing run continues.
      chosen: Values of the config to replace.
    """
    logdir = directory / name
    logdir.mkdir(exist_ok=True)
    with files.alone(logdir, wait=True):
        pass  # The run of a killed study ends soon after it.
    timestamp = "-".join(name.split("-")[:2])  # Of trial-0007-CONFIG.
    command = [*program, str(os.getpid()), "--quiet"]
    command += ["--config", str(directory / "config.yaml")]
    command += ["--logdir", str(directory), "--timestamp", timestamp]
    command += [f"--set={assignment}" for assignment in space.assignments(chosen)]
    with (logdir / "stderr.txt").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for us; we pass it on once.
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


def _follow(
    process: subprocess.Popen, logdir: pathlib.Path
) -> Iterator[tuple[int, float]]:
    """Yield the evaluations of a run until its process has ended."""
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
        scores = records.phase_scores(records.read_rows(metrics), "evaluate")
        yield from list(scores.items())[seen:]
        seen = max(seen, len(scores))  # A resumed run repeats some rows.
    if process.returncode < 0:
        end = processes.describe_end(process.returncode)
        raise TrialError(trials.FAILED, f"{end}; memory may have run out")
    if process.returncode:
        reason = _reason((logdir / "stderr.txt").read_text(errors="replace"))
        if any(os.strerror(number) in reason for number in files.NO_ROOM):
            raise files.WriteError(f"{logdir.name}: {reason}")
        state = trials.REFUSED if process.returncode == 2 else trials.FAILED
        raise TrialError(state, f"exit code {process.returncode}: {reason}")


def _reason(text: str) -> str:
    """Return the line with the reason of the end; a user's traceback may follow it."""
    lines = [line for line in text.split("\n") if line.strip()] or ["no message"]
    said = [line for line in lines if line.startswith("error: ")]
    return (said or lines)[-1].removeprefix("error: ")


def _stop(process: subprocess.Popen) -> None:
    """End a run: after saving its phase, then at once, then by force."""
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
