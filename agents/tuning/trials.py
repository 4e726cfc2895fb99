"""Results of the trials of a study: a table, files and a figure."""

import csv
import dataclasses
import io
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from agents.experiments import curves
from agents.tools import files
from agents.tuning import space

COMPLETE, PRUNED, REFUSED, FAILED = "complete", "pruned", "refused", "failed"
STATES = (COMPLETE, PRUNED, FAILED, REFUSED)
"""Finished; stopped because others were better; stopped by an error; never started
because the config refuses the values. Ordered from best to worst."""
COLUMNS = 3  # In the figure.
SCHEDULED = ("from", "to", "over")
"""Last parts of keys that say nothing without the one before."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """Finished trial."""

    number: int
    run: str
    """Name of its directory inside that of the study."""
    state: str
    value: float | None
    """Mean score of its last evaluations; of a pruned trial, its last score."""
    steps: int
    """Environment steps up to its last evaluation."""
    seconds: float
    reason: str
    """Reason why it is not complete."""
    chosen: dict[str, Any]
    """Values by config key."""


def final_score(scores: Sequence[float]) -> float:
    """Return the mean of the last third of the evaluations, rounded up.

    One evaluation is noisy, and a search would favor lucky ones; the first ones show
    how fast a policy has learned, not its final performance.
    """
    count = math.ceil(len(scores) / 3)
    return sum(scores[-count:]) / count


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Sort trials, complete ones first, then by value."""

    def rank(trial: Trial) -> tuple:
        value = -math.inf if trial.value is None else trial.value
        return STATES.index(trial.state), -value, trial.number

    return sorted(trials, key=rank)


def best(trials: Iterable[Trial]) -> Trial | None:
    """Return the best complete trial, if there is any."""
    return next((x for x in ranked(trials) if x.state == COMPLETE), None)


def describe(chosen: dict[str, Any]) -> str:
    """Format chosen values with the shortest distinct names, parts of schedules in two."""
    parts = [key.split(".") for key in chosen]
    ends = [".".join(x[-2 if x[-1] in SCHEDULED else -1 :]) for x in parts]
    names = [
        end if ends.count(end) == 1 else key
        for key, end in zip(chosen, ends, strict=True)
    ]
    return " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in zip(names, chosen.values(), strict=True)
    )


def print_table(trials: Iterable[Trial]) -> None:
    """Print trials, the best first."""
    from rich import console, table

    grid = table.Table(box=None, pad_edge=False)
    for name in ("trial", "value", "steps"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("state", no_wrap=True)
    grid.add_column("parameters", overflow="fold")
    for trial in ranked(trials):
        value = "" if trial.value is None else f"{trial.value:,.1f}"
        text = describe(trial.chosen)
        cells = (f"{trial.number}", value, f"{trial.steps:,}", trial.state, text)
        grid.add_row(*cells)
    console.Console(highlight=False, markup=False).print(grid)


def write_csv(trials: Iterable[Trial], path: pathlib.Path) -> None:
    """Write one row per trial, the best first."""
    rows = []
    for trial in ranked(trials):
        row = dataclasses.asdict(trial)
        chosen = row.pop("chosen")
        rows.append({**row, "seconds": round(trial.seconds, 1), **chosen})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    files.write(path, text.getvalue())


def draw(trials: Sequence[Trial], space_: space.Space, path: pathlib.Path) -> None:
    """Draw values over trials with the best so far, and over every parameter.

    Incomplete trials are gray. Without any value, nothing is drawn.
    """
    from matplotlib import figure

    trials = [x for x in trials if x.value is not None]
    if not trials:
        return
    count = 1 + len(space_.dimensions)
    columns = min(count, COLUMNS)
    rows = math.ceil(count / columns)
    width, height = curves.SIZE
    canvas = figure.Figure((width * columns * 0.6, height * rows * 0.7))
    canvas.set_layout_engine("constrained")
    grid = canvas.subplots(rows, columns, squeeze=False).flat
    _draw_history(grid[0], trials)
    for axes, (key, dimension) in zip(
        grid[1:], space_.dimensions.items(), strict=False
    ):
        _draw_dimension(axes, trials, key, dimension)
    for axes in grid[:count]:
        axes.yaxis.set_major_formatter(curves.format_count)
        axes.set_ylabel("value", color=curves.INK)
        curves.decorate(axes)
    for axes in grid[count:]:
        axes.remove()
    with files.whole(path) as partial:
        canvas.savefig(partial, dpi=curves.DPI)


def _draw_history(axes: Any, trials: Sequence[Trial]) -> None:
    """Draw values over trials, with the best so far."""
    _scatter(axes, [trial.number for trial in trials], trials)
    done = sorted((x for x in trials if x.state == COMPLETE), key=lambda x: x.number)
    records = [max(x.value for x in done[: i + 1]) for i in range(len(done))]
    numbers = [x.number for x in done]
    axes.step(
        numbers, records, where="post", color=curves.COLORS[1], label="best so far"
    )
    axes.set_xlabel("trial")
    axes.set_xlim(-0.5, max(x.number for x in trials) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, labelcolor=curves.INK)


def _draw_dimension(
    axes: Any, trials: Sequence[Trial], key: str, dimension: Any
) -> None:
    """Draw values over one parameter."""
    axes.set_xlabel(key, parse_math=False)
    if isinstance(dimension, space.Choices):
        choices = list(dimension.values)
        _scatter(axes, [choices.index(x.chosen[key]) for x in trials], trials)
        labels = [str(choice)[:20] for choice in choices]
        axes.set_xticks(range(len(choices)), labels, parse_math=False)
        axes.set_xlim(-0.5, len(choices) - 0.5)
        return
    _scatter(axes, [x.chosen[key] for x in trials], trials)
    low, high = dimension.low, dimension.high
    if dimension.log:
        margin = (high / low) ** 0.05
        axes.set_xscale("log")
        axes.set_xlim(low / margin, high * margin)
        axes.tick_params(which="minor", length=0)
    else:
        margin = (high - low) * 0.05
        axes.set_xlim(low - margin, high + margin)
        axes.xaxis.set_major_formatter(curves.format_count)


def _scatter(axes: Any, positions: Sequence[float], trials: Sequence[Trial]) -> None:
    """Draw one point per trial, colored if it is complete."""
    colors = [curves.COLORS[0] if x.state == COMPLETE else "#b9bfc7" for x in trials]
    axes.scatter(positions, [x.value for x in trials], c=colors, s=22, zorder=3)
