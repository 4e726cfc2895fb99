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
    """Run the first episodes of every row to their end; returns `loop.Episodes`."""
    from agents.tools import loop

    size = len(batch_env)
    episodes = loop.Episodes(size, num_episodes)
    seeds = loop.phase_seeds(seed, EVALUATION, size)
    steps = loop.Steps(
        batch_env, Exploring(agent) if stochastic else agent, seeds, False
    )
    while not episodes.complete:
        episodes.add(steps.run(loop.EVALUATION_STEPS))
    return episodes


EVALUATION = 2**31 - 1
"""Number of the phase, apart from those of training, that seeds environments."""


class Exploring:
    """An algorithm that acts as in training but does not learn."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm

    def begin_episodes(self, agent_indices: Any, training: bool) -> None:
        """Forget the past of rows."""
        self._algorithm.begin_episodes(agent_indices, training)

    def perform(self, agent_indices: Any, observation: Any, training: bool) -> Any:
        """Sample actions."""
        del training
        return self._algorithm.perform(agent_indices, observation, True)


if __name__ == "__main__":
    sys.exit(main())
