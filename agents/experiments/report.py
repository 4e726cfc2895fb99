"""Reports of runs: one page with curves, scores, configs, machines and videos.

Runs share curves as in `curves`; every environment has charts of its own.
"""

import datetime
import json
import os
import pathlib
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from agents.experiments import curves, display, evaluation, groups, pages, records
from agents.tools import errors, files

FILE = "index.html"
PHASES = {"evaluate": "Evaluation", "train": "Training"}
SCORES = ("score", "lower_quartile", "upper_quartile")
PLACES = ("phase", "step", "seconds", "phase_seconds", "episodes")
"""Values of reports that have no chart of their own."""


def write(
    runs: Iterable[records.Run],
    outdir: str | pathlib.Path,
    film: bool = True,
    command: str = "",
    say: Callable[[str], Any] = display.silent,
) -> pathlib.Path:
    """Write a report of runs, finished or not; return its file.

    Args:
      runs: Contents of run directories; see `records.read`.
      outdir: Directory for the page, which needs no other file.
      film: Show an episode of each config; loads TensorFlow.
      command: Command line that makes the report.
      say: Called with a text at every stage.
    """
    found = {os.path.realpath(run.path): run for run in runs}
    own = {run.path: run for run in found.values()}
    entries = [
        records.Entry(
            number, group.label, group.task, [own[path] for path in group.runs]
        )
        for number, group in enumerate(groups.group(own))
    ]
    outfile = pathlib.Path(outdir) / FILE
    outfile.parent.mkdir(parents=True, exist_ok=True)
    videos = [_video(entry, say) for entry in entries] if film else []
    page = _page(entries, videos, outfile.parent, command)
    files.write(outfile, page.html())
    return outfile


def _page(
    entries: Sequence[records.Entry],
    videos: Sequence[str],
    outdir: pathlib.Path,
    command: str,
) -> pages.Page:
    """Return the page with everything."""
    only = entries[0].label if len(entries) == 1 else f"{len(entries)} configs"
    page = pages.Page(f"Report: {only}")
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    page.text(f"Made {now}{' by ' * bool(command)}{command}.", "quiet")
    tasks = list(dict.fromkeys(entry.task for entry in entries))
    if len(tasks) > 1:
        page.text(
            f"These runs are of {len(tasks)} environments, whose scores cannot be "
            f"compared, so each has charts of its own: {', '.join(tasks)}.",
            "note",
        )
    _say_progress(page, entries)
    _finals(page, entries)
    page.heading("Curves")
    page.text(_explanation(entries), "quiet")
    for task in tasks:
        _task(page, task, [entry for entry in entries if entry.task == task])
    _videos(page, videos)
    _configs(page, entries)
    page.heading("Runs")
    runs = [run for entry in entries for run in entry.runs]
    for run in runs:
        _run(page, run, outdir, len(runs) == 1)
    return page


def _say_progress(page: pages.Page, entries: Sequence[records.Entry]) -> None:
    """Say which runs have not ended, or not begun."""
    for run in (run for entry in entries for run in entry.runs):
        if not run.rows:
            page.text(f"{run.path} has no reports yet.", "note")
        elif run.state.startswith("in progress"):
            page.text(f"{run.path} is {run.state}: step {run.step:,}.", "note")


def _task(page: pages.Page, task: str, entries: Sequence[records.Entry]) -> None:
    """Add charts and tables of one environment."""
    page.heading(task or "Environment unknown", 3)
    page.keys({x.number: (x.label, curves.seeds(len(x.runs))) for x in entries})
    page.grid(
        figure
        for phase, name in PHASES.items()
        for x in ("steps", "seconds")
        if (figure := _chart(page, f"{name}: mean return", entries, phase, x))
    )
    page.heading("Losses and metrics over environment steps", 4)
    page.grid(_others(page, entries, "rows"), small=True)
    page.heading("Speed over environment steps", 4)
    page.grid(_others(page, entries, "timing"), small=True)
    _durations(page, entries)


def _explanation(entries: Sequence[records.Entry]) -> str:
    """Explain lines and bands of charts."""
    text = (
        "Move the mouse over a chart for its values, drag to zoom, double-click to zoom "
        "out, and click on a name to hide its curves. "
    )
    if any(len(entry.runs) > 1 for entry in entries):
        text += (
            "Curves are the mean over seeds and bands the quartiles, where all seeds of "
            "the chart have values; thin lines are single seeds. "
        )
    return text + "Bands of a single seed are the quartiles of its episodes."


def _chart(
    page: pages.Page,
    title: str,
    entries: Sequence[records.Entry],
    phase: str,
    x: str = "steps",
    name: str = "score",
) -> str | None:
    """Return the figure of a value of reports, or None if there is none."""
    lines, remarks = [], []
    for entry in entries:
        series = [y for run in entry.runs if (y := _series(run, phase, x, name))]
        curve = _mean(entry, series)
        if len(series) > 1 and (name == "score" or not curve):
            lines += [
                pages.Line(
                    entry.number, curves.aggregate(entry.label, [one]), bool(curve)
                )
                for one in series
            ]
        lines += [pages.Line(entry.number, curve)] if curve else []
        if 0 < len(series) < len(entry.runs):
            remarks.append(f"{_seeds_of(series, entry)} of {entry.label}")
    if not lines:
        return None
    scale, unit = curves.axis(x, max(line.curve.x[-1] for line in lines))
    lines = [line.scaled(1 / scale) for line in lines]
    remarks = [f"over {unit}"] * (name == "score") + remarks
    return page.chart(title, ", ".join(remarks), pages.Chart(unit, lines))


def _seeds_of(found: Sequence, entry: records.Entry) -> str:
    """Say how many seeds of a config have a value, if these are those that do."""
    return f"{len(found)} of {curves.seeds(len(entry.runs))}"


def _mean(
    entry: records.Entry, series: Sequence[records.Series]
) -> curves.Curve | None:
    """Return the mean over seeds, or None if no position has all of them."""
    try:
        return curves.aggregate(entry.label, series) if series else None
    except records.PlotError:
        return None


def _series(run: records.Run, phase: str, x: str, name: str) -> records.Series | None:
    """Return the values of a run, or None."""
    rows = run.rows if any(name in row for row in run.rows) else run.timing
    try:
        return records.series(run.path, rows, phase, x, name)
    except records.PlotError:
        return None


def _names(rows: Iterable[dict], phase: str) -> list[str]:
    """Return the names of values in the reports of a phase that charts can show."""
    names = dict.fromkeys(
        name for row in rows if row.get("phase") == phase for name in row
    )
    return [name for name in names if name not in (*PLACES, *SCORES)]


def _others(
    page: pages.Page, entries: Sequence[records.Entry], kind: str
) -> Iterable[str]:
    """Yield figures of other values in reports; kinds are those of `records.Run`."""
    rows = [
        row for entry in entries for run in entry.runs for row in getattr(run, kind)
    ]
    for phase, title in reversed(PHASES.items()):
        for name in _names(rows, phase):
            text = f"{title}: {name.replace('_', ' ')}"
            if figure := _chart(page, text, entries, phase, name=name):
                yield figure


def _durations(page: pages.Page, entries: Sequence[records.Entry]) -> None:
    """Add a table of the parts of the wall time, averaged over seeds."""
    rows = []
    for entry in entries:
        spent = [x for run in entry.runs if (x := _spent(run))]
        if not spent:
            continue
        total, *parts = np.mean(spent, axis=0)
        rows.append(
            [pages.cell(entry.label), pages.cell(duration(total))]
            + [pages.cell(f"{duration(x)}, {x / total:.0%}") for x in parts]
        )
    if rows:
        page.text("Wall time, mean over seeds:")
        rest = "start, compilation, checkpoints, drawing"
        page.table(["config", "in all", "training", "evaluation", rest], rows)
        page.text(
            "agents benchmark train --config CONFIG shows the parts of a step: "
            "environments, transport, acting, remembering and learning.",
            "quiet",
        )


def _spent(run: records.Run) -> list[float]:
    """Return the seconds of a run: all, of training, of evaluation, and the rest.

    Empty if they are not recorded.
    """
    spent = [
        sum(records.phase_scores(run.timing, phase, "phase_seconds").values())
        for phase in ("train", "evaluate")
    ]
    rest = max(run.seconds - sum(spent), 0.0)
    return [run.seconds, *spent, rest] if any(spent) else []


def duration(seconds: float) -> str:
    """Format a duration like 12 s, 3.5 min or 2.1 h."""
    scale, unit = curves.axis("seconds", seconds)
    return f"{seconds / scale:.3g} {({1.0: 's', 60.0: 'min'}).get(scale, 'h')}"


def _finals(page: pages.Page, entries: Sequence[records.Entry]) -> None:
    """Add the table of final scores."""
    page.heading("Final scores")
    page.table(
        ["environment", "config", "#seeds", "#steps", "#mean", "#interquartile mean"]
        + ["#95% interval", "last score of each seed", "wall time", "state"],
        [_final(entry) for entry in entries],
    )
    page.text(
        "The score of a seed is the mean return of its last evaluation, or of its last "
        "phase of training if no seed was evaluated. The interquartile mean is that of "
        "the middle half of the seeds; its interval is a bootstrap over seeds (Agarwal "
        "et al., 2021, Deep Reinforcement Learning at the Edge of the Statistical "
        "Precipice), which needs two of them, and is rough below ten.",
        "quiet",
    )


def _final(entry: records.Entry) -> list[str]:
    """Return the row of a config in the table of final scores."""
    scores = [x for x in entry.scores() if x is not None]
    mean, middle, between = summary(np.array(scores, float))
    steps = [run.step for run in entry.runs]
    steps = sorted({min(steps), max(steps)})
    states = list(dict.fromkeys(run.state for run in entry.runs))
    every = len(scores) == len(entry.runs)
    return [
        pages.cell(entry.task),
        pages.cell(entry.label),
        pages.cell(len(scores) if every else _seeds_of(scores, entry)),
        pages.cell(" to ".join(f"{x:,}" for x in steps), "number"),
        *(pages.cell(x, "number") for x in (mean, middle, between)),
        pages.cell(", ".join(map(pages.number, scores))),
        pages.cell(", ".join(duration(x.seconds) for x in entry.runs if x.seconds)),
        pages.cell("; ".join(states)),
    ]


def summary(scores: np.ndarray) -> tuple[str, str, str]:
    """Return mean, interquartile mean and its 95% bootstrap interval, `[seeds]`."""
    if not len(scores):
        return "none yet", "", ""
    mean, middle = pages.number(scores.mean()), curves.interquartile_mean(scores)
    if len(scores) == 1:
        return mean, mean, "one seed"
    lower, upper = curves.interval(scores)
    ends = f"{pages.number(lower)} to {pages.number(upper)}"
    return mean, pages.number(float(middle)), ends


def _video(entry: records.Entry, say: Callable[[str], Any]) -> str:
    """Film an episode of the best run; return a figure, or a text that says why not."""
    run = entry.best()
    with tempfile.TemporaryDirectory() as folder:
        try:
            (film,) = evaluation.visualize(run.path, folder, num_episodes=1, say=say)
        except Exception as error:  # Any library may fail; the page goes on.
            expected = isinstance(error, errors.Mistake | errors.Failure)
            reason = str(error).split("\n")[0] if expected else errors.reason(error)
            text = f"No video of {entry.label}: {reason}"
            return f"<p>{pages.escape(text)}</p>"
        data = (pathlib.Path(folder) / film["file"]).read_bytes()
    remark = f"return {film['return']:,.1f}, {film['length']} steps, {run.path.name}"
    return pages.video(data, entry.label, remark)


def _videos(page: pages.Page, videos: Sequence[str]) -> None:
    """Add the videos, or say that there are none."""
    page.heading("Video")
    if videos:
        page.text(
            "One episode with the best actions of the newest checkpoint, of the seed "
            "with the best last score.",
            "quiet",
        )
        page.grid(videos)
    else:
        page.text("No video: the report was made with --no_video.")


def _configs(page: pages.Page, entries: Sequence[records.Entry]) -> None:
    """Add a table of all values of all configs."""
    page.heading("Config")
    texts = [_texts(entry) for entry in entries]
    defaults = [_defaults(entry.runs[0]) for entry in entries]
    text = "Marked values differ from the defaults."
    if not all(defaults):
        text += " Where the run has no record of its defaults, nothing is marked."
    if len(entries) > 1:
        text += " Marked keys have different values in these configs."
    page.text(text, "quiet")
    rows = []
    for key in dict.fromkeys(key for values in texts for key in values):
        values = [x.get(key, "") for x in texts]
        rows.append([pages.cell(key, "changed" if len(set(values)) > 1 else "")])
        for value, known in zip(values, defaults, strict=True):
            default = _default(known, key) if known else value
            if value == default:
                rows[-1].append(pages.cell(value))
            else:
                rows[-1].append(pages.cell(f"{value} (default {default})", "changed"))
    page.table(["key", *(entry.label for entry in entries)], rows)


def _defaults(run: records.Run) -> dict[str, Any]:
    """Return the defaults of a config; empty if they are not recorded."""
    values = run.origin.get("defaults")
    return _flat(values) if isinstance(values, dict) else {}


def _default(known: dict[str, Any], key: str) -> str:
    """Return the default of a key, or of the key that contains it."""
    while key and key not in known:
        key = key.rpartition(".")[0]
    return _text(known[key]) if key else "none"


def _texts(entry: records.Entry) -> dict[str, str]:
    """Return all values of a config; where runs differ, those of each."""
    found: dict[str, dict[str, None]] = {}
    for run in entry.runs:
        for key, value in _flat(run.config).items():
            found.setdefault(key, {})[_text(value)] = None
    return {key: ", ".join(values) for key, values in found.items()}


def _flat(values: dict, path: str = "") -> dict[str, Any]:
    """Return the leaves of a nested mapping by their paths, `a.b`."""
    leaves = {}
    for key, value in values.items():
        full = f"{path}.{key}" if path else str(key)
        leaves |= (
            _flat(value, full) if isinstance(value, dict) and value else {full: value}
        )
    return leaves


def _text(value: Any) -> str:
    """Return a value of a config as in a file, without quotes around texts."""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, default=str, skipkeys=True)
    )


def _run(
    page: pages.Page, run: records.Run, outdir: pathlib.Path, unfolded: bool
) -> None:
    """Add the origin of a run, and links to its files."""
    name = os.path.basename(os.path.realpath(run.path))
    checkpoints = run.path / "checkpoints"
    page.add(
        f"<details{' open' * unfolded}><summary>", pages.escape(name), "</summary>"
    )
    unknown = "not recorded"
    rows = [
        (
            "command",
            f"<code>{pages.escape(run.origin.get('command') or unknown)}</code>",
        ),
        ("began", pages.escape(run.origin.get("date", unknown))),
        ("machine", pages.escape(run.origin.get("machine", unknown))),
        ("versions", pages.escape(", ".join(run.versions.splitlines()) or unknown)),
        ("state", pages.escape(f"{run.state}, {run.step:,} steps")),
        ("directory", _link(run.path, outdir, str(run.path))),
        ("checkpoints", _links(sorted(checkpoints.glob("step-*")), outdir) or "none"),
        ("best checkpoint", _links(checkpoints.glob("best"), outdir) or "none"),
        ("files", _links((x for x in run.path.iterdir() if x.is_file()), outdir)),
    ]
    page.table(
        ["", ""], [[pages.cell(key), f"<td>{value}</td>"] for key, value in rows]
    )
    page.add("</details>")


def _links(paths: Iterable[pathlib.Path], outdir: pathlib.Path) -> str:
    """Return links to files."""
    return " ".join(
        _link(path, outdir, os.path.basename(os.path.realpath(path)))
        for path in sorted(paths)
        if not path.name.startswith(".")
    )


def _link(path: pathlib.Path, outdir: pathlib.Path, text: str) -> str:
    """Return a link that works as long as page and run stay where they are."""
    target = os.path.relpath(os.path.realpath(path), os.path.realpath(outdir))
    address = pages.escape(urllib.parse.quote(os.fsencode(target)))
    readable = os.fsencode(text).decode(errors="replace")  # As names may not be.
    return f'<a href="{address}">{pages.escape(readable)}</a>'
