"""Deep Q-learning by many agents that differ in how much they explore.

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
        "learning_rate": 2.5e-4 / 4,
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
    """Probability of a random action of the first agent. That of agent i out of N is
    `epsilon ** (1 + epsilon_alpha * i / (N - 1))`, the same at all times."""
    epsilon_alpha: bounds.NotNegativeFloat = 7.0
    ladder_size: bounds.Size | None = None
    """Number N of agents, of which these are a part; none if these are all."""
    ladder_offset: bounds.Whole = 0
    """Number i of the first one of these agents."""
    # Returns.
    n_step: bounds.Size = 3
    # Priorities.
    prioritized: bool = True
    # Optimization.
    dueling: bool = True
    target_period: bounds.Count = 2_500
    optimizer: dict = dataclasses.field(default_factory=_descent)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noisy_std:
            raise ValueError(
                "noisy_std explores instead of epsilon, by which agents of Ape-X differ; "
                "use dqn."
            )

    def without_memory(self, num_agents: int) -> "Config":
        """The same to act without training, by any number of agents."""
        config = super().without_memory(num_agents)
        return dataclasses.replace(config, ladder_size=None, ladder_offset=0)

    def for_rows(self, first: int, rows: int, num_agents: int, steps: int) -> "Config":
        """The same for a part of the ladder."""
        config = super().for_rows(first, rows, num_agents, steps)
        return dataclasses.replace(config, ladder_size=num_agents, ladder_offset=first)


class Apex(dqn.DQN):
    """Every agent has its own epsilon, and transitions their priority at once.

    So new transitions do not all have the largest priority before they are drawn for
    the first time. The metric `greedy_score` is the mean return of the agents of the
    last quarter of the ladder, which explore least.
    """

    METRICS = (*dqn.DQN.METRICS, "greedy_score")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Arguments are those of `DQN`."""
        super().__init__(*args, **kwargs)
        config, num_agents = self._config, self._chosen.shape[0]
        size = config.ladder_size or num_agents
        self._greedy = size - -(-size // 4) - config.ladder_offset
        self._scores = tf.Variable(tf.zeros([num_agents]), trainable=False)

    def epsilon(self, num_agents: int) -> exploration.Rate:
        """Probabilities of a random action, one for each row."""
        config = self._config
        size, first = config.ladder_size or num_agents, config.ladder_offset
        if not 0 <= first <= size - num_agents:
            raise ValueError(
                f"ladder_offset {first} and {num_agents} agents do not fit into "
                f"ladder_size {size}."
            )
        ladder = exploration.ladder(size, config.epsilon, config.epsilon_alpha)
        return ladder[first : first + num_agents]

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Transitions and scores of these rows begin anew."""
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
        """Remember one transition per row, and train as often as it is due."""
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
        """Report the raw returns of the most greedy agents."""
        super().end_episodes(agent_indices)
        greedy = tf.cast(agent_indices >= self._greedy, tf.float32)
        count = tf.reduce_sum(greedy)
        total = tf.reduce_sum(greedy * tf.gather(self._scores, agent_indices))
        score = tf.math.divide_no_nan(total, count)
        self.metrics.update({"greedy_score": score}, count)

    def completed(self, index: tf.Tensor) -> None:
        """Give transitions the priority that they would get if they were drawn."""
        if not self._config.prioritized:
            return
        index = tf.boolean_mask(index, index >= 0)
        # TensorFlow 2.21 fails at convolutions of empty batches on CPUs.
        conditional.when(tf.size(index) > 0, self._prioritize, index)

    def _prioritize(self, index: tf.Tensor) -> None:
        items = self.prepare(self.memory.get(index))
        items["target"] = self.target(items)
        self.memory.update(index, self.priorities(items))
