"""Proximal policy optimization: adaptive KL penalty or clipped importance ratio.

Hafner et al. (2017), "TensorFlow Agents: Efficient Batched Reinforcement Learning in
TensorFlow"; Schulman et al. (2017), "Proximal Policy Optimization Algorithms".
"""

import dataclasses
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents import memories, networks, optimizers, preprocessing, returns
from agents.networks.presets import NetworkConfig
from agents.tools import algorithm, conditional, packing, schedules, spaces


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters of PPO; the defaults are those of the TensorFlow Agents paper."""

    type: str = "ppo"
    # Data.
    memory: str = "episodes"
    """`episodes`: whole episodes; `unrolls`: fixed number of steps of every agent."""
    update_every: int = 25
    """Episodes per update, for whole episodes."""
    unroll_length: int = 128
    """Steps of every agent per update, for unrolls."""
    chunk_length: int = 16
    """Steps that recurrent networks are trained through."""
    # Returns.
    discount: float = 0.995
    gae_lambda: float = 1.0
    """1 gives Monte-Carlo advantages; lower values trade variance for bias."""
    normalize_advantages: bool = True
    normalize_observations: bool = True
    normalize_rewards: str = "reward"
    """Scale by the deviation of the `reward`, of the discounted `return`, and clip; only
    `clip`; or `none`. Reported returns are always raw."""
    reward_clip: float = 10.0
    # Objective.
    objective: str = "kl"
    """`kl`: adaptive penalty; `clip`: clipped importance ratio."""
    kl_target: float = 0.01
    """Aimed KL divergence per update, in nats; the penalty adapts to it."""
    kl_cutoff_factor: float = 2.0
    kl_cutoff_coef: float = 1000.0
    """Weight of the squared KL divergence beyond `kl_cutoff_factor` targets."""
    kl_penalty: float = 1.0
    """Initial weight of the KL divergence."""
    clip: float = 0.2
    value_clip: float | None = None
    """Largest change of values per update, in units of normalized returns."""
    entropy_coef: float | schedules.Schedule = 0.0
    value_coef: float = 0.5
    """Weight of the value loss where policy and value share a torso."""
    # Optimization.
    epochs: int = 25
    minibatch_size: int | None = None
    """Steps per gradient step; none for the whole batch."""
    block_size: int = 1000
    """Steps of the whole batch that are computed at a time. The KL cut-off looks at
    each block, as it does at each episode in the paper."""
    learning_rate: float | schedules.Schedule = 1e-4
    value_learning_rate: float | schedules.Schedule | None = 1e-3
    """None for that of the policy."""
    adam_epsilon: float = 1e-7
    clip_norm: float | None = None
    """Largest global norm of the gradients of policy and of value."""
    jit: bool | None = None
    """Compile the update by XLA; none: for unrolls. With whole episodes it trains on
    the padding too, so it pays where all are equally long."""
    network: NetworkConfig = NetworkConfig()

    def __post_init__(self) -> None:
        for name, known in (
            ("memory", ("episodes", "unrolls")),
            ("normalize_rewards", ("reward", "return", "clip", "none")),
            ("objective", ("kl", "clip")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, "
                    f"got {getattr(self, name)!r}."
                )
        unrolls = self.memory == "unrolls" and self.network.recurrent
        if unrolls and self.unroll_length % self.chunk_length:
            raise ValueError(
                f"unroll_length {self.unroll_length} must be a multiple of "
                f"chunk_length {self.chunk_length}."
            )


class PPO(algorithm.Algorithm):
    """Policy gradients with several epochs per batch near the behavior policy.

    Acting, remembering and training happen inside the graph of `simulate`; episodes or
    unrolls `[B, T]` are trained on as soon as the memory is full.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        num_agents: int,
        max_length: int,
        config: Config,
        seed: int = 0,
    ) -> None:
        """Create variables for `num_agents` rows with episodes up to `max_length`."""
        super().__init__(METRICS)
        self._config = config
        self.network = networks.ActorCritic(
            observation_space, action_space, config.network, seed
        )
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.kl_penalty = tf.Variable(config.kl_penalty, trainable=False)
        specs = spaces.spec(observation_space)
        self.observations = preprocessing.Observations(
            specs, config.normalize_observations
        )
        self.rewards = preprocessing.StreamingNormalize(
            [],
            center=False,
            scale=config.normalize_rewards in ("reward", "return"),
            clip=config.reward_clip,
        )
        self._recurrent = bool(config.network.recurrent)
        self._chunk = config.chunk_length if self._recurrent else 1
        self._state = _variables(self.network.initial_state(num_agents))
        self._discounted = tf.Variable(tf.zeros([num_agents]), trainable=False)
        chosen = {
            "sample": self.network.head.sample_spec,
            "parameters": self.network.head.parameter_specs,
            "state": tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape[1:], x.dtype), self._state
            ),
        }
        self._packing = packing.Packing(chosen)
        self._chosen = [
            _variables(tf.zeros([num_agents, *x.shape], x.dtype))
            for x in self._packing.specs
        ]
        self.memory = self._define_memory(specs, chosen, num_agents, max_length)
        self._jit = config.memory == "unrolls" if config.jit is None else config.jit
        self._update = tf.function(
            self._update_steps, autograph=False, jit_compile=self._jit or None
        )
        self._define_optimizers()

    @property
    def batch_steps(self) -> int:
        """Training phases last a multiple of this many batch steps."""
        unrolls = self._config.memory == "unrolls"
        return self._config.unroll_length if unrolls else 1

    def begin_episodes(self, agent_indices: tf.Tensor) -> None:
        """Reset recurrent state and running returns of these rows."""
        self.memory.clear(agent_indices)
        zeros = self.network.initial_state(tf.size(agent_indices))
        _write(self._state, agent_indices, zeros)
        zeros = tf.zeros_like(agent_indices, tf.float32)
        _write(self._discounted, agent_indices, zeros)

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Sample actions while training, else take the mode."""
        state = _gather(self._state, agent_indices)
        parameters, _, next_state = self.network.step(
            self.observations(observation), state
        )
        distribution = self.network.head.distribution(parameters)
        if training:
            sample = distribution.sample(self.generator)
            chosen = {"sample": sample, "parameters": parameters, "state": state}
            _write(self._chosen, agent_indices, self._packing.pack(chosen))
        else:
            sample = distribution.mode()
        _write(self._state, agent_indices, next_state)
        return self.network.head.action(sample)

    def experience(
        self,
        agent_indices: tf.Tensor,
        observation: Any,
        action: Any,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> None:
        """Remember one transition per row; train when the unrolls are complete."""
        self.steps.assign_add(tf.size(agent_indices, tf.int64))
        done = terminated | truncated
        cut = (done | self.memory.last_of_unroll(agent_indices)) & ~terminated
        discounted = tf.gather(self._discounted, agent_indices)
        discounted = reward + self._config.discount * discounted
        _write(self._discounted, agent_indices, discounted)
        transition = {
            "observation": observation,
            "reward": reward,
            "discounted": discounted,
            "done": done,
            "bootstrap": self._bootstrap(agent_indices, next_observation, cut),
            **self._packing.unpack(_gather(self._chosen, agent_indices)),
        }
        self.memory.append(agent_indices, transition)
        if self._config.memory == "unrolls":
            conditional.when(self.memory.full(), self.train)

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Keep the finished episodes; train when there are enough."""
        self.memory.end(agent_indices)
        if self._config.memory == "episodes":
            conditional.when(self.memory.full(), self.train)

    def persistent(self) -> dict[str, Any]:
        """Everything but the running episodes."""
        return {
            "network": self.network,
            "optimizers": self._optimizers,
            "observations": self.observations.persistent,
            "rewards": self.rewards,
            "memory": self.memory.persistent,
            "generator": self.generator,
            "kl_penalty": self.kl_penalty,
            "steps": self.steps,
        }

    def train(self) -> None:
        """Update on the data of the memory, then clear it."""
        config = self._config
        data, mask = self.memory.data()
        if config.normalize_rewards in ("reward", "return"):
            key = "reward" if config.normalize_rewards == "reward" else "discounted"
            self.rewards.update(data[key], mask)
        rate = schedules.value(config.learning_rate, self.steps)
        value_rate = config.value_learning_rate
        value_rate = rate if value_rate is None else value_rate
        rates = (rate, schedules.value(value_rate, self.steps))
        for optimizer, rate in zip(self._optimizers, rates, strict=False):
            optimizer.set_learning_rate(rate)
        entropy_coef = schedules.value(config.entropy_coef, self.steps)
        seed = self.generator.uniform_full_int([2], tf.int32)
        metrics = self._update(data, mask, seed, entropy_coef)
        for name, metric in metrics.items():
            tf.debugging.assert_all_finite(metric, f"PPO's {name} is not finite.")
        if config.objective == "kl":
            self._adjust_penalty(metrics["kl"])
        self.metrics.update(
            {**metrics, "kl_penalty": self.kl_penalty, "learning_rate": rates[0]}
        )
        self.observations.update(data["observation"], mask)
        self.memory.clear_data()

    def prepare(self, data: Any, mask: tf.Tensor) -> dict[str, Any]:
        """Training items `[M, L, ...]` from memory data `[B, T, ...]`.

        L is the chunk length, one for feed-forward networks. Items without valid steps
        are left out where shapes are dynamic; `mask` tells the padding of the others.
        """
        config = self._config
        rows, length = mask.shape

        def clean(x):  # What old data is left in the padding must not overflow.
            valid = tf.reshape(mask, [rows, length, *[1] * (x.shape.rank - 2)])
            return tf.where(valid, x, tf.zeros_like(x))

        data = tf.nest.map_structure(clean, data)

        def chunks(x):
            return tf.reshape(x, [-1, self._chunk, *x.shape[2:]])

        done = data["done"]
        first = tf.concat([tf.zeros_like(done[:, :1]), done[:, :-1]], 1)
        items = {
            "observation": self.observations(data["observation"]),
            "sample": data["sample"],
            "parameters": data["parameters"],
            "first": first,
            "mask": tf.cast(mask, tf.float32),
        }
        items = tf.nest.map_structure(chunks, items)
        items["first"] &= tf.range(self._chunk) > 0  # The stored state is reset there.
        items["state"] = tf.nest.map_structure(lambda x: chunks(x)[:, 0], data["state"])
        value = self.network.value(items["observation"], items["state"], items["first"])
        value = tf.reshape(value, [rows, length])
        reward = data["reward"]
        if config.normalize_rewards != "none":
            reward = self.rewards(reward)
        ends = done | (tf.range(length) == length - 1)
        next_value = returns.next_values(value, ends, data["bootstrap"])
        advantage = returns.advantage(
            reward, value, next_value, ends, config.discount, config.gae_lambda
        )
        target = advantage + value
        if config.normalize_advantages:
            advantage = _standardize(advantage, items["mask"])
        new = {"value": value, "advantage": advantage, "return": target}
        items |= tf.nest.map_structure(chunks, new)
        if not self._jit:
            valid = tf.where(items["mask"][:, 0] > 0)[:, 0]
            items = tf.nest.map_structure(lambda x: tf.gather(x, valid), items)
        return items

    def policy_loss(
        self, items: dict[str, Any], entropy_coef: tf.Tensor | float
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Loss of the policy on items `[M, L, ...]` and its metrics."""
        config, mask = self._config, items["mask"]
        head = self.network.head
        old = head.distribution(items["parameters"])
        parameters = self.network.policy(
            items["observation"], items["state"], items["first"]
        )
        new = head.distribution(parameters)
        log_ratio = new.log_prob(items["sample"]) - old.log_prob(items["sample"])
        ratio = tf.exp(tf.where(mask > 0, log_ratio, 0.0))
        gain = ratio * items["advantage"]
        kl = _mean(old.kl(new), mask)
        entropy = _mean(new.entropy(), mask)
        outside = tf.abs(ratio - 1.0) > config.clip
        if config.objective == "clip":
            clipped = tf.clip_by_value(ratio, 1.0 - config.clip, 1.0 + config.clip)
            gain = tf.minimum(gain, clipped * items["advantage"])
            penalty = 0.0
        else:
            excess = tf.maximum(kl - config.kl_cutoff_factor * config.kl_target, 0.0)
            penalty = self.kl_penalty * kl + config.kl_cutoff_coef * excess**2
        loss = -_mean(gain, mask) + penalty - entropy_coef * entropy
        fraction = _mean(tf.cast(outside, tf.float32), mask)
        metrics = {"policy_loss": loss, "entropy": entropy, "clip_fraction": fraction}
        return loss, metrics

    def value_loss(
        self, items: dict[str, Any]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Half the squared error of the values to the returns, and its metric."""
        value = self.network.value(items["observation"], items["state"], items["first"])
        error = (value - items["return"]) ** 2
        if self._config.value_clip is not None:
            limit = self._config.value_clip
            change = tf.clip_by_value(value - items["value"], -limit, limit)
            near = items["value"] + change
            error = tf.maximum(error, (near - items["return"]) ** 2)
        loss = 0.5 * _mean(error, items["mask"])
        return loss, {"value_loss": loss}

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """All gradient steps on one batch `[B, T, ...]`."""
        items = self.prepare(data, mask)

        def step(items):
            return self._gradient_step(items, entropy_coef)

        shared = self.network.shared
        metrics = optimizers.minibatch_steps(
            step,
            STEP_METRICS[:-1] if shared else STEP_METRICS,
            items,
            epochs=self._config.epochs,
            size=self._items_per_minibatch,
            seed=seed,
        )
        old = self.network.head.distribution(items["parameters"])
        new = self.network.head.distribution(
            self.network.policy(items["observation"], items["state"], items["first"])
        )
        residual = items["return"] - items["value"]
        variance = _variance(items["return"], items["mask"])
        unexplained = _variance(residual, items["mask"])
        metrics["kl"] = _mean(old.kl(new), items["mask"])
        metrics["explained_variance"] = 1.0 - unexplained / (variance + 1e-8)
        return metrics

    def _gradient_step(self, items, entropy_coef) -> dict[str, tf.Tensor]:
        """One step of policy and value on some items."""

        def policy_loss(items):
            return self.policy_loss(items, entropy_coef)

        def shared_loss(items):
            loss, metrics = policy_loss(items)
            value_loss, value_metrics = self.value_loss(items)
            return loss + self._config.value_coef * value_loss, metrics | value_metrics

        if self.network.shared:
            metrics, norm = self._optimizers[0].step(shared_loss, items)
            return metrics | {"gradient_norm": norm}
        metrics, norm = self._optimizers[0].step(policy_loss, items)
        value_metrics, value_norm = self._optimizers[1].step(self.value_loss, items)
        norms = {"gradient_norm": norm, "value_gradient_norm": value_norm}
        return metrics | value_metrics | norms

    def _bootstrap(self, rows, next_observation, cut: tf.Tensor) -> tf.Tensor:
        """Values of the observations behind steps where data ends, else zero, `[K]`."""

        leaves = tf.nest.flatten(next_observation)

        def values(rows, cut, *leaves):
            observation = tf.nest.pack_sequence_as(next_observation, leaves)
            _, value, _ = self.network.step(
                self.observations(observation), _gather(self._state, rows)
            )
            return tf.where(cut, value, 0.0)

        return conditional.when(
            tf.reduce_any(cut),
            values,
            *(rows, cut, *leaves),
            otherwise=lambda rows, cut, *_: tf.zeros_like(cut, tf.float32),
        )

    def _adjust_penalty(self, kl: tf.Tensor) -> None:
        """Adapt the weight of the KL divergence towards its target."""
        target = self._config.kl_target
        factor = tf.where(kl > 1.3 * target, 1.5, 1.0)
        factor = tf.where(kl < 0.7 * target, 1.0 / 1.5, factor)
        self.kl_penalty.assign(tf.clip_by_value(self.kl_penalty * factor, 1e-6, 1e6))

    def _define_memory(self, specs, chosen, num_agents: int, max_length: int) -> Any:
        """Memory of transitions, whole episodes or unrolls."""
        config = self._config
        transition = {
            "observation": spaces.transform(
                lambda x: tf.TensorSpec(x.shape, x.dtype), specs
            ),
            "reward": tf.TensorSpec([]),
            "discounted": tf.TensorSpec([]),
            "done": tf.TensorSpec([], tf.bool),
            "bootstrap": tf.TensorSpec([]),
            **chosen,
        }
        if config.memory == "episodes":
            length = -(-max_length // self._chunk) * self._chunk
            return memories.Episodes(
                transition, num_agents, config.update_every, length
            )
        return memories.Unrolls(transition, num_agents, config.unroll_length)

    def _define_optimizers(self) -> None:
        """One optimizer for policy and value each, or one for both if shared."""
        config, network = self._config, self.network
        groups = [network.policy_variables, network.value_variables]
        if network.shared:
            value_only = [v for v in groups[1] if all(v is not x for x in groups[0])]
            groups = [groups[0] + value_only]
        whole = config.minibatch_size is None and not self._jit
        block = max(config.block_size // self._chunk, 1) if whole else None
        self._optimizers = [
            optimizers.Gradient(
                keras.optimizers.Adam(epsilon=config.adam_epsilon),
                variables,
                config.clip_norm,
                block,
            )
            for variables in groups
        ]
        size = config.minibatch_size
        self._items_per_minibatch = (
            None if size is None else max(size // self._chunk, 1)
        )


STEP_METRICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "clip_fraction",
    "gradient_norm",
    "value_gradient_norm",
)
METRICS = (
    *STEP_METRICS,
    "kl",
    "kl_penalty",
    "explained_variance",
    "learning_rate",
)


def _mean(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean over the valid steps, of tensors of the same shape."""
    return tf.reduce_sum(value * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)


def _variance(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Variance over the valid steps."""
    return _mean((value - _mean(value, mask)) ** 2, mask)


def _standardize(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Zero mean and unit deviation over the valid steps of batch and time."""
    mask = tf.reshape(mask, tf.shape(value))
    deviation = tf.sqrt(_variance(value, mask)) + 1e-8
    return (value - _mean(value, mask)) / deviation


def _variables(structure: Any) -> Any:
    return tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), structure)


def _gather(variables: Any, rows: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), variables)


def _write(variables: Any, rows: tf.Tensor, values: Any) -> None:
    tf.nest.map_structure(
        lambda x, value: x.scatter_nd_update(rows[:, None], value), variables, values
    )
