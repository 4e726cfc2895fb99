"""Leaks of memory, processes and files in long runs.

    python benchmarks/leaks.py [--only NAME ...]

Repeats the work of programs that run for days: steps of `simulate`, agents and batches
that are made and thrown away, checkpoints. Prints the growth of the resident memory for
each repetition, by a line through the second half of the measurements, and the numbers
of threads, processes, open files and blocks of shared memory that are left. Every row
is measured in a process of its own.
"""

import argparse
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import psutil  # noqa: E402

import agents  # noqa: E402
from agents import tools  # noqa: E402
from agents.experiments import named, runs  # noqa: E402
from agents.tools import checkpoint  # noqa: E402

SMALL = ("algorithm.jit=false", "algorithm.network={layers: [32]}")
REPLAY = (
    *(*SMALL, "algorithm.capacity=2000", "algorithm.start_size=64"),
    *("algorithm.batch_size=32", "algorithm.replay_ratio=0.5"),
)
DISCARDED = {
    "ppo": ("cartpole_clip", (*SMALL, "algorithm.unroll_length=16")),
    "a2c": ("cartpole_a2c", (*SMALL, "algorithm.unroll_length=16")),
    "trpo": ("cartpole_trpo", (*SMALL, "algorithm.unroll_length=16")),
    "impala": ("cartpole_impala", (*SMALL, "algorithm.unroll_length=16")),
    "dqn": ("cartpole_dqn", REPLAY),
    "sac": ("pendulum_sac", REPLAY),
    "td3": ("pendulum_td3", REPLAY),
}


def steps(name: str, *overrides: str) -> Iterator[None]:
    """Call `simulate` for 1,000 batch steps, and learn on the way."""
    config = named.load(name, overrides)
    batch_env = runs.environments(config)
    algorithm = runs.algorithm(config, runs.describe(config))
    while True:
        tools.simulate(batch_env, algorithm, 1000)
        yield


def evaluations(name: str, *overrides: str) -> Iterator[None]:
    """Alternate between training and evaluation, 100 batch steps each."""
    config = named.load(name, overrides)
    batch_env = runs.environments(config)
    algorithm = runs.algorithm(config, runs.describe(config))
    while True:
        for training in (True, False):
            tools.simulate(batch_env, algorithm, 100, training)
        yield


def driven(name: str, *overrides: str) -> Iterator[None]:
    """Call `act` and `observe` of an agent 1,000 times."""
    config = named.load(name, overrides)
    env = gymnasium.make(config.environment.id)
    agent = agents.Agent.create(config, env.observation_space, env.action_space)
    while True:
        drive(agent, env, 1000)
        yield


def discarded(name: str, *overrides: str) -> Iterator[None]:
    """Make an agent that learns, and throw it away."""
    config = named.load(name, overrides)
    env = gymnasium.make(config.environment.id)
    while True:
        agent = agents.Agent.create(config, env.observation_space, env.action_space)
        drive(agent, env, 100)
        del agent
        yield


def drive(agent: agents.Agent, env: gymnasium.Env, count: int) -> None:
    observation, _ = env.reset(seed=0)
    for _ in range(count):
        action = agent.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        agent.observe(reward, terminated, truncated, next_observation=observation)
        if terminated or truncated:
            observation, _ = env.reset()


def batches(backend: str) -> Iterator[None]:
    """Make a batch of environments, step it, and close it."""
    overrides = [f"environment.backend={backend}", "environment.num_agents=4"]
    config = named.load("cartpole", overrides)
    while True:
        batch_env = runs.environments(config)
        step = batch_env.begin()
        for _ in range(10):
            _, step = batch_env.simulate(step, np.zeros(4, np.int64))
        batch_env.close()
        yield


def checkpoints(name: str, *overrides: str) -> Iterator[None]:
    """Write a checkpoint, and restore it."""
    config = named.load(name, overrides)
    algorithm = runs.algorithm(config, runs.describe(config))
    with tempfile.TemporaryDirectory() as directory:
        kept = checkpoint.Checkpoints(pathlib.Path(directory), keep=2)
        for step in range(1_000_000):
            kept.save(step, algorithm.persistent(), {"step": step})
            kept.restore(algorithm.persistent())
            yield


ROWS: dict[str, tuple[Callable[[], Iterator[None]], int]] = {
    "1,000 steps, PPO": (lambda: steps("cartpole_clip", *SMALL), 60),
    "1,000 steps, DQN, full memory": (lambda: steps("cartpole_dqn", *REPLAY), 40),
    "1,000 steps, compiled": (lambda: steps("cartpole_compiled"), 60),
    "training and evaluation in turns": (
        lambda: evaluations("cartpole_a2c", *SMALL),
        60,
    ),
    "1,000 act and observe": (lambda: driven("cartpole_a2c", *SMALL), 30),
    **{
        f"agent thrown away, {kind}": (
            lambda name=name, overrides=overrides: discarded(name, *overrides),
            30,
        )
        for kind, (name, overrides) in DISCARDED.items()
    },
    **{
        f"batch closed, {backend}": (lambda backend=backend: batches(backend), 30)
        for backend in ("serial", "process", "workers")
    },
    "checkpoint written and restored": (
        lambda: checkpoints("cartpole_dqn", *REPLAY),
        40,
    ),
}


def measure(name: str) -> str:
    """Row of the table."""
    make, repetitions = ROWS[name]
    work, used = make(), []
    for index in range(repetitions):
        next(work)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        used.append(psutil.Process().memory_info().rss / 1024)
        if index == repetitions // 2:
            before = kinds()
    later = used[repetitions // 2 :]
    slope = np.polyfit(np.arange(len(later)), later, 1)[0]
    left = [max(0, now - then) for now, then in zip(kinds(), before, strict=True)]
    numbers = " | ".join(map(str, left))
    return f"| {name} | {repetitions} | {slope:.0f} KB | {numbers} |"


def kinds() -> tuple[int, ...]:
    """Threads, processes, open files and blocks of shared memory."""
    process = psutil.Process()
    children = process.children(recursive=True)
    shared = list(pathlib.Path("/dev/shm").iterdir())
    own = [path for path in shared if path.owner() == process.username()]
    return process.num_threads(), len(children), process.num_fds(), len(own)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(measure(*args.only), flush=True)
        os._exit(0)  # Without waiting for unfinished work.
    print("| what | times | growth of each | threads | processes | files | shared |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    codes = [
        subprocess.run(
            [sys.executable, __file__, "--here", "--only", name], env=environment
        ).returncode
        for name in args.only
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
