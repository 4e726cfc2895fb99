"""Backend mujoco against bare environments, workers and EnvPool.

    python benchmarks/native.py [--repeats 5] [--seconds 2] [--ids Ant-v5 ...]

`limit` steps one bare environment on each processor and nothing else; `physics` steps the
simulations of backend mujoco without observations, rewards and resets. Actions are
random, finished rows are reset, and there is no policy; workers step in two halves.
Contestants take turns; ratios are medians over turns, to hold on a noisy machine.
"""

import argparse
import functools
import importlib.util
import json
import statistics

import backends

from agents.environments import Environment, make

IDS = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
SIZES = (16, 64)
ENVPOOL = {"HalfCheetah-v5": "HalfCheetah-v4", "Ant-v5": "Ant-v4"}
ENVPOOL["Humanoid-v5"] = "Humanoid-v4"


def main() -> None:
    """Measure everything, print tables and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--ids", nargs="+", default=IDS)
    args = parser.parse_args()
    backends.SECONDS = args.seconds
    print(json.dumps({name: measure(name, args.repeats) for name in args.ids}))


def measure(name: str, repeats: int) -> dict[str, float]:
    """Median ratios to the limit of all contestants on one environment."""
    functions, closing = {}, []
    for size in SIZES:
        for key, create in makers(name).items():
            step, close = create(size)
            functions[f"{key} {size}"] = functools.partial(backends.rate, step, size)
            closing.append(close)
    rates = {"limit": []} | {key: [] for key in functions}
    for _ in range(repeats):
        rates["limit"].append(backends.limit(name))
        for key, function in functions.items():
            rates[key].append(function())
    for close in closing:
        close()
    return table(name, rates)


def makers(name: str) -> dict:
    """Functions that make the contestants of a size."""
    found = {
        "physics": lambda size: physics(name, size),
        "mujoco": lambda size: backends.ours(name, size, "mujoco"),
        "workers": lambda size: backends.halves(name, size),
    }
    if importlib.util.find_spec("envpool"):
        other = pooled(name)
        found[f"envpool {other}"] = lambda size: backends.ours(other, size, "envpool")
    return found


def physics(name: str, size: int):
    """Functions that step and close the simulations of backend mujoco."""
    batch = make.batch(Environment(name, "mujoco", size))
    batch.reset()
    controls = [x.astype(float) for x in backends.actions(batch.action_space, size)]

    def step():
        batch.simulations.step(controls[0])
        controls.append(controls.pop(0))

    return step, batch.close


def pooled(name: str) -> str:
    """Name of the most similar task of EnvPool."""
    import envpool

    return name if name in envpool.list_all_envs() else ENVPOOL[name]


def table(name: str, rates: dict[str, list[float]]) -> dict[str, float]:
    """Print medians; return those of the ratios."""
    print(name)
    ratios = {}
    for key, values in rates.items():
        pairs = zip(values, rates["limit"], strict=True)
        ratios[key] = round(statistics.median(a / b for a, b in pairs), 3)
        median = statistics.median(values)
        print(f"  {key:<24}{median:>10,.0f} steps/s {ratios[key]:>6.2f}")
    return ratios


if __name__ == "__main__":
    main()
