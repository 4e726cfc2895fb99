"""Learning curves of runs, one chart per environment.

Runs that differ only in their seeds, or in what does not change learning, share a curve:
the mean over seeds with a band of quartiles, or the interquartile mean with a bootstrap
interval. The band of a single run shows the quartiles of its episodes.
"""

import collections
import dataclasses
import json
import os
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agents.tools import config_files, errors, files

COLORS = ("#3366cc", "#e8762c", "#2e9e6b", "#b0408f", "#7a5cc4", "#c9a227", "#5b6770")
SIZE = (7.0, 4.4)  # Inches.
DPI = 150
INK, LIGHT = "#2b2f36", "#e3e6ea"
MARKED_POINTS = 30  # Up to this number of points, curves show each point.
COLUMNS = 3  # Charts side by side.
SHOWN = 3  # Differences between configs that a label lists.
LONGEST = 24  # Characters of a value in a label.
WIDTH = 46  # Characters in a line of a title or label.
RESAMPLES = 2000
POINTS = 100
"""Points of a curve that are resampled together."""
STATISTICS = {
    "mean": "mean and quartiles",
    "iqm": "interquartile mean and 95% bootstrap interval",
}
"""Statistics over seeds, with their descriptions."""


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
    task: str = ""
    """Environment, if known."""
    algorithm: str = ""
    """Type of the algorithm, if known."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one config, with different seeds."""

    label: str
    """Name of the config, and how it differs from namesakes."""
    task: str
    """Environment, if known."""
    algorithm: str
    """Type of the algorithm, if known."""
    runs: tuple[pathlib.Path, ...]


@dataclasses.dataclass(frozen=True)
class Series:
    """Returns of one run by increasing positions, `[points]`, with their quartiles."""

    x: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def plot_runs(
    runs: Iterable[str | pathlib.Path],
    outfile: str | pathlib.Path,
    x: str = "steps",
    phase: str | None = None,
    statistic: str = "mean",
) -> None:
    """Draw the returns of runs, one curve per config, into a PNG file.

    Args:
      runs: Run directories; one that is named twice counts once.
      outfile: File to write; its directory is created.
      x: Horizontal axis, `steps` or `seconds`.
      phase: Phase of the scores, `evaluate` or `train`; by default evaluations if a run
        has any.
      statistic: One of `STATISTICS`.

    Raises:
      PlotError: If a run has no such scores.
    """
    runs = {os.path.realpath(run): pathlib.Path(run) for run in runs}.values()
    metrics = {run: read_rows(run / "metrics.jsonl") for run in runs}
    phase = phase or choose_phase(metrics.values())
    found = {run: series(run, rows, phase, x) for run, rows in metrics.items()}
    charts: dict[str, list] = {}
    for run in metrics:
        charts.setdefault(_task(_values(run)), []).append(run)
    curves = [
        dataclasses.replace(
            aggregate(one.label, [found[run] for run in one.runs], statistic),
            task=one.task,
            algorithm=one.algorithm,
        )
        for chart in charts.values()
        for one in group(chart)
    ]
    draw(curves, outfile, x, phase, statistic)


def draw(
    curves: Sequence[Curve],
    outfile: str | pathlib.Path,
    x: str,
    phase: str,
    statistic: str,
) -> None:
    """Draw curves into a PNG file; the other arguments are those of `plot_runs`.

    Raises:
      PlotError: if the name does not end in `.png`.
    """
    outfile = pathlib.Path(outfile)
    if outfile.suffix.lower() != ".png":
        raise PlotError(f"{outfile} must end in .png.")
    outfile.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(outfile) as partial:
        _figure(curves, x, phase, statistic).savefig(partial, dpi=DPI)


def group(runs: Iterable[pathlib.Path]) -> list[Group]:
    """Group runs whose names and settings of learning are equal, except for their seeds.

    Runs of the same seed are in different groups, since they are not independent.
    """
    groups: dict[tuple, list] = {}
    configs: dict[tuple, dict] = {}
    known: collections.Counter = collections.Counter()
    for run in runs:
        values = _values(run)
        config = _shared(values)
        text, seed = json.dumps(config, sort_keys=True), json.dumps(values.get("seed"))
        key = text, known[text, seed]
        known[text, seed] += seed != "null"
        groups.setdefault(key, []).append(run)
        configs[key] = config
    labels = _labels(list(configs.values()))
    return [
        Group(label, _task(configs[key]), _algorithm(configs[key]), tuple(groups[key]))
        for label, key in zip(labels, groups, strict=True)
    ]


def aggregate(label: str, series: Sequence[Series], statistic: str = "mean") -> Curve:
    """Compute a statistic over runs, and its band, at every position of any run.

    Runs are interpolated linearly. The curve covers only positions that all runs cover,
    so that every point is a statistic over all runs. The interquartile mean is that of
    the middle half of the runs; Agarwal et al. (2021), "Deep Reinforcement Learning at
    the Edge of the Statistical Precipice".

    Args:
      label: Name of the curve.
      series: One of each run.
      statistic: One of `STATISTICS`.

    Raises:
      PlotError: If there is no position that all runs cover.
    """
    start = max(one.x[0] for one in series)
    end = min(one.x[-1] for one in series)
    if start > end:
        raise PlotError(f"The runs of {label} do not overlap; plot them one by one.")
    if len(series) == 1:
        (one,) = series
        return Curve(label, 1, one.x, one.mean, one.lower, one.upper)
    grid = np.unique(np.concatenate([one.x for one in series]))
    grid = grid[(start <= grid) & (grid <= end)]
    # [runs, points]
    returns = np.stack([np.interp(grid, one.x, one.mean) for one in series])
    if statistic == "iqm":
        middle, (lower, upper) = interquartile_mean(returns), interval(returns)
    else:
        middle, (lower, upper) = returns.mean(0), np.percentile(returns, [25, 75], 0)
    return Curve(label, len(series), grid, middle, lower, upper)


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Compute the mean of the middle half along the first axis, `[runs, ...]`.

    A quarter of the runs on each side is left out; runs at the edges count in part.
    """
    count = len(values)
    edges = np.arange(count + 1)
    inside = np.minimum(edges[1:], 0.75 * count) - np.maximum(edges[:-1], 0.25 * count)
    weights = np.maximum(inside, 0.0) / (0.5 * count)
    return np.tensordot(weights, np.sort(values, 0), 1)


def interval(returns: np.ndarray) -> np.ndarray:
    """Compute the 95% bootstrap interval `[2, ...]` of the interquartile mean of runs.

    Args:
      returns: One row per run, `[runs, ...]`.
    """
    count = len(returns)
    drawn = np.random.default_rng(0).integers(count, size=(count, RESAMPLES))
    flat, found = returns.reshape(count, -1), []
    for first in range(0, flat.shape[1], POINTS):  # All at once may need gigabytes.
        means = interquartile_mean(flat[:, first : first + POINTS][drawn])
        found.append(np.percentile(means, [2.5, 97.5], 0))
    return np.concatenate(found, 1).reshape(2, *returns.shape[1:])


def _values(run: pathlib.Path) -> dict:
    """Read the config of a run; only a name if there is none."""
    path = run / "config.yaml"
    values = config_files.load_mapping(path) if path.exists() else {}
    if not isinstance(values.get("name"), str):
        values["name"] = config_name(run)
    return values


def _shared(values: dict) -> dict:
    """Return the settings that runs of a curve share.

    Runs may be longer than others, and be stopped, saved and shown in other ways.
    """
    shared = {x: y for x, y in values.items() if x not in ("seed", "train", "devices")}
    return {**shared, "train": {"eval_every": at(values, "train.eval_every")}}


def _labels(configs: Sequence[dict]) -> list[str]:
    """Name curves by their configs, and by the differences where names are equal.

    Labels list the first differences, or all if those do not tell curves apart, and
    number curves that still have equal labels.
    """
    full = []
    for config in configs:
        name = config["name"]
        namesakes = [x for x in configs if x["name"] == name]
        differing = {
            line.partition(":")[0]
            for other in namesakes
            for line in config_files.differences(config, other)
        }
        values = [
            f"{x.split('.')[-1]} {_value(at(config, x))}" for x in sorted(differing)
        ]
        full.append([name, *values])
    short = [", ".join(x[: 1 + SHOWN]) for x in full]
    alike: dict[str, set] = {}
    for text, parts in zip(short, full, strict=True):
        alike.setdefault(text, set()).add(tuple(parts))
    labels = [
        text if len(alike[text]) == 1 else ", ".join(parts)
        for text, parts in zip(short, full, strict=True)
    ]
    return [
        text
        if (number := labels[:index].count(text)) == 0
        else f"{text} ({number + 1})"
        for index, text in enumerate(labels)
    ]


def _value(value: Any) -> str:
    """Return a value of a config as a short text."""
    if isinstance(value, dict) and {"from", "to"} <= value.keys():
        return f"{value['from']:g} to {value['to']:g}"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def at(config: dict, path: str) -> Any:
    """Return a value of nested mappings, or None."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _task(config: dict) -> str:
    """Name the environment of a config."""
    return str(at(config, "environment.id") or "")


def _algorithm(config: dict) -> str:
    """Name the algorithm of a config."""
    return str(at(config, "algorithm.type") or "").rpartition(":")[2]


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


def config_name(run: pathlib.Path) -> str:
    """Guess the name of the config from that of a run directory, `TIME-CONFIG`."""
    name = run.resolve().name
    match = re.fullmatch(r"(?:[\d_T:.-]*\d|[^-]*)-(.+)", name)
    return match[1] if match else name


def format_count(value: float, _: int | None = None) -> str:
    """Shorten a number, like 950, 200k or 1.5M."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"


def choose_phase(metrics: Iterable[list[dict]]) -> str:
    """Return `evaluate` if there are scores of evaluations, else `train`."""
    evaluated = any(phase_scores(rows, "evaluate") for rows in metrics)
    return "evaluate" if evaluated else "train"


def phase_scores(rows: list[dict], phase: str, name: str = "score") -> dict[int, float]:
    """Map steps to scores, or another value of reports, where there is one."""
    return {
        row["step"]: row[name]
        for row in rows
        if row.get("phase") == phase and is_finite(row.get(name))
    }


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that can be plotted."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


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


def _seconds(run: pathlib.Path, phase: str) -> dict[int, float]:
    """Map steps to seconds since the start of the run."""
    return {
        row["step"]: row["seconds"]
        for row in read_rows(run / "timing.jsonl")
        if row.get("phase") == phase and is_finite(row.get("seconds"))
    }


def _figure(curves: Sequence[Curve], x: str, phase: str, statistic: str):
    """Create a figure with one chart per task, and one line and band per curve."""
    # Imported late for a faster start of training. A separate figure does not change
    # the backend and the figures of the caller.
    from matplotlib import figure

    tasks: dict[str, list[Curve]] = {}
    for curve in curves:
        tasks.setdefault(curve.task, []).append(curve)
    columns = min(len(tasks), COLUMNS)
    rows = -(-len(tasks) // columns)
    width, height = SIZE
    smaller = 1.0 if columns == 1 else 0.75
    size = width * columns * smaller, height * rows * smaller
    canvas = figure.Figure(figsize=size, layout="constrained")
    charts = canvas.subplots(rows, columns, squeeze=False).ravel()
    scale, unit = axis(x, max(curve.x[-1] for curve in curves))
    for axes, (task, own) in zip(charts, tasks.items(), strict=False):
        _draw_curves(axes, own, scale)
        title = textwrap.fill(_title(task, own), WIDTH)
        style = {"weight": "bold", "color": INK, "pad": 20, "parse_math": False}
        axes.set_title(title, loc="left", **style)
        text = _subtitle(own, phase, statistic)
        axes.text(0, 1.02, text, transform=axes.transAxes, color="gray")
        axes.set_xlabel(unit)
        axes.set_ylabel("mean return")
    for axes in charts[len(tasks) :]:
        axes.set_visible(False)
    return canvas


def _draw_curves(axes, curves: Sequence[Curve], scale: float) -> None:
    """Draw curves into a chart; divide positions by a scale."""
    lines = []
    for index, curve in enumerate(curves):
        color = COLORS[index % len(COLORS)]
        style = ("-", "--", ":", "-.")[index // len(COLORS) % 4]
        marker = "o" if len(curve.x) <= MARKED_POINTS else None
        positions = curve.x / scale
        axes.fill_between(
            positions, curve.lower, curve.upper, color=color, alpha=0.18, linewidth=0
        )
        lines += axes.plot(
            positions,
            curve.mean,
            color=color,
            linestyle=style,
            linewidth=1.8,
            marker=marker,
            markersize=3.5,
        )
    axes.xaxis.set_major_formatter(format_count)
    axes.yaxis.set_major_formatter(format_count)
    axes.margins(x=0.02)
    decorate(axes)
    if len(curves) > 1:
        blank = [" "] * len(lines)  # Matplotlib reads more into labels than text.
        legend = axes.legend(lines, blank, frameon=False, labelcolor=INK)
        for text, curve in zip(legend.get_texts(), curves, strict=True):
            text.set_parse_math(False)
            label = f"{curve.label} ({seeds(curve.runs)})"
            text.set_text(textwrap.fill(label, WIDTH))
        legend.set_in_layout(False)  # Else long labels make charts narrow.


def decorate(axes) -> None:
    """Apply a light grid, no frame and quiet colors."""
    axes.set_axisbelow(True)
    axes.grid(color=LIGHT, linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT)
    axes.tick_params(length=0, labelcolor=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def axis(x: str, largest: float) -> tuple[float, str]:
    """Return divisor and label of the horizontal axis."""
    if x == "steps":
        return 1.0, "environment steps"
    if largest < 300:
        return 1.0, "wall time [seconds]"
    if largest < 3 * 3600:
        return 60.0, "wall time [minutes]"
    return 3600.0, "wall time [hours]"


def _title(task: str, curves: Sequence[Curve]) -> str:
    """Name task, algorithm if it is only one, and the config or number of configs."""
    label = curves[0].label if len(curves) == 1 else f"{len(curves)} configs"
    kinds = {curve.algorithm for curve in curves}
    subject = ", ".join(x for x in (task, *kinds) if x) if len(kinds) == 1 else task
    return f"{subject}: {label}" if subject else label


def _subtitle(curves: Sequence[Curve], phase: str, statistic: str) -> str:
    """Describe line and band."""
    source = "evaluation episodes" if phase == "evaluate" else "training episodes"
    if all(curve.runs == 1 for curve in curves):
        banded = any((curve.lower < curve.upper).any() for curve in curves)
        return f"{source}, mean and quartiles" if banded else source
    over = f" over {seeds(curves[0].runs)}" if len(curves) == 1 else " over seeds"
    return f"{source}, {STATISTICS[statistic]}{over}"


def seeds(count: int) -> str:
    """Format a number of seeds."""
    return "1 seed" if count == 1 else f"{count} seeds"
