"""PPO on compiled CartPole, with learning, against PureJaxRL on the same processor.

    python benchmarks/compiled.py --peers PYTHON --source DIR [--repeats 3] [--solve]

PYTHON is the interpreter of an environment with jax, flax, optax, distrax and gymnax;
DIR is a checkout of PureJaxRL. Both use its settings: 128 steps, 4 epochs, 4
minibatches, 64-64 networks. They take turns, each in a process of its own.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
STEPS = {4: 499_712, 64: 999_424, 1024: 3_932_160}


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True, metavar="PYTHON")
    parser.add_argument("--source", required=True, metavar="DIR")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--solve", action="store_true", help="measure seconds to 475")
    args = parser.parse_args()
    peer = [args.peers, str(ROOT / "benchmarks/peers/purejaxrl_ppo.py")]
    peer += ["--source", args.source]
    if args.solve:
        print(json.dumps(solve(peer, args.repeats)))
        return
    result = {}
    for size, steps in STEPS.items():
        ours = [sys.executable, "-m", "agents.scripts.benchmark", "train"]
        ours += ["--config", "cartpole_compiled", "--steps", str(steps)]
        ours += ["--num_agents", str(size)]
        ours += ["--set", f"algorithm.minibatch_size={size * 32}"]
        theirs = [*peer, "--num_envs", str(size), "--steps", str(steps)]
        found = [(run(ours), run(theirs)) for _ in range(args.repeats)]
        ratio = statistics.median(
            a["end_to_end_steps_per_s"] / b["steps_per_s"] for a, b in found
        )
        row = {
            "agents": median(a["end_to_end_steps_per_s"] for a, _ in found),
            "purejaxrl": median(b["steps_per_s"] for _, b in found),
            "agents_compile_seconds": median(a["compile_seconds"] for a, _ in found),
            "purejaxrl_compile_seconds": median(b["compile_seconds"] for _, b in found),
            "ratio": round(ratio, 2),
        }
        result[size] = row
        print(f"{size:>5} environments: {row}", flush=True)
    print(json.dumps(result))


def solve(peer: list[str], repeats: int) -> dict[str, list[float] | float]:
    """Seconds of whole processes until CartPole is solved, a seed per repeat."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(-1, repeats):  # The first one only keeps the programs.
            command = [sys.executable, "-m", "agents.scripts.train", "--quiet"]
            command += ["--config", "cartpole_compiled", "--seed", str(seed + 1)]
            command += ["--set", "train.stop_at=475", "--set", "train.eval_every=25000"]
            command += ["--logdir", folder, "--timestamp", str(seed + 1)]
            start = time.perf_counter()
            subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
            ours.append(time.perf_counter() - start)
            if not solved(pathlib.Path(folder, f"{seed + 1}-cartpole_compiled")):
                ours[-1] = math.inf
            start = time.perf_counter()
            found = run([*peer, "--seed", str(seed + 1)])
            share = found["share_to_475"] or math.inf
            whole = time.perf_counter() - start
            theirs.append(whole - found["seconds"] * (1.0 - share))
    ratios = [b / a for a, b in zip(ours[1:], theirs[1:], strict=True)]
    return {
        "agents": [round(x, 1) for x in ours[1:]],
        "purejaxrl": [round(x, 1) for x in theirs[1:]],
        "ratio": round(statistics.median(ratios), 2),
    }


def solved(run: pathlib.Path) -> bool:
    """Return whether the last evaluation of a run has reached 475."""
    *_, last = (run / "metrics.jsonl").open()
    return json.loads(last)["score"] >= 475


def run(command: list[str]) -> dict:
    """Run a command; return its last line, which is JSON."""
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    return json.loads(output.splitlines()[-1])


def median(values) -> float:
    """Median, rounded to one digit."""
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    main()
