"""Base of algorithms with a replay memory: acting, remembering, timing of updates."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from agents import memories, optimizers, preprocessing
from agents.networks.config import NetworkConfig
from agents.tools import algorithm, bounds, placement, schedules, spaces


def adam() -> dict:
    """Declare the default optimizer, which takes the `learning_rate`."""
    return {"type": "adam"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters of all off-policy algorithms."""

    OPTIMIZERS = ()
    """Names of the fields that describe optimizers which take the `learning_rate`."""

    # Data.
    capacity: bounds.Count = 1_000_000
    """Transitions in the replay memory."""
    batch_size: bounds.Size = 256
    """Transitions per update."""
    start_size: bounds.Count = 5_000
    """Transitions in the memory before the first update, unless it fills up earlier."""
    replay_ratio: bounds.NotNegativeFloat = 1.0
    """Updates per environment step, exact on average for any number of agents."""
    stack: bounds.Size | None = None
    """Frames in a stacked observation; each frame is stored only once."""
    # Returns.
    discount: bounds.FractionFloat = 0.99
    """Weight of a reward that comes one step later."""
    n_step: bounds.Size = 1
    """Rewards to sum up before the bootstrapped value."""
    reward_clip: bounds.PositiveFloat | None = None
    """Bound on absolute rewards in training; reported returns are raw."""
    normalize_observations: bool = False
    """Shift and scale numbers and pixels to mean 0 and deviation 1 over the run so far."""
    # Priorities.
    prioritized: bool = False
    """Sample by temporal difference error; Schaul et al. (2016)."""
    priority_alpha: bounds.NotNegativeFloat = 0.6
    """Exponent of priorities; zero samples uniformly."""
    priority_beta: bounds.NotNegative = 0.4
    """Exponent of importance weights."""
    # Optimization.
    learning_rate: bounds.NotNegative = 1e-3
    """Rate of all optimizers that do not declare their own."""
    jit: bool | None = None
    """Compile updates by XLA; none does so for networks without convolutions."""
    threads: str = "one"
    """CPU threads of an update: `one`; several `within` large operations such as
    convolutions; or several operations `beside` one another, as for two networks."""
    network: NetworkConfig = NetworkConfig(layers=(256, 256))
    """Layers of every network: a preset, a list, or a mapping."""

    def __post_init__(self) -> None:
        bounds.require(self)
        for name in ("start_size", "capacity"):
            if getattr(self, name) < self.batch_size:
                raise ValueError(
                    f"batch_size {self.batch_size} must not be larger than what is "
                    f"stored at the first update, {name} {getattr(self, name)}."
                )
        bounds.require_known(self, "threads", ("one", "within", "beside"))
        if self.network.recurrent:
            raise ValueError("networks must not be recurrent; use a policy gradient.")
        if self.network.has("batch_normalization"):
            raise ValueError(
                "networks must not have batch_normalization, whose statistics target "
                "networks lack; use layer_normalization."
            )
        self.create_optimizers()
        bounds.require_effect(self)

    def without_effect(self) -> dict[str, str]:
        """Map each field without effect to the reason; see `bounds.require_effect`."""
        network = self.network.without_policy()
        unused = {f"network.{name}": reason for name, reason in network.items()}
        if not self.prioritized:
            names = ("priority_alpha", "priority_beta")
            unused |= dict.fromkeys(names, "unless prioritized")
        specs = [getattr(self, name) for name in self.OPTIMIZERS]
        return unused | optimizers.unused_rate(specs)

    def without_memory(self, num_agents: int) -> "Config":
        """Return a config with the smallest allowed capacity, for acting only."""
        return self._holding(num_agents * self.n_step)

    def _holding(self, capacity: int, **changes: Any) -> "Config":
        """Return a config with this capacity, or the smallest allowed one if larger."""
        capacity = max(capacity, self.batch_size)
        return dataclasses.replace(self, capacity=capacity, **changes)

    def for_rows(self, first: int, rows: int, num_agents: int, steps: int) -> "Config":
        """Return a config for acting with some of the rows, without training.

        Args:
          first: First of these rows among all.
          rows: Number of these rows.
          num_agents: Number of all rows.
          steps: Batch steps between two collections of the rows' transitions.
        """
        del first, num_agents
        entries = steps * (1 + (self.stack or 1)) + self.n_step  # Each may be an end.
        return self._holding(rows * entries, replay_ratio=0.0)

    def create_optimizers(self) -> list[optimizers.Optimizer]:
        """Create the optimizers of the fields `OPTIMIZERS`; raises ConfigError."""
        functions, created = ("items", "seed"), []
        for name in self.OPTIMIZERS:
            spec = optimizers.rated(getattr(self, name), self.learning_rate)
            created.append(optimizers.create(spec, f"algorithm.{name}", functions))
        return created


class OffPolicy(schedules.Scheduled, algorithm.Algorithm):
    """Algorithm that learns from a replay memory of transitions of earlier policies.

    Acting, remembering and training happen inside the graph of `simulate`. Subclasses
    define `best` and `try_out` for acting and `learn` for one batch, and set
    `optimizers`.
    """

    optimizers: list[optimizers.Optimizer]
    """Optimizers whose learning rates follow schedules."""
    create_memory: Callable[..., memories.Replay] = memories.Replay
    """Function that creates the memory; subclasses may replace it."""

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
          observation_space: Observations of one environment.
          num_agents: Rows of the batch.
          config: Hyperparameters.
          seed: Seed of all random numbers.
          action: Spec of a stored action.
          metric_names: Names of the metrics of `learn`.
        """
        super().__init__(metric_names)
        self.config = config
        self.generator = tf.random.Generator.from_seed(seed, alg="philox")
        # Only the first two may be assigned the values of another agent.
        self.steps, self.updates, self._passed, self._counted, self.made = (
            tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(5)
        )
        specs = spaces.spec(observation_space)
        self.observations = preprocessing.Observations(
            specs, config.normalize_observations
        )
        selector = "uniform"
        if config.prioritized:
            selector = {"type": "prioritized", "alpha": config.priority_alpha}
        with placement.memory():
            self.memory = self.create_memory(
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
        jit = bool(config.jit)
        self._run_updates = placement.function(self._update_repeatedly, jit, True)
        self._run_update_on = placement.function(self._update_on, jit, False)

    def best(self, observation: Any) -> tf.Tensor:
        """Return the best actions `[K, ...]`, in the form that the memory stores.

        Args:
          observation: Network inputs, `[K, ...]`.
        """
        raise NotImplementedError

    def try_out(self, agent_indices: tf.Tensor, observation: Any) -> tf.Tensor:
        """Return exploring actions for rows int32 `[K]`; see `best`."""
        raise NotImplementedError

    def environment_action(self, action: tf.Tensor) -> Any:
        """Convert stored actions to actions of the environment."""
        raise NotImplementedError

    def memory_action(self, action: Any) -> tf.Tensor:
        """Convert actions of the environment to the form that the memory stores."""
        raise NotImplementedError

    def learn(
        self, items: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update on a batch of transitions.

        Args:
          items: Dict of `[B, ...]`: observation, action, reward (of n steps), discount
            of the next value (zero where terminated), next_observation, weight.

        Returns:
          Metrics, and temporal difference errors `[B]`.
        """
        raise NotImplementedError

    def begin_episodes(self, agent_indices: tf.Tensor, training: bool = True) -> None:
        """Forget unfinished transitions of these rows."""
        if training:
            self.memory.begin(agent_indices)

    def explore(self, agent_indices: tf.Tensor, observation: Any) -> Any:
        """Return exploring actions, and store them until their outcome is known."""
        action = self.try_out(agent_indices, self.observations(observation))
        self._chosen.scatter_update(tf.IndexedSlices(action, agent_indices))
        return self.environment_action(action)

    def decide(
        self, observation: Any, state: Any, generator: Any = None
    ) -> tuple[Any, Any]:
        """Return the best actions; the state is unused. See `Policy.decide`."""
        if generator is not None:
            self.require_stochastic()
        action = self.best(self.observations(observation))
        return self.environment_action(action), state

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
        """Remember one transition per row, and run the updates that are due."""
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
        """Add one transition per row to the memory, with actions in stored form."""
        self.observations.update(observation, tf.ones_like(terminated))
        index = self.memory.append(
            agent_indices,
            observation,
            action,
            self.clipped(reward),
            terminated,
            truncated,
            next_observation,
        )
        self.completed(index)

    def clipped(self, reward: tf.Tensor) -> tf.Tensor:
        """Clip rewards to the bound of the config."""
        limit = self.config.reward_clip
        return reward if limit is None else tf.clip_by_value(reward, -limit, limit)

    @property
    def start_size(self) -> int:
        """Number of transitions in the memory before the first update."""
        return self.config.start_size

    def remembered(self, steps: tf.Tensor) -> None:
        """Run the updates that are due after this number of new steps, int64."""
        self.count(steps, self.memory.size, self.config.capacity)
        self.train_when(self.due() > 0)

    def count(self, steps: tf.Tensor, size: tf.Tensor, capacity: int) -> None:
        """Count new steps, int64, once `size` of `capacity` transitions are enough."""
        self._passed.assign_add(steps)
        full = self._passed >= capacity  # Ends of episodes take entries, too.
        begun = (self._counted > 0) | full
        ready = (size >= self.start_size) | (begun & (size > 0))
        self._counted.assign_add(tf.where(ready, steps, 0))

    def completed(self, index: tf.Tensor) -> None:
        """Handle newly complete transitions, int64 `[M]`, -1 for none."""

    def due(self) -> tf.Tensor:
        """Return the number of updates due for the steps counted so far."""
        wanted = tf.cast(self._counted, tf.float64) * self.config.replay_ratio
        return tf.cast(tf.floor(wanted + 1e-6), tf.int64) - self.made

    def acting(self) -> list[tf.Variable]:
        """Return statistics and counters; subclasses add their networks."""
        observations = (x.variables for x in self.observations.persistent)
        return [*itertools.chain(*observations), self.steps, self.updates]

    def persistent(self) -> dict[str, Any]:
        """Return everything except the running episodes."""
        return {
            "observations": self.observations.persistent,
            "memory": self.memory.persistent,
            "generator": self.generator,
            "steps": self.steps,
            "updates": self.updates,
            "passed": self._passed,
            "counted": self._counted,
            "made": self.made,
        }

    def train(self) -> None:
        """Run all updates that are due."""
        count = tf.cast(self.due(), tf.int32)
        self.made.assign_add(tf.cast(count, tf.int64))
        self._schedule()
        self.report(self._run_updates(count), tf.cast(count, tf.float32))

    def train_on(self, items: dict[str, Any]) -> tf.Tensor:
        """Update on a batch that another algorithm took from its memory by `draw`.

        Returns:
          Temporal difference errors `[B]`, for the memory of that algorithm.
        """
        self._schedule()
        metrics, errors = self._run_update_on(items)
        self.report(metrics)
        return errors

    def draw(self) -> dict[str, Any]:
        """Draw a batch from the memory; see `Replay.sample`."""
        seed = self.generator.uniform_full_int([2], tf.int32)
        return self.memory.sample(self.config.batch_size, seed, self.now.priority_beta)

    def _schedule(self) -> None:
        for optimizer in self.optimizers:
            optimizer.schedule(self.time)

    def _update_repeatedly(self, count: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run this number of updates; return their mean metrics."""
        total = optimizers.repeat(count, lambda index: self._update())
        return optimizers.scale(total, 1.0 / tf.cast(count, tf.float32))

    def _update(self) -> dict[str, tf.Tensor]:
        """Update on a new batch."""
        items = self.draw()
        metrics, errors = self._update_on(items)
        self.memory.update(items["index"], errors)
        return metrics

    def _update_on(
        self, items: dict[str, Any]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Update on a batch of the memory."""
        self.updates.assign_add(1)
        items = self.prepare(items)
        del items["index"]
        return self.learn(items)

    def prepare(self, items: dict[str, Any]) -> dict[str, Any]:
        """Return transitions with observations preprocessed for the networks."""
        names = ("observation", "next_observation")
        return {**items, **{name: self.observations(items[name]) for name in names}}


def twins(create: Callable[[], keras.layers.Layer]) -> tuple[Any, Any]:
    """Create a network, and its target network, which begins as a copy."""
    network, target = create(), create()
    inner = network._flatten_layers()  # Also those in layers of users.
    if any(isinstance(x, keras.layers.BatchNormalization) for x in inner):
        raise ValueError("networks must not have batch statistics; targets lack them.")
    for new, old in zip(target.variables, network.variables, strict=True):
        new.assign(old)
    return network, target
