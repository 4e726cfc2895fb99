"""IMPALA and PPO against RLlib, on CartPole and Pong.

    python benchmarks/rllib.py --peers PYTHON [--repeats 3] [--seconds 30]
        [--only impala-cartpole ...]

PYTHON is the interpreter of a virtual environment with `peers/rllib.txt`, the same Ray.
Contestants take turns, each in a process of its own: ours in one graph, and with two
workers on Ray; RLlib with two runners and equal networks, unrolls, batches, epochs and
numbers of environments; RLlib by default. Rates are environment steps per second that
were sampled and trained, without the time until the first results.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
WORKERS = 2
SETTINGS = {
    "impala-cartpole": ("CartPole-v1", "cartpole_impala", 32, 50, []),
    "ppo-cartpole": (
        "CartPole-v1",
        "cartpole_clip",
        32,
        128,
        ["algorithm.epochs=4", "algorithm.minibatch_size=512"],
    ),
    "impala-pong": (
        "ALE/Pong-v5",
        "atari_pong_impala",
        16,
        50,
        [
            "algorithm.queue_size=1",
            "algorithm.optimizer={type: adam, epsilon: 1e-5, clip_norm: 0.5}",
        ],
    ),
    "ppo-pong": (
        "ALE/Pong-v5",
        "atari_pong",
        16,
        128,
        ["algorithm.epochs=4", "algorithm.minibatch_size=256"],
    ),
}
"""Environment, config, number of environments, unroll, and changes of the config."""


def main() -> None:
    """Measure in turns, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with RLlib")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--ours", choices=("local", "ray"), help="only that, once")
    args = parser.parse_args()
    if args.ours:
        measure = {"local": local, "ray": on_ray}[args.ours]
        print(json.dumps({"steps_per_s": measure(config(args.only[0]), args.seconds)}))
        return
    print(json.dumps({name: compare(name, args) for name in args.only}))


def compare(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Median rates of all contestants and ratios of ours to each of RLlib's."""
    env, _, envs, unroll, changes = SETTINGS[name]
    algorithm, _ = name.split("-")
    settings = dict(change.split("=") for change in changes)
    seconds = ["--seconds", str(args.seconds)]
    peer = [args.peers, str(ROOT / "benchmarks/peers/rllib.py"), *seconds]
    peer += ["--algorithm", algorithm, "--env", env]
    equal = ["--envs", str(envs), "--unroll", str(unroll)]
    for option in ("epochs", "minibatch"):
        for key, value in settings.items():
            if key.startswith(f"algorithm.{option}"):
                equal += [f"--{option}", value]
    own = [sys.executable, __file__, *seconds, "--only", name, "--ours"]
    commands = {
        "agents": [*own, "local"],
        "agents on Ray": [*own, "ray"],
        "rllib": [*peer, *equal],
        "rllib as it comes": peer,
    }
    rates: dict[str, list[float]] = {}
    for _ in range(args.repeats):
        for key, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
            row = json.loads(done.stdout.splitlines()[-1])
            rates.setdefault(key, []).append(row["steps_per_s"])
            print(f"{name:<16}{key:<18}{row}", flush=True)
    result = {key: round(statistics.median(x)) for key, x in rates.items()}
    for ours in ("agents", "agents on Ray"):
        for theirs in ("rllib", "rllib as it comes"):
            ratios = [x / y for x, y in zip(rates[ours], rates[theirs], strict=True)]
            result[f"{ours} / {theirs}"] = round(statistics.median(ratios), 2)
    return result


def config(name: str) -> Any:
    """Config of ours with as much work as RLlib's."""
    sys.path.insert(0, str(ROOT))
    from agents.experiments import named
    from agents.scripts import commands

    if name.endswith("pong"):
        os.environ.setdefault(commands.ONEDNN, "1")  # As `agents train` does.
    commands.start_tensorflow()
    _, preset, envs, unroll, changes = SETTINGS[name]
    network = "nature" if name.endswith("pong") else "{layers: [64, 64]}"
    changes = [
        *changes,
        f"environment.num_agents={envs}",
        f"algorithm.unroll_length={unroll}",
        f"algorithm.network={network}",
        "train.eval_episodes=0",
        "train.eval_every=1000000000",
    ]
    result = named.load(preset, changes)
    commands.use_threads(result)
    return result


def local(config: Any, seconds: float) -> float:
    """Steps per second of one graph."""
    from agents import tools
    from agents.experiments import runs

    batch_env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    steps = agent.batch_steps

    def run(count: int) -> float:
        start = time.perf_counter()
        tools.simulate(batch_env, agent, count * steps, training=True)
        return time.perf_counter() - start

    run(2)
    count = max(int(seconds / (run(2) / 2)), 1)
    rate = count * steps * len(batch_env) / run(count)
    batch_env.close()
    return rate


def on_ray(config: Any, seconds: float) -> float:
    """Steps per second of two workers and a learner."""
    from agents import distributed

    with distributed.RayExecutor(config, WORKERS) as executor:

        def run(count: int) -> float:
            (report,) = executor.run(count * batch)
            return report.seconds

        batch = executor.algorithm.batch_steps * config.environment.num_agents
        run(4)
        count = max(int(seconds / (run(4) / 4)), 1)
        return count * batch / run(count)


if __name__ == "__main__":
    main()
