"""Seconds from the command line to the first update, and again with kept programs.

    python benchmarks/start.py [--configs cheetah_clip cartpole_compiled] [--repeats 3]

Each run is a process that trains until its first report of training appears. The first
one of a repeat finds no compiled programs, the second one finds those of the first; the
third keeps none. Prints medians, and one line of JSON.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from agents.experiments import compilation, named

KINDS = ("first start", "second start", "nothing kept")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--configs", nargs="+", default=["cheetah_clip", "cartpole_compiled"]
    )
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args(argv)
    results = {}
    for name in args.configs:
        turns = [measure(name) for _ in range(args.repeats)]
        medians = [statistics.median(column) for column in zip(*turns, strict=True)]
        results[name] = dict(zip(KINDS, [round(x, 1) for x in medians], strict=True))
        shown = ", ".join(f"{kind} {x} s" for kind, x in results[name].items())
        print(f"{name}: {shown}", flush=True)
    print(json.dumps(results))
    return 0


def measure(name: str) -> list[float]:
    """Return the seconds of one run of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        kept = str(pathlib.Path(folder, "programs"))
        settings = (kept, kept, "off")
        return [
            start(name, pathlib.Path(folder, str(index)), setting)
            for index, setting in enumerate(settings)
        ]


def start(name: str, logdir: pathlib.Path, programs: str) -> float:
    """Return the seconds until a run reports its first update."""
    config = named.load(name)
    if getattr(config.algorithm, "memory", None) != "unrolls":
        sys.exit(
            f"{name} does not learn from unrolls, whose length is the first update."
        )
    batch = config.environment.num_agents * config.algorithm.unroll_length
    command = [sys.executable, "-m", "agents.scripts.train", "--config", name]
    command += ["--quiet", "--logdir", str(logdir), "--timestamp", "1"]
    for setting in (f"train.steps={batch}", f"train.eval_every={batch}"):
        command += ["--set", setting]
    report = logdir / f"1-{config.name}" / "metrics.jsonl"
    environ = {**os.environ, compilation.VARIABLE: programs}
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environ) as process:
        while not (report.exists() and report.stat().st_size):
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with exit code {process.returncode}.")
            time.sleep(0.01)
        seconds = time.perf_counter() - begun
        process.wait()  # It keeps its programs.
    return seconds


if __name__ == "__main__":
    sys.exit(main())
