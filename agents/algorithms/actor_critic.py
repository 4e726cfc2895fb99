"""Base of algorithms with a policy and values: acting, remembering, updating."""

import dataclasses
import itertools
from typing import Any

import gymnasium
import tensorflow as tf

from agents import networks, optimizers, preprocessing
from agents.networks import modes
from agents.networks.config import NetworkConfig
from agents.tools import algorithm, arrays, bounds, placement, rows, schedules, spaces


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters of all actor-critic algorithms."""

    OPTIMIZERS = ("optimizer",)
    """Names of the fields that describe optimizers which take the `learning_rate`."""
    REWARDS = ("reward", "return", "clip", "none")
    """Known values of `normalize_rewards`."""
    UNCLIPPED = ("none",)
    """Values of `normalize_rewards` that do not clip."""

    # Data.
    unroll_length: bounds.Size = 128
    """Steps of every agent per update, when training on unrolls."""
    # Returns.
    discount: bounds.Fraction = 0.99
    """Weight of a reward that comes one step later."""
    normalize_observations: bool = True
    """Shift and scale numbers and pixels to mean 0 and deviation 1 over the run so far."""
    normalize_rewards: str = "return"
    """Divide rewards by the root mean square of the `reward` or of the discounted
    `return`, then clip; only `clip`; or do `none` of this. Reported returns are raw."""
    reward_clip: bounds.PositiveFloat = 10.0
    """Bound on absolute rewards in training, after they are divided."""
    # Objective.
    entropy_coef: schedules.Scalar = 0.0
    """Weight of the policy's entropy, which keeps actions from becoming too certain."""
    value_coef: bounds.NotNegative = 0.5
    """Weight of the value loss in the sum of both losses."""
    # Optimization.
    learning_rate: bounds.NotNegative = 1e-3
    """Rate of all optimizers that do not declare their own."""
    optimizer: dict | str | None = None
    """Optimizer of the sum of both losses: nested blocks with a `type`, see
    `agents.optimizers`."""
    max_failures: bounds.Whole = 0
    """Number of consecutive updates that may fail because a value is not finite. Failed
    updates are undone and counted; one more failure stops the run."""
    jit: bool | None = None
    """Compile the update by XLA; none does so for unrolls without convolutions, which
    XLA computes slowly on CPUs. Compiled whole episodes include their padding, so this
    pays off if all have the same length. Compiled environments always compile it."""
    network: NetworkConfig = NetworkConfig()
    """Layers of policy and values: a preset, a list, or a mapping."""

    def __post_init__(self) -> None:
        bounds.require(self)
        bounds.require_known(self, "normalize_rewards", self.REWARDS)
        self.create_optimizer()
        bounds.require_effect(self)

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        unused = {}
        if self.whole_episodes:
            unused["unroll_length"] = "with whole episodes"
        if self.normalize_rewards in self.UNCLIPPED:
            reason = f"with normalize_rewards {self.normalize_rewards}"
            unused["reward_clip"] = reason
        if self.create_optimizer()[1]:
            unused["value_coef"] = "where policy and value have losses of their own"
        specs = [getattr(self, name) for name in self.OPTIMIZERS]
        return unused | optimizers.unused_rate(specs)

    @property
    def whole_episodes(self) -> bool:
        """Return whether to train on whole episodes rather than on unrolls."""
        return False

    @property
    def chunk(self) -> int:
        """Number of time steps in one training item."""
        return self.unroll_length

    @property
    def compiled(self) -> bool:
        """Return whether the update is compiled by XLA."""
        return not self.whole_episodes if self.jit is None else self.jit

    def create_optimizer(self) -> tuple[optimizers.Optimizer, bool]:
        """Create the optimizer, and tell whether it has parts `policy` and `value`.

        Raises:
          ConfigError: if the config of the optimizer is wrong.
        """
        return self.create_part("optimizer"), False

    def create_part(self, name: str, *functions: str) -> optimizers.Optimizer:
        """Create the optimizer of a field, which may use the named functions."""
        provided = ("items", "mask", "seed", *functions)
        spec = optimizers.rated(getattr(self, name), self.rate_of(name))
        return optimizers.create(spec, f"algorithm.{name}", provided)

    def rate_of(self, name: str) -> schedules.Scalar:
        """Return the rate of a field's optimizer, unless that declares its own."""
        return self.learning_rate


class ActorCritic(schedules.Scheduled, algorithm.Algorithm):
    """Actor-critic that acts, remembers transitions and learns when the memory is full.

    Everything happens inside the graph of `simulate`. Subclasses define the memory, the
    facts to store about the state after a step, and the update.
    """

    stochastic = True
    METRICS: tuple[str, ...] = ("policy_loss", "entropy", "value_loss")
    """Names of the metrics of updates."""

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
        with placement.networks(seed):
            network = networks.PolicyValueNetwork(
                observation_space, action_space, config.network, seed
            )
        if config.jit is None and modes.convolutional(network):
            config = dataclasses.replace(config, jit=False)
        self.config = config
        optimizer, self._separate = config.create_optimizer()
        guard = {"type": "guarded", "max_failures": config.max_failures}
        self.optimizer = optimizers.create({**guard, "optimizer": optimizer})
        names = *self.METRICS, *self.optimizer.metric_names, "kl", "explained_variance"
        super().__init__(names)
        self.network = network
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)
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
        self._packing = arrays.Packing(chosen)
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
        """Create a memory of transitions with these specs and those of `following`."""
        raise NotImplementedError

    def following(
        self,
        agent_indices: tf.Tensor,
        next_observation: Any,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
    ) -> dict[str, Any]:
        """Return the facts to store about the state after a step, `[K, ...]`."""
        raise NotImplementedError

    def _update_steps(self, data, mask, seed, entropy_coef) -> dict[str, tf.Tensor]:
        """Run all optimizer steps on one batch `[B, T, ...]`; return the metrics."""
        raise NotImplementedError

    # Acting and remembering.

    @property
    def batch_steps(self) -> int:
        """Divisor of the length of training phases, in batch steps."""
        return 1 if self.config.whole_episodes else self.config.unroll_length

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Reset the recurrent state and the running returns of these rows."""
        if training:
            self.memory.clear(agent_indices)
        zeros = self.network.initial_state(tf.size(agent_indices))
        rows.write(self._state, agent_indices, zeros)
        zeros = tf.zeros_like(agent_indices, tf.float32)
        rows.write(self._discounted, agent_indices, zeros)

    def explore(self, agent_indices: tf.Tensor, observation: Any) -> Any:
        """Sample actions, and store them until their outcome is known."""
        state = self.recurrent_state(agent_indices)
        sample, parameters, following = self._choose(observation, state, self.generator)
        chosen = {"sample": sample, "parameters": parameters, "state": state}
        rows.write(self._chosen, agent_indices, self._packing.pack(chosen))
        rows.write(self._state, agent_indices, following)
        return self.network.head.action(sample)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Return the most likely actions, or sample them; see `Policy.decide`."""
        sample, _, state = self._choose(observation, state, generator)
        return self.network.head.action(sample), state

    def _choose(self, observation, state, generator) -> tuple[Any, Any, Any]:
        """Choose actions; return them, their parameters and next state, `[K, ...]`."""
        parameters, state = self.network.act(self.observations(observation), state)
        distribution = self.network.head.distribution(parameters)
        sampled = generator is not None
        sample = distribution.sample(generator) if sampled else distribution.mode()
        return sample, parameters, state

    def initial_state(self, size: int) -> Any:
        """Return the network's state at the beginning of episodes, `[size, ...]`."""
        return self.network.initial_state(size)

    def recurrent_state(self, agent_indices: tf.Tensor) -> Any:
        """Return the network's state in running episodes, `[K, ...]`."""
        return rows.gather(self._state, agent_indices)

    def running_state(self, agent_indices: tf.Tensor) -> Any:
        """Return the network's state; preprocessing adds its own to it."""
        return self.recurrent_state(agent_indices)

    def go_on(self, agent_indices: tf.Tensor, state: Any) -> None:
        """Continue running episodes with a state of the network, `[K, ...]`."""
        rows.write(self._state, agent_indices, state)

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
        discounted = rows.gather(self._discounted, agent_indices)
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
        if not self.config.whole_episodes:
            self.train_when(self.memory.full())

    def end_episodes(self, agent_indices: tf.Tensor) -> None:
        """Keep the finished episodes; train when there are enough."""
        self.memory.end(agent_indices)
        if self.config.whole_episodes:
            self.train_when(self.memory.full())

    def acting(self) -> list[tf.Variable]:
        """Return network, statistics of observations, and counters."""
        parts = [x.variables for x in (self.network, *self.observations.persistent)]
        return [*itertools.chain(*parts), self.steps, self.updates]

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
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
        }

    # Learning.

    def train(self) -> None:
        """Learn from the data of the memory, then clear it."""
        self.learn(*self.memory.data())
        self.memory.clear_data()

    def learn(self, data: Any, mask: tf.Tensor) -> None:
        """Update on data `[B, T, ...]` with a mask of valid steps `[B, T]`."""
        scaled = {"reward": "reward", "return": "discounted"}
        if self.config.normalize_rewards in scaled:
            self.rewards.update(data[scaled[self.config.normalize_rewards]], mask)
        self.optimizer.schedule(self.time)
        seed = self.generator.uniform_full_int([2], tf.int32)
        metrics = self._update(data, mask, seed, self.now.entropy_coef)
        failed = metrics.pop("failed_updates", None)  # Undone ones do not count.
        if failed is not None:
            self.report({"failed_updates": failed})
        self.report(metrics, 1.0 if failed is None else 1.0 - failed)
        self.observations.update(data["observation"], mask)
        self.updates.assign_add(1)

    def normalized(self, reward: tf.Tensor) -> tf.Tensor:
        """Scale rewards as configured."""
        if self.config.normalize_rewards == "none":
            return reward
        return self.rewards(reward)

    def _trained_variables(self) -> Any:
        """Return the variables to train, separately for policy and value if needed."""
        policy, value = self.network.policy_variables, self.network.value_variables
        value = [x for x in value if all(x is not y for y in policy)]
        return {"policy": policy, "value": value} if self._separate else policy + value
