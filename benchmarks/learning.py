"""Learning curves of presets over seeds, kept under `docs/results`.

    python benchmarks/learning.py CONFIG [CONFIG ...] [--seeds 0 1 2:300000]
                                  [--logdir DIR]

Trains every config with every seed by the `train` command, then measures the final
policy by `evaluate` (20 deterministic episodes, environments seeded apart from
training). A seed may be followed by a colon and the environment steps that suffice.
Writes `CONFIG.csv` (evaluations over steps), `CONFIG.json` (final returns,
command, versions, date) and `CONFIG.png`. Interrupted, it goes on where it stopped.
"""

import argparse
import csv
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def main() -> None:
    """Run everything, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    parser.add_argument("--logdir", type=pathlib.Path, default=ROOT / "logdir/results")
    args = parser.parse_args()
    for config in args.configs:
        runs = {}
        for seed in args.seeds:
            number, _, steps = seed.partition(":")
            runs[number] = train(config, number, args.logdir, int(steps or 0))
        store(config, runs, args.seeds)


def train(config: str, seed: str, logdir: pathlib.Path, steps: int) -> pathlib.Path:
    """Train one seed, or finish it, unless it has the steps; returns the directory."""
    run = logdir / f"seed{seed}-{config}"
    if steps and run.exists() and evaluations(run)[-1]["step"] >= steps:
        return run
    arguments = ["--config", config, "--seed", seed, "--quiet"]
    arguments += ["--logdir", str(logdir), "--timestamp", f"seed{seed}"]
    if steps:
        arguments += ["--set", f"train.steps={steps}"]
    command("train", *arguments)
    return run


def evaluations(run: pathlib.Path) -> list[dict]:
    """Results of the phases of evaluation."""
    rows = map(json.loads, (run / "metrics.jsonl").open())
    return [row for row in rows if row["phase"] == "evaluate"]


def command(name: str, *arguments: str) -> str:
    """Run a command of the package; returns what it prints."""
    return subprocess.run(
        [sys.executable, "-m", f"agents.scripts.{name}", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def store(config: str, runs: dict[str, pathlib.Path], seeds: list[str]) -> None:
    """Evaluate the final policies and write the results."""
    finals = {}
    folder = ROOT / "docs/results"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{config}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "step", "return"])
        for seed, run in runs.items():
            for row in evaluations(run):
                writer.writerow([seed, row["step"], round(row["score"], 2)])
            output = command("evaluate", "--logdir", str(run), "--num_episodes", "20")
            finals[seed] = json.loads(output.splitlines()[-1])
    last = next(iter(runs.values()))
    returns = [final["mean_return"] for final in finals.values()]
    result = {
        "config": config,
        "mean_of_seeds": statistics.mean(returns),
        "lowest_seed": min(returns),
        "finals": finals,
        "command": f"python benchmarks/learning.py {config} --seeds " + " ".join(seeds),
        "date": datetime.date.today().isoformat(),
        "versions": (last / "versions.txt").read_text().splitlines(),
    }
    text = json.dumps(result, indent=2)
    (folder / f"{config}.json").write_text(text + "\n")
    names = [str(run) for run in runs.values()]
    command("plot", *names, "--outfile", str(folder / f"{config}.png"))
    print(f"{config}: {result['mean_of_seeds']:,.1f}, seeds {returns}", flush=True)


if __name__ == "__main__":
    main()
