"""Figures 1 and 2 of the TensorFlow Agents paper, with its settings on today's tasks.

    python benchmarks/paper.py [CONFIG ...] [--seeds 0 1 2] [--add] [--logdir DIR]

Trains every config as `learning.py` does, and stores the same results. Besides, it writes
`docs/results/paper.csv`, with the returns of all phases of all seeds, and
`docs/results/paper.png`: for each task the returns of mean actions (evaluation) and of
sampled actions (training), over environment steps and over hours. Lines are means over
seeds; bands reach from the 25th to the 75th percentile of seeds. Tasks that were trained
before stay in both files. Interrupted, it goes on where it stopped.
"""

import argparse
import csv
import itertools
import json
import pathlib

import learning
import numpy as np
from matplotlib import figure

from agents.experiments import curves, named, records

CONFIGS = ("cheetah", "walker", "hopper", "swimmer", "reacher", "ant")
FOLDER = learning.ROOT / "docs/results"
COLUMNS = ("config", "seed", "phase", "step", "seconds", "mean", "lower", "upper")
PHASES = {"evaluate": "mean action", "train": "sampled action"}
AXES = {"step": ("environment steps [millions]", 1e6), "seconds": ("hours", 3600.0)}


def main() -> None:
    """Train what is missing, and write table and figure after each config."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("configs", nargs="*", default=CONFIGS, metavar="CONFIG")
    learning.add_arguments(parser)
    args = parser.parse_args()
    for config in args.configs:
        runs = learning.train_and_store(config, args)
        rows = [
            row
            for row in stored()
            if row["config"] != config or (args.add and row["seed"] not in runs)
        ]
        for seed, run in runs.items():
            rows += phases(config, seed, run)
        with open(FOLDER / "paper.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        draw(stored())


def stored() -> list[dict[str, str]]:
    """Return the rows of the table, none if there is no table yet."""
    return learning.stored("paper") if (FOLDER / "paper.csv").exists() else []


def phases(config: str, seed: str, run: pathlib.Path) -> list[dict]:
    """Return the rows of all phases of a run that have episodes."""
    times = map(json.loads, (run / "timing.jsonl").open())
    seconds = {(x["phase"], x["step"]): x["seconds"] for x in times}
    return [
        {
            "config": config,
            "seed": seed,
            "phase": row["phase"],
            "step": row["step"],
            "seconds": round(seconds[row["phase"], row["step"]], 1),
            "mean": round(row["score"], 2),
            "lower": round(row["lower_quartile"], 2),
            "upper": round(row["upper_quartile"], 2),
        }
        for row in map(json.loads, (run / "metrics.jsonl").open())
        if row["score"] is not None
    ]


def draw(rows: list[dict[str, str]]) -> None:
    """Draw a column of two charts for each config."""
    configs = [*dict.fromkeys([*CONFIGS, *(row["config"] for row in rows)])]
    configs = [x for x in configs if any(row["config"] == x for row in rows)]
    picture = figure.Figure((3.4 * len(configs), 5.6), layout="constrained")
    charts = picture.subplots(2, len(configs), squeeze=False)
    for (column, config), (line, axis) in itertools.product(
        enumerate(configs), enumerate(AXES)
    ):
        chart, (label, unit) = charts[line, column], AXES[axis]
        for phase, color in zip(PHASES, curves.COLORS, strict=False):
            chosen = [x for x in rows if (x["config"], x["phase"]) == (config, phase)]
            x, mean, lower, upper = over_seeds(chosen, axis)
            chart.plot(x / unit, mean, color=color, label=PHASES[phase])
            chart.fill_between(x / unit, lower, upper, color=color, alpha=0.2, lw=0)
        chart.set_xlabel(label)
        chart.grid(color=curves.LIGHT)
        if line == 0:
            chart.set_title(named.load(config).environment.id)
    charts[0, 0].legend()
    for row in charts:
        row[0].set_ylabel("return")
    picture.savefig(FOLDER / "paper.png", dpi=110)


def over_seeds(rows: list[dict[str, str]], axis: str) -> np.ndarray:
    """Return positions on an axis, and mean and quartiles of seeds, `[4, points]`."""
    seeds: dict[str, list] = {}
    for row in rows:
        seeds.setdefault(row["seed"], []).append((float(row[axis]), float(row["mean"])))
    series = [records.Series(x, y, y, y) for x, y in map(np.transpose, seeds.values())]
    curve = curves.aggregate("seeds", series)
    return np.stack([curve.x, curve.mean, curve.lower, curve.upper])


if __name__ == "__main__":
    main()
