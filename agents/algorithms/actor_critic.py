"""What all algorithms with a policy and values share: acting, remembering, updates."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents import networks, optimizers, preprocessing, returns
from agents.networks.presets import NetworkConfig
from agents.tools import (
    algorithm,
    bounds,
    conditional,
    packing,
    placement,
    rows,
    schedules,
    spaces,
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters that all of them have."""

    REWARDS = ("reward", "return", "clip", "none")
    """Known values of `normalize_rewards`."""

    # Data.
    unroll_length: bounds.Size = 128
    """Steps of every agent per update, for unrolls."""
    # Returns.
    discount: bounds.Fraction = 0.99
    normalize_observations: bool = True
    normalize_rewards: str = "return"
    """Divide by the root mean square of the `reward` or of the discounted `return`, and
    clip; only `clip`; or `none`. Reported returns are always raw."""
    reward_clip: bounds.PositiveFloat = 10.0
    # Objective.
    entropy_coef: schedules.Scalar = 0.0
    value_coef: bounds.NotNegative = 0.5
    """Weight of the value loss where it is added to that of the policy."""
    # Optimization.
    optimizer: dict | None = None
    """Moves the policy and the values, by the sum of both losses: nested blocks with a
    `type`, see `agents.optimizers`."""
    max_failures: bounds.Whole = 0
    """Updates in a row that may fail, since something is not finite; they are undone
    and counted. One more stops the run."""
    jit: bool | None = None
    """Compile the update by XLA; none: for unrolls. With whole episodes it trains on
    the padding too, so it pays where all are equally long. Compiled environments compile
    it in any case."""
    network: NetworkConfig = NetworkConfig()

    def __post_init__(self) -> None:
        bounds.require(self)
        self._require("normalize_rewards", *self.REWARDS)
        self.create_optimizer()

    @property
    def whole_episodes(self) -> bool:
        """Whether to train on whole episodes, when they end, and not on unrolls."""
        return False

    @property
    def chunk(self) -> int:
        """Steps of one item that is trained on."""
        return self.unroll_length

    @property
    def compiled(self) -> bool:
        """Whether the update is compiled by XLA."""
        return not self.whole_episodes if self.jit is None else self.jit

    def create_optimizer(self) -> tuple[optimizers.Optimizer, bool]:
        """Optimizer, and whether it has parts for `policy` and `value`.

        Raises:
          ConfigError: for anything wrong with its config.
        """
        return self.create_part("optimizer"), False

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


class ActorCritic(schedules.Scheduled, algorithm.Algorithm):
    """Acts by a policy, remembers what followed, and learns when the memory is full.

    All of it happens inside the graph of `simulate`. Subclasses say what is remembered
    of what follows a step, and in which memory, and what an update is.
    """

    stochastic = True
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
        with placement.networks():
            self.network = networks.ActorCritic(
                observation_space, action_space, config.network, seed
            )
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)
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
        self._state = rows.variables(self.network.initial_state(num_agents))
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
            rows.variables(tf.zeros([num_agents, *x.shape], x.dtype))
            for x in self._packing.specs
        ]
        transition = {
            "observation": spaces.transform(
                lambda x: tf.TensorSpec(x.shape, x.dtype), specs
            ),
            "reward": tf.TensorSpec([]),
            "discounted": tf.TensorSpec([]),
            "done": tf.TensorSpec([], tf.bool),
            **chosen,
        }
        with placement.memory():
            self.memory = self.create_memory(transition, num_agents, max_length)
        self._update = placement.function(
            self._update_steps, config.compiled, memory=False
        )
        self._trained = self._trained_variables()
        self.optimizer.build(self._trained)

    # To be overridden.

    def create_memory(
        self, specs: dict[str, Any], num_agents: int, max_length: int
    ) -> Any:
        """Memory of transitions with these specs and those of `following`."""
        raise NotImplementedError

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """What is remembered of what follows a step, `[K, ...]`."""
        raise NotImplementedError

    def following_all(
        self, fragments: dict[str, Any], done: tf.Tensor, states: Any
    ) -> dict[str, Any]:
        """The same of all steps of `learn_from`, `[F, T, ...]`.

        Args:
          fragments: As there.
          done: Ends of episodes and of fragments.
          states: Recurrent states after the steps, `[F, T, units]`.
        """
        raise NotImplementedError

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """All steps on one batch `[B, T, ...]`; returns the metrics."""
        raise NotImplementedError

    def adapt(self, metrics: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Adapt to the metrics of an update; returns more of them."""
        return {}

    def adapted(self) -> list[tf.Variable]:
        """What `adapt` changes."""
        return []

    # Acting and remembering.

    @property
    def batch_steps(self) -> int:
        """Training phases last a multiple of this many batch steps."""
        return 1 if self._config.whole_episodes else self._config.unroll_length

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Reset recurrent state and running returns of these rows."""
        if training:
            self.memory.clear(agent_indices)
        zeros = self.network.initial_state(tf.size(agent_indices))
        rows.write(self._state, agent_indices, zeros)
        zeros = tf.zeros_like(agent_indices, tf.float32)
        rows.write(self._discounted, agent_indices, zeros)

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Sample actions while training, else take the mode."""
        state = self.recurrent_state(agent_indices)
        generator = self.generator if training else None
        sample, parameters, next_state = self._choose(observation, state, generator)
        if training:
            chosen = {"sample": sample, "parameters": parameters, "state": state}
            rows.write(self._chosen, agent_indices, self._packing.pack(chosen))
        rows.write(self._state, agent_indices, next_state)
        return self.network.head.action(sample)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Modes of the distributions of actions, or samples; see `Algorithm.decide`."""
        sample, _, state = self._choose(observation, state, generator)
        return self.network.head.action(sample), state

    def _choose(self, observation, state, generator) -> tuple[Any, Any, Any]:
        """What is chosen, parameters of its distribution, next state; all `[K, ...]`."""
        parameters, _, state = self.network.step(self.observations(observation), state)
        distribution = self.network.head.distribution(parameters)
        sampled = generator is not None
        sample = distribution.sample(generator) if sampled else distribution.mode()
        return sample, parameters, state

    def initial_state(self, size: int) -> Any:
        """State of the network at the beginning of `size` episodes, `[size, ...]`."""
        return self.network.initial_state(size)

    def recurrent_state(self, agent_indices: tf.Tensor) -> Any:
        """State of the network in running episodes, `[K, ...]`."""
        return rows.gather(self._state, agent_indices)

    def running_state(self, agent_indices: tf.Tensor) -> Any:
        """State of the network in running episodes, `[K, ...]`."""
        return self.recurrent_state(agent_indices)

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
        discounted = tf.gather(self._discounted, agent_indices)
        discounted = reward + self.now.discount * discounted
        rows.write(self._discounted, agent_indices, discounted)
        transition = {
            "observation": observation,
            "reward": reward,
            "discounted": discounted,
            "done": terminated | truncated,
            **self.following(agent_indices, next_observation, terminated, truncated),
            **self._packing.unpack(rows.gather(self._chosen, agent_indices)),
        }
        self.memory.append(agent_indices, transition)
        if not self._config.whole_episodes:
            conditional.when(self.memory.full(), self.train)

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Keep the finished episodes; train when there are enough."""
        self.memory.end(agent_indices)
        if self._config.whole_episodes:
            conditional.when(self.memory.full(), self.train)

    def imitation(self, items: dict[str, Any]) -> tuple[tf.Tensor, list]:
        """Mean of -log p(action), and the policy; see `Algorithm.imitation`."""
        first = items["first"]
        parameters = self.network.policy(
            self.observations(items["observation"]),
            self.network.initial_state(tf.shape(first)[0]),
            first,
        )
        distribution = self.network.head.distribution(parameters)
        log_prob = distribution.log_prob(self._samples(items["action"], first))
        return -tf.reduce_mean(log_prob), self.network.policy_variables

    def _samples(self, action: Any, like: tf.Tensor) -> Any:
        """What leads to actions `[B, T, ...]`; `like` is any `[B, T]`."""
        leading = tf.unstack(tf.shape(like))
        return tf.nest.map_structure(
            lambda x: tf.reshape(x, [*leading, *x.shape[1:]]),
            self.network.head.sample_of(rows.merge_time(action)),
        )

    def acting(self) -> list[tf.Variable]:
        """Network, statistics of observations, and steps for schedules."""
        observations = (x.variables for x in self.observations.persistent)
        return [*self.network.variables, *itertools.chain(*observations), self.steps]

    def persistent(self) -> dict[str, Any]:
        """Everything but the running episodes."""
        return {
            # Checkpoints of TensorFlow do not look into lists of layers.
            "network": self.network.variables,
            "optimizer": self.optimizer,
            "observations": self.observations.persistent,
            "rewards": self.rewards,
            "memory": self.memory.persistent,
            "generator": self.generator,
            "steps": self.steps,
            "updates": self.updates,
            "failures": self._failures,
        }

    # Learning.

    def learn_from_memory(self) -> None:
        """Train on finished episodes; see `Algorithm.learn_from_memory`."""
        if not self._config.whole_episodes:
            raise ValueError(
                f"{self._config.type} learns from unrolls by itself, as soon as they are "
                "complete; give a batch to learn from others."
            )
        if not self.memory.count:
            raise ValueError("no episode is finished; observe more first.")
        self.train()

    def learn_from(self, fragments: dict[str, Any], mask: tf.Tensor) -> None:
        """One update, as if the present policy had acted; see `Algorithm.learn_from`.

        Recurrent state is that of the beginning of an episode before every fragment.
        """
        missing = -mask.shape[1] % self._config.chunk

        def pad(x):
            return tf.pad(x, [[0, 0], [0, missing], *[[0, 0]] * (x.shape.rank - 2)])

        fragments, mask = tf.nest.map_structure(pad, (fragments, mask))
        over = fragments["terminated"] | fragments["truncated"]
        done = over | rows.last(mask)
        first = rows.before(done, True)
        start = self.network.initial_state(mask.shape[0])
        parameters, _, states = self.network.sequence(
            self.observations(fragments["observation"]), start, first
        )
        reward = fragments["reward"]
        data = {
            "observation": fragments["observation"],
            "reward": reward,
            "discounted": returns.running(reward, first, self.now.discount),
            "done": done,
            "sample": self._samples(fragments["action"], done),
            "parameters": parameters,
            "state": tf.nest.map_structure(
                lambda x: tf.where(first[..., None], 0.0, rows.before(x, 0.0)), states
            ),
            **self.following_all(fragments, done, states),
        }
        self.learn(data, mask)

    def train(self) -> None:
        """Learn from the data of the memory, then clear it."""
        self.learn(*self.memory.data())
        self.memory.clear_data()

    def learn(self, data: Any, mask: tf.Tensor) -> None:
        """Update on data `[B, T, ...]`, whose valid steps the mask tells."""
        config = self._config
        if config.normalize_rewards in ("reward", "return"):
            key = "reward" if config.normalize_rewards == "reward" else "discounted"
            self.rewards.update(data[key], mask)
        self.optimizer.schedule(self.time)
        entropy_coef = self.now.entropy_coef
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
        self.updates.assign_add(1)

    def normalized(self, reward: tf.Tensor) -> tf.Tensor:
        """Rewards as they are learned from."""
        if self._config.normalize_rewards == "none":
            return reward
        return self.rewards(reward)

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

    def _trained_variables(self) -> Any:
        """Variables of policy and value, or a list of both."""
        policy, value = self.network.policy_variables, self.network.value_variables
        value = [x for x in value if all(x is not y for y in policy)]
        return {"policy": policy, "value": value} if self._separate else policy + value
