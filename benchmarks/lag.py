"""Gain from stepping the batch in two halves, one acting while the other steps.

    python benchmarks/lag.py [--repeats 5]

Environments sleep for a millisecond per step, 16 of them in two workers. The policy
sleeps as long as the environments of its rows together, or not at all, in which case
halves cannot help.
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

AGENTS, WORKERS, SECONDS = 16, 2, 1e-3


class Sleeping(gymnasium.Env):
    """Environment that sleeps at every step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        """Begin an episode without end."""
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        """Sleep."""
        time.sleep(SECONDS)
        return np.zeros(4, np.float32), 0.0, False, False, {}


def main() -> None:
    """Measure all four in turns, print ratios and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    from agents.scripts import commands

    commands.start_tensorflow()
    rates = {}
    runners = {
        (policy, halves): runner(policy, halves)
        for policy in ("slow", "free")
        for halves in (True, False)
    }
    for run, _ in runners.values():
        run()
    for _ in range(args.repeats):
        for key, (run, _) in runners.items():
            rates.setdefault(key, []).append(run())
    for _, close in runners.values():
        close()
    result = {}
    for policy in ("slow", "free"):
        pairs = zip(rates[policy, True], rates[policy, False], strict=True)
        ratio = statistics.median(a / b for a, b in pairs)
        result[f"{policy}_policy_halves_over_whole"] = round(ratio, 3)
        for halves in (True, False):
            median = statistics.median(rates[policy, halves])
            name = "halves" if halves else "whole"
            result[f"{policy}_{name}_steps_per_s"] = round(median)
            print(f"{policy} policy, {name:<7}{median:>9,.0f} steps/s")
        print(f"{policy} policy: halves / whole {ratio:.2f}")
    print(json.dumps(result))


def runner(policy: str, halves: bool):
    """Functions that run 100 batch steps, returning steps per second, and close."""
    import tensorflow as tf

    from agents import tools
    from agents.environments import Environment, make
    from agents.tools import algorithm

    def sleep(observation):
        if policy == "slow":
            time.sleep(SECONDS / WORKERS * len(observation))
        return np.zeros((len(observation), 1), np.float32)

    class Policy(algorithm.Algorithm):
        def perform(self, agent_indices, observation, training=True):
            action = tf.numpy_function(sleep, [observation], tf.float32)
            return tf.ensure_shape(action, [observation.shape[0], 1])

    create = make.halves if halves else make.batch
    batch = tools.InGraphBatchEnv(
        create(Environment(Sleeping, "workers", AGENTS, WORKERS))
    )
    agent = Policy()

    def run():
        start = time.perf_counter()
        tools.simulate(batch, agent, 100)
        return 100 * AGENTS / (time.perf_counter() - start)

    return run, batch.close


if __name__ == "__main__":
    main()
