"""Time to build algorithms and their components.

    python benchmarks/build.py [--configs]

Building is everything before the first step: variables, and graphs of acting, learning
and remembering. The dueling DQN with prioritized replay is divided into its parts. Its
variables are also created alone, to show the time of the rest. With `--configs`, all
configs are built in this process, one after the other.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from agents.environments import make
from agents.experiments import named
from agents.scripts import commands
from agents.tools import errors


def main() -> None:
    """Print seconds, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", action="store_true", help="build every config too")
    args = parser.parse_args()
    commands.start_tensorflow()
    found = dueling()
    if args.configs:
        for name in named.EXPERIMENTS:
            found[name] = time_to_build(name)
    for name, value in found.items():
        print(f"{name:<28}{value:>9.3f} s", flush=True)
    print(json.dumps(found))


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Time of a call, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def dueling() -> dict[str, float]:
    """Parts of the build of a dueling DQN with prioritized replay."""
    import gymnasium
    import tensorflow as tf

    from agents import exploration, memories
    from agents.networks import action_values

    env = gymnasium.make("CartPole-v1")
    spaces = env.observation_space, env.action_space
    config = named.load(
        "cartpole_dqn", ["algorithm.dueling=true", "algorithm.prioritized=true"]
    )
    description = make.describe(config.environment)
    config.create_algorithm(description)  # Import and initialize once.
    total, agent = seconds(lambda: config.create_algorithm(description))
    kept = _variables(agent)
    alone, _ = seconds(lambda: [tf.Variable(tf.zeros(x.shape, x.dtype)) for x in kept])
    rows = tf.range(config.environment.num_agents)
    seen = tf.TensorSpec([None, 4])
    acting = tf.function(agent.perform, autograph=False)
    act, _ = seconds(
        lambda: acting.get_concrete_function(tf.TensorSpec([None], tf.int32), seen)
    )
    learn, _ = seconds(
        lambda: agent._run_updates.get_concrete_function(tf.TensorSpec([], tf.int32))
    )
    flag, number = tf.TensorSpec([None], tf.bool), tf.TensorSpec([None])
    remember, _ = seconds(
        lambda: tf.function(agent.memory.append, autograph=False).get_concrete_function(
            tf.TensorSpec([None], tf.int32),
            seen,
            tf.TensorSpec([None, 1], tf.int64),
            *(number, flag, flag, seen),
        )
    )
    size = len(rows)
    transition = tf.TensorSpec([4]), tf.TensorSpec([1], tf.int64)
    parts = {
        "network": lambda: action_values.ActionValues(
            *spaces, config.algorithm.network, 0, True
        ),
        "selector": lambda: memories.Prioritized(0.6),
        "replay": lambda: memories.Replay(
            *transition, size, 50_000, memories.Uniform(), 1, 0.99, None
        ),
        "exploration": lambda: exploration.EpsilonGreedy([2], size, 0.1),
    }
    return {
        "dueling dqn": total + act + learn + remember,
        "beyond its variables": total - alone + act + learn + remember,
        "its variables alone": alone,
        "graph of acting": act,
        "graph of an update": learn,
        "graph of remembering": remember,
        **{f"component {name}": seconds(make)[0] for name, make in parts.items()},
    }


def _variables(agent: Any) -> list:
    """All variables of an algorithm, once each."""
    found = {id(x): x for x in agent.variables}
    for layer in (agent.network, agent.target_network):
        found.update({id(x): x for x in layer.variables})
    return list(found.values())


def time_to_build(name: str) -> float:
    """Seconds to make an algorithm and the graph of acting; nan if extras are missing.

    The replay memory is as small as possible, so that filling it hardly counts.
    """
    import tensorflow as tf

    from agents.tools import spaces

    config = named.load(name)
    config = config.without_memory(config.environment.num_agents)
    try:
        description = make.describe(config.environment)
    except errors.Mistake:
        return float("nan")

    def build():
        agent = config.create_algorithm(description)
        seen = spaces.transform(
            lambda x: tf.TensorSpec([None, *x.shape], x.dtype),
            spaces.spec(description.observation_space),
        )
        acting = tf.function(agent.perform, autograph=False)
        acting.get_concrete_function(tf.TensorSpec([None], tf.int32), seen)

    return seconds(build)[0]


if __name__ == "__main__":
    main()
