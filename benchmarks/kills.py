"""Kill runs of many kinds at random moments, and compare them with whole ones.

    python benchmarks/kills.py [KIND ...] [--kills 3] [--seed 0] [--logdir DIR]

Trains a short run of every kind without interruption. Then it trains the same run
again, sends SIGKILL at moments drawn from the seed, while the run starts, is in a phase
or writes a checkpoint, and repeats the command until the run is complete. Both must end
with the same `metrics.jsonl`, byte for byte, and the same values in their last
checkpoint, bit for bit. Prints a table, and exits with 1 if some kind of run differs.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
sys.path += [str(ROOT), str(ROOT / "tests" / "scripts")]

import equal_runs  # noqa: E402

QUICK = (
    *("environment.max_length=40", "train.eval_episodes=4"),
    *("train.steps=20480", "train.eval_every=1024"),
)
PLAIN = (*QUICK, "algorithm.jit=false", "environment.num_agents=4")
SMALL = (*PLAIN, "algorithm.network={layers: [32]}")
SERIAL = (*SMALL, "environment.backend=serial")
EPISODES = (*SERIAL, "algorithm.memory=episodes", "algorithm.update_every=10")
UNROLLS = (*SERIAL, "algorithm.unroll_length=32")
REPLAY = (
    *(*SERIAL, "algorithm.capacity=3000", "algorithm.start_size=600"),
    *("algorithm.batch_size=32", "algorithm.replay_ratio=0.1"),
)
RAINBOW = (
    *("algorithm.prioritized=true", "algorithm.dueling=true", "algorithm.n_step=3"),
    *("algorithm.noisy_std=0.5", "algorithm.atoms=21", "algorithm.value_range=[0, 40]"),
    "algorithm.epsilon={type: linear, from: 1.0, to: 0.05, over: 10000}",
)
COMPILED = ("train.steps=200000", "train.eval_every=10000")  # These are faster.
RECURRENT = "algorithm.network={layers: [16, {type: KIND, units: 16}]}"
KINDS = {
    "PPO, KL penalty, episodes": ("cartpole", (*EPISODES, "algorithm.epochs=3")),
    "PPO, clipped": ("debug", UNROLLS),
    "PPO, GRU": (
        "cartpole_masked",
        (
            *(*UNROLLS, RECURRENT.replace("KIND", "gru")),
            *("algorithm.chunk_length=8", "algorithm.minibatch_size=32"),
        ),
    ),
    "PPO, preprocessing with statistics": (
        "debug",
        (*UNROLLS, "preprocessing=[normalize, {type: clip, low: -3, high: 3}]"),
    ),
    "PPO, evolutionary": (
        "cartpole_evolutionary",
        (*UNROLLS, "algorithm.optimizer.num_steps=3", "algorithm.minibatch_size=64"),
    ),
    "TRPO": ("cartpole_trpo", UNROLLS),
    "VPG": ("cartpole_vpg", EPISODES),
    "A2C": ("cartpole_a2c", SERIAL),
    "IMPALA, LSTM": (
        "cartpole_impala",
        (
            *(*SERIAL, RECURRENT.replace("KIND", "lstm")),
            *("algorithm.queue_size=2", "algorithm.unroll_length=16"),
        ),
    ),
    "DQN": ("cartpole_dqn", REPLAY),
    "DQN, memory in blocks": ("cartpole_dqn", (*REPLAY, "algorithm.capacity=300000")),
    "Rainbow, prioritized": ("cartpole_dqn", (*REPLAY, *RAINBOW)),
    "Ape-X": ("cartpole_apex", REPLAY),
    "SAC": ("pendulum_sac", REPLAY),
    "TD3": ("pendulum_td3", REPLAY),
    "workers": ("debug", (*SMALL, "environment.backend=workers")),
    "one process each": ("debug", (*SMALL, "environment.backend=process")),
    "halves": (
        "debug",
        (*SMALL, "environment.backend=workers", "environment.action_lag=true"),
    ),
    "vector": (
        "debug",
        (
            *(*SMALL, "environment.backend=vector"),
            "environment.kwargs={vectorization_mode: sync}",
        ),
    ),
    "compiled, PPO": ("cartpole_compiled", (*SMALL, *COMPILED)),
    "compiled, DQN": ("cartpole_dqn", (*REPLAY, "environment.backend=compiled")),
    "compiled, IMPALA, LSTM": ("memory_impala", (*QUICK, *COMPILED)),
}
"""Config and changes of every kind of run."""
MOMENTS = ("start", "phase", "checkpoint")
POLL = 0.001
"""Seconds between checks of the files of a run."""


class Durations(NamedTuple):
    """Seconds until the first report, per phase, and per written checkpoint."""

    start: float
    phase: float
    checkpoint: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run everything, one after the other, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--kills", type=int, default=3, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--logdir", type=pathlib.Path, help="keep the runs there")
    args = parser.parse_args(argv)
    for kind in args.kinds:
        if kind not in KINDS:
            parser.error(f"unknown kind {kind!r}; known are {', '.join(KINDS)}")
    moments = " | ".join(MOMENTS)
    print(f"| kind of run | kills | {moments} | bit-exact |")
    print(f"| --- | ---: |{' ---: |' * len(MOMENTS)} --- |", flush=True)
    total, same = 0, True
    with tempfile.TemporaryDirectory() as folder:
        logdir = args.logdir or pathlib.Path(folder)
        for number, kind in enumerate(args.kinds or KINDS):
            generator = random.Random(f"{args.seed} {kind}")
            kills, names = attempt(kind, logdir / str(number), args.kills, generator)
            counts = " | ".join(str(kills.count(moment)) for moment in MOMENTS)
            answer = f"no: {names[0]} and {len(names) - 1} more" if names else "yes"
            print(f"| {kind} | {len(kills)} | {counts} | {answer} |", flush=True)
            total, same = total + len(kills), same and not names
    print(f"\n{total} kills.")
    return 0 if same else 1


def attempt(
    kind: str, logdir: pathlib.Path, kills: int, generator: random.Random
) -> tuple[list[str], list[str]]:
    """Moments of the kills of a run, and its differences from the whole one."""
    whole, parts = logdir / "whole" / "1-run", logdir / "parts" / "1-run"
    durations = measure(start(kind, whole), whole)
    killed = []
    for _ in range(kills):
        moment = generator.choice(MOMENTS)
        process = start(kind, parts)
        if wait_for(moment, process, parts, durations, generator):
            process.kill()
            process.wait()
            killed.append(moment)
    finish(start(kind, parts))
    return killed, equal_runs.differences(parts, whole)


def start(kind: str, run: pathlib.Path) -> subprocess.Popen:
    """Train a run, or resume it, in a process of its own."""
    config, changes = KINDS[kind]
    command = [sys.executable, "-m", "agents.scripts.train", "--config", config]
    command += ["--logdir", str(run.parent), "--timestamp", "1", "--quiet"]
    command += [f"--set={change}" for change in (*changes, "name=run")]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})


def finish(process: subprocess.Popen) -> None:
    """Wait until a run is complete."""
    if process.wait():
        raise SystemExit(f"A run has ended with code {process.returncode}.")


def measure(process: subprocess.Popen, run: pathlib.Path) -> Durations:
    """Durations in a run that is not interrupted."""
    begin = time.perf_counter()
    until(process, lambda: reports(run) > 0)
    first = time.perf_counter()
    written = 0.0
    while process.poll() is None:
        before = time.perf_counter()
        time.sleep(POLL)
        written += is_writing(run) * (time.perf_counter() - before)
    finish(process)
    count = reports(run)
    phase = (time.perf_counter() - first) / count
    return Durations(first - begin, phase, written / count)


def wait_for(
    moment: str,
    process: subprocess.Popen,
    run: pathlib.Path,
    durations: Durations,
    generator: random.Random,
) -> bool:
    """Wait for a moment of a run; return false if the run ended before it."""
    delay = generator.uniform(0, getattr(durations, moment))
    more = generator.randint(1, 2)
    if moment != "start":
        goal = reports(run) + more
        until(process, lambda: reports(run) >= goal)
    if moment == "checkpoint":
        until(process, lambda: is_writing(run))
    end = time.perf_counter() + delay
    until(process, lambda: time.perf_counter() >= end)
    return process.poll() is None


def until(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds or the process has ended."""
    while process.poll() is None and not condition():
        time.sleep(POLL)


def reports(run: pathlib.Path) -> int:
    """Number of reports of a run so far."""
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def is_writing(run: pathlib.Path) -> bool:
    """Return whether a checkpoint of a run is unfinished."""
    return any((run / "checkpoints").glob(".writing-*"))


if __name__ == "__main__":
    sys.exit(main())
