"""Simulation without training, against its limit and a loop over AsyncVectorEnv.

    python benchmarks/simulate.py [--env HalfCheetah-v5] [--num_agents 64] [--repeats 5]

All contestants take turns in one process, so that ratios hold on a noisy machine:

- limit: one process per core, each of which steps one bare environment; still: the same
  with actions that are zero, like those of an untrained policy, since the physics of a
  robot at rest on the ground may take longer than that of one that jumps about;
- workers: the `workers` backend alone, random actions;
- simulate: the `simulate` op with the policy of the paper (200-100), no training, in
  two halves (the default for that many agents); whole: the same without halves;
  native: the same by backend mujoco, if it has the environment;
- async: Gymnasium's AsyncVectorEnv in a Python loop with the same policy.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys
import time

import gymnasium
import numpy as np

PAIRS = (
    ("simulate", "async"),
    ("simulate", "limit"),
    ("simulate", "whole"),
    ("workers", "limit"),
)
"""Contestants whose ratios are printed."""


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--num_agents", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    args = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
    from agents.environments.mujoco import task
    from agents.scripts import commands

    commands.start_tensorflow()
    contestants = {
        "limit": Limit(args.env),
        "still": Limit(args.env, still=True),
        "workers": Workers(args.env, args.num_agents),
        "simulate": Simulate(args.env, args.num_agents, halves=True),
        "whole": Simulate(args.env, args.num_agents, halves=False),
        "async": Async(args.env, args.num_agents),
    }
    pairs = PAIRS
    if args.env in task.GYMNASIUM:
        contestants["native"] = Simulate(args.env, args.num_agents, False, "mujoco")
        others = ("limit", "still", "simulate")
        pairs = (*PAIRS, *(("native", other) for other in others))
    rates = {name: [] for name in contestants}
    for contestant in contestants.values():
        contestant.run(0.5)
    for _ in range(args.repeats):
        for name, contestant in contestants.items():
            rates[name].append(contestant.run(args.seconds))
    for contestant in contestants.values():
        contestant.close()
    result = {"env": args.env, "num_agents": args.num_agents}
    for name, values in rates.items():
        median = statistics.median(values)
        result[f"{name}_steps_per_s"] = round(median)
        print(f"{name:<10}{median:>10,.0f} steps/s [{min(values):,.0f} - ", end="")
        print(f"{max(values):,.0f}]")
    for left, right in pairs:
        turns = zip(rates[left], rates[right], strict=True)
        ratio = statistics.median(a / b for a, b in turns)
        result[f"{left}_over_{right}"] = round(ratio, 3)
        print(f"{left} / {right}: {ratio:.2f}")
    print(json.dumps(result))


class Limit:
    """One bare environment per core, random actions drawn beforehand, or zeros."""

    def __init__(self, env: str, still: bool = False) -> None:
        from agents.environments import Environment, make

        self._constructor = make.constructor(Environment(env))
        if still:
            self._constructor = functools.partial(resting, self._constructor)

    def run(self, seconds: float) -> float:
        """Sum of the steps per second of all cores."""
        from agents.experiments import speed

        return speed.bare(self._constructor, seconds)[1]

    def close(self) -> None:
        """Do nothing, because every run ends its own processes."""


def resting(constructor) -> gymnasium.Env:
    """Create an environment whose space of actions, a box, has only zeros."""
    env = constructor()
    zeros = np.zeros_like(env.action_space.low)
    env.action_space = gymnasium.spaces.Box(zeros, zeros)
    return env


class Workers:
    """The workers backend with random actions, done rows reset."""

    def __init__(self, env: str, num_agents: int) -> None:
        from agents.environments import Environment, make

        self._batch = make.batch(Environment(env, "workers", num_agents))
        space = gymnasium.vector.utils.batch_space(self._batch.action_space, num_agents)
        self._actions = [space.sample() for _ in range(100)]
        self._batch.reset()

    def run(self, seconds: float) -> float:
        """Steps per second."""
        count, start = 0, time.perf_counter()
        while (duration := time.perf_counter() - start) < seconds:
            for action in self._actions[:20]:
                _, _, terminated, truncated, _ = self._batch.step(action)
                done = terminated | truncated
                if done.any():
                    self._batch.reset(np.flatnonzero(done))
            count += 20 * len(self._batch)
            self._actions = self._actions[20:] + self._actions[:20]
        return count / duration

    def close(self) -> None:
        """End the processes."""
        self._batch.close()


class Simulate:
    """The simulate op without training."""

    def __init__(
        self, env: str, num_agents: int, halves: bool, backend: str = "workers"
    ) -> None:
        from agents import tools
        from agents.algorithms import ppo
        from agents.environments import Environment, make

        self._tools = tools
        make_batch = make.halves if halves else make.batch
        self._env = tools.InGraphBatchEnv(
            make_batch(Environment(env, backend, num_agents))
        )
        spaces = self._env.observation_space, self._env.action_space
        self._policy = ppo.PPO(*spaces, num_agents, 1, ppo.Config(update_every=1))

    def run(self, seconds: float) -> float:
        """Steps per second."""
        count, start = 0, time.perf_counter()
        while (duration := time.perf_counter() - start) < seconds:
            self._tools.simulate(self._env, self._policy, 100, training=False)
            count += 100 * len(self._env)
        return count / duration

    def close(self) -> None:
        """End the processes."""
        self._env.close()


class Async:
    """AsyncVectorEnv with the same policy as a graph function, in a Python loop."""

    def __init__(self, env: str, num_agents: int) -> None:
        import tensorflow as tf

        from agents.algorithms import ppo

        self._envs = gymnasium.vector.AsyncVectorEnv(
            [lambda: gymnasium.make(env, disable_env_checker=True)] * num_agents,
            context="spawn",
        )
        spaces = self._envs.single_observation_space, self._envs.single_action_space
        agent = ppo.PPO(*spaces, num_agents, 1, ppo.Config(update_every=1))
        rows = tf.range(num_agents)
        self._act = tf.function(
            lambda observation: agent.perform(rows, observation, False)
        )
        self._observation, _ = self._envs.reset()

    def run(self, seconds: float) -> float:
        """Steps per second."""
        count, start = 0, time.perf_counter()
        while (duration := time.perf_counter() - start) < seconds:
            action = self._act(self._observation.astype(np.float32)).numpy()
            self._observation, *_ = self._envs.step(action)
            count += self._envs.num_envs
        return count / duration

    def close(self) -> None:
        """End the processes."""
        self._envs.close()


if __name__ == "__main__":
    main()
