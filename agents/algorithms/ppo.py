"""Proximal policy optimization: adaptive KL penalty or clipped importance ratio.

Hafner et al. (2017), "TensorFlow Agents: Efficient Batched Reinforcement Learning in
TensorFlow"; Schulman et al. (2017), "Proximal Policy Optimization Algorithms".
"""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import optimizers
from agents.algorithms import policy_gradient
from agents.tools import bounds, placement, schedules


@dataclasses.dataclass(frozen=True)
class Config(policy_gradient.Config):
    """Hyperparameters of PPO; the defaults are those of the TensorFlow Agents paper."""

    OPTIMIZERS = ()  # They have a rate for the policy and one for the values.

    type: str = "ppo"
    discount: bounds.Fraction = 0.995
    gae_lambda: bounds.Fraction = 1.0
    normalize_rewards: str = "reward"
    # Objective.
    objective: str = "kl"
    """Surrogate objective: adaptive `kl` penalty, or `clip` of importance ratios."""
    kl_target: bounds.Positive = 0.01
    """Target of the KL divergence per update, in nats; the penalty adapts to it."""
    kl_cutoff_factor: bounds.NotNegative = 2.0
    """Multiple of `kl_target` above which `kl_cutoff_coef` applies, too."""
    kl_cutoff_coef: bounds.NotNegative = 1000.0
    """Weight of the squared KL divergence beyond `kl_cutoff_factor` targets."""
    kl_penalty: bounds.NotNegativeFloat = 1.0
    """Initial weight of the KL divergence."""
    clip: bounds.Positive = 0.2
    """Distance of importance ratios from one beyond which the objective is flat."""
    value_clip: bounds.Positive | None = None
    """Largest change of values per update, in units of normalized returns."""
    # Optimization by Adam, unless other optimizers are given.
    epochs: bounds.Count = 25
    """Number of times that an update uses every step of its data."""
    minibatch_size: bounds.Size | None = None
    """Steps per gradient step; none for the whole batch."""
    block_size: bounds.Size = 1000
    """Steps of the whole batch to compute at a time. The KL cut-off applies to each
    block, as it applies to each episode in the paper."""
    learning_rate: bounds.NotNegative = 1e-4
    """Learning rate of the policy."""
    value_learning_rate: bounds.NotNegative | None = 1e-3
    """Learning rate of the values; none for that of the policy."""
    adam_epsilon: bounds.NotNegativeFloat = 1e-7
    """Constant in the denominator of Adam."""
    clip_norm: bounds.Positive | None = None
    """Largest global norm of the gradients, separately for policy and values; none for
    no limit."""

    def __post_init__(self) -> None:
        bounds.require_known(self, "objective", ("kl", "clip"))
        super().__post_init__()

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = super().without_effect()
        names = ("kl_target", "kl_cutoff_factor", "kl_cutoff_coef", "kl_penalty")
        names = names if self.objective == "clip" else ("clip",)
        unused |= dict.fromkeys(names, f"with objective {self.objective}")
        if self.objective == "kl" and self.kl_cutoff_coef == 0:
            unused["kl_cutoff_factor"] = "with kl_cutoff_coef 0"
        images = self.jit is None and (
            self.network.convolutions or self.network.residual
        )
        if self.minibatch_size is not None or (self.compiled and not images):
            unused["block_size"] = "with minibatches or a compiled update"
        own_policy, own_value = self.optimizer is None, self.value_optimizer is None
        together = self.network.shared and own_policy and own_value
        if together and self.value_learning_rate is not None:
            unused["value_learning_rate"] = "with a shared network"
        policy = optimizers.unused_rate([self.optimizer])
        value = optimizers.unused_rate([self.value_optimizer])
        if value:
            unused["value_learning_rate"] = value["learning_rate"]
        if policy and (value or self.value_learning_rate is not None):
            unused |= policy
        if not (own_policy or own_value):
            names = ("epochs", "minibatch_size", "block_size")
            names = *names, "adam_epsilon", "clip_norm"
            unused |= dict.fromkeys(names, "with optimizer and value_optimizer")
        return unused

    def create_optimizer(self) -> tuple[optimizers.Optimizer, bool]:
        """Create an optimizer with epochs of Adam, unless the config has others."""
        policy, value = (
            self._adam(self.rate_of(x)) for x in ("optimizer", "value_optimizer")
        )
        if self.optimizer is None and self.value_optimizer is None:
            if self.network.shared:
                return self._minibatches(policy), False
            both = policy_gradient.separate(policy, value)
            return self._minibatches(both), True
        policy, value = self._minibatches(policy), self._minibatches(value)
        if self.optimizer is not None:
            policy = self.create_part("optimizer", "kl")
        if self.value_optimizer is not None:
            value = self.create_part("value_optimizer")
        return policy_gradient.separate(policy, value), True

    def rate_of(self, name: str) -> schedules.Scalar:
        """Return the rate of a field's optimizer, unless that declares its own."""
        rate = self.value_learning_rate if name == "value_optimizer" else None
        return self.learning_rate if rate is None else rate

    def _adam(self, learning_rate: schedules.Scalar) -> dict:
        whole = self.minibatch_size is None and not self.compiled
        return {
            "type": "adam",
            "learning_rate": learning_rate,
            "clip_norm": self.clip_norm,
            "block": self._items(self.block_size) if whole else None,
            "epsilon": self.adam_epsilon,
        }

    def _minibatches(self, optimizer: Any) -> optimizers.Optimizer:
        size = self.minibatch_size
        size = None if size is None else self._items(size)
        steps = {"type": "minibatch", "epochs": self.epochs, "size": size}
        return optimizers.create({**steps, "optimizer": optimizer}, "algorithm")

    def _items(self, steps: int) -> int:
        """Return the number of items, which are chunks in recurrent networks."""
        return max(steps // (self.chunk_length if self.network.recurrent else 1), 1)


class PPO(policy_gradient.PolicyGradient):
    """Policy gradient with several epochs per batch, close to the policy before them."""

    METRICS = (
        *policy_gradient.PolicyGradient.METRICS,
        "clip_fraction",
        "kl_penalty",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create variables; the arguments are those of `PolicyGradient`."""
        super().__init__(*args, **kwargs)
        with placement.networks():  # On the device that computes the loss.
            self.kl_penalty = tf.Variable(self.config.kl_penalty, trainable=False)

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
        return {**super().persistent(), "kl_penalty": self.kl_penalty}

    def policy_loss(
        self, items: dict[str, Any], entropy_coef: tf.Tensor | float
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute the policy loss on items `[M, L, ...]`, and metrics."""
        config, mask = self.now, items["mask"]
        old, new = self.policies(items)
        ratio = policy_gradient.importance(old, new, items)
        gain = ratio * items["advantage"]
        entropy = policy_gradient.mean(new.entropy(), mask)
        outside = tf.abs(ratio - 1.0) > config.clip
        if config.objective == "clip":
            clipped = tf.clip_by_value(ratio, 1.0 - config.clip, 1.0 + config.clip)
            gain = tf.minimum(gain, clipped * items["advantage"])
            penalty = 0.0
        else:
            before = self.network.head.distribution(items["before"])
            kl = policy_gradient.mean(before.kl(new), mask)
            excess = tf.maximum(kl - config.kl_cutoff_factor * config.kl_target, 0.0)
            penalty = self.kl_penalty * kl + config.kl_cutoff_coef * excess**2
        loss = -policy_gradient.mean(gain, mask) + penalty - entropy_coef * entropy
        fraction = policy_gradient.mean(tf.cast(outside, tf.float32), mask)
        metrics = {"policy_loss": loss, "entropy": entropy, "clip_fraction": fraction}
        return loss, metrics

    def value_loss(
        self, items: dict[str, Any]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compute half the squared error of values to returns, and the metric."""
        limit = self.now.value_clip
        if limit is None:
            return super().value_loss(items)
        value = self.values(items)
        near = items["value"] + tf.clip_by_value(value - items["value"], -limit, limit)
        goal = items["return"]
        error = tf.maximum((value - goal) ** 2, (near - goal) ** 2)
        loss = 0.5 * policy_gradient.mean(error, items["mask"])
        return loss, {"value_loss": loss}

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """Run all steps on one batch, then adapt the weight of the KL divergence."""
        metrics = super()._update_steps(data, mask, seed, entropy_coef)
        if self.config.objective == "kl":
            self._adapt(metrics["kl"], metrics.get("failed_updates", 0.0))
        return {**metrics, "kl_penalty": tf.convert_to_tensor(self.kl_penalty)}

    def _adapt(self, kl: tf.Tensor, failed: tf.Tensor | float) -> None:
        """Adapt the weight so that the KL divergence approaches its target."""
        target = self.now.kl_target
        factor = tf.where(kl > 1.3 * target, 1.5, 1.0)
        factor = tf.where(kl < 0.7 * target, 1.0 / 1.5, factor)
        new = tf.clip_by_value(self.kl_penalty * factor, 1e-6, 1e6)
        self.kl_penalty.assign(tf.where(failed > 0.0, self.kl_penalty, new))
