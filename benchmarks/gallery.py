"""Page of results, from the data in `docs/results`.

    python benchmarks/gallery.py --outdir DIR

Compares the final returns of each config, and of each variant of one, with published
ones (`published.json`), and shows a card for each: curve, score, steps, wall time,
command, and a small moving picture if there is one. The data comes from
`benchmarks/learning.py`, the pictures from `benchmarks/animations.py`.
"""

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import learning
import numpy as np

from agents.experiments import curves, pages, records, report
from agents.tools import files

FOLDER = learning.FOLDER


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--outdir", type=pathlib.Path, required=True, metavar="DIR")
    args = parser.parse_args()
    args.outdir.mkdir(parents=True, exist_ok=True)
    files.write(args.outdir / "index.html", page().html())
    print(f"Wrote {args.outdir / 'index.html'}")


def page() -> pages.Page:
    """Return the page."""
    results = {name: result(name) for name in learning.names()}
    published = json.loads((FOLDER / "published.json").read_text())
    made = pages.Page("Results")
    made.text(
        "Mean returns of 20 deterministic episodes of final policies, raw, with seeds "
        "apart from training. Ours is the interquartile mean over the seeds that made "
        "the most steps, with its 95% bootstrap interval over them. Green: what was "
        "published is inside of it or below. Published scores are of other versions of "
        "the environments and often the best of a run, so the comparison is rough."
    )
    made.heading("Beside published results")
    made.table(
        ["environment", "algorithm", "config", "#steps", "#seeds", "#ours"]
        + ["", "#published", "#their steps", "source"],
        (
            compared(name, values, entry)
            for config, entries in published.items()
            for name, values in results.items()
            if learning.base(name) == config
            for entry in entries
        ),
    )
    made.heading("Configs")
    made.text("Bands are the quartiles over seeds, thin lines single seeds.", "quiet")
    made.grid(card(made, name, entry) for name, entry in results.items())
    return made


def data(name: str, ending: str = "json") -> pathlib.Path:
    """Return the file with the results of a config."""
    return FOLDER / f"{name}.{ending}"


def result(name: str) -> dict[str, Any]:
    """Return the results of a config: `steps` and `returns` are of its longest runs."""
    values = json.loads(data(name).read_text())
    steps, returns = learning.longest(values)
    return {**values, "steps": steps, "returns": returns}


def compared(name: str, ours: dict, theirs: dict) -> list[str]:
    """Return the row of a config and a published score."""
    config = learning.config_of(name)
    place = position(ours["returns"], theirs["score"])
    kind = "number" if place == "below" else "number good"
    _, middle, between = report.summary(ours["returns"])
    spread = f" ± {pages.number(theirs['spread'])}" if "spread" in theirs else ""
    return [
        pages.cell(config.environment.id, "line"),
        pages.cell(config.algorithm.type.upper()),
        pages.cell(name),
        pages.cell(ours["steps"]),
        pages.cell(len(ours["returns"])),
        pages.cell(f"{middle} ({between})", kind),
        pages.cell(place),
        pages.cell(pages.number(theirs["score"]) + spread, "number"),
        pages.cell(theirs.get("steps", "")),
        pages.cell(theirs["source"]),
    ]


def position(returns: np.ndarray, score: float) -> str:
    """Return the position of an interval of returns `[seeds]` relative to a score."""
    lower, upper = curves.interval(returns).round(6)
    if lower > score:
        return "above"
    return "inside" if upper >= score else "below"


def card(made: pages.Page, name: str, values: dict) -> str:
    """Return the card of a config."""
    lines = list(learned(name))
    scale, unit = curves.axis("steps", values["steps"])
    config = learning.config_of(name)
    about = f"{config.algorithm.type.upper()} on {config.environment.id}, over {unit}"
    figure = made.chart(name, about, pages.Chart(unit, lines))
    mean, middle, between = report.summary(values["returns"])
    count = curves.seeds(len(values["returns"]))
    between = f" ({between})" if len(values["returns"]) > 1 else ""
    seconds = list(values.get("seconds", {}).values())
    time = (
        f"{report.duration(np.mean(seconds))} per seed" if seconds else "not recorded"
    )
    texts = [
        f"Return {middle}{between}, {count}, {values['steps']:,} steps",
        f"Wall time: {time}",
        f"{values['date']}: {', '.join(values['versions'])}",
    ]
    score, time, versions = map(pages.escape, texts)
    lines = f"<p>{score}</p><p>{time}</p>"
    for made_by in (*values.get("earlier", []), values):
        lines += f"<p><code>{pages.escape(made_by['command'])}</code></p>"
    film = data(name, "webp")
    moving = (
        pages.image(film.read_bytes(), f"Policy of {name}") if film.exists() else ""
    )
    return f'<div>{figure}{moving}{lines}<p class="quiet">{versions}</p></div>'


def learned(name: str) -> Iterator[pages.Line]:
    """Yield the curves of the seeds of a config, and their mean."""
    seeds: dict[str, list] = {}
    for row in learning.stored(name):
        point = float(row["step"]), float(row["return"])
        seeds.setdefault(row["seed"], []).append(point)
    series = []
    for points in seeds.values():
        steps, returns = np.array(sorted(points)).T
        series.append(records.Series(steps, returns, returns, returns))
    if len(series) > 1:
        for one in series:
            yield pages.Line(0, curves.aggregate(name, [one]), faint=True)
    yield pages.Line(0, curves.aggregate(name, series))


if __name__ == "__main__":
    main()
