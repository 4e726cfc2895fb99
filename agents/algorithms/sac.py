"""Soft actor-critic.

Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications"; Christodoulou
(2019), "Soft Actor-Critic for Discrete Action Settings".
"""

import dataclasses
import math
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents import optimizers
from agents.algorithms import off_policy
from agents.networks import boxes, distributions, modes, squashed, twin_critics
from agents.tools import bounds, placement, schedules, spaces


@dataclasses.dataclass(frozen=True)
class Config(off_policy.Config):
    """Hyperparameters of SAC."""

    OPTIMIZERS = ("critic_optimizer", "optimizer", "temperature_optimizer")

    type: str = "sac"
    tau: bounds.Share = 0.005
    """Fraction of the way that the target critics move after every update."""
    target_entropy: schedules.Scalar | None = None
    """Target entropy in nats; none for minus the number of action dimensions, or 0.5
    log n for n discrete actions."""
    initial_temperature: bounds.PositiveFloat = 1.0
    """Initial weight of the entropy, which is then learned."""
    learning_rate: bounds.NotNegative = 3e-4
    optimizer: dict | str = dataclasses.field(default_factory=off_policy.adam)
    """Optimizer of the policy."""
    critic_optimizer: dict | str = dataclasses.field(default_factory=off_policy.adam)
    """Optimizer of both critics."""
    temperature_optimizer: dict | str = dataclasses.field(
        default_factory=off_policy.adam
    )
    """Optimizer of the weight of the entropy."""
    jit: bool = False
    """Compile updates by XLA."""
    threads: str = "beside"

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        temperature = optimizers.rated(self.temperature_optimizer, self.learning_rate)
        if isinstance(temperature, dict) and temperature.get("learning_rate") == 0:
            unused["target_entropy"] = "on a temperature that stays as it is"
        return unused


class SAC(off_policy.OffPolicy):
    """Soft actor-critic: maximum-entropy policy and twin critics."""

    stochastic = True
    METRICS = ("critic_loss", "value", "policy_loss", "entropy", "temperature")

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        num_agents: int,
        max_length: int,
        config: Config,
        seed: int = 0,
    ) -> None:
        """Create variables for `num_agents` rows; `max_length` is not needed.

        Raises:
          UnsupportedSpaceError: unless actions are bounded boxes or Discrete.
        """
        del max_length
        self._discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        self._space = action_space
        if self._discrete and spaces.mask_sizes(observation_space, action_space):
            raise spaces.UnsupportedSpaceError(
                "SAC knows no action masks; use dqn, apex, ppo, trpo, vpg, a2c or impala."
            )
        with placement.networks(seed):
            if self._discrete:
                size = int(action_space.n)
                self.policy = twin_critics.Outputs(
                    observation_space, size, config.network, seed
                )
                action, entropy = tf.TensorSpec([], tf.int64), 0.5 * math.log(size)
            else:
                self.policy = squashed.SquashedPolicy(
                    observation_space, action_space, config.network, seed
                )
                size = self.policy.size
                action, entropy = tf.TensorSpec([size]), -float(size)
            self.critics, self.target_critics = off_policy.twins(
                lambda: twin_critics.TwinCritics(
                    observation_space, size, config.network, seed + 100, self._discrete
                )
            )
            self.log_temperature = keras.Variable(math.log(config.initial_temperature))
        self._target_entropy = entropy
        parts = self.optimizers = config.create_optimizers()
        self._critic_optimizer, self._optimizer, self._temperature_optimizer = parts
        self._critic_optimizer.build(self.critics.trainable_variables)
        self._optimizer.build(self.policy.trainable_variables)
        self._temperature_optimizer.build([self.log_temperature])
        self._synchronization = optimizers.Synchronization(tau=config.tau)
        names = self.METRICS
        super().__init__(observation_space, num_agents, config, seed, action, names)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Return the most likely actions, or sample them; see `Policy.decide`."""
        if generator is None:
            return super().decide(observation, state)
        distribution = self.distribution(self.observations(observation))
        action = self._squash(distribution.sample(generator))
        return self.environment_action(action), state

    def best(self, observation: Any) -> tf.Tensor:
        """Return modes of the policy: vectors `[K, A]` in [-1, 1], or choices `[K]`."""
        return self._squash(self.distribution(observation).mode())

    def try_out(self, agent_indices: tf.Tensor, observation: Any) -> tf.Tensor:
        """Sample actions of the policy, or uniform ones at first."""
        sample = self.distribution(observation).sample(self.generator)
        action = self._squash(sample)
        shape = tf.shape(action)
        if self._discrete:
            size = int(self._space.n)
            random = self.generator.uniform(shape, maxval=size, dtype=tf.int64)
        else:
            random = self.generator.uniform(shape, -1.0, 1.0)
        return tf.where(self.steps < self.config.start_size, random, action)

    def environment_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert stored actions to actions of the environment."""
        if self._discrete:
            return action + int(self._space.start)
        return self.policy.action(action)

    def memory_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the environment to vectors in [-1, 1] or choices."""
        if self._discrete:
            return action - int(self._space.start)
        return boxes.unscale(action, self._space)

    def distribution(self, observation: Any) -> Any:
        """Return the distribution of actions before tanh, or of choices."""
        if self._discrete:
            return distributions.Categorical(self.policy(observation))
        return self.policy.distribution(observation)

    @property
    def temperature(self) -> tf.Tensor:
        """Weight of the entropy, positive."""
        return tf.exp(self.log_temperature.value)

    def evaluate(
        self,
        critics: twin_critics.TwinCritics,
        observation: Any,
        noise: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Estimate the smaller critic value and the entropy of the policy, both `[B]`.

        The estimate uses one sampled action, from noise `[B, A]` if given; it is exact
        for discrete actions.
        """
        distribution = self.distribution(observation)
        if self._discrete:
            values = tf.reduce_min(critics(observation), 0)
            probabilities = tf.nn.softmax(distribution.parameters["logits"])
            return tf.reduce_sum(probabilities * values, -1), distribution.entropy()
        sample = distribution.sample(self.generator, noise)
        values = critics(observation, tf.tanh(sample))
        return tf.reduce_min(values, 0), -distribution.log_prob(sample)

    def target(self, items: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute soft returns `[B]`; Haarnoja et al. (2018), equation 3."""
        value, entropy = self.evaluate(self.target_critics, items["next_observation"])
        following = value + self.temperature * entropy
        return tf.stop_gradient(items["reward"] + items["discount"] * following)

    def values(self, items: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the values `[2, B]` of both critics for the stored actions."""
        if not self._discrete:
            return self.critics(items["observation"], items["action"])
        chosen = tf.one_hot(items["action"], int(self._space.n))
        return tf.reduce_sum(chosen * self.critics(items["observation"]), -1)

    def critic_loss(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute half the weighted squared errors of both critics, and metrics."""
        values = self.values(items)
        errors = tf.reduce_sum((values - items["target"]) ** 2, 0)
        loss = 0.5 * tf.reduce_mean(items["weight"] * errors)
        return loss, {"critic_loss": loss, "value": tf.reduce_mean(values)}

    def policy_loss(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute minus the policy's value and weighted entropy, and metrics."""
        value, entropy = self.evaluate(
            self.critics, items["observation"], items.get("noise")
        )
        loss = -tf.reduce_mean(value + tf.stop_gradient(self.temperature) * entropy)
        return loss, {"policy_loss": loss, "entropy": tf.reduce_mean(entropy)}

    def learn(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Take one step of critics, policy, temperature and target critics."""
        items = {**items, "target": self.target(items)}
        errors = tf.zeros_like(items["reward"])
        if self.config.prioritized:
            errors = tf.reduce_mean(tf.abs(self.values(items) - items["target"]), 0)
        critics = self.critics.trainable_variables
        seed = self.generator.uniform_full_int([2], tf.int32)
        if not self._discrete:  # Independent of the number of devices.
            items["noise"] = self.generator.normal(tf.shape(items["action"]))
        options = {"items": items, "seed": seed}
        metrics = self._critic_optimizer.step(
            modes.learning(self.critic_loss, self.critics), critics, **options
        )
        metrics |= self._optimizer.step(
            modes.learning(self.policy_loss, self.policy),
            self.policy.trainable_variables,
            **options,
        )
        target = self.now.target_entropy
        target = self._target_entropy if target is None else target
        excess = metrics["entropy"] - target

        def temperature_loss(_):
            return self.log_temperature.value * excess, {}

        self._temperature_optimizer.step(
            temperature_loss, [self.log_temperature], **options
        )
        self._synchronization.schedule(self.time)
        self._synchronization.step(
            None, self.target_critics.trainable_variables, source=critics
        )
        metrics["temperature"] = self.temperature
        return {x: metrics[x] for x in metrics if x in self.METRICS}, errors

    def _squash(self, sample: tf.Tensor) -> tf.Tensor:
        return sample if self._discrete else tf.tanh(sample)

    def acting(self) -> list[tf.Variable]:
        """Return step counters and the policy."""
        return [*super().acting(), *self.policy.variables]

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
        return {
            **super().persistent(),
            "policy": self.policy.variables,
            "critics": self.critics.variables,
            "target_critics": self.target_critics.variables,
            "log_temperature": self.log_temperature,
            "policy_optimizer": self._optimizer,
            "critic_optimizer": self._critic_optimizer,
            "temperature_optimizer": self._temperature_optimizer,
        }
