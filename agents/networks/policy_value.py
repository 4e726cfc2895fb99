"""Policy and value function of one agent, on separate torsos or a shared one."""

from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents.networks import kinds, parts
from agents.networks.config import NetworkConfig


class PolicyValueNetwork(keras.layers.Layer):
    """Network from observations and state to action distributions and values.

    If observations contain an action mask, see `spaces.mask_sizes`, only allowed
    actions have a probability; torsos do not see the mask.

    Attributes:
      head: Action head, `heads.NormalHead` for example.
      policy_variables, value_variables: Trainable variables of each part; a shared
        torso belongs to both.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NetworkConfig,
        seed: int,
    ) -> None:
        super().__init__()
        self._inputs = parts.Inputs(observation_space, action_space)
        seen = self._inputs.space
        self.shared = config.shared
        self._policy = parts.torso(seen, config, seed)
        self._critic = (
            self._policy if config.shared else parts.torso(seen, config, seed + 100)
        )
        self.head = kinds.head(action_space, config, seed + 200)
        self._value = keras.layers.Dense(
            1, kernel_initializer=parts.output_weights(config, seed + 300, 1.0)
        )
        zeros = parts.zeros(observation_space)
        self.step(zeros, self.initial_state(1))  # Builds all layers.
        policy = [self._policy, self.head]
        critic = [self._critic, self._value]
        self.policy_variables = [v for x in policy for v in x.trainable_variables]
        self.value_variables = [v for x in critic for v in x.trainable_variables]

    def initial_state(self, size: int) -> tuple:
        """Return the recurrent state at the beginning of `size` episodes."""
        policy = self._policy.initial_state(size)
        return (policy, () if self.shared else self._critic.initial_state(size))

    def act(self, observation: Any, state: tuple) -> tuple[dict, tuple]:
        """Compute one step as `step` does, without values."""
        policy, critic = state
        observation, allowed = self._inputs.split(observation)
        features, policy = self._policy.step(observation, policy)
        if critic:  # Its state goes on, too.
            _, critic = self._critic.step(observation, critic)
        return self._act(features, allowed), (policy, critic)

    def step(self, observation: Any, state: tuple) -> tuple[dict, tf.Tensor, tuple]:
        """Compute one step of a batch.

        Args:
          observation: Structure of `[B, ...]`.
          state: Recurrent state before the step.

        Returns:
          Parameters of the action distribution `[B, ...]`, values `[B]`, next state.
        """
        policy, critic = state
        observation, allowed = self._inputs.split(observation)
        features, policy = self._policy.step(observation, policy)
        parameters = self._act(features, allowed)
        if not self.shared:
            features, critic = self._critic.step(observation, critic)
        return parameters, tf.squeeze(self._value(features), -1), (policy, critic)

    def sequence(
        self, observation: Any, state: tuple, first: tf.Tensor
    ) -> tuple[dict, tf.Tensor, tuple]:
        """Compute several steps of a batch; arguments as in `Torso.sequence`.

        Returns:
          Parameters of the action distributions `[B, T, ...]`, values `[B, T]`, and the
          recurrent state after each step `[B, T, units]`.
        """
        policy, critic = state
        observation, allowed = self._inputs.split(observation)
        features, policy = self._policy.sequence(observation, policy, first)
        parameters = self._act(features, allowed)
        if not self.shared:
            features, critic = self._critic.sequence(observation, critic, first)
        return parameters, tf.squeeze(self._value(features), -1), (policy, critic)

    def policy(self, observation: Any, state: tuple, first: tf.Tensor) -> dict:
        """Compute parameters of the distributions of sequences, `[B, T, ...]`."""
        observation, allowed = self._inputs.split(observation)
        return self._act(self._policy.unroll(observation, state[0], first), allowed)

    def value(self, observation: Any, state: tuple, first: tf.Tensor) -> tf.Tensor:
        """Compute values of sequences, `[B, T]`; arguments as in `Torso.sequence`."""
        observation, _ = self._inputs.split(observation)
        state = state[0] if self.shared else state[1]
        features = self._critic.unroll(observation, state, first)
        return tf.squeeze(self._value(features), -1)

    def _act(self, features: tf.Tensor, allowed: tf.Tensor | None) -> dict:
        """Compute parameters of the action distributions for features `[..., F]`."""
        parameters = self.head(features)
        return parameters if allowed is None else parts.masked(parameters, allowed)
