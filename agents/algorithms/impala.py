"""Importance weighted actor-learner architecture: an actor-critic for delayed data.

Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
Actor-Learner Architectures".
"""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import memories, returns
from agents.algorithms import actor_critic
from agents.networks import modes
from agents.tools import bounds, conditional, rows, schedules


def _descent() -> dict:
    return {
        "type": "rmsprop",
        "rho": 0.99,
        "epsilon": 0.01,
        "initial_square": 1.0,
        "clip_norm": 40.0,
    }


@dataclasses.dataclass(frozen=True)
class Config(actor_critic.Config):
    """Hyperparameters of IMPALA; the defaults are those of the paper for Atari."""

    REWARDS = (*actor_critic.Config.REWARDS, "soft_asymmetric")
    UNCLIPPED = ("none", "soft_asymmetric")

    type: str = "impala"
    # Data.
    unroll_length: bounds.Size = 20
    """Steps of every agent in one unroll; value targets do not reach beyond it."""
    unrolls_per_update: bounds.Size = 1
    """Unrolls of every agent in a batch, which gets one optimizer step."""
    queue_size: bounds.Whole = 1
    """Batches that wait between acting and learning: the acting policy is this many
    updates old. The first batches of a run only fill the queue. Zero learns at once."""
    # Returns.
    normalize_rewards: str = "clip"
    """Scaling as in other algorithms, or `soft_asymmetric`: 5 tanh(r / 5), times 0.3
    where negative, as in the authors' code; the paper does not divide r by 5."""
    reward_clip: bounds.PositiveFloat = 1.0
    rho_bar: bounds.NotNegative = 1.0
    """Largest importance weight of a value error."""
    c_bar: bounds.NotNegative = 1.0
    """Largest importance weight of later value errors."""
    rho_pg: bounds.NotNegative = 1.0
    """Largest importance weight of an advantage."""
    vtrace_lambda: bounds.Fraction = 1.0
    """Decay of later value errors; lower values rely more on the value function."""
    # Objective.
    reduction: str = "sum"
    """Reduction of all losses over time and batch: `sum` as in the paper, or `mean`,
    which makes learning rate, epsilon and clip_norm independent of the batch size."""
    entropy_coef: schedules.Scalar = 0.01
    # Optimization.
    learning_rate: bounds.NotNegative = 6e-4
    optimizer: dict | str = dataclasses.field(default_factory=_descent)

    def __post_init__(self) -> None:
        bounds.require_known(self, "reduction", ("sum", "mean"))
        super().__post_init__()


class IMPALA(actor_critic.ActorCritic):
    """Actor-critic with one V-trace-corrected step per batch of unrolls.

    Unrolls wait in a queue, so the learning policy is `queue_size` updates newer than
    the acting one. The stored recurrent state at the start of an unroll is used; the
    current network recomputes the later states.
    """

    METRICS = (*actor_critic.ActorCritic.METRICS, "lag", "rho", "clip_fraction")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create variables; the arguments are those of `ActorCritic`."""
        super().__init__(*args, **kwargs)
        self._version = tf.Variable(  # Updates before each agent acted.
            tf.zeros(self._discounted.shape, tf.int64), trainable=False
        )

    def create_memory(
        self, specs: dict[str, Any], num_agents: int, max_length: int
    ) -> Any:
        """Create a queue of batches of unrolls."""
        specs = {
            **specs,
            "next_observation": specs["observation"],
            "terminated": tf.TensorSpec([], tf.bool),
            "version": tf.TensorSpec([], tf.int64),
        }
        size = self.config.queue_size
        return memories.Queue(specs, num_agents, self.batch_steps, size)

    @property
    def batch_steps(self) -> int:
        """Divisor of the length of training phases, in batch steps."""
        return self.config.unroll_length * self.config.unrolls_per_update

    def explore(self, agent_indices: tf.Tensor, observation: Any) -> Any:
        """Sample actions, and store the version of the policy."""
        version = tf.fill(tf.shape(agent_indices), self.updates.read_value())
        rows.write(self._version, agent_indices, version)
        return super().explore(agent_indices, observation)

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """Return next observation, termination, and the version of the policy."""
        return {
            "next_observation": next_observation,
            "terminated": terminated,
            "version": rows.gather(self._version, agent_indices),
        }

    def train(self) -> None:
        """Learn from the oldest batch if the queue is full, then enqueue the newest."""
        conditional.when(self.memory.ready(), lambda: self.learn(*self.memory.oldest()))
        self.memory.advance()

    def normalized(self, reward: tf.Tensor) -> tf.Tensor:
        """Scale rewards as configured."""
        if self.config.normalize_rewards != "soft_asymmetric":
            return super().normalized(reward)
        squeezed = 5.0 * tf.tanh(reward / 5.0)
        return tf.where(reward < 0.0, 0.3 * squeezed, squeezed)

    def prepare(self, data: Any, mask: tf.Tensor) -> dict[str, Any]:
        """Convert memory data `[B, S, ...]` to items `[M, T, ...]`, one per unroll."""
        length = self.config.unroll_length
        data, mask = tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, length, *x.shape[2:]]), (data, mask)
        )
        done = data["done"]
        end = done | (tf.range(length) == length - 1)
        return {
            "observation": self.observations(data["observation"]),
            "next_observation": data["next_observation"],  # Few are used.
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
        """Return the factor from mean to reduction: number of valid steps, or one."""
        if self.config.reduction == "mean":
            return 1.0
        return tf.reduce_sum(tf.cast(mask, tf.float32))

    def loss(
        self,
        items: dict[str, Any],
        entropy_coef: tf.Tensor | float,
        scale: tf.Tensor | float,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute the loss of policy and values, and metrics.

        Args:
          items: All items of a batch or some of them, `[M, T, ...]`.
          entropy_coef: Weight of the entropy.
          scale: Factor of the means over the items, see `scale`.
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
        clipped = ratio > config.rho_bar + 1e-4  # Beyond rounding errors.
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
        """Return values `[M, T]` after steps where data was cut off, zero elsewhere.

        Args:
          items: Training items, see `prepare`.
          states: Recurrent states after the steps, `[M, T, units]`.
        """
        cut, following = items["cut"], (items["next_observation"], states)

        def values(select):
            observation, state = tf.nest.map_structure(select, following)
            _, value, _ = self.network.step(self.observations(observation), state)
            return value

        def inside():
            flat = values(rows.merge_time)
            return tf.reshape(flat, tf.shape(cut))[:, :-1]

        last = values(lambda x: x[:, -1])
        others = tf.zeros_like(cut[:, :-1], tf.float32)
        others = tf.cond(tf.reduce_any(cut[:, :-1]), inside, lambda: others)
        return tf.where(cut, tf.concat([others, tf.expand_dims(last, 1)], 1), 0.0)

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """Take one optimizer step on a batch `[B, S, ...]`."""
        scale = self.scale(mask)

        def loss(items):
            return self.loss(items, entropy_coef, scale)

        return self.optimizer.step(
            modes.learning(loss, self.network),
            self._trained,
            items=self.prepare(data, mask),
            seed=seed,
            state=self.network.non_trainable_variables,
        )
