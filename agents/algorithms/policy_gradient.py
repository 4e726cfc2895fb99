"""Base of policy gradients: advantages, losses, updates."""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import optimizers, returns
from agents.algorithms import actor_critic
from agents.networks import modes
from agents.tools import bounds, conditional, rows
from agents.tools import config as config_

MEMORIES = {
    "episodes": "agents.memories.episodes:Episodes",
    "unrolls": "agents.memories.unrolls:Unrolls",
}
"""Import paths of memories by their names in configs."""


@dataclasses.dataclass(frozen=True)
class Config(actor_critic.Config):
    """Hyperparameters of all policy gradients."""

    OPTIMIZERS = ("optimizer", "value_optimizer")

    # Data.
    memory: str = "episodes"
    """Data for updates: whole `episodes`, or `unrolls` of a fixed number of steps."""
    update_every: bounds.Size = 25
    """Episodes per update, when training on whole episodes."""
    chunk_length: bounds.Size = 16
    """Steps of backpropagation through time in recurrent networks."""
    # Returns.
    gae_lambda: bounds.Fraction = 0.95
    """Decay of later value errors; 1 gives Monte-Carlo advantages of high variance."""
    normalize_advantages: bool = True
    """Shift and scale the advantages of a batch to mean 0 and deviation 1."""
    # Optimization.
    optimizer: dict | str | None = None
    """Optimizer of the policy; without `value_optimizer`, of the sum of both losses,
    except in PPO."""
    value_optimizer: dict | str | None = None
    """Optimizer of the values in place of `optimizer`; with a shared torso it trains
    only their last layer."""

    def __post_init__(self) -> None:
        bounds.require(self)
        bounds.require_known(self, "memory", tuple(MEMORIES))
        unrolls = self.memory == "unrolls" and self.network.recurrent
        if unrolls and self.unroll_length % self.chunk_length:
            raise ValueError(
                f"unroll_length {self.unroll_length} must be a multiple of "
                f"chunk_length {self.chunk_length}."
            )
        if self.compiled or self.network.recurrent:
            self.require_padding()
        super().__post_init__()

    def require_padding(self) -> None:
        """Raise ConfigError if the padding of whole episodes would count."""
        if self.whole_episodes and self.network.has("batch_normalization"):
            raise config_.ConfigError(
                "algorithm.network must not have batch_normalization, which would count "
                "the padding of episodes; use layer_normalization, or memory unrolls."
            )

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        if not self.whole_episodes:
            unused["update_every"] = f"with memory {self.memory}"
        if not self.network.recurrent:
            unused["chunk_length"] = "on networks that are not recurrent"
        return unused

    @property
    def whole_episodes(self) -> bool:
        """Return whether to train on whole episodes rather than on unrolls."""
        return self.memory == "episodes"

    @property
    def chunk(self) -> int:
        """Number of time steps in one training item."""
        return self.chunk_length if self.network.recurrent else 1

    def create_optimizer(self) -> tuple[optimizers.Optimizer, bool]:
        """Create the optimizer, in two parts if the values have their own."""
        policy = self.create_part("optimizer", "kl")
        if self.value_optimizer is None:
            return policy, False
        return separate(policy, self.create_part("value_optimizer")), True


def separate(policy: Any, value: Any) -> optimizers.Optimizer:
    """Create an optimizer with one part for the policy and one for the values."""
    parts = {"type": "plus", "policy": policy, "value": value}
    return optimizers.create(parts, "algorithm.optimizer")


class PolicyGradient(actor_critic.ActorCritic):
    """Policy gradient, which makes actions with positive advantage more likely.

    Williams (1992), "Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning"; Sutton et al. (2000), "Policy Gradient Methods for
    Reinforcement Learning with Function Approximation".

    The algorithm trains on episodes or unrolls `[B, T]` as soon as the memory is full.
    Subclasses override `policy_loss`.
    """

    def create_memory(
        self, specs: dict[str, Any], num_agents: int, max_length: int
    ) -> Any:
        """Create a memory of whole episodes or of unrolls."""
        config, size = self.config, (self.config.unroll_length,)
        if config.whole_episodes:
            length = -(-max_length // config.chunk) * config.chunk
            size = config.update_every, length
        specs = {**specs, "bootstrap": tf.TensorSpec([])}
        return config_.imported(MEMORIES[config.memory])(specs, num_agents, *size)

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """Return values after steps where data is cut off, zero elsewhere, `[K]`."""
        cut = (truncated | self.memory.last_of_unroll(agent_indices)) & ~terminated
        leaves = tf.nest.flatten(next_observation)

        def values(rows, cut, *leaves):
            observation = tf.nest.pack_sequence_as(next_observation, leaves)
            _, value, _ = self.network.step(
                self.observations(observation), self.recurrent_state(rows)
            )
            return tf.where(cut, value, 0.0)

        bootstrap = conditional.when(
            tf.reduce_any(cut),
            values,
            *(agent_indices, cut, *leaves),
            otherwise=lambda rows, cut, *_: tf.zeros_like(cut, tf.float32),
        )
        return {"bootstrap": bootstrap}

    def prepare(self, data: Any, mask: tf.Tensor) -> dict[str, Any]:
        """Convert memory data `[B, T, ...]` to training items `[M, L, ...]`.

        L is the chunk length, or one for feed-forward networks. Items without valid
        steps are dropped where shapes are dynamic; `mask` marks the valid steps.
        `parameters` are of the policy that acted, `before` of the policy before the
        update: they differ in episodes that began before other updates.
        """
        config = self.config
        length = mask.shape[1]

        def clean(x):  # Old data in the padding must not overflow; bytes cannot.
            valid = tf.reshape(mask, [*mask.shape, *[1] * (x.shape.rank - 2)])
            return x if x.dtype == tf.uint8 else tf.where(valid, x, tf.zeros_like(x))

        data = tf.nest.map_structure(clean, data)

        def chunks(x):
            return tf.reshape(x, [-1, config.chunk, *x.shape[2:]])

        done = data["done"]
        items = {
            "observation": self.observations(data["observation"]),
            "sample": data["sample"],
            "parameters": data["parameters"],
            "first": rows.before(done, False),
            "mask": tf.cast(mask, tf.float32),
        }
        items = tf.nest.map_structure(chunks, items)
        items["first"] &= tf.range(config.chunk) > 0  # The stored state is reset there.
        items["state"] = tf.nest.map_structure(lambda x: chunks(x)[:, 0], data["state"])
        items["before"], value, _ = self.network.sequence(*_inputs(items))
        value = tf.reshape(value, mask.shape)
        ends = done | (tf.range(length) == length - 1)
        next_value = returns.next_values(value, ends, data["bootstrap"])
        advantage = returns.advantage(
            self.normalized(data["reward"]),
            *(value, next_value, ends),
            *(self.now.discount, self.now.gae_lambda),
        )
        target = advantage + value
        if config.normalize_advantages:
            advantage = _standardize(advantage, items["mask"])
        new = {"value": value, "advantage": advantage, "return": target}
        items |= tf.nest.map_structure(chunks, new)
        if config.compiled or conditional.in_program():
            config.require_padding()
        else:
            valid = tf.where(items["mask"][:, 0] > 0)[:, 0]
            items = tf.nest.map_structure(lambda x: tf.gather(x, valid), items)
        return items

    def policies(self, items: dict[str, Any]) -> tuple[Any, Any]:
        """Return distributions `[M, L]` of the acting policy and of the current one."""
        head = self.network.head
        if "present" in items:
            parameters, _ = items["present"]
        else:
            parameters = self.network.policy(*_inputs(items))
        return head.distribution(items["parameters"]), head.distribution(parameters)

    def values(self, items: dict[str, Any]) -> tf.Tensor:
        """Return the current values `[M, L]`."""
        if "present" in items:
            return items["present"][1]
        return self.network.value(*_inputs(items))

    def policy_loss(
        self, items: dict[str, Any], entropy_coef: tf.Tensor | float
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute the mean of -log p(action) advantage - entropy, and metrics."""
        _, new = self.policies(items)
        entropy = mean(new.entropy(), items["mask"])
        gain = mean(new.log_prob(items["sample"]) * items["advantage"], items["mask"])
        loss = -gain - entropy_coef * entropy
        return loss, {"policy_loss": loss, "entropy": entropy}

    def value_loss(
        self, items: dict[str, Any]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute half the squared error of values to returns, and the metric."""
        value = self.values(items)
        loss = 0.5 * mean((value - items["return"]) ** 2, items["mask"])
        return loss, {"value_loss": loss}

    def kl(self, items: dict[str, Any], local: bool = False) -> tf.Tensor:
        """Compute the mean KL divergence from an older policy to the current one.

        The older policy is the one before the update, or if `local` the current one
        held constant: the divergence is zero, with the Fisher information as its
        Hessian.
        """
        _, new = self.policies(items)
        old = items["before"]
        if local:
            old = tf.nest.map_structure(tf.stop_gradient, new.parameters)
        return mean(self.network.head.distribution(old).kl(new), items["mask"])

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """Run all optimizer steps on one batch `[B, T, ...]`; return the metrics."""
        items = self.prepare(data, mask)

        def policy_loss(items):
            return self.policy_loss(items, entropy_coef)

        def both(items):
            parameters, value, _ = self.network.sequence(*_inputs(items))
            items = {**items, "present": (parameters, value)}
            loss, metrics = policy_loss(items)
            value_loss, value_metrics = self.value_loss(items)
            return loss + self.now.value_coef * value_loss, metrics | value_metrics

        separate = {"policy": policy_loss, "value": self.value_loss}
        losses = separate if self._separate else both
        metrics = self.optimizer.step(
            tf.nest.map_structure(lambda x: modes.learning(x, self.network), losses),
            self._trained,
            items=items,
            kl=self.kl,
            seed=seed,
            state=self.network.non_trainable_variables,
        )
        residual = items["return"] - items["value"]
        variance = _variance(items["return"], items["mask"])
        unexplained = _variance(residual, items["mask"])
        metrics["kl"] = self.kl(items)
        explained = 1.0 - unexplained / (variance + 1e-8)
        valid = 1.0 - metrics.get("failed_updates", 0.0)  # The data may overflow.
        metrics["explained_variance"] = tf.math.multiply_no_nan(explained, valid)
        return metrics


def _inputs(items: dict[str, Any]) -> tuple:
    """Return the inputs of the network for items."""
    return items["observation"], items["state"], items["first"]


def importance(old: Any, new: Any, items: dict[str, Any]) -> tf.Tensor:
    """Ratios `[M, L]` of new to old probabilities of the actions, one for padding."""
    log_ratio = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
    return tf.exp(tf.where(items["mask"] > 0, log_ratio, 0.0))


def mean(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over the valid steps; value and mask have the same shape."""
    returns.require_same_shape(value=value, mask=mask)
    return tf.reduce_sum(value * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def _variance(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Variance over the valid steps; value and mask have the same shape."""
    return mean((value - mean(value, mask)) ** 2, mask)


def _standardize(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Shift and scale to zero mean and unit deviation over the valid steps."""
    mask = tf.reshape(mask, tf.shape(value))
    deviation = tf.sqrt(_variance(value, mask)) + 1e-8
    return (value - mean(value, mask)) / deviation
