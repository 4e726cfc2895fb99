"""Contents of run directories: reports, scores, config and origin."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from agents.tools import config_files, errors, files


class PlotError(errors.Mistake):
    """Runs that cannot be plotted, with the reason in one line."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Contents of a run directory, as far as they exist."""

    path: pathlib.Path
    rows: list[dict]
    """Reports."""
    timing: list[dict]
    """Wall time and speed of the same reports."""
    config: dict
    origin: dict
    """Start of the run; see `training.origin`."""
    versions: str

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return max((row["step"] for row in self.rows), default=0)

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        times = [row.get("seconds") for row in self.timing]
        return max(filter(is_finite, times), default=0.0)

    def score(self, phase: str) -> float | None:
        """Return the last score of a phase, `evaluate` or `train`, if there is one."""
        scores = phase_scores(self.rows, phase)
        return scores[max(scores)] if scores else None

    @property
    def state(self) -> str:
        """Progress in words, or who has stopped the run."""
        steps, goal = (
            config_files.at(self.config, f"train.{x}") for x in ("steps", "stop_at")
        )
        if not is_finite(steps):
            return "unknown"
        evaluated = config_files.at(self.config, "train.eval_episodes")
        last = "evaluate" if evaluated else "train"
        if any(row.get("phase") == last and row["step"] >= steps for row in self.rows):
            return "finished"
        evaluations = phase_scores(self.rows, "evaluate").values()
        if is_finite(goal) and any(x >= goal for x in evaluations):
            return "solved"
        if self.timing and "stopped" in self.timing[-1]:
            return f"stopped {self.timing[-1]['stopped']}"
        return f"in progress, {self.step / steps:.0%}"


@dataclasses.dataclass(frozen=True)
class Series:
    """Returns of one run by increasing positions, `[points]`, with their quartiles."""

    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclasses.dataclass(frozen=True)
class Entry:
    """Runs that share a curve, which has this color in all charts."""

    number: int
    label: str
    task: str
    runs: list[Run]

    def scores(self) -> list[float | None]:
        """Return the last score of each run, if it has one.

        It is that of an evaluation or, without evaluations of any run, of training.
        """
        phase = choose_phase(run.rows for run in self.runs)
        return [run.score(phase) for run in self.runs]

    def best(self) -> Run:
        """Return the run with the best last score."""
        scores = [-float("inf") if x is None else x for x in self.scores()]
        return self.runs[int(np.argmax(scores))]


def read(path: str | pathlib.Path) -> Run:
    """Read a run directory, named `TIME-CONFIG`.

    Raises:
      PlotError: If it has neither metrics nor a config.
    """
    path = pathlib.Path(path)
    rows = read_reports(path)
    timing, config, versions = (
        path / name for name in ("timing.jsonl", "config.yaml", "versions.txt")
    )
    return Run(
        path,
        rows,
        read_rows(timing) if timing.exists() else [],
        config_files.load_mapping(config) if config.exists() else {},
        _origin(path / "origin.json"),
        versions.read_text(errors="replace") if versions.is_file() else "",
    )


def read_reports(run: pathlib.Path) -> list[dict]:
    """Read the reports of a run; none if it has just begun.

    Raises:
      PlotError: If the directory is none of a run, or a line is not a report.
    """
    path = run / "metrics.jsonl"
    begun = (run / "config.yaml").is_file() and not path.exists()
    return [] if begun else read_rows(path)


def read_rows(path: pathlib.Path) -> list[dict]:
    """Read reports from a file of JSON lines; ignore an unfinished last line.

    Raises:
      PlotError: If the file is missing or another line is not a report.
    """
    if not path.is_file():
        raise PlotError(files.absence(path.parent, path.name))
    lines = path.read_text(errors="replace").split("\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and type(row.get("step")) is int:
            rows.append(row)
        elif number < len(lines):  # The last piece may be in the middle of a write.
            raise PlotError(f"{path}, line {number}: expected a JSON object.")
    return rows


def series(
    run: pathlib.Path, rows: list[dict], phase: str, x: str, name: str = "score"
) -> Series:
    """Return the scores of a run, or another value of its reports.

    Args:
      run: Directory of the run.
      rows: Reports.
      phase: Phase of the reports, `evaluate` or `train`.
      x: Horizontal axis, `steps` or `seconds`.
      name: Key of the values; scores have the quartiles of their episodes.

    Raises:
      PlotError: If there is no such value.
    """
    scores = phase_scores(rows, phase, name)
    if not scores:
        other = "train" if phase == "evaluate" else "evaluate"
        known = phase_scores(rows, other, name)
        hint = f", but of phase {other}" if known else " yet"
        raise PlotError(f"{run} has no {name} of the {phase} phase{hint}.")
    positions = {step: step for step in scores}
    if x == "seconds":
        positions = _seconds(run, phase)
        scores = {step: y for step, y in scores.items() if step in positions}
        if not scores:
            raise PlotError(f"{run} has no time of the {phase} phase in timing.jsonl.")
    bands = {
        row["step"]: (row["lower_quartile"], row["upper_quartile"])
        for row in rows
        if row.get("phase") == phase
        and name == "score"
        and all(is_finite(row.get(f"{x}_quartile")) for x in ("lower", "upper"))
    }
    points = sorted(
        (positions[step], score, *bands.get(step, (score, score)))
        for step, score in scores.items()
    )
    return Series(*np.array(points, float).T)


def phase_scores(rows: list[dict], phase: str, name: str = "score") -> dict[int, float]:
    """Map steps to scores, or another value of reports, where there is one."""
    return {
        row["step"]: row[name]
        for row in rows
        if row.get("phase") == phase and is_finite(row.get(name))
    }


def choose_phase(metrics: Iterable[list[dict]]) -> str:
    """Return `evaluate` if there are scores of evaluations, else `train`."""
    evaluated = any(phase_scores(rows, "evaluate") for rows in metrics)
    return "evaluate" if evaluated else "train"


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that can be plotted."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _origin(path: pathlib.Path) -> dict:
    """Read the record of how a run began; empty if there is none."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(errors="replace"))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise PlotError(f"{path}: expected a JSON object.")
    return values


def _seconds(run: pathlib.Path, phase: str) -> dict[int, float]:
    """Map steps to seconds since the start of the run."""
    return {
        row["step"]: row["seconds"]
        for row in read_rows(run / "timing.jsonl")
        if row.get("phase") == phase and is_finite(row.get("seconds"))
    }
