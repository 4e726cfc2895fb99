r"""Learning curves of named configs over seeds, kept under `docs/results`.

    python benchmarks/learning.py CONFIG [CONFIG ...] [--seeds 0 1 2:300000 100-119]
                                  [--add] [--logdir DIR]
                                  [--variant NAME --options OPTION ...]

Trains every config with every seed by the `train` command, then measures the final
policy by `evaluate` (20 deterministic episodes, environments seeded apart from
training). Seeds are numbers or ranges that include both ends; a number may be followed
by a colon and the environment steps that suffice. Writes `CONFIG.csv` (evaluations over
steps, with the quartiles of their episodes), `CONFIG.json` (final returns of all seeds,
their interquartile mean with its 95% bootstrap interval, command, versions, commit of
the code that trained them, date) and `CONFIG.png`. With `--add`, stored results of
other seeds stay beside the new ones, and `earlier` in the JSON file says how they were
made. The same command continues after an interruption.

A variant trains with further options of `train`, all that follow `--options`, and its
results are those of `CONFIG_NAME`:

    python benchmarks/learning.py walker --variant gae \
        --options --set algorithm.gae_lambda=0.95
    python benchmarks/learning.py atari_pong_impala --seeds 0 --variant ray \
        --options --executor ray --num_workers 2
"""

import argparse
import csv
import dataclasses
import datetime
import json
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from agents.experiments import curves, evaluation, named, records
from agents.experiments.config import Config

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "docs/results"
LOGDIR = ROOT / "logdir/results"
COLUMNS = {"return": "score", "lower": "lower_quartile", "upper": "upper_quartile"}
"""Columns of a table of evaluations, and their names in reports."""
LISTED = 5
"""Number of seeds up to which the table lists every return."""
COMMITS = "commits.txt"
"""File of a run that names the code that trained it."""


def main() -> None:
    """Run everything, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", metavar="CONFIG")
    add_arguments(parser)
    parser.add_argument("--variant", metavar="NAME")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[])
    args = parser.parse_args()
    if bool(args.options) != bool(args.variant):
        parser.error("--variant and --options need each other.")
    for config in args.configs:
        train_and_store(config, args, args.variant, args.options)
    write_table()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which seeds to train, and where."""
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--logdir", type=pathlib.Path, default=LOGDIR)


def train_and_store(
    config: str,
    args: argparse.Namespace,
    variant: str | None = None,
    options: Sequence[str] = (),
) -> dict[str, pathlib.Path]:
    """Train all seeds of a config and store results; returns directories of runs.

    A variant has a name, and further options of `train`.
    """
    name = f"{config}_{variant}" if variant else config
    earlier = made_before(name) if args.add else {}
    seeds = dict(pair for text in args.seeds for pair in expanded(text))
    prefix = f"{variant}-seed" if variant else "seed"
    runs = {
        seed: train(config, seed, args.logdir, steps, prefix + seed, options)
        for seed, steps in seeds.items()
    }
    words = ["python", "benchmarks/learning.py", config, "--seeds", *args.seeds]
    words += ["--add"] if earlier else []
    words += ["--variant", variant, "--options", *options] if variant else []
    store(name, runs, shlex.join(words), earlier)
    return runs


def expanded(text: str) -> list[tuple[str, int]]:
    """Return seeds and their steps, or 0, of an argument."""
    if "-" in text:
        first, last = map(int, text.split("-"))
        return [(str(seed), 0) for seed in range(first, last + 1)]
    seed, _, steps = text.partition(":")
    return [(seed, int(steps or 0))]


def train(
    config: str,
    seed: str,
    logdir: pathlib.Path,
    steps: int,
    start: str,
    options: Sequence[str],
) -> pathlib.Path:
    """Train one seed, or finish it, unless it has the steps; returns the directory."""
    run = logdir.resolve() / f"{start}-{config}"
    if steps and any(row["step"] >= steps for row in evaluations(run)):
        return run
    arguments = ["--config", config, "--seed", seed, "--quiet"]
    arguments += ["--logdir", str(run.parent), "--timestamp", start]
    if steps:
        arguments += ["--set", f"train.steps={steps}"]
    arguments += options
    command = [sys.executable, "-m", "agents.scripts.train", *arguments]
    before, code = reports(run), commit()
    earlier = commits(run) if before else set()
    try:
        run_command(command)
    finally:
        if reports(run) != before:  # A finished run does not train again.
            (run / COMMITS).write_text("\n".join(sorted({*earlier, code})) + "\n")
    return run


def run_command(command: Sequence[str]) -> None:
    """Run a command, and wait for its end also when this process is to end.

    SIGTERM goes on to the command; Ctrl-C in a terminal reaches both by itself. Raises
    CalledProcessError if the command fails.
    """
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:

        def stop(number: int, _) -> None:
            process.terminate()
            sys.exit(128 + number)

        previous = signal.signal(signal.SIGTERM, stop)
        try:
            process.wait()
        except (KeyboardInterrupt, SystemExit):
            process.wait()
            raise
        finally:
            signal.signal(signal.SIGTERM, previous)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def commits(run: pathlib.Path) -> set[str]:
    """Return the commits of the code that trained a run, or the word `unknown`."""
    path = run / COMMITS
    return set(path.read_text().split()) if path.exists() else {"unknown"}


def evaluations(run: pathlib.Path) -> list[dict]:
    """Results of the phases of evaluation."""
    return [row for row in reports(run) if row["phase"] == "evaluate"]


def reports(run: pathlib.Path) -> list[dict]:
    """Results of all phases, none if the run has not begun."""
    path = run / "metrics.jsonl"
    return records.read_rows(path) if path.exists() else []


def made_before(name: str) -> dict:
    """Return stored results, which say by which code they were made."""
    path = FOLDER / f"{name}.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    if not {"command", "commit", "date", "seconds"} <= result.keys():
        sys.exit(f"{path} is missing or does not name its code; leave out --add.")
    return result


def store(
    name: str, runs: dict[str, pathlib.Path], command: str, earlier: dict
) -> None:
    """Evaluate the final policies; write results, with earlier ones of other seeds."""
    finals = {k: v for k, v in earlier.get("finals", {}).items() if k not in runs}
    seconds = {seed: earlier["seconds"][seed] for seed in finals}
    rows = [row for row in stored(name) if row["seed"] in finals] if finals else []
    for seed, run in runs.items():
        finals[seed] = evaluation.evaluate(str(run))
        seconds[seed] = wall_seconds(run)
        rows += [
            {"seed": seed, "step": row["step"]}
            | {column: round(row[key], 2) for column, key in COLUMNS.items()}
            for row in evaluations(run)
        ]
    last = next(iter(runs.values()))
    returns = np.array([final["mean_return"] for final in finals.values()])
    result = {
        "config": name,
        "mean_of_seeds": float(returns.mean()),
        "lowest_seed": float(returns.min()),
        "interquartile_mean": float(curves.interquartile_mean(returns)),
        "interval": curves.interval(returns).tolist(),
        "finals": finals,
        "command": command,
        "commit": ", ".join(sorted(set.union(*map(commits, runs.values())))),
        "date": datetime.date.today().isoformat(),
        "versions": (last / "versions.txt").read_text().splitlines(),
        "seconds": seconds,
    }
    if earlier:
        origin = {key: earlier[key] for key in ("command", "commit", "date")}
        result["earlier"] = [*earlier.get("earlier", []), origin]
    text = json.dumps(result, indent=2)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    with open(FOLDER / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["seed", "step", *COLUMNS])
        writer.writeheader()
        writer.writerows(rows)
    draw(name)
    numbers = ", ".join(f"{x:,.1f}" for x in returns)
    print(f"{name}: {result['interquartile_mean']:,.1f}; {numbers}", flush=True)


def stored(name: str) -> list[dict[str, str]]:
    """Return the stored evaluations of all seeds."""
    with open(FOLDER / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def draw(name: str) -> None:
    """Draw the curve of stored results; old ones have no quartiles."""
    series: dict[str, list] = {}
    for row in stored(name):
        values = [float(row.get(x) or row["return"]) for x in ("step", *COLUMNS)]
        series.setdefault(row["seed"], []).append(values)
    runs = [records.Series(*np.transpose(values)) for values in series.values()]
    config = config_of(name)
    curve = dataclasses.replace(
        curves.aggregate(name, runs),
        task=config.environment.id,
        algorithm=config.algorithm.type,
    )
    curves.draw([curve], FOLDER / f"{name}.png", "steps", "evaluate", "mean")


def write_table() -> None:
    """Write the table of all results into their page, in place of the old one."""
    page = FOLDER / "README.md"
    before, _, rest = page.read_text().partition("| config |")
    _, _, after = rest.partition("\n\n")
    page.write_text(f"{before}{table()}\n\n{after}")


def table() -> str:
    """Return the table of all results in Markdown."""
    lines = [
        "| config | environment | steps | seeds | interquartile mean (95% interval) "
        "| returns of seeds | data |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
    ]
    for name in names():
        lines.append(line(name, json.loads((FOLDER / f"{name}.json").read_text())))
    return "\n".join(lines)


def names() -> list[str]:
    """Return the names of all results, in the order of the named configs."""
    order = list(named.EXPERIMENTS)
    found = [x.stem for x in FOLDER.glob("*.json") if x.with_suffix(".csv").exists()]
    return sorted(found, key=lambda x: (order.index(base(x)), x))


def base(name: str) -> str:
    """Return the name of a config from that of its results, maybe those of a variant."""
    return max(
        (x for x in named.EXPERIMENTS if f"{name}_".startswith(f"{x}_")), key=len
    )


def config_of(name: str) -> Config:
    """Return the config of results; a variant is on the same task."""
    return named.EXPERIMENTS[base(name)]()


def line(name: str, result: dict) -> str:
    """Return the line of the table about the seeds that made the most steps."""
    steps, returns = longest(result)
    lower, upper = map(shown, curves.interval(returns))
    interval = f" ({lower} to {upper})" if len(returns) > 1 else ""
    if len(returns) > LISTED:
        listed = f"{shown(returns.min())} to {shown(returns.max())}"
    else:
        listed = ", ".join(map(shown, returns))
    middle = shown(curves.interquartile_mean(returns))
    config = config_of(name)
    id = config.environment.id.rpartition(":")[2]
    return (
        f"| [{name}]({name}.png) | {id} | {steps:,} | {len(returns)} "
        f"| {middle}{interval} | {listed} | [curves]({name}.csv), [runs]({name}.json) |"
    )


def longest(result: dict) -> tuple[int, np.ndarray]:
    """Return the steps of the seeds that made the most, and their returns `[seeds]`."""
    finals = result["finals"].values()
    steps = max(final["step"] for final in finals)
    returns = [final["mean_return"] for final in finals if final["step"] == steps]
    return steps, np.array(returns)


def shown(number: float) -> str:
    """Return a number with as many decimals as its size calls for."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2f}"


def commit() -> str:
    """Return the commit of the code, with a mark if code has changed since."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True)
    # Results of other runs that wait in `docs` are not code.
    changed = subprocess.call([*git, "diff", "--quiet", "HEAD", "--", ".", ":!docs"])
    return name.strip() + ("-dirty" if changed else "")


def wall_seconds(run: pathlib.Path) -> float:
    """Return the wall time of a run."""
    return json.loads((run / "timing.jsonl").read_text().splitlines()[-1])["seconds"]


if __name__ == "__main__":
    main()
