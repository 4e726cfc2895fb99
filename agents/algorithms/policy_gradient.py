"""What all policy gradients share: advantages, losses, updates."""

import dataclasses
from typing import Any

import tensorflow as tf

from agents import memories, optimizers, returns
from agents.algorithms import actor_critic
from agents.networks import layers
from agents.tools import bounds, conditional, rows


@dataclasses.dataclass(frozen=True)
class Config(actor_critic.Config):
    """Hyperparameters that all policy gradients have."""

    # Data.
    memory: str = "episodes"
    """`episodes`: whole episodes; `unrolls`: fixed number of steps of every agent."""
    update_every: bounds.Size = 25
    """Episodes per update, for whole episodes."""
    chunk_length: bounds.Size = 16
    """Steps that recurrent networks are trained through."""
    # Returns.
    gae_lambda: bounds.Fraction = 0.95
    """1 gives Monte-Carlo advantages; lower values trade variance for bias."""
    normalize_advantages: bool = True
    # Optimization.
    value_optimizer: dict | None = None
    """Moves the values in place of `optimizer`, or only their last layer where the torso
    is shared."""

    def __post_init__(self) -> None:
        bounds.require(self)
        self._require("memory", "episodes", "unrolls")
        unrolls = self.memory == "unrolls" and self.network.recurrent
        if unrolls and self.unroll_length % self.chunk_length:
            raise ValueError(
                f"unroll_length {self.unroll_length} must be a multiple of "
                f"chunk_length {self.chunk_length}."
            )
        super().__post_init__()

    @property
    def whole_episodes(self) -> bool:
        """Whether to train on whole episodes, when they end, and not on unrolls."""
        return self.memory == "episodes"

    @property
    def chunk(self) -> int:
        """Steps of one item that is trained on."""
        return self.chunk_length if self.network.recurrent else 1

    def create_optimizer(self) -> tuple[optimizers.Optimizer, bool]:
        """Optimizer, and whether it has parts for `policy` and `value`.

        Raises:
          ConfigError: for anything wrong with its config.
        """
        policy = self.create_part("optimizer", "kl")
        if self.value_optimizer is None:
            return policy, False
        value = self.create_part("value_optimizer")
        return optimizers.Plus(policy=policy, value=value), True


class PolicyGradient(actor_critic.ActorCritic):
    """Moves a policy towards actions that did better than expected.

    Williams (1992), "Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning"; Sutton et al. (2000), "Policy Gradient Methods for
    Reinforcement Learning with Function Approximation".

    Episodes or unrolls `[B, T]` are trained on as soon as the memory is full.
    Subclasses override `policy_loss`.
    """

    def create_memory(
        self, specs: dict[str, Any], num_agents: int, max_length: int
    ) -> Any:
        """Memory of whole episodes or of unrolls."""
        config = self._config
        specs = {**specs, "bootstrap": tf.TensorSpec([])}
        if not config.whole_episodes:
            return memories.Unrolls(specs, num_agents, config.unroll_length)
        length = -(-max_length // config.chunk) * config.chunk
        return memories.Episodes(specs, num_agents, config.update_every, length)

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """Values of the observations behind steps where data ends, else zero."""
        last = truncated | self.memory.last_of_unroll(agent_indices)
        cut = last & ~terminated
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

    def following_all(
        self, fragments: dict[str, Any], done: tf.Tensor, states: Any
    ) -> dict[str, Any]:
        """The same of whole fragments `[F, T]`."""
        seen = self.observations(fragments["next_observation"])
        _, value, _ = self.network.step(*rows.merge_time((seen, states)))
        cut = done & ~fragments["terminated"]
        return {"bootstrap": tf.where(cut, tf.reshape(value, cut.shape), 0.0)}

    def prepare(self, data: Any, mask: tf.Tensor) -> dict[str, Any]:
        """Training items `[M, L, ...]` from memory data `[B, T, ...]`.

        L is the chunk length, one for feed-forward networks. Items without valid steps
        are left out where shapes are dynamic; `mask` tells the padding of the others.
        """
        config = self._config
        length = mask.shape[1]

        def clean(x):  # What old data is left in the padding must not overflow.
            valid = tf.reshape(mask, [*mask.shape, *[1] * (x.shape.rank - 2)])
            return tf.where(valid, x, tf.zeros_like(x))

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
        if "kl" in self.optimizer.needs:  # Some episodes began before other updates.
            items["before"] = self.network.policy(*_inputs(items))
        value = self.network.value(*_inputs(items))
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
        if not (config.compiled or conditional.in_program()):
            valid = tf.where(items["mask"][:, 0] > 0)[:, 0]
            items = tf.nest.map_structure(lambda x: tf.gather(x, valid), items)
        return items

    def policies(self, items: dict[str, Any]) -> tuple[Any, Any]:
        """Distributions `[M, L]` of the policy that acted, and of the present one."""
        head = self.network.head
        if "present" in items:
            parameters, _ = items["present"]
        else:
            parameters = self.network.policy(*_inputs(items))
        return head.distribution(items["parameters"]), head.distribution(parameters)

    def values(self, items: dict[str, Any]) -> tf.Tensor:
        """Present values `[M, L]`."""
        if "present" in items:
            return items["present"][1]
        return self.network.value(*_inputs(items))

    def policy_loss(
        self, items: dict[str, Any], entropy_coef: tf.Tensor | float
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Mean of -log p(action) advantage - entropy on items `[M, L, ...]`."""
        _, new = self.policies(items)
        entropy = mean(new.entropy(), items["mask"])
        gain = mean(new.log_prob(items["sample"]) * items["advantage"], items["mask"])
        loss = -gain - entropy_coef * entropy
        return loss, {"policy_loss": loss, "entropy": entropy}

    def value_loss(
        self, items: dict[str, Any]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Half the squared error of the values to the returns, and its metric."""
        value = self.values(items)
        loss = 0.5 * mean((value - items["return"]) ** 2, items["mask"])
        return loss, {"value_loss": loss}

    def kl(self, items: dict[str, Any], local: bool = False) -> tf.Tensor:
        """Mean divergence of the present policy from an older one, in nats.

        That is the one before the update, if optimizers limit the divergence, else the
        one that acted. If local, it is the present one held fixed: the divergence is
        zero then, with the Fisher information as its Hessian.
        """
        head = self.network.head
        old, new = self.policies(items)
        if local:
            fixed = tf.nest.map_structure(tf.stop_gradient, new.parameters)
            old = head.distribution(fixed)
        elif "before" in items:
            old = head.distribution(items["before"])
        return mean(old.kl(new), items["mask"])

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """All steps on one batch `[B, T, ...]`."""
        items = self.prepare(data, mask)

        def learning(loss):
            return layers.learning(loss, self.network)

        def policy_loss(items):
            return self.policy_loss(items, entropy_coef)

        def both(items):
            parameters, value, _ = self.network.sequence(*_inputs(items))
            items = {**items, "present": (parameters, value)}
            loss, metrics = policy_loss(items)
            value_loss, value_metrics = self.value_loss(items)
            return loss + self.now.value_coef * value_loss, metrics | value_metrics

        separate = {"policy": policy_loss, "value": self.value_loss}
        separate = {name: learning(loss) for name, loss in separate.items()}
        metrics = self.optimizer.step(
            separate if self._separate else learning(both),
            self._trained,
            items=items,
            kl=self.kl,
            seed=seed,
        )
        residual = items["return"] - items["value"]
        variance = _variance(items["return"], items["mask"])
        unexplained = _variance(residual, items["mask"])
        metrics["kl"] = self.kl(items)
        metrics["explained_variance"] = 1.0 - unexplained / (variance + 1e-8)
        return metrics


def _inputs(items: dict[str, Any]) -> tuple:
    """What the network takes of items."""
    return items["observation"], items["state"], items["first"]


def importance(old: Any, new: Any, items: dict[str, Any]) -> tf.Tensor:
    """Ratios `[M, L]` of the probabilities of what was done, one for padding."""
    log_ratio = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
    return tf.exp(tf.where(items["mask"] > 0, log_ratio, 0.0))


def mean(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over the valid steps, of tensors of the same shape."""
    return tf.reduce_sum(value * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def _variance(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Variance over the valid steps."""
    return mean((value - mean(value, mask)) ** 2, mask)


def _standardize(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Zero mean and unit deviation over the valid steps of batch and time."""
    mask = tf.reshape(mask, tf.shape(value))
    deviation = tf.sqrt(_variance(value, mask)) + 1e-8
    return (value - mean(value, mask)) / deviation
