"""Measure the return of a trained policy: `evaluate --logdir RUN`."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from agents.scripts import runs


@runs.reporting
def main(argv: Sequence[str] | None = None) -> int:
    """Run episodes and print a summary; its last line is JSON."""
    parser = runs.episodes_parser("evaluate", __doc__, num_episodes=20)
    args = parser.parse_args(argv)
    result = evaluate(
        args.logdir, args.num_episodes, args.checkpoint, args.stochastic, args.seed
    )
    print(json.dumps(result))
    return 0


def evaluate(
    logdir: str,
    num_episodes: int = 20,
    checkpoint: str | None = None,
    stochastic: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Returns of episodes of a trained policy, whose statistics stay as they are."""
    runs.start_tensorflow()
    config = runs.read_config(logdir)
    description = runs.describe(config)
    num_agents = min(config.environment.num_agents, num_episodes)
    agent, state = runs.policy(logdir, config, description, num_agents, checkpoint)
    if stochastic:
        require_stochastic(agent)
    batch_env = runs.environments(config, num_agents=num_agents)
    try:
        episodes = play(batch_env, agent, num_episodes, stochastic, seed)
    finally:
        batch_env.close()
    return {
        "episodes": len(episodes.scores),
        "mean_return": float(np.mean(episodes.scores)),
        "std_return": float(np.std(episodes.scores)),
        "mean_length": float(np.mean(episodes.lengths)),
        "step": state["step"],
    }


def play(
    batch_env: Any, agent: Any, num_episodes: int, stochastic: bool, seed: int
) -> Any:
    """Run the first episodes of every row to their end; returns `loop.Episodes`.

    Nothing of the agent changes that a checkpoint holds, its random numbers included.
    """
    import tensorflow as tf

    from agents.tools import algorithm, loop

    size = len(batch_env)
    episodes = loop.Episodes(size, num_episodes)
    seeds = loop.phase_seeds(seed, EVALUATION, size)
    if stochastic:
        generator = tf.random.Generator.from_seed(seed, alg="philox")
        agent = algorithm.Sampling(agent, size, generator)
    steps = loop.Steps(batch_env, agent, seeds, False)
    while not episodes.complete:
        episodes.add(steps.run(loop.EVALUATION_STEPS))
    return episodes


def require_stochastic(agent: Any) -> None:
    """Raise RunError unless the agent's policy has actions to sample from."""
    try:
        agent.require_stochastic()
    except ValueError as error:
        raise runs.RunError(f"--stochastic: {error}") from error


EVALUATION = 2**31 - 1
"""Number of the phase, apart from those of training, that seeds environments."""


if __name__ == "__main__":
    sys.exit(main())
