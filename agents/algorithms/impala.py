"""Importance weighted actor-learner architecture: an actor-critic for late data.

Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
Actor-Learner Architectures".
"""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import memories, returns
from agents.algorithms import actor_critic
from agents.networks import layers
from agents.tools import bounds, conditional, rows, schedules


def _descent() -> dict:
    return {
        "type": "rmsprop",
        "learning_rate": 6e-4,
        "rho": 0.99,
        "epsilon": 0.01,
        "clip_norm": 40.0,
    }


@dataclasses.dataclass(frozen=True)
class Config(actor_critic.Config):
    """Hyperparameters of IMPALA; the defaults are those of the paper for Atari."""

    REWARDS = (*actor_critic.Config.REWARDS, "soft_asymmetric")

    type: str = "impala"
    # Data.
    unroll_length: bounds.Size = 20
    """Steps of every agent that one unroll holds, which values look ahead at most."""
    unrolls_per_update: bounds.Size = 1
    """Unrolls of every agent in a batch; there is one step of the optimizer per batch."""
    queue_size: bounds.Whole = 1
    """Batches that wait between acting and learning, so how many updates old the policy
    is that acted; the first ones of a run only fill the queue. Zero learns at once."""
    # Returns.
    normalize_rewards: str = "clip"
    """As for other algorithms, or `soft_asymmetric`: 5 tanh(r / 5), of which 0.3 if it
    is negative, as in the code of the paper's authors; the paper does not divide r."""
    reward_clip: bounds.PositiveFloat = 1.0
    rho_bar: bounds.NotNegative = 1.0
    """Largest importance weight of an error of the values."""
    c_bar: bounds.NotNegative = 1.0
    """Largest importance weight of what follows."""
    rho_pg: bounds.NotNegative = 1.0
    """Largest importance weight of an advantage."""
    vtrace_lambda: bounds.Fraction = 1.0
    """Lower values trust the values more than what happened later."""
    # Objective.
    reduction: str = "sum"
    """Of all parts of the loss, over time and batch alike: `sum` as in the paper, or
    `mean`, for which learning rate, epsilon and clip_norm do not depend on the batch."""
    entropy_coef: schedules.Scalar = 0.01
    # Optimization.
    optimizer: dict = dataclasses.field(default_factory=_descent)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("reduction", "sum", "mean")


class IMPALA(actor_critic.ActorCritic):
    """One step of policy and values per batch of unrolls, corrected by V-trace.

    Unrolls of all agents wait in a queue, so the policy that learns from them is
    `queue_size` updates younger than the one that acted. Their first recurrent state is
    that of acting; all else is computed anew, by the present network.
    """

    METRICS = (*actor_critic.ActorCritic.METRICS, "lag", "rho", "clip_fraction")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Arguments are those of `ActorCritic`."""
        super().__init__(*args, **kwargs)
        self._version = tf.Variable(  # Updates before each agent acted.
            tf.zeros(self._discounted.shape, tf.int64), trainable=False
        )

    def create_memory(
        self, specs: dict[str, Any], num_agents: int, max_length: int
    ) -> Any:
        """Queue of batches of unrolls."""
        specs = {
            **specs,
            "next_observation": specs["observation"],
            "terminated": tf.TensorSpec([], tf.bool),
            "version": tf.TensorSpec([], tf.int64),
        }
        size = self._config.queue_size
        return memories.Queue(specs, num_agents, self.batch_steps, size)

    @property
    def batch_steps(self) -> int:
        """Training phases last a multiple of this many batch steps."""
        return self._config.unroll_length * self._config.unrolls_per_update

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Sample actions while training, else take the mode."""
        if training:
            version = tf.fill(tf.shape(agent_indices), self.updates.read_value())
            self._version.scatter_nd_update(agent_indices[:, None], version)
        return super().perform(agent_indices, observation, training)

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """What tells the value of what follows, and how old the policy is."""
        return {
            "next_observation": next_observation,
            "terminated": terminated,
            "version": tf.gather(self._version, agent_indices),
        }

    def following_all(
        self, fragments: dict[str, Any], done: tf.Tensor, states: Any
    ) -> dict[str, Any]:
        """The same of whole fragments `[F, T]`, which are as old as this policy."""
        del states
        return {
            "next_observation": fragments["next_observation"],
            "terminated": fragments["terminated"],
            "version": tf.fill(done.shape, self.updates.read_value()),
        }

    def train(self) -> None:
        """Learn from the oldest batch, if the queue is full; the newest one joins it."""
        conditional.when(self.memory.ready(), lambda: self.learn(*self.memory.oldest()))
        self.memory.advance()

    def acting(self) -> list[tf.Variable]:
        """As of all actor-critics, and how many updates that are."""
        return [*super().acting(), self.updates]

    def normalized(self, reward: tf.Tensor) -> tf.Tensor:
        """Rewards as they are learned from."""
        if self._config.normalize_rewards != "soft_asymmetric":
            return super().normalized(reward)
        squeezed = 5.0 * tf.tanh(reward / 5.0)
        return tf.where(reward < 0.0, 0.3 * squeezed, squeezed)

    def prepare(self, data: Any, mask: tf.Tensor) -> dict[str, Any]:
        """Training items `[M, T, ...]`, one per unroll, from memory data `[B, S, ...]`."""
        length = self._config.unroll_length
        data, mask = tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, length, *x.shape[2:]]), (data, mask)
        )
        done = data["done"]
        end = done | (tf.range(length) == length - 1)
        return {
            "observation": self.observations(data["observation"]),
            "next_observation": self.observations(data["next_observation"]),
            "state": tf.nest.map_structure(lambda x: x[:, 0], data["state"]),
            "first": rows.before(done, False),
            "sample": data["sample"],
            "parameters": data["parameters"],
            "reward": self.normalized(data["reward"]),
            "end": end,
            "cut": end & ~data["terminated"],
            "lag": tf.cast(self.updates - data["version"], tf.float32),
            "mask": tf.cast(mask, tf.float32),
        }

    def scale(self, mask: tf.Tensor) -> tf.Tensor | float:
        """Factor of the mean over a batch `[B, S]`: its valid steps, or one."""
        if self._config.reduction == "mean":
            return 1.0
        return tf.reduce_sum(tf.cast(mask, tf.float32))

    def loss(
        self,
        items: dict[str, Any],
        entropy_coef: tf.Tensor | float,
        scale: tf.Tensor | float,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Loss of policy and values, and metrics.

        Args:
          items: `[M, T, ...]`, all of a batch or some.
          entropy_coef: Weight of the entropy.
          scale: Factor of means over the items, see `scale`.
        """
        config, head, mask = self.now, self.network.head, items["mask"] > 0.0
        parameters, value, states = self.network.sequence(
            items["observation"], items["state"], items["first"]
        )
        old = head.distribution(items["parameters"])
        new = head.distribution(parameters)
        log_prob = new.log_prob(items["sample"])
        log_ratio = log_prob - old.log_prob(items["sample"])
        bootstrap = self.bootstrap(items, states)
        target, advantage = returns.vtrace(
            log_ratio,
            items["reward"],
            value,
            returns.next_values(value, items["end"], bootstrap),
            items["end"],
            config.discount,
            *(config.rho_bar, config.c_bar, config.rho_pg, config.vtrace_lambda),
        )

        def mean(x):
            total = tf.reduce_sum(tf.where(mask, x, 0.0))
            return total / tf.maximum(tf.reduce_sum(items["mask"]), 1.0)

        def variance(x):
            return mean((x - mean(x)) ** 2)

        policy_loss = -scale * mean(log_prob * advantage)
        value_loss = scale * 0.5 * mean((target - value) ** 2)
        entropy = mean(new.entropy())
        loss = policy_loss + config.value_coef * value_loss
        loss -= entropy_coef * scale * entropy
        ratio = tf.exp(log_ratio)
        clipped = ratio > config.rho_bar + 1e-4  # By more than what rounding does.
        unexplained = variance(target - value) / (variance(target) + 1e-8)
        return loss, {
            "policy_loss": policy_loss,
            "entropy": entropy,
            "value_loss": value_loss,
            "lag": mean(items["lag"]),
            "rho": mean(tf.minimum(config.rho_bar, ratio)),
            "clip_fraction": mean(tf.cast(clipped, tf.float32)),
            "kl": mean(old.kl(new)),
            "explained_variance": 1.0 - unexplained,
        }

    def bootstrap(self, items: dict[str, Any], states: Any) -> tf.Tensor:
        """Values `[M, T]` of what follows steps where data was cut off, else zero.

        Args:
          items: As for `loss`.
          states: Recurrent states after the steps, `[M, T, units]`.
        """
        cut, following = items["cut"], (items["next_observation"], states)

        def values(select):
            _, value, _ = self.network.step(*tf.nest.map_structure(select, following))
            return value

        def inside():
            flat = values(rows.merge_time)
            return tf.reshape(flat, tf.shape(cut))[:, :-1]

        last = values(lambda x: x[:, -1])
        others = tf.zeros_like(cut[:, :-1], tf.float32)
        others = tf.cond(tf.reduce_any(cut[:, :-1]), inside, lambda: others)
        return tf.where(cut, tf.concat([others, last[:, None]], 1), 0.0)

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """One step of the optimizer on a batch `[B, S, ...]`."""
        scale = self.scale(mask)

        def loss(items):
            return self.loss(items, entropy_coef, scale)

        return self.optimizer.step(
            layers.learning(loss, self.network),
            self._trained,
            items=self.prepare(data, mask),
            seed=seed,
        )
