"""PPO on compiled CartPole, with learning, against PureJaxRL on the same processor.

    python benchmarks/compiled.py --peers PYTHON --source DIR [--repeats 3]

PYTHON is the interpreter of an environment with jax, flax, optax, distrax and gymnax;
DIR is a checkout of PureJaxRL. Both use its settings: 128 steps, 4 epochs, 4
minibatches, 64-64 networks. They take turns, each in a process of its own.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
STEPS = {4: 499_712, 64: 999_424, 1024: 3_932_160}


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", required=True, metavar="PYTHON")
    parser.add_argument("--source", required=True, metavar="DIR")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    peer = [args.peers, str(ROOT / "benchmarks/peers/purejaxrl_ppo.py")]
    peer += ["--source", args.source]
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
