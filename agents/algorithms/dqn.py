"""Deep Q-learning and the improvements of Rainbow.

Mnih et al. (2015), "Human-level control through deep reinforcement learning"; Hessel et
al. (2018), "Rainbow: Combining Improvements in Deep Reinforcement Learning".
"""

import dataclasses
import math
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents import exploration, optimizers
from agents.algorithms import off_policy
from agents.networks import action_values, modes
from agents.networks.config import NetworkConfig
from agents.tools import bounds, placement, schedules


@dataclasses.dataclass(frozen=True)
class Config(off_policy.Config):
    """Hyperparameters of DQN; every improvement of Rainbow is a switch."""

    OPTIMIZERS = ("optimizer",)

    type: str = "dqn"
    capacity: int = 50_000
    batch_size: int = 64
    start_size: int = 1_000
    replay_ratio: float = 0.25
    epsilon: bounds.Fraction = schedules.Schedule("linear", 1.0, 0.05, 10_000)
    """Probability of a random action."""
    double: bool = True
    """Choose the next action with the online network; van Hasselt et al. (2016)."""
    dueling: bool = False
    """Add up state values and action advantages; Wang et al. (2016)."""
    noisy_std: bounds.NotNegativeFloat = 0.0
    """Initial noise of the last layers, replacing epsilon; Fortunato et al. (2018)."""
    atoms: bounds.Size = 1
    """Atoms of return distributions, one for plain values; Bellemare et al. (2017)."""
    value_range: tuple[float, float] = (-10.0, 10.0)
    """Returns of the first and the last atom."""
    huber_delta: bounds.Positive | None = 1.0
    """Error above which the loss is linear; none for the squared error."""
    target_period: bounds.Count = 500
    """Updates between copies to the target network."""
    target_tau: bounds.Share = 1.0
    """Fraction of the way that the target network moves each time, in (0, 1]."""
    learning_rate: bounds.NotNegative = 5e-4
    optimizer: dict | str = dataclasses.field(default_factory=off_policy.adam)
    """Optimizer of the network."""
    network: NetworkConfig = NetworkConfig(layers=(128, 128))

    def __post_init__(self) -> None:
        lowest, highest = self.value_range
        if not -math.inf < lowest < highest < math.inf:
            raise ValueError(
                f"value_range must be finite and increasing, got {self.value_range}."
            )
        super().__post_init__()

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        if self.noisy_std:
            unused["epsilon"] = "with noisy_std, by which agents explore"
        if self.atoms == 1:
            unused["value_range"] = "with atoms 1"
        else:
            unused["huber_delta"] = "with several atoms, whose loss is a divergence"
        return unused


class DQN(off_policy.OffPolicy):
    """Deep Q-learning for Discrete and MultiDiscrete actions."""

    METRICS = ("loss", "value", "epsilon")

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
          UnsupportedSpaceError: if actions are not Discrete or MultiDiscrete.
        """
        del max_length
        self.optimizers = config.create_optimizers()
        (self.optimizer,) = self.optimizers
        with placement.networks(seed):
            self.network, self.target_network = off_policy.twins(
                lambda: action_values.ActionValues(
                    observation_space,
                    action_space,
                    config.network,
                    seed,
                    config.dueling,
                    config.atoms,
                    config.noisy_std,
                )
            )
        self._sizes, self._space = self.network.sizes, action_space
        if config.jit is None:
            jit = not modes.convolutional(self.network)
            config = dataclasses.replace(config, jit=jit)
        super().__init__(
            observation_space,
            num_agents,
            config,
            seed,
            tf.TensorSpec([len(self._sizes)], tf.int64),
            (*self.METRICS, *self.optimizer.metric_names),
        )
        self._epsilon = self.epsilon(num_agents)
        self._exploration = exploration.EpsilonGreedy(
            self._sizes, num_agents, self._epsilon
        )
        self._variables = self.network.trainable_variables
        self.optimizer.build(self._variables)
        self._synchronization = optimizers.Synchronization(
            config.target_period, config.target_tau
        )
        self._support = np.linspace(*config.value_range, config.atoms, dtype=np.float32)

    def epsilon(self, num_agents: int) -> exploration.Rate:
        """Return the probability of a random action, for all rows or for each."""
        return self.config.epsilon

    def best(self, observation: Any, noise: Any = None) -> tf.Tensor:
        """Return the best actions `[K, D]`, with optional noise in the network."""
        values = self.expected(self.network(observation, noise))
        return self.network.best(values, observation)

    def try_out(self, agent_indices: tf.Tensor, observation: Any) -> tf.Tensor:
        """Return best actions `[K, D]`, or random ones with probability epsilon."""
        action = self.best(observation, self.network.draw(self.generator))
        if self.config.noisy_std:
            return action
        return self._exploration(
            agent_indices,
            action,
            self.time,
            self.generator,
            self.network.allowed(observation),
        )

    def environment_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert choices `[K, D]` to actions of the environment."""
        if isinstance(self._space, gymnasium.spaces.Discrete):
            return action[:, 0] + int(self._space.start)
        action += tf.constant(np.ravel(self._space.start), tf.int64)
        return tf.reshape(action, [-1, *self._space.shape])

    def memory_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the environment to choices `[K, D]`."""
        start = tf.constant(np.ravel(self._space.start), tf.int64)
        return tf.reshape(action, [-1, len(self._sizes)]) - start

    def expected(self, outputs: tf.Tensor) -> tf.Tensor:
        """Return values `[B, values]` for network outputs `[B, values, atoms]`."""
        if self.config.atoms == 1:
            return outputs[..., 0]
        return tf.reduce_sum(tf.nn.softmax(outputs) * self._support, -1)

    def target(self, items: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute target returns `[B, 1]`, or target probabilities `[B, atoms]`.

        With several action branches, the next value is the mean over them; Tavakoli et
        al. (2018), equation 6.
        """
        following = items["next_observation"]
        noise = self.target_network.draw(self.generator)
        outputs = self.target_network(following, noise)
        judge = outputs
        if self.config.double:
            judge = self.network(following, self.network.draw(self.generator))
        best = self.network.best(self.expected(judge), following)
        reward, discount = items["reward"][:, None], items["discount"][:, None]
        chosen = self.network.chosen(outputs, best)  # [B, D, atoms]
        if self.config.atoms == 1:
            return reward + discount * tf.reduce_mean(chosen, 1)
        probabilities = tf.reduce_mean(tf.nn.softmax(chosen), 1)
        returns = reward + discount * self._support
        return project(probabilities, returns, self._support)

    def errors(self, items: dict[str, tf.Tensor], outputs: tf.Tensor) -> tf.Tensor:
        """Compute target minus value `[B, D]` for network outputs `[B, values, atoms]`.

        With several atoms, the error is the KL divergence, as in Rainbow.
        """
        chosen = self.network.chosen(outputs, items["action"])
        target = items["target"][:, None]
        if self.config.atoms == 1:
            return target[..., 0] - chosen[..., 0]
        log_target = tf.math.log(tf.maximum(target, 1e-8))
        return tf.reduce_sum(target * (log_target - tf.nn.log_softmax(chosen)), -1)

    def priorities(self, items: dict[str, tf.Tensor], noise: Any = None) -> tf.Tensor:
        """Return the absolute errors `[B]` of items with targets."""
        outputs = self.network(items["observation"], noise)
        return tf.reduce_mean(tf.abs(self.errors(items, outputs)), 1)

    def loss(
        self, items: dict[str, tf.Tensor], noise: Any = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute the weighted mean of Huber losses or divergences, and metrics."""
        outputs = self.network(items["observation"], noise)
        errors = self.errors(items, outputs)
        if self.config.atoms == 1:
            errors = huber(errors, self.now.huber_delta)
        loss = tf.reduce_mean(items["weight"] * tf.reduce_mean(errors, 1))
        values = self.network.chosen(self.expected(outputs), items["action"])
        return loss, {"loss": loss, "value": tf.reduce_mean(values)}

    def learn(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Take one optimizer step; see `OffPolicy.learn`."""
        noise = self.network.draw(self.generator)
        items = {**items, "target": tf.stop_gradient(self.target(items))}
        errors = tf.zeros_like(items["reward"])
        if self.config.prioritized:
            errors = self.priorities(items, noise)
        seed = self.generator.uniform_full_int([2], tf.int32)
        metrics = self.optimizer.step(
            modes.learning(lambda items: self.loss(items, noise), self.network),
            self._variables,
            items=items,
            seed=seed,
        )
        self._synchronization.schedule(self.time)
        self._synchronization.step(
            None, self.target_network.trainable_variables, source=self._variables
        )
        epsilon = schedules.value(self._epsilon, self.time)
        epsilon = tf.reduce_mean(tf.cast(epsilon, tf.float32))
        return {**metrics, "epsilon": epsilon}, errors

    def acting(self) -> list[tf.Variable]:
        """Return step counters and networks; priorities need the target network."""
        networks = (self.network, self.target_network)
        return [*super().acting(), *(x for net in networks for x in net.variables)]

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
        return {
            **super().persistent(),
            "network": self.network.variables,
            "target_network": self.target_network.variables,
            "optimizer": self.optimizer,
            "synchronization": self._synchronization,
        }


def huber(error: tf.Tensor, delta: float | tf.Tensor | None) -> tf.Tensor:
    """Huber loss: half the squared error, linear with slope delta beyond delta."""
    if delta is None:
        return 0.5 * error**2
    size = tf.abs(error)
    inside = tf.minimum(size, delta)
    return 0.5 * inside**2 + delta * (size - inside)


def project(
    probabilities: tf.Tensor, returns: tf.Tensor, support: tf.Tensor
) -> tf.Tensor:
    """Project probabilities `[B, atoms]` of returns `[B, atoms]` to support `[atoms]`.

    Neighbors share each probability; Bellemare et al. (2017), algorithm 1.
    """
    gap = support[1] - support[0]
    returns = tf.clip_by_value(returns, support[0], support[-1])
    distance = tf.abs(returns[:, None, :] - support[None, :, None]) / gap
    shares = tf.clip_by_value(1.0 - distance, 0.0, 1.0)  # [B, new, old]
    return tf.linalg.matvec(shares, probabilities)
