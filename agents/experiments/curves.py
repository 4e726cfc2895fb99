"""Learning curves of runs.

Runs of one config share a curve: the mean over seeds with a band of quartiles.
"""

import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agents.tools import errors, files

COLORS = ("#3366cc", "#e8762c", "#2e9e6b", "#b0408f", "#7a5cc4", "#c9a227", "#5b6770")
SIZE = (7.0, 4.4)  # Inches.
DPI = 150
INK, LIGHT = "#2b2f36", "#e3e6ea"
MARKED_POINTS = 30  # Up to this number of points, curves show each point.


class PlotError(errors.Mistake):
    """Runs that cannot be plotted, with the reason in one line."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """Statistics over the runs of one config; all arrays have shape `[points]`."""

    label: str
    runs: int
    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def plot_runs(
    runs: Iterable[str | pathlib.Path],
    outfile: str | pathlib.Path,
    x: str = "steps",
    phase: str | None = None,
) -> None:
    """Draw the mean return of runs, one curve per config, into a PNG file.

    Args:
      runs: Run directories, named `TIME-CONFIG`.
      outfile: File to write; its directory is created.
      x: Horizontal axis, `steps` or `seconds`.
      phase: Phase of the scores, `evaluate` or `train`; by default evaluations if there
        are any.

    Raises:
      PlotError: If a run has no such scores.
    """
    runs = [pathlib.Path(run) for run in runs]
    outfile = pathlib.Path(outfile)
    if outfile.suffix.lower() != ".png":
        raise PlotError(f"{outfile} must end in .png.")
    metrics = {run: read_rows(run / "metrics.jsonl") for run in runs}
    phase = phase or _choose_phase(metrics.values())
    groups: dict[str, list] = {}
    for run, rows in metrics.items():
        scores = phase_scores(rows, phase)
        if not scores:
            raise PlotError(f"{run} has no score of the {phase} phase yet.")
        if x == "seconds":
            scores = _over_seconds(run, scores, phase)
        positions, returns = np.array(sorted(scores.items()), float).T
        groups.setdefault(config_name(run), []).append((positions, returns))
    curves = [aggregate(label, series) for label, series in groups.items()]
    outfile.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(outfile) as partial:
        _draw(curves, x, phase).savefig(partial, dpi=DPI)


def aggregate(label: str, series: Sequence[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """Compute mean and quartiles over runs at every position of any run.

    Runs are interpolated linearly. The curve covers only positions that all runs cover,
    so that every point is a statistic over all runs.

    Args:
      label: Name of the curve.
      series: Increasing positions and returns of each run, both `[points]`.

    Raises:
      PlotError: If there is no position that all runs cover.
    """
    start = max(positions[0] for positions, _ in series)
    end = min(positions[-1] for positions, _ in series)
    if start > end:
        raise PlotError(f"The runs of {label} do not overlap; plot them one by one.")
    grid = np.unique(np.concatenate([positions for positions, _ in series]))
    grid = grid[(start <= grid) & (grid <= end)]
    # [runs, points]
    returns = np.stack([np.interp(grid, *points) for points in series])
    lower, upper = np.percentile(returns, [25, 75], axis=0)
    return Curve(label, len(series), grid, returns.mean(0), lower, upper)


def read_rows(path: pathlib.Path) -> list[dict]:
    """Read reports from a file of JSON lines; ignore an unfinished last line.

    Raises:
      PlotError: If the file is missing or another line is no report.
    """
    if not path.is_file():
        raise PlotError(f"{path.parent} is not a run: it has no {path.name}.")
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


def config_name(run: pathlib.Path) -> str:
    """Extract the name of the config from that of a run directory, `TIME-CONFIG`."""
    name = run.resolve().name
    match = re.fullmatch(r"(?:[\d_T:.-]*\d|[^-]*)-(.+)", name)
    return match[1] if match else name


def format_count(value: float, _: int | None = None) -> str:
    """Shorten a number, like 950, 200k or 1.5M."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"


def _choose_phase(metrics: Iterable[list[dict]]) -> str:
    """Return `evaluate` if there are scores of evaluations, else `train`."""
    evaluated = any(phase_scores(rows, "evaluate") for rows in metrics)
    return "evaluate" if evaluated else "train"


def phase_scores(rows: list[dict], phase: str) -> dict[int, float]:
    """Map steps to scores, without reports in which no episode ended."""
    return {
        row["step"]: row["score"]
        for row in rows
        if row.get("phase") == phase and is_finite(row.get("score"))
    }


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that can be plotted."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _over_seconds(
    run: pathlib.Path, scores: dict[int, float], phase: str
) -> dict[float, float]:
    """Map seconds since the start of the run to scores."""
    rows = read_rows(run / "timing.jsonl")
    seconds = {
        row["step"]: row["seconds"]
        for row in rows
        if row.get("phase") == phase and is_finite(row.get("seconds"))
    }
    timed = {seconds[step]: score for step, score in scores.items() if step in seconds}
    if not timed:
        raise PlotError(f"{run} has no time of the {phase} phase in timing.jsonl.")
    return timed


def _draw(curves: Sequence[Curve], x: str, phase: str):
    """Create a figure with one line and band per curve."""
    # Imported late for a faster start of training. A separate figure does not change
    # the backend and the figures of the caller.
    from matplotlib import figure

    scale, unit = _axis(x, max(curve.x[-1] for curve in curves))
    canvas = figure.Figure(figsize=SIZE, layout="constrained")
    axes = canvas.add_subplot()
    for index, curve in enumerate(curves):
        color = COLORS[index % len(COLORS)]
        style = ("-", "--", ":", "-.")[index // len(COLORS) % 4]
        marker = "o" if len(curve.x) <= MARKED_POINTS else None
        positions = curve.x / scale
        axes.fill_between(
            positions, curve.lower, curve.upper, color=color, alpha=0.18, linewidth=0
        )
        axes.plot(
            positions,
            curve.mean,
            color=color,
            linestyle=style,
            linewidth=1.8,
            marker=marker,
            markersize=3.5,
            label=f"{curve.label} ({_seeds(curve.runs)})",
        )
    axes.set_title(_title(curves), loc="left", weight="bold", color=INK, pad=20)
    axes.text(0, 1.02, _subtitle(curves, phase), transform=axes.transAxes, color="gray")
    axes.set_xlabel(unit)
    axes.set_ylabel("mean return")
    axes.xaxis.set_major_formatter(format_count)
    axes.yaxis.set_major_formatter(format_count)
    axes.margins(x=0.02)
    decorate(axes)
    if len(curves) > 1:
        axes.legend(frameon=False, labelcolor=INK)
    return canvas


def decorate(axes) -> None:
    """Apply a light grid, no frame and quiet colors."""
    axes.set_axisbelow(True)
    axes.grid(color=LIGHT, linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT)
    axes.tick_params(length=0, labelcolor=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def _axis(x: str, largest: float) -> tuple[float, str]:
    """Return divisor and label of the horizontal axis."""
    if x == "steps":
        return 1.0, "environment steps"
    if largest < 300:
        return 1.0, "wall time [seconds]"
    if largest < 3 * 3600:
        return 60.0, "wall time [minutes]"
    return 3600.0, "wall time [hours]"


def _title(curves: Sequence[Curve]) -> str:
    """Return the name of the only config, or the number of configs."""
    return curves[0].label if len(curves) == 1 else f"{len(curves)} configs"


def _subtitle(curves: Sequence[Curve], phase: str) -> str:
    """Describe line and band."""
    source = "evaluation episodes" if phase == "evaluate" else "training episodes"
    if all(curve.runs == 1 for curve in curves):
        return source
    seeds = f" over {_seeds(curves[0].runs)}" if len(curves) == 1 else " over seeds"
    return f"{source}, mean and quartiles{seeds}"


def _seeds(count: int) -> str:
    """Format a number of seeds."""
    return "1 seed" if count == 1 else f"{count} seeds"
