"""Learning curves of presets over seeds, kept under `docs/results`.

    python benchmarks/learning.py CONFIG [CONFIG ...] [--seeds 0 1 2] [--logdir DIR]

Trains every config with every seed by the `train` command, then measures the final
policy by `evaluate` (20 deterministic episodes, environments seeded apart from
training). Writes `CONFIG.csv` (evaluations over steps), `CONFIG.json` (final returns,
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
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--logdir", type=pathlib.Path, default=ROOT / "logdir/results")
    args = parser.parse_args()
    for config in args.configs:
        runs = {seed: train(config, seed, args.logdir) for seed in args.seeds}
        store(config, runs)


def train(config: str, seed: int, logdir: pathlib.Path) -> pathlib.Path:
    """Train one seed, or finish it; returns the run directory."""
    arguments = ["--config", config, "--seed", str(seed), "--quiet"]
    arguments += ["--logdir", str(logdir), "--timestamp", f"seed{seed}"]
    command("train", *arguments)
    return logdir / f"seed{seed}-{config}"


def command(name: str, *arguments: str) -> str:
    """Run a command of the package; returns what it prints."""
    return subprocess.run(
        [sys.executable, "-m", f"agents.scripts.{name}", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def store(config: str, runs: dict[int, pathlib.Path]) -> None:
    """Evaluate the final policies and write the results."""
    finals = {}
    folder = ROOT / "docs/results"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{config}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "step", "return"])
        for seed, run in runs.items():
            for row in map(json.loads, (run / "metrics.jsonl").open()):
                if row["phase"] == "evaluate":
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
        "command": f"python benchmarks/learning.py {config} --seeds "
        + " ".join(map(str, runs)),
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
