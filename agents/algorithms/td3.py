"""Twin delayed deep deterministic policy gradient, and DDPG as a special case.

Fujimoto et al. (2018), "Addressing Function Approximation Error in Actor-Critic
Methods"; Lillicrap et al. (2016), "Continuous control with deep reinforcement learning".
"""

import dataclasses
from typing import Any

import gymnasium
import tensorflow as tf

from agents import exploration, optimizers
from agents.algorithms import off_policy
from agents.networks import boxes, modes, twin_critics
from agents.tools import bounds, placement


@dataclasses.dataclass(frozen=True)
class Config(off_policy.Config):
    """Hyperparameters of TD3.

    DDPG is TD3 with `twin: false`, `policy_delay: 1` and `target_noise: 0`.
    """

    OPTIMIZERS = ("critic_optimizer", "optimizer")
    NOISES = ("gaussian", "ornstein_uhlenbeck", "parameters")

    type: str = "td3"
    tau: bounds.Share = 0.005
    """Fraction of the way that the target networks move per update of the policy."""
    noise: str = "gaussian"
    """Exploration noise: `gaussian`; `ornstein_uhlenbeck`, correlated in time; or
    `parameters`, which perturbs the policy's weights for a whole episode."""
    noise_std: bounds.NotNegative = 0.1
    """Standard deviation of actions around the policy's, in units of half the range;
    with `ornstein_uhlenbeck`, that of each increment, so actions deviate more."""
    twin: bool = True
    """Use the smaller value of two critics for targets, not that of the first one."""
    target_noise: bounds.NotNegative = 0.2
    """Standard deviation of the noise on next actions in targets."""
    target_noise_clip: bounds.NotNegative = 0.5
    """Bound on the absolute noise on next actions."""
    policy_delay: bounds.Count = 2
    """Updates of the critics per update of the policy."""
    optimizer: dict | str = dataclasses.field(default_factory=off_policy.adam)
    """Optimizer of the policy."""
    critic_optimizer: dict | str = dataclasses.field(default_factory=off_policy.adam)
    """Optimizer of both critics."""
    jit: bool = False
    """Compile updates by XLA."""
    threads: str = "beside"

    def __post_init__(self) -> None:
        bounds.require_known(self, "noise", self.NOISES)
        super().__post_init__()

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        if self.noise_std == 0 and self.noise != "parameters":
            unused["noise"] = "with noise_std 0"
        if self.target_noise == 0:
            unused["target_noise_clip"] = "with target_noise 0"
        return unused


class TD3(off_policy.OffPolicy):
    """Deterministic policy gradient with twin critics and delayed policy updates."""

    METRICS = ("critic_loss", "value", "policy_loss")

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
          UnsupportedSpaceError: unless actions are bounded boxes.
        """
        del max_length
        size = boxes.size_of(action_space)
        self._space = action_space
        with placement.networks(seed):
            self.policy, self.target_policy = off_policy.twins(
                lambda: twin_critics.Outputs(
                    observation_space, size, config.network, seed
                )
            )
            self.critics, self.target_critics = off_policy.twins(
                lambda: twin_critics.TwinCritics(
                    observation_space, size, config.network, seed + 100, False
                )
            )
        self.optimizers = config.create_optimizers()
        self._critic_optimizer, self._optimizer = self.optimizers
        self._critic_optimizer.build(self.critics.trainable_variables)
        self._optimizer.build(self.policy.trainable_variables)
        self._synchronization = optimizers.Synchronization(tau=config.tau)
        rate = num_agents, config.noise_std
        self._exploration = {
            "gaussian": lambda: exploration.Gaussian(size, *rate),
            "ornstein_uhlenbeck": lambda: exploration.OrnsteinUhlenbeck(size, *rate),
            "parameters": lambda: exploration.ParameterNoise(
                self.best, self.policy.trainable_variables, *rate
            ),
        }[config.noise]()
        super().__init__(
            observation_space,
            num_agents,
            config,
            seed,
            tf.TensorSpec([size]),
            self.METRICS,
        )

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Forget unfinished transitions of these rows, and restart their noise."""
        super().begin_episodes(agent_indices, training)
        self._exploration.begin(agent_indices)

    def try_out(self, agent_indices: tf.Tensor, observation: Any) -> tf.Tensor:
        """Return noisy actions `[K, A]` in [-1, 1], uniform ones at first."""
        action = self.best(observation)
        seen = (observation,) if self.config.noise == "parameters" else ()
        action = self._exploration(
            agent_indices, action, self.time, self.generator, *seen
        )
        random = self.generator.uniform(tf.shape(action), -1.0, 1.0)
        return tf.where(self.steps < self.config.start_size, random, action)

    def best(self, observation: Any) -> tf.Tensor:
        """Return the actions `[K, A]` of the policy, in [-1, 1]."""
        return tf.tanh(self.policy(observation))

    def environment_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert stored actions to actions of the environment."""
        return boxes.scale(action, self._space)

    def memory_action(self, action: tf.Tensor) -> tf.Tensor:
        """Convert actions of the environment to vectors in [-1, 1]."""
        return boxes.unscale(action, self._space)

    def target(self, items: dict[str, tf.Tensor]) -> tf.Tensor:
        """Compute returns `[B]` with noise on next actions; algorithm 1."""
        config, following = self.now, items["next_observation"]
        action = tf.tanh(self.target_policy(following))
        limit = config.target_noise_clip
        noise = config.target_noise * self.generator.normal(tf.shape(action))
        action += tf.clip_by_value(noise, -limit, limit)
        values = self.target_critics(following, tf.clip_by_value(action, -1.0, 1.0))
        value = tf.reduce_min(values, 0) if self.config.twin else values[0]
        return tf.stop_gradient(items["reward"] + items["discount"] * value)

    def critic_loss(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute half the weighted squared errors of both critics, and metrics."""
        values = self.critics(items["observation"], items["action"])
        errors = tf.reduce_sum((values - items["target"]) ** 2, 0)
        loss = 0.5 * tf.reduce_mean(items["weight"] * errors)
        return loss, {"critic_loss": loss, "value": tf.reduce_mean(values)}

    def policy_loss(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute minus the first critic's value of policy actions, and the metric."""
        action = self.best(items["observation"])
        loss = -tf.reduce_mean(self.critics(items["observation"], action)[0])
        return loss, {"policy_loss": loss}

    def learn(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Step the critics and, every `policy_delay` updates, policy and targets."""
        items = {**items, "target": self.target(items)}
        critics = self.critics.trainable_variables
        policy = self.policy.trainable_variables
        errors = tf.zeros_like(items["reward"])
        if self.config.prioritized:
            values = self.critics(items["observation"], items["action"])
            errors = tf.reduce_mean(tf.abs(values - items["target"]), 0)
        options = {
            "items": items,
            "seed": self.generator.uniform_full_int([2], tf.int32),
        }
        critic_loss = modes.learning(self.critic_loss, self.critics)
        policy_loss = modes.learning(self.policy_loss, self.policy)
        metrics = self._critic_optimizer.step(critic_loss, critics, **options)

        def move_policy():
            loss = self._optimizer.step(policy_loss, policy, **options)
            targets = (
                self.target_policy.trainable_variables
                + self.target_critics.trainable_variables
            )
            self._synchronization.schedule(self.time)
            self._synchronization.step(None, targets, source=policy + critics)
            return loss["policy_loss"]

        due = tf.equal(self.updates % self.config.policy_delay, 0)
        loss = tf.cond(due, move_policy, lambda: self.policy_loss(items)[0])
        metrics["policy_loss"] = loss
        return {x: metrics[x] for x in metrics if x in self.METRICS}, errors

    def acting(self) -> list[tf.Variable]:
        """Return step counters and the policy."""
        return [*super().acting(), *self.policy.variables]

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
        return {
            **super().persistent(),
            "policy": self.policy.variables,
            "critics": self.critics.variables,
            "target_policy": self.target_policy.variables,
            "target_critics": self.target_critics.variables,
            "policy_optimizer": self._optimizer,
            "critic_optimizer": self._critic_optimizer,
            "synchronization": self._synchronization,
            "exploration": self._exploration.persistent,
        }
