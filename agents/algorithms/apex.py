"""Deep Q-learning with many agents that explore to different degrees.

Horgan et al. (2018), "Distributed Prioritized Experience Replay".
"""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import exploration
from agents.algorithms import dqn
from agents.tools import bounds, conditional


def _descent() -> dict:
    return {
        "type": "rmsprop",
        "rho": 0.95,
        "epsilon": 1.5e-7,
        "centered": True,
        "clip_norm": 40.0,
    }


@dataclasses.dataclass(frozen=True)
class Config(dqn.Config):
    """Hyperparameters of Ape-X; the defaults are those of the paper for Atari."""

    type: str = "apex"
    # Data.
    capacity: bounds.Count = 2_000_000
    batch_size: bounds.Size = 512
    start_size: bounds.Count = 50_000
    replay_ratio: bounds.NotNegativeFloat = 0.0015
    # Exploration.
    epsilon: bounds.FractionFloat = 0.4
    """Probability of a random action of the first agent. The probability of agent i of
    N is `epsilon ** (1 + epsilon_alpha * i / (N - 1))` and never changes."""
    epsilon_alpha: bounds.NotNegativeFloat = 7.0
    """Steepness of this ladder; zero gives all agents the same probability."""
    ladder_size: bounds.Size | None = None
    """Number N of all agents, if this instance has only some of them."""
    ladder_offset: bounds.Whole = 0
    """Number i of the first agent of this instance."""
    # Returns.
    n_step: bounds.Size = 3
    # Priorities.
    prioritized: bool = True
    # Optimization.
    dueling: bool = True
    target_period: bounds.Count = 2_500
    learning_rate: bounds.NotNegative = 2.5e-4 / 4
    optimizer: dict | str = dataclasses.field(default_factory=_descent)

    def __post_init__(self) -> None:
        if self.noisy_std:
            raise ValueError(
                "noisy_std explores instead of epsilon, by which agents of Ape-X differ; "
                "use dqn."
            )
        super().__post_init__()

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        if self.epsilon in (0.0, 1.0):
            unused["epsilon_alpha"] = f"with epsilon {self.epsilon:g}"
        return unused

    def without_memory(self, num_agents: int) -> "Config":
        """Return a config for acting without training, by any number of agents."""
        config = super().without_memory(num_agents)
        return dataclasses.replace(config, ladder_size=None, ladder_offset=0)

    def for_rows(self, first: int, rows: int, num_agents: int, steps: int) -> "Config":
        """Return a config for part of the ladder; see `off_policy.Config.for_rows`."""
        config = super().for_rows(first, rows, num_agents, steps)
        return dataclasses.replace(
            config,
            ladder_size=self.ladder_size or num_agents,
            ladder_offset=self.ladder_offset + first,
        )


class Apex(dqn.DQN):
    """DQN with one epsilon per agent and with initial priorities based on errors.

    New transitions get the priority of their error at once instead of the largest one.
    The metric `greedy_score` is the mean return of the agents in the last quarter of
    the ladder, which explore least.
    """

    METRICS = (*dqn.DQN.METRICS, "greedy_score")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create variables; the arguments are those of `DQN`."""
        super().__init__(*args, **kwargs)
        config, num_agents = self.config, self._chosen.shape[0]
        size = config.ladder_size or num_agents
        self._greedy = size - -(-size // 4) - config.ladder_offset
        self._scores = tf.Variable(tf.zeros([num_agents]), trainable=False)

    def epsilon(self, num_agents: int) -> exploration.Rate:
        """Return the probability of a random action for each row."""
        config = self.config
        size, first = config.ladder_size or num_agents, config.ladder_offset
        if not 0 <= first <= size - num_agents:
            raise ValueError(
                f"ladder_offset {first} and {num_agents} agents do not fit into "
                f"ladder_size {size}."
            )
        ladder = exploration.ladder(size, config.epsilon, config.epsilon_alpha)
        return ladder[first : first + num_agents]

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Forget unfinished transitions and scores of these rows."""
        super().begin_episodes(agent_indices, training)
        zeros = tf.zeros_like(agent_indices, tf.float32)
        self._scores.scatter_update(tf.IndexedSlices(zeros, agent_indices))

    def experience(
        self,
        agent_indices: tf.Tensor,
        observation: Any,
        action: Any,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> None:
        """Remember one transition per row, and run the updates that are due."""
        self._scores.scatter_add(tf.IndexedSlices(reward, agent_indices))
        super().experience(
            agent_indices,
            observation,
            action,
            reward,
            terminated,
            truncated,
            next_observation,
        )

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Report the raw returns of the agents that explore least."""
        super().end_episodes(agent_indices)
        greedy = tf.cast(agent_indices >= self._greedy, tf.float32)
        count = tf.reduce_sum(greedy)
        total = tf.reduce_sum(greedy * tf.gather(self._scores, agent_indices))
        score = tf.math.divide_no_nan(total, count)
        self.metrics.update({"greedy_score": score}, count)

    def completed(self, index: tf.Tensor) -> None:
        """Set the priorities of complete transitions by their errors."""
        if not self.config.prioritized:
            return
        index = tf.boolean_mask(index, index >= 0)
        # TensorFlow 2.21 fails on convolutions of empty batches on CPUs.
        conditional.when(tf.size(index) > 0, self._prioritize, index)

    def _prioritize(self, index: tf.Tensor) -> None:
        items = self.prepare(self.memory.get(index))
        items["target"] = self.target(items)
        self.memory.update(index, self.priorities(items))
