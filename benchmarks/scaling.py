"""Ape-X on Pong with more and more workers, measured here and computed beyond.

    python benchmarks/scaling.py [--workers 1 2 4] [--seconds 20] [--repeats 1]

Measured: frames per second (four per environment step) of Ray workers with 8
environments each, with the batches and the replay ratio of the paper, and without
learning; and of as many processes without Ray, which is the limit of the processors.
Then the rates of one worker, one shard of the replay memory, and the learner alone, and
the data that they send each other. These show which of them is the bottleneck for a
number of workers, if every process had a processor of its own.
"""

import argparse
import json
import pathlib
import pickle
import statistics
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
ENVS = 8
FRAMES = 4
STEPS = 32
GIGABITS = 10


def main() -> None:
    """Measure in turns; print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--part", choices=("alone", "ray", "learn", "pieces"))
    parser.add_argument("--count", type=int, default=1)
    args = parser.parse_args()
    if args.part == "alone":
        print(json.dumps(alone(args.seconds)))
    elif args.part == "pieces":
        print(json.dumps(pieces()))
    elif args.part:
        print(json.dumps(on_ray(args.count, args.seconds, args.part == "learn")))
    else:
        measured = {name: [] for w in args.workers for name in columns(w)}
        for _ in range(args.repeats):
            for workers in args.workers:
                for name, rate in measure(workers, args.seconds).items():
                    measured[name].append(rate)
                    print(f"{name:<28}{rate:>10,.0f} frames/s", flush=True)
        result = {name: statistics.median(x) for name, x in measured.items()}
        (piece,) = start("pieces", 1, args.seconds)
        print(json.dumps({**result, **ratios(result, args.workers), **piece}))
        print(table(piece))


def columns(workers: int) -> list[str]:
    """Return the names of the measurements with this number of workers."""
    return [
        f"{workers} {name}" for name in ("processes", "workers", "workers, learning")
    ]


def measure(workers: int, seconds: float) -> dict[str, float]:
    """Frames per second of the three kinds."""
    commands = ("alone", workers), ("ray", 1), ("learn", 1)
    rates = []
    for part, copies in commands:
        rates.append(sum(start(part, copies, seconds, workers)))
    return dict(zip(columns(workers), rates, strict=True))


def start(part: str, copies: int, seconds: float, count: int = 1) -> list[Any]:
    """Results of processes that run at the same time."""
    command = [sys.executable, __file__, "--part", part, "--seconds", str(seconds)]
    command += ["--count", str(count)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(copies)]
    results = []
    for process in running:
        output, errors = process.communicate()
        if process.returncode:
            raise SystemExit(errors)
        results.append(json.loads(output.splitlines()[-1]))
    return results


def ratios(result: dict[str, float], workers: list[int]) -> dict[str, float]:
    """Scaling from the smallest number of workers, relative to plain processes."""
    first = workers[0]
    return {
        f"efficiency of {count} {name}": round(
            result[f"{count} {name}"]
            / result[f"{first} {name}"]
            / (result[f"{count} processes"] / result[f"{first} processes"]),
            3,
        )
        for count in workers[1:]
        for name in ("workers", "workers, learning")
    }


def config(workers: int, learning: bool) -> Any:
    """Ape-X with the paper's batches of 512 and updates per step."""
    from agents.experiments import named

    return named.load(
        "atari_pong_apex",
        [
            f"environment.num_agents={ENVS * workers}",
            "algorithm.network=nature",
            "algorithm.capacity=40000",
            "algorithm.start_size=2000",
            "algorithm.batch_size=512",
            f"algorithm.replay_ratio={0.0015 if learning else 0}",
            "train.eval_episodes=0",
            "train.eval_every=1000000000",
        ],
    )


def alone(seconds: float) -> float:
    """Frames per second of a worker in this process, which sends to no other."""
    from agents.environments import make

    settings = config(1, False)
    worker, weights = acting(settings, make.describe(settings.environment))
    for _ in range(10):
        worker.collect(STEPS, None, 0, weights, 0)
    frames, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        frames += FRAMES * worker.collect(STEPS, None, 0, weights, 0).env_steps
    return frames / (time.perf_counter() - begin)


def acting(settings: Any, description: Any) -> tuple[Any, list[Any]]:
    """A worker in this process, and the weights that it has."""
    import numpy as np

    from agents.distributed import actor

    worker = actor.Actor(settings, description, 0, ENVS, STEPS)
    worker.build()
    worker.begin(np.arange(ENVS), 0)
    return worker, [np.asarray(x) for x in worker._agent.acting()]


def on_ray(workers: int, seconds: float, learning: bool) -> float:
    """Frames per second of workers on Ray, of a learner that learns or only stores."""
    from agents import distributed
    from agents.distributed import cluster
    from agents.scripts import commands

    cluster.require_ray()
    import ray

    commands.start_tensorflow()
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    options = distributed.Options(steps=STEPS)
    settings = config(workers, learning)
    commands.use_threads(settings)
    with distributed.RayExecutor(settings, workers, options=options) as executor:
        executor.run(5_000 * workers)  # Beyond `start_size`, all is traced.
        steps, rate = 2_000 * workers, 0.0
        while True:
            (report,) = executor.run(steps)
            rate = FRAMES * report.env_steps / report.seconds
            if report.seconds > seconds / 2:
                return rate
            steps = int(rate / FRAMES * seconds)


def pieces() -> dict[str, float]:
    """Measure the rate of each part alone on one processor, and how much it sends."""
    import tensorflow as tf

    from agents.distributed import shards
    from agents.environments import make

    settings = config(1, True)
    description = make.describe(settings.environment)
    worker, weights = acting(settings, description)
    chunks = [worker.collect(STEPS, None, 0, weights, 0) for _ in range(20)]
    begin = time.perf_counter()
    chunks += [worker.collect(STEPS, None, 0, weights, 0) for _ in range(40)]
    steps_per_s = sum(x.env_steps for x in chunks[20:]) / (time.perf_counter() - begin)
    steps = sum(x.env_steps for x in chunks)
    shard = shards.Shard(settings, description, ENVS, 0)
    shard.build()
    for chunk in chunks[:20]:
        shard.insert(chunk.data, 0)
    begin = time.perf_counter()
    for chunk in chunks[20:]:
        shard.insert(chunk.data, 0)
    inserted = sum(x.env_steps for x in chunks[20:]) / (time.perf_counter() - begin)
    agent = settings.without_memory(ENVS).create_learner(description)
    update = tf.function(agent.train_on, autograph=False)
    batch = shard.draw(0, 0)
    shard.update(batch["index"], update(batch).numpy())
    seconds = {"draw": [], "learn": [], "prioritize": []}
    for _ in range(8):
        times = [time.perf_counter()]
        batch = shard.draw(0, 0)
        times.append(time.perf_counter())
        errors = update(batch).numpy()
        times.append(time.perf_counter())
        shard.update(batch["index"], errors)
        times.append(time.perf_counter())
        for index, name in enumerate(seconds):
            seconds[name].append(times[index + 1] - times[index])
    medians = {name: statistics.median(x) for name, x in seconds.items()}
    return {
        "worker_steps_per_s": steps_per_s,
        "shard_inserts_per_s": inserted,
        "shard_batches_per_s": 1 / (medians["draw"] + medians["prioritize"]),
        "learner_updates_per_s": 1 / medians["learn"],
        "bytes_per_step": sum(len(pickle.dumps(x, 5)) for x in chunks) / steps,
        "bytes_per_batch": len(pickle.dumps(batch, 5)),
        "bytes_of_weights": len(pickle.dumps(weights, 5)),
        "updates_per_step": settings.algorithm.replay_ratio,
    }


def table(piece: dict[str, float], gigabits: float = GIGABITS) -> str:
    """Table of the load of every part with N workers, where 1 is its capacity."""
    network = gigabits * 1e9 / 8
    lines = [
        "| workers | frames/s wanted | learner | replay, 1 shard | shards needed | "
        f"network of the replay | network of the learner ({gigabits} Gbit/s) |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for workers in (1, 10, 50, 100, 200, 500, 1000):
        steps = workers * piece["worker_steps_per_s"]
        updates = steps * piece["updates_per_step"]
        learner = updates / piece["learner_updates_per_s"]
        shard = steps / piece["shard_inserts_per_s"]
        shard += updates / piece["shard_batches_per_s"]
        replay = steps * piece["bytes_per_step"] / network
        # Weights go to each machine of eight workers when a chunk is done, at most.
        chunks = steps / (ENVS * STEPS) / 8
        outgoing = min(chunks, updates * workers / 8) * piece["bytes_of_weights"]
        batches = (updates * piece["bytes_per_batch"] + outgoing) / network
        lines.append(
            f"| {workers:,} | {FRAMES * steps:,.0f} | {learner:.2f} | {shard:.2f} | "
            f"{max(-(-shard // 1), 1):.0f} | {replay:.2f} | {batches:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
