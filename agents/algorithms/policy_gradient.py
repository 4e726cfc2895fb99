"""What all policy gradients share: acting, remembering, advantages, updates."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents import memories, networks, optimizers, preprocessing, returns
from agents.networks.presets import NetworkConfig
from agents.tools import algorithm, conditional, packing, schedules, spaces


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters that all policy gradients have."""

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
    discount: float = 0.99
    gae_lambda: float = 0.95
    """1 gives Monte-Carlo advantages; lower values trade variance for bias."""
    normalize_advantages: bool = True
    normalize_observations: bool = True
    normalize_rewards: str = "return"
    """Scale by the deviation of the `reward`, of the discounted `return`, and clip; only
    `clip`; or `none`. Reported returns are always raw."""
    reward_clip: float = 10.0
    # Objective.
    entropy_coef: float | schedules.Schedule = 0.0
    value_coef: float = 0.5
    """Weight of the value loss where it is added to that of the policy."""
    # Optimization.
    optimizer: dict | None = None
    """Moves the policy: nested blocks with a `type`, see `agents.optimizers`. Without a
    `value_optimizer` it moves the values too, by the sum of both losses."""
    value_optimizer: dict | None = None
    """Moves the values, or only their last layer where the torso is shared."""
    max_failures: int = 0
    """Updates in a row that may fail, since something is not finite; they are undone
    and counted. One more stops the run."""
    jit: bool | None = None
    """Compile the update by XLA; none: for unrolls. With whole episodes it trains on
    the padding too, so it pays where all are equally long."""
    network: NetworkConfig = NetworkConfig()

    def __post_init__(self) -> None:
        self._require("memory", "episodes", "unrolls")
        self._require("normalize_rewards", "reward", "return", "clip", "none")
        unrolls = self.memory == "unrolls" and self.network.recurrent
        if unrolls and self.unroll_length % self.chunk_length:
            raise ValueError(
                f"unroll_length {self.unroll_length} must be a multiple of "
                f"chunk_length {self.chunk_length}."
            )
        self.create_optimizer()

    @property
    def compiled(self) -> bool:
        """Whether the update is compiled by XLA."""
        return self.memory == "unrolls" if self.jit is None else self.jit

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

    def create_part(self, name: str, *functions: str) -> optimizers.Optimizer:
        """Optimizer of a field, which may use these functions."""
        provided = ("items", "seed", *functions)
        return optimizers.create(getattr(self, name), f"algorithm.{name}", provided)

    def _require(self, name: str, *known: str) -> None:
        """Raise ValueError if a field has none of the known values."""
        value = getattr(self, name)
        if value not in known:
            raise ValueError(
                f"{name} must be one of {', '.join(known)}, got {value!r}."
            )


class PolicyGradient(algorithm.Algorithm):
    """Moves a policy towards actions that did better than expected.

    Williams (1992), "Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning"; Sutton et al. (2000), "Policy Gradient Methods for
    Reinforcement Learning with Function Approximation".

    Acting, remembering and training happen inside the graph of `simulate`; episodes or
    unrolls `[B, T]` are trained on as soon as the memory is full. Subclasses override
    `policy_loss`.
    """

    METRICS: tuple[str, ...] = ("policy_loss", "entropy", "value_loss")
    """Names of the metrics of losses and `adapt`."""

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
        self._config = config
        self.optimizer, self._separate = config.create_optimizer()
        super().__init__(
            (
                *self.METRICS,
                *self.optimizer.metric_names,
                *("kl", "explained_variance", "failed_updates"),
            )
        )
        self.network = networks.ActorCritic(
            observation_space, action_space, config.network, seed
        )
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._failures = tf.Variable(0, trainable=False)
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
        self._chunk = config.chunk_length if config.network.recurrent else 1
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
        self._update = tf.function(
            self._update_steps, autograph=False, jit_compile=config.compiled or None
        )
        self._trained = self._trained_variables()
        self.optimizer.build(self._trained)

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
            # Checkpoints do not look into lists of layers, so list all variables.
            "network": self.network.variables,
            "optimizer": self.optimizer,
            "observations": self.observations.persistent,
            "rewards": self.rewards,
            "memory": self.memory.persistent,
            "generator": self.generator,
            "steps": self.steps,
            "failures": self._failures,
        }

    def train(self) -> None:
        """Update on the data of the memory, then clear it."""
        config = self._config
        data, mask = self.memory.data()
        if config.normalize_rewards in ("reward", "return"):
            key = "reward" if config.normalize_rewards == "reward" else "discounted"
            self.rewards.update(data[key], mask)
        self.optimizer.schedule(self.steps)
        entropy_coef = schedules.value(config.entropy_coef, self.steps)
        seed = self.generator.uniform_full_int([2], tf.int32)
        undo = self._snapshot() if config.max_failures else None
        metrics = self._update(data, mask, seed, entropy_coef)
        metrics |= self.adapt(metrics)
        if undo is None:
            self._require_finite(metrics)
            self.metrics.update(metrics)
        else:
            self._update_metrics_or(undo, metrics)
        self.observations.update(data["observation"], mask)
        self.memory.clear_data()

    def adapt(self, metrics: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Adapt to the metrics of an update; returns more of them."""
        return {}

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
        if "kl" in self.optimizer.needs:  # Some episodes began before other updates.
            items["before"] = self.network.policy(
                items["observation"], items["state"], items["first"]
            )
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
        if not config.compiled:
            valid = tf.where(items["mask"][:, 0] > 0)[:, 0]
            items = tf.nest.map_structure(lambda x: tf.gather(x, valid), items)
        return items

    def policies(self, items: dict[str, Any]) -> tuple[Any, Any]:
        """Distributions `[M, L]` of the policy that acted, and of the present one."""
        head = self.network.head
        parameters = self.network.policy(
            items["observation"], items["state"], items["first"]
        )
        return head.distribution(items["parameters"]), head.distribution(parameters)

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
        value = self.network.value(items["observation"], items["state"], items["first"])
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

        def policy_loss(items):
            return self.policy_loss(items, entropy_coef)

        def both(items):
            loss, metrics = policy_loss(items)
            value_loss, value_metrics = self.value_loss(items)
            return loss + self._config.value_coef * value_loss, metrics | value_metrics

        separate = {"policy": policy_loss, "value": self.value_loss}
        metrics = self.optimizer.step(
            separate if self._separate else both,
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

    def _snapshot(self) -> Callable[[tf.Tensor], None]:
        """Function that undoes all updates from now on, if its argument is true."""
        state = tf.train.TrackableView(self.optimizer).descendants()
        state = [x for x in state if isinstance(x, tf.Variable | keras.Variable)]
        variables = [*self.network.variables, *state, *self.adapted()]
        before = [tf.identity(tf.convert_to_tensor(x)) for x in variables]

        def undo(failed):
            for variable, old in zip(variables, before, strict=True):
                variable.assign(tf.where(failed, old, tf.convert_to_tensor(variable)))

        return undo

    def adapted(self) -> list[tf.Variable]:
        """What `adapt` changes."""
        return []

    def _update_metrics_or(self, undo, metrics: dict[str, tf.Tensor]) -> None:
        """Count an update, or undo and count it as failed if it is not finite."""
        finite = tf.reduce_all(tf.math.is_finite(tf.stack(list(metrics.values()))))
        undo(~finite)
        self._failures.assign(tf.where(finite, 0, self._failures + 1))
        fatal = self._failures > self._config.max_failures
        metrics = {k: tf.where(finite | fatal, x, 0.0) for k, x in metrics.items()}
        self._require_finite(metrics)
        self.metrics.update(metrics, tf.where(finite | fatal, 1.0, 0.0))
        self.metrics.update({"failed_updates": tf.where(finite, 0.0, 1.0)})

    def _require_finite(self, metrics: dict[str, tf.Tensor]) -> None:
        """Stop the run if a metric is not finite, and name it."""
        for name, metric in metrics.items():
            tf.debugging.assert_all_finite(
                metric, f"{type(self).__name__}'s {name} is not finite."
            )

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

    def _trained_variables(self) -> Any:
        """Variables of policy and value, or a list of both."""
        policy, value = self.network.policy_variables, self.network.value_variables
        value = [x for x in value if all(x is not y for y in policy)]
        return {"policy": policy, "value": value} if self._separate else policy + value


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


def _variables(structure: Any) -> Any:
    return tf.nest.map_structure(lambda x: tf.Variable(x, trainable=False), structure)


def _gather(variables: Any, rows: tf.Tensor) -> Any:
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), variables)


def _write(variables: Any, rows: tf.Tensor, values: Any) -> None:
    tf.nest.map_structure(
        lambda x, value: x.scatter_nd_update(rows[:, None], value), variables, values
    )
