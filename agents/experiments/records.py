"""Contents of run directories, in groups that share a curve."""

import dataclasses
import json
import pathlib

import numpy as np

from agents.experiments import curves
from agents.tools import config_files


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
        return max(filter(curves.is_finite, times), default=0.0)

    @property
    def score(self) -> float | None:
        """Score of the last evaluation or, without evaluations, of training."""
        scores = curves.phase_scores(self.rows, curves.choose_phase([self.rows]))
        return scores[max(scores)] if scores else None

    @property
    def state(self) -> str:
        """Progress in words, or who has stopped the run."""
        steps, goal = (
            curves.at(self.config, f"train.{x}") for x in ("steps", "stop_at")
        )
        if not curves.is_finite(steps):
            return "unknown"
        if self.step >= steps:
            return "finished"
        if curves.is_finite(goal) and self.score is not None and self.score >= goal:
            return "solved"
        if self.timing and "stopped" in self.timing[-1]:
            return f"stopped {self.timing[-1]['stopped']}"
        return f"in progress, {self.step / steps:.0%}"


@dataclasses.dataclass(frozen=True)
class Entry:
    """Runs that share a curve, which has this color in all charts."""

    number: int
    label: str
    task: str
    runs: list[Run]

    def scores(self) -> np.ndarray:
        """Return the last scores of all runs that have one."""
        scores = [run.score for run in self.runs]
        return np.array([x for x in scores if x is not None], float)

    def best(self) -> Run:
        """Return the run with the best last score."""
        worst = -float("inf")
        return max(self.runs, key=lambda x: worst if x.score is None else x.score)


def read(path: str | pathlib.Path) -> Run:
    """Read a run directory, named `TIME-CONFIG`.

    Raises:
      PlotError: If it has no metrics.
    """
    path = pathlib.Path(path)
    rows = curves.read_rows(path / "metrics.jsonl")
    timing, config, versions = (
        path / name for name in ("timing.jsonl", "config.yaml", "versions.txt")
    )
    return Run(
        path,
        rows,
        curves.read_rows(timing) if timing.exists() else [],
        config_files.load_mapping(config) if config.exists() else {},
        _origin(path / "origin.json"),
        versions.read_text(errors="replace") if versions.is_file() else "",
    )


def _origin(path: pathlib.Path) -> dict:
    """Read the record of how a run began; empty if there is none."""
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(errors="replace"))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise curves.PlotError(f"{path}: expected a JSON object.")
    return values
