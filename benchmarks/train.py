"""Training against Stable-Baselines3.

    python benchmarks/train.py --peers PYTHON [--algorithm ppo|trpo]
        [--env HalfCheetah-v5] [--repeats 3]

PYTHON is the interpreter of a virtual environment with `peers/requirements.txt`.
Contestants take turns, each in a process of its own with the machine to itself. Import
and construction of environments are not timed; tracing, compilation, acting and
learning are.

- equal: 16 environments x 128 steps, 64-64 networks; PPO with minibatches of 512 and 10
  epochs; TRPO with 10 epochs of minibatches of 64 (sb3: 10 of 128) for the values, and
  a fifth of the batch for the Fisher information (sb3: all of it);
- paper: PPO on whole episodes, 25 full-batch epochs, 200-100 networks;
- sb3 default: Stable-Baselines3 with its defaults, on one and on two threads;
- sb3 equal: its best vectorization (in process) with the equal settings.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the peers")
    parser.add_argument("--algorithm", choices=("ppo", "trpo"), default="ppo")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="run one of ours: equal or paper")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(ours(args.only, args.env, args.algorithm)))
        return
    choice = ["--env", args.env, "--algorithm", args.algorithm]
    peer = [args.peers, str(ROOT / "benchmarks/peers/sb3.py"), *choice]
    own = [sys.executable, __file__, *choice]
    commands = {
        "equal": [*own, "--only", "equal"],
        "paper": [*own, "--only", "paper"],
        "sb3 default, 1 thread": [*peer, "--steps", "20480"],
        "sb3 default, 2 threads": [*peer, "--steps", "20480", "--threads", "2"],
        "sb3 equal, 1 thread": [*peer, "--setting", "equal", "--steps", "61440"],
        "sb3 equal, 2 threads": [
            *[*peer, "--setting", "equal", "--steps", "61440"],
            *["--threads", "2"],
        ],
    }
    if args.algorithm == "trpo":
        del commands["paper"]
    rates = {name: [] for name in commands}
    for _ in range(args.repeats):
        for name, command in commands.items():
            output = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            found = json.loads(output.splitlines()[-1])
            for key, rate in found.items():
                key = name if key == "steps_per_s" else f"{name}, compiled"
                rates.setdefault(key, []).append(rate)
                print(f"{key:<24}{rate:>9,.0f} steps/s", flush=True)
    best = {
        kind: [
            max(pair)
            for pair in zip(
                rates[f"sb3 {kind}, 1 thread"],
                rates[f"sb3 {kind}, 2 threads"],
                strict=True,
            )
        ]
        for kind in ("default", "equal")
    }
    result = {name: round(statistics.median(values)) for name, values in rates.items()}
    own = [name for name in rates if not name.startswith("sb3")]
    for left, right in itertools.product(own, ("default", "equal")):
        pairs = zip(rates[left], best[right], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        result[f"{left} over sb3 {right}"] = round(ratio, 2)
        print(f"{left} / sb3 {right} (best of threads): {ratio:.2f}")
    print(json.dumps(result))


def ours(setting: str, env: str, algorithm: str) -> dict[str, float]:
    """Steps per second of a config's training, and after tracing and compilation."""
    sys.path.insert(0, str(ROOT))
    from agents.experiments import named, runs
    from agents.scripts import commands

    commands.start_tensorflow()
    from agents import tools

    overrides = [f"environment.id={env}"]
    if algorithm == "trpo":
        config = named.load("cheetah_trpo", overrides)
    elif setting == "equal":
        overrides += ["algorithm.minibatch_size=512"]
        config = named.load("cheetah_clip", overrides)
    else:
        config = named.load("cheetah", overrides)
    batch_env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    first = 10_000 if setting == "equal" else 50_000  # More than an update takes.
    steps = [-(-count // len(batch_env)) for count in (first, 250_000 - first)]
    times = [time.perf_counter()]
    for count in steps:
        tools.simulate(batch_env, agent, count, training=True)
        times.append(time.perf_counter())
    batch_env.close()
    total = sum(steps) * len(batch_env) / (times[2] - times[0])
    later = steps[1] * len(batch_env) / (times[2] - times[1])
    return {"steps_per_s": total, "compiled_steps_per_s": later}


if __name__ == "__main__":
    main()
