"""Environment backends against the machine's limit and Gymnasium's vectorization.

    python benchmarks/backends.py [--repeats 5] [--num_agents 64]

`limit` steps one bare environment on each processor; `many` steps as many as there are
agents, in turn. Actions are random, finished rows are reset, and there is no policy.
Workers step in two halves, their default for that many agents. Contestants of one
environment take turns, so that ratios hold on a noisy machine.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import gymnasium
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

SECONDS = 2.0


def main() -> None:
    """Measure everything, print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--num_agents", type=int, default=64)
    args = parser.parse_args()
    result = {}
    for name in ("HalfCheetah-v5", "CartPole-v1", "dict"):
        result[name] = measure(name, args.num_agents, args.repeats)
    flat, nested = result["CartPole-v1"]["workers"], result["dict"]["workers"]
    result["dict_over_flat"] = round(nested / flat, 3)
    print(f"CartPole with Dict observations / flat: {nested / flat:.2f}")
    start = time.perf_counter()
    batch = ours("HalfCheetah-v5", 64, "workers")
    result["start_seconds"] = round(time.perf_counter() - start, 2)
    batch[1]()
    print(f"64 HalfCheetah environments start in {result['start_seconds']} s")
    print(json.dumps(result))


def measure(name: str, size: int, repeats: int) -> dict[str, float]:
    """Median rates of all contestants on one environment."""
    contestants = {
        "workers": halves(name, size),
        "sync": gymnasiums(name, size, gymnasium.vector.SyncVectorEnv),
        "async": gymnasiums(name, size, gymnasium.vector.AsyncVectorEnv),
    }
    if name != "dict":
        contestants["envpool"] = ours(name, size, "envpool")
    rates = {"limit": [], "many": [], **{key: [] for key in contestants}}
    for _ in range(repeats):
        rates["limit"].append(limit(name))
        rates["many"].append(limit(name, size))
        for key, (step, _) in contestants.items():
            rates[key].append(rate(step, size))
    for _, close in contestants.values():
        close()
    print(f"{name}, {size} agents")
    medians = {key: round(statistics.median(values)) for key, values in rates.items()}
    for key, median in medians.items():
        ratios = [a / b for a, b in zip(rates[key], rates["limit"], strict=True)]
        print(f"  {key:<8}{median:>10,} steps/s {statistics.median(ratios):>6.2f}")
    for other in ("limit", "many", "sync", "async"):
        pairs = zip(rates["workers"], rates[other], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        medians[f"workers_over_{other}"] = round(ratio, 3)
    return medians


def rate(step, size: int) -> float:
    """Steps per second of a function that steps the batch."""
    for _ in range(10):
        step()
    count, start = 0, time.perf_counter()
    while (duration := time.perf_counter() - start) < SECONDS:
        for _ in range(10):
            step()
        count += 10
    return count * size / duration


def nested() -> gymnasium.Env:
    """CartPole whose observation is a dict of its four numbers."""
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    names = ("angle", "position", "speed", "turn")
    space = env.observation_space
    parts = {
        key: gymnasium.spaces.Box(space.low[i : i + 1], space.high[i : i + 1])
        for i, key in enumerate(names)
    }
    return gymnasium.wrappers.TransformObservation(
        env,
        lambda x: {key: x[i : i + 1] for i, key in enumerate(names)},
        gymnasium.spaces.Dict(parts),
    )


def constructor(name: str):
    """Id or function for an environment of this benchmark."""
    return nested if name == "dict" else name


def actions(space: gymnasium.Space, size: int) -> list[np.ndarray]:
    """Batches of random actions."""
    batch = gymnasium.vector.utils.batch_space(space, size)
    batch.seed(0)
    return [batch.sample() for _ in range(100)]


def ours(name: str, size: int, backend: str):
    """Functions that step and close one of our backends."""
    from agents.environments import Environment, make

    batch = make.batch(Environment(constructor(name), backend, size))
    batch.reset()
    chosen = actions(batch.action_space, size)

    def step():
        batch.start(chosen[0], restart=True)
        batch.finish()
        chosen.append(chosen.pop(0))

    return step, batch.close


def halves(name: str, size: int):
    """Functions that step the halves of the workers backend in turns, and close."""
    from agents.environments import Environment, make

    parts = make.halves(Environment(constructor(name), "workers", size))
    chosen = actions(parts[0].action_space, size // 2)
    for part in parts:
        part.reset()
        part.start(chosen[0], restart=True)

    def step():
        for part in parts:
            part.finish()
            part.start(chosen[0], restart=True)
            chosen.append(chosen.pop(0))

    return step, parts[0].close


def gymnasiums(name: str, size: int, cls: type):
    """Functions that step and close one of Gymnasium's vector environments."""
    one = (
        nested
        if name == "dict"
        else lambda: gymnasium.make(name, disable_env_checker=True)
    )
    options = {"context": "spawn"} if "Async" in cls.__name__ else {}
    envs = cls([one] * size, **options)
    envs.reset()
    chosen = actions(envs.single_action_space, size)

    def step():
        envs.step(chosen[0])
        chosen.append(chosen.pop(0))

    return step, envs.close


def limit(name: str, size: int | None = None) -> float:
    """Steps per second of bare environments on all processors: one each, or `size`."""
    from agents.environments import Environment, make
    from agents.experiments import speed

    function = make.constructor(Environment(constructor(name)))
    return speed.bare(function, SECONDS, size)[1]


if __name__ == "__main__":
    main()
