"""What all algorithms with a replay memory share: acting, remembering, when to train."""

import dataclasses
import itertools
from typing import Any

import gymnasium
import tensorflow as tf

from agents import memories, optimizers, preprocessing, returns
from agents.networks.presets import NetworkConfig
from agents.tools import (
    algorithm,
    bounds,
    conditional,
    placement,
    rows,
    schedules,
    spaces,
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters that all of them have."""

    OPTIMIZERS = ()
    """Names of the fields that describe optimizers."""

    # Data.
    capacity: bounds.Count = 1_000_000
    """Transitions in the replay memory."""
    batch_size: bounds.Size = 256
    """Transitions per update."""
    start_size: bounds.Count = 5_000
    """Transitions in the memory before the first update, unless it is full before."""
    replay_ratio: bounds.NotNegativeFloat = 1.0
    """Updates per environment step, exact on average for any number of agents."""
    stack: bounds.Size | None = None
    """Frames of an observation that it shares with those before, stored once."""
    # Returns.
    discount: bounds.FractionFloat = 0.99
    n_step: bounds.Size = 1
    """Rewards that are summed up before the value of what follows."""
    reward_clip: bounds.PositiveFloat | None = None
    """Bound of rewards in training; reported returns are raw."""
    normalize_observations: bool = False
    # Priorities.
    prioritized: bool = False
    """Sample by temporal difference error; Schaul et al. (2016)."""
    priority_alpha: bounds.NotNegativeFloat = 0.6
    priority_beta: bounds.NotNegative = 0.4
    """Exponent of importance weights."""
    # Optimization.
    jit: bool = True
    """Compile updates by XLA, which pays for small networks and batches."""
    threads: str = "one"
    """`one` for all operations; several `within` large ones, such as convolutions; or
    one for each of several operations `beside` one another, as of two networks."""
    network: NetworkConfig = NetworkConfig(layers=(256, 256))

    def __post_init__(self) -> None:
        bounds.require(self)
        for name in ("start_size", "capacity"):
            if getattr(self, name) < self.batch_size:
                raise ValueError(
                    f"batch_size {self.batch_size} must not be larger than what is "
                    f"stored at the first update, {name} {getattr(self, name)}."
                )
        if self.threads not in ("one", "within", "beside"):
            raise ValueError(
                f"threads must be 'one', 'within' or 'beside', got {self.threads!r}."
            )
        if self.network.recurrent:
            raise ValueError("networks must not be recurrent; use a policy gradient.")
        if self.network.has("batch_normalization"):
            raise ValueError(
                "networks must not have batch_normalization, whose statistics target "
                "networks lack; use layer_normalization."
            )
        self.create_optimizers()

    def without_memory(self, num_agents: int) -> "Config":
        """The same with the least capacity that is legal, to act without training."""
        return self._holding(num_agents * self.n_step)

    def _holding(self, capacity: int, **changes: Any) -> "Config":
        """The same for so many transitions, or as many as are legal."""
        capacity = max(capacity, self.batch_size)
        return dataclasses.replace(self, capacity=capacity, **changes)

    def for_rows(self, first: int, rows: int, num_agents: int, steps: int) -> "Config":
        """The same for an algorithm that acts for some rows and does not train.

        Args:
          first: First row, of all.
          rows: Number of rows.
          num_agents: Number of all rows.
          steps: After which what a row remembers is taken.
        """
        del first, num_agents
        entries = steps * (1 + (self.stack or 1)) + self.n_step  # All may be ends.
        return self._holding(rows * entries, replay_ratio=0.0)

    def create_optimizers(self) -> list[optimizers.Optimizer]:
        """What the fields `OPTIMIZERS` describe; raises ConfigError."""
        provided = ("items", "seed")
        return [
            optimizers.create(getattr(self, name), f"algorithm.{name}", provided)
            for name in self.OPTIMIZERS
        ]


class OffPolicy(schedules.Scheduled, algorithm.Algorithm):
    """Learns from transitions of all earlier policies, which a replay memory holds.

    Acting, remembering and training happen inside the graph of `simulate`. Subclasses
    choose actions in `act`, learn from a batch in `learn`, and list their optimizers.
    """

    optimizers: list[optimizers.Optimizer]
    """Those whose learning rates may be schedules."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        num_agents: int,
        config: Config,
        seed: int,
        action: tf.TensorSpec,
        metric_names: tuple[str, ...],
    ) -> None:
        """Create variables for `num_agents` rows.

        Args:
          observation_space: Of one environment.
          num_agents: Rows of the batch.
          config: Hyperparameters.
          seed: Of all random numbers.
          action: What is remembered of an action.
          metric_names: What `learn` returns.
        """
        super().__init__(metric_names)
        self._config = config
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._counted = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._extra = tf.Variable(0, dtype=tf.int64, trainable=False)  # Not due.
        specs = spaces.spec(observation_space)
        self.observations = preprocessing.Observations(
            specs, config.normalize_observations
        )
        selector = memories.Uniform()
        if config.prioritized:
            selector = memories.Prioritized(config.priority_alpha)
        with placement.memory():
            self.memory = memories.Replay(
                spaces.transform(lambda x: tf.TensorSpec(x.shape, x.dtype), specs),
                action,
                num_agents,
                config.capacity,
                selector,
                config.n_step,
                config.discount,
                config.stack,
            )
        self._chosen = tf.Variable(
            tf.zeros([num_agents, *action.shape], action.dtype), trainable=False
        )
        self._run_updates = placement.function(
            self._update_repeatedly, config.jit, memory=True
        )
        self._run_update_on = placement.function(
            self._update_on, config.jit, memory=False
        )

    def act(
        self, agent_indices: tf.Tensor, observation: Any, training: bool
    ) -> tf.Tensor:
        """Actions `[K, ...]` in the form that is remembered."""
        raise NotImplementedError

    def environment_action(self, action: tf.Tensor) -> Any:
        """Actions of the environment's space for those that are remembered."""
        raise NotImplementedError

    def memory_action(self, action: Any) -> tf.Tensor:
        """What is remembered of actions of the environment's space."""
        raise NotImplementedError

    def learn(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update on a batch of transitions.

        Args:
          items: Dict of `[B, ...]`: observation, action, reward (of n steps), discount
            of what follows (zero where terminated), next_observation, and weight.

        Returns:
          Metrics, and temporal difference errors `[B]`.
        """
        raise NotImplementedError

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Transitions of these rows begin anew."""
        if training:
            self.memory.begin(agent_indices)

    def perform(
        self, agent_indices: tf.Tensor, observation: Any, training: bool = True
    ) -> Any:
        """Explore while training, else take the best action."""
        action = self.act(agent_indices, self.observations(observation), training)
        if training:
            self._chosen.scatter_nd_update(agent_indices[:, None], action)
        return self.environment_action(action)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Best actions; there is no state. See `Algorithm.decide`."""
        if generator is not None:
            self.require_stochastic()
        seen = self.observations(observation)
        rows = tf.range(tf.shape(tf.nest.flatten(observation)[0])[0])
        return self.environment_action(self.act(rows, seen, False)), state

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
        """Remember one transition per row, and train as often as it is due."""
        self.steps.assign_add(tf.size(agent_indices, tf.int64))
        chosen = tf.gather(self._chosen, agent_indices)
        facts = reward, terminated, truncated
        self.remember(agent_indices, observation, chosen, *facts, next_observation)
        self.remembered(tf.size(agent_indices, tf.int64))

    def remember(
        self,
        agent_indices: tf.Tensor,
        observation: Any,
        action: tf.Tensor,
        reward: tf.Tensor,
        terminated: tf.Tensor,
        truncated: tf.Tensor,
        next_observation: Any,
    ) -> None:
        """Put one transition per row into the memory; the action as it is there."""
        if self._config.normalize_observations:
            self.observations.update(observation, tf.ones_like(terminated))
        index = self.memory.append(
            agent_indices,
            observation,
            action,
            self._clipped(reward),
            terminated,
            truncated,
            next_observation,
        )
        self.completed(index)

    def _clipped(self, reward: tf.Tensor) -> tf.Tensor:
        limit = self._config.reward_clip
        return reward if limit is None else tf.clip_by_value(reward, -limit, limit)

    @property
    def start_size(self) -> int:
        """Transitions in the memory before the first update."""
        return self._config.start_size

    def remembered(self, steps: tf.Tensor) -> None:
        """Train as often as it is due after so many more steps, int64."""
        size = self.memory.size
        full = self.steps >= self._config.capacity  # Though ends of episodes take room.
        begun = (self._counted > 0) | full
        self.count(steps, (size >= self.start_size) | (begun & (size > 0)))
        conditional.when(self.due() > 0, self.train)

    def count(self, steps: tf.Tensor, ready: tf.Tensor) -> None:
        """Updates are due for so many more steps, int64, if the memory is ready."""
        self._counted.assign_add(tf.where(ready, steps, 0))

    def completed(self, index: tf.Tensor) -> None:
        """Learn which transitions are complete now, int64 `[M]`, -1 for none."""

    def due(self) -> tf.Tensor:
        """Updates that are missing, for the steps since the memory is large enough."""
        ratio = tf.constant(self._config.replay_ratio, tf.float64)
        wanted = tf.floor(tf.cast(self._counted, tf.float64) * ratio + 1e-6)
        return tf.cast(wanted, tf.int64) + self._extra - self.updates

    def acting(self) -> list[tf.Variable]:
        """Statistics of observations, and time; subclasses add their networks."""
        observations = (x.variables for x in self.observations.persistent)
        return [*itertools.chain(*observations), self.steps, self.updates]

    def persistent(self) -> dict[str, Any]:
        """Everything but the running episodes."""
        return {
            "observations": self.observations.persistent,
            "memory": self.memory.persistent,
            "generator": self.generator,
            "steps": self.steps,
            "updates": self.updates,
            "counted": self._counted,
            "extra": self._extra,
        }

    def train(self) -> None:
        """All updates that are due."""
        count = tf.cast(self.due(), tf.int32)
        self._schedule()
        self._report(self._run_updates(count), count)

    def train_on(self, items: dict[str, Any]) -> tf.Tensor:
        """One update on a batch that another algorithm did `draw`, from its memory.

        Returns:
          Temporal difference errors `[B]`, which belong to its memory.
        """
        self._schedule()
        metrics, errors = self._run_update_on(items)
        self._report(metrics, 1)
        return errors

    def learn_from_memory(self) -> None:
        """One update on a batch of the memory; see `Algorithm.learn_from_memory`."""
        size, needed = int(self.memory.size), self._config.batch_size
        if size < needed:
            raise ValueError(
                f"the memory holds {size} transitions, an update needs {needed}; "
                "observe more first."
            )
        self._extra.assign_add(1)
        self._schedule()
        self._report(self._run_updates(tf.constant(1)), 1)

    def learn_from(self, fragments: dict[str, Any], mask: tf.Tensor) -> None:
        """One update on all transitions at once; see `Algorithm.learn_from`."""
        observation, terminated = fragments["observation"], fragments["terminated"]
        if self._config.normalize_observations:
            self.observations.update(observation, mask)
        # Shorter fragments end before the padding, which leads nowhere.
        done = terminated | fragments["truncated"] | rows.last(mask) | ~mask
        reward, discount, last = returns.n_step(
            self._clipped(fragments["reward"]),
            *(terminated, done, self._config.discount, self._config.n_step),
        )
        following = tf.nest.map_structure(
            lambda x: tf.gather(x, last, batch_dims=1), fragments["next_observation"]
        )
        items = {
            "observation": observation,
            "action": fragments["action"],
            "reward": reward,
            "discount": discount,
            "next_observation": following,
            "weight": tf.ones_like(reward),
            "index": tf.fill(tf.shape(mask), tf.constant(-1, tf.int64)),
        }
        items = tf.nest.map_structure(lambda x: tf.boolean_mask(x, mask), items)
        items["action"] = self.memory_action(items["action"])
        self._extra.assign_add(1)
        self.train_on(items)

    def draw(self) -> dict[str, Any]:
        """Draw a batch from the memory; see `Replay.sample`."""
        seed = self.generator.uniform_full_int([2], tf.int32)
        return self.memory.sample(self._config.batch_size, seed, self.now.priority_beta)

    def _schedule(self) -> None:
        for optimizer in self.optimizers:
            optimizer.schedule(self.time)

    def _report(self, metrics: dict[str, tf.Tensor], count: tf.Tensor | int) -> None:
        """Count mean metrics of so many updates; raise if they are not finite."""
        for name, metric in metrics.items():
            tf.debugging.assert_all_finite(
                metric, f"{type(self).__name__}'s {name} is not finite."
            )
        self.metrics.update(metrics, tf.cast(count, tf.float32))

    def _update_repeatedly(self, count: tf.Tensor) -> dict[str, tf.Tensor]:
        """Mean metrics of so many updates."""
        total = optimizers.repeat(count, lambda index: self._update())
        return optimizers.scale(total, 1.0 / tf.cast(count, tf.float32))

    def _update(self) -> dict[str, tf.Tensor]:
        """One update on a new batch."""
        items = self.draw()
        metrics, errors = self._update_on(items)
        self.memory.update(items["index"], errors)
        return metrics

    def _update_on(
        self, items: dict[str, Any]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """One update on a batch of the memory."""
        self.updates.assign_add(1)
        items = self.prepare(items)
        del items["index"]
        return self.learn(items)

    def prepare(self, items: dict[str, Any]) -> dict[str, Any]:
        """Transitions of the memory with observations as the networks see them."""
        names = ("observation", "next_observation")
        return {**items, **{name: self.observations(items[name]) for name in names}}
