"""Learning curves of runs, one chart per environment.

A curve is the mean over the seeds of a config with a band of quartiles, or the
interquartile mean with a bootstrap interval. The band of a single run shows the quartiles
of its episodes. Runs that share a curve are found by `groups`.
"""

import dataclasses
import os
import pathlib
import textwrap
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from agents.experiments import groups, records
from agents.tools import files

COLORS = ("#3366cc", "#e8762c", "#2e9e6b", "#b0408f", "#7a5cc4", "#c9a227", "#5b6770")
SIZE = (7.0, 4.4)  # Inches.
DPI = 150
INK, LIGHT = "#2b2f36", "#e3e6ea"
MARKED_POINTS = 30  # Up to this number of points, curves show each point.
COLUMNS = 3  # Charts side by side.
WIDTH = 46  # Characters in a line of a title or label.
RESAMPLES = 2000
POINTS = 100
"""Points of a curve that are resampled together."""
STATISTICS = {
    "mean": "mean and quartiles",
    "iqm": "interquartile mean and 95% bootstrap interval",
}
"""Statistics over seeds, with their descriptions."""


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


def plot_runs(
    runs: Iterable[str | pathlib.Path],
    outfile: str | pathlib.Path,
    x: str = "steps",
    phase: str | None = None,
    statistic: str = "mean",
) -> list[str]:
    """Draw the returns of runs, one curve per config, into a PNG file.

    Runs without such scores, as they have just begun, are left out. Returns a line for
    each of them.

    Args:
      runs: Run directories; one that is named twice counts once.
      outfile: File to write; its directory is created.
      x: Horizontal axis, `steps` or `seconds`.
      phase: Phase of the scores, `evaluate` or `train`; by default evaluations if a run
        has any.
      statistic: One of `STATISTICS`.

    Raises:
      PlotError: If no run has such scores.
    """
    runs = {os.path.realpath(run): pathlib.Path(run) for run in runs}.values()
    metrics = {run: records.read_reports(run) for run in runs}
    phase = phase or records.choose_phase(metrics.values())
    found, missing = {}, []
    for run, rows in metrics.items():
        try:
            found[run] = records.series(run, rows, phase, x)
        except records.PlotError as error:
            missing.append(str(error))
    if not found:
        raise records.PlotError(missing[0])
    charts: dict[str, list] = {}
    for run in found:
        charts.setdefault(groups.task(run), []).append(run)
    curves = [
        dataclasses.replace(
            aggregate(one.label, [found[run] for run in one.runs], statistic),
            task=one.task,
            algorithm=one.algorithm,
        )
        for chart in charts.values()
        for one in groups.group(chart)
    ]
    draw(curves, outfile, x, phase, statistic)
    return missing


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
        raise records.PlotError(f"{outfile} must end in .png.")
    outfile.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(outfile) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # They are boxes.
        _figure(curves, x, phase, statistic).savefig(partial, dpi=DPI)


def aggregate(
    label: str, series: Sequence[records.Series], statistic: str = "mean"
) -> Curve:
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
        raise records.PlotError(
            f"The runs of {label} do not overlap; plot them one by one, or over steps."
        )
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


def format_count(value: float, _: int | None = None) -> str:
    """Shorten a number, like 950, 200k or 1.5M."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"


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
        if len(positions) == 1:  # Where a band has no width.
            axes.vlines(positions, curve.lower, curve.upper, color=color, alpha=0.5)
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
        mixed = len({curve.runs == 1 for curve in curves}) == 2
        for text, curve in zip(legend.get_texts(), curves, strict=True):
            text.set_parse_math(False)
            band = ", band of its episodes" * (mixed and curve.runs == 1)
            label = f"{curve.label} ({seeds(curve.runs)}{band})"
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
