"""Acting by sampled actions, without changing the algorithm."""

from typing import Any

import tensorflow as tf

from agents.tools import algorithm, rows


class Sampling(algorithm.Algorithm):
    """Algorithm that acts outside of training by sampled actions of a policy.

        simulate(batch_env, Sampling(policy, len(batch_env), generator), steps, False)

    The policy does not change: neither its variables nor its running episodes.
    """

    def __init__(
        self, policy: algorithm.Policy, size: int, generator: tf.random.Generator
    ) -> None:
        """Act for `size` rows, by a generator that no checkpoint contains.

        Raises:
          ValueError: if the policy is not `stochastic`.
        """
        super().__init__()
        policy.require_stochastic()
        self._policy, self._generator = policy, generator
        self._state = rows.variables(policy.initial_state(size))

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Reset the state of these rows."""
        self.go_on(agent_indices, self._policy.initial_state(tf.size(agent_indices)))

    def running_state(self, agent_indices: tf.Tensor) -> Any:
        """Return the policy's state in running episodes of these rows, `[K, ...]`."""
        return rows.gather(self._state, agent_indices)

    def go_on(self, agent_indices: tf.Tensor, state: Any) -> None:
        """Continue running episodes of these rows with a state, `[K, ...]`."""
        rows.write(self._state, agent_indices, state)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Sample actions."""
        return self._policy.decide(observation, state, generator or self._generator)
