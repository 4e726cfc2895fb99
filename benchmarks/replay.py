"""DQN and SAC beside Stable-Baselines3.

    python benchmarks/replay.py --peers PYTHON [--repeats 3]

PYTHON is the interpreter of a virtual environment with `peers/requirements.txt`.
Contestants take turns, each in a process of its own. Tracing and compilation are timed.

- dqn: CartPole-v1, batches of 32, 64-64 networks, an update every 4 steps;
- sac: HalfCheetah-v5, batches of 256, 256-256 networks, an update every step.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
SETTINGS = {
    "dqn": (
        "CartPole-v1",
        "cartpole_dqn",
        50_000,
        [
            "batch_size=32",
            "n_step=1",
            "replay_ratio=0.25",
            "network.layers=[64, 64]",
            "capacity=1000000",
        ],
    ),
    "sac": ("HalfCheetah-v5", "cheetah_sac", 4_000, []),
}
"""Environment, preset, steps, and changes of the preset."""


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the peers")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=SETTINGS, help="run one of ours")
    args = parser.parse_args()
    if args.only:
        print(json.dumps({"steps_per_s": ours(args.only)}))
        return
    result = {}
    for name, (env, _, steps, _) in SETTINGS.items():
        peer = [args.peers, str(ROOT / "benchmarks/peers/sb3.py"), "--env", env]
        peer += ["--algorithm", name, "--steps", str(steps)]
        commands = {
            "agents": [sys.executable, __file__, "--only", name],
            "sb3, 1 thread": peer,
            "sb3, 2 threads": [*peer, "--threads", "2"],
        }
        rates = {key: [] for key in commands}
        for _ in range(args.repeats):
            for key, command in commands.items():
                output = subprocess.run(
                    command, capture_output=True, text=True, check=True
                ).stdout
                rates[key].append(json.loads(output.splitlines()[-1])["steps_per_s"])
                print(f"{name:<5}{key:<16}{rates[key][-1]:>9,.0f} steps/s", flush=True)
        best = map(
            max, zip(rates["sb3, 1 thread"], rates["sb3, 2 threads"], strict=True)
        )
        ratios = [x / y for x, y in zip(rates["agents"], best, strict=True)]
        medians = {key: round(statistics.median(x)) for key, x in rates.items()}
        result[name] = {**medians, "ratio": round(statistics.median(ratios), 2)}
    print(json.dumps(result))


def ours(name: str) -> float:
    """Steps per second of training, as many steps as the peer makes."""
    sys.path.insert(0, str(ROOT))
    from agents.scripts import configs, runs

    runs.start_tensorflow()
    from agents import tools

    _, preset, steps, changes = SETTINGS[name]
    changes = ["start_size=1000", *changes]
    config = configs.load(preset, [f"algorithm.{x}" for x in changes])
    batch_env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    count = steps // len(batch_env)
    start = time.perf_counter()
    tools.simulate(batch_env, agent, count, training=True)
    seconds = time.perf_counter() - start
    batch_env.close()
    return count * len(batch_env) / seconds


if __name__ == "__main__":
    main()
