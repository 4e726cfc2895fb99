"""Values of all actions, for Q-learning."""

from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents.networks import noisy, parts
from agents.networks.config import NetworkConfig
from agents.tools import spaces


class ActionValues(keras.layers.Layer):
    """Network from observations to values, or their distributions, of all actions.

    MultiDiscrete spaces have one branch per number; Tavakoli et al. (2018), "Action
    Branching Architectures for Deep Reinforcement Learning". Values of all branches are
    placed side by side, `[B, values, atoms]`.

    Attributes:
      sizes: Number of actions of each branch.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: NetworkConfig,
        seed: int,
        dueling: bool = False,
        atoms: int = 1,
        noisy_std: float = 0.0,
    ) -> None:
        """Build all layers.

        Args:
          observation_space, action_space: Spaces; actions are (Multi)Discrete.
          config: Description of the torso.
          seed: Seed of the initial weights.
          dueling: Whether to add up state values and action advantages; Wang et al.
            (2016), equation 9.
          atoms: Atoms of the distribution over returns; Bellemare et al. (2017).
          noisy_std: Initial noise of the last layers; zero for none.

        Raises:
          UnsupportedSpaceError: for other actions.
        """
        super().__init__()
        self.sizes = spaces.choices(action_space)
        if self.sizes is None:
            spaces.spec(action_space)  # Raises for those that no algorithm takes.
            raise spaces.UnsupportedSpaceError(
                f"Action space {action_space} has no list of actions to have values; "
                "use sac or td3 for a floating point Box with finite bounds, else a "
                "policy gradient such as ppo, or gymnasium.spaces.Discrete actions."
            )
        self._inputs = parts.Inputs(observation_space, action_space)
        self._torso = parts.torso(self._inputs.space, config, seed)
        self._atoms = atoms
        zeros = parts.zeros(observation_space)
        seen, _ = self._inputs.split(zeros)
        features = self._torso.step(seen, ())[0].shape[-1]

        def layer(units, number):
            if noisy_std:
                return noisy.NoisyDense(features, units, noisy_std, seed + number)
            kernel = parts.hidden_weights(config, seed + number)
            return keras.layers.Dense(units, kernel_initializer=kernel)

        self._heads = [layer(sum(self.sizes) * atoms, 50)]
        if dueling:
            self._heads.append(layer(atoms, 60))
        self._noisy = bool(noisy_std)
        self.call(zeros)  # Builds all layers.
        self.built = True

    def draw(self, generator: tf.random.Generator) -> Any:
        """Draw noise for `call`; None without noisy layers."""
        return [x.draw(generator) for x in self._heads] if self._noisy else None

    def call(self, observation: Any, noise: Any = None) -> tf.Tensor:
        """Compute values, or logits of their distributions, `[B, values, atoms]`."""
        seen, _ = self._inputs.split(observation)
        features, _ = self._torso.step(seen, ())
        if self._noisy:
            noise = [None] * len(self._heads) if noise is None else noise
            outputs = [x(features, y) for x, y in zip(self._heads, noise, strict=True)]
        else:
            outputs = [x(features) for x in self._heads]
        values = tf.reshape(outputs[0], [-1, sum(self.sizes), self._atoms])
        if len(outputs) == 1:
            return values
        state = tf.reshape(outputs[1], [-1, 1, self._atoms])
        parts = [
            x - tf.reduce_mean(x, 1, keepdims=True)
            for x in tf.split(values, self.sizes, 1)
        ]
        return state + tf.concat(parts, 1)

    def best(self, values: tf.Tensor, observation: Any) -> tf.Tensor:
        """Return the best allowed action of each branch, int64 `[B, D]`."""
        allowed = self.allowed(observation)
        if allowed is not None:
            values = tf.where(allowed, values, parts.FORBIDDEN)
        branches = tf.split(values, self.sizes, 1)
        return tf.stack([tf.argmax(x, -1) for x in branches], 1)

    def allowed(self, observation: Any) -> tf.Tensor | None:
        """Return the mask of actions, bool `[B, values]`, or None without one."""
        return self._inputs.split(observation)[1]

    def chosen(self, values: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Select entries `[B, D, ...]` for actions `[B, D]` from `[B, values, ...]`."""
        starts = [sum(self.sizes[:index]) for index in range(len(self.sizes))]
        return tf.gather(values, action + tf.constant(starts, tf.int64), batch_dims=1)
