"""Actors: processes that act and remember, while training happens elsewhere."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import ray
import tensorflow as tf

from agents.environments import config as environment_config
from agents.environments import make
from agents.memories import transfer
from agents.tools import algorithm, simulation, steps


class Divisible(algorithm.Algorithm):
    """Type of algorithms whose acting and training can be divided.

    It lists what actors, learners and shards use, for type checkers; algorithms need
    not inherit from it. Only algorithms with sequences have `learn`, and only those
    with a replay memory have `remembered` and the attributes after it.

    Attributes:
      memory: Memory with the `topology` that divides it.
      generator: Source of randomness to act.
      steps: Environment steps so far.
      updates: Updates so far.
      observations: Normalizer of observations.
      learn: Function that updates on sequences `[B, T, ...]` and their mask.
      remembered: Function that trains as often as is due after some more steps.
      draw: Function that draws a batch of the memory.
      train_on: Function that updates on a batch, and returns errors `[B]`.
      count: Function that counts steps toward updates, once enough is stored.
      due: Function that returns the number of updates that are due.
      start_size: Transitions in the memory before the first update.
    """

    memory: Any
    generator: tf.random.Generator
    steps: tf.Variable
    updates: tf.Variable
    observations: Any
    learn: Callable[[Any, tf.Tensor], None]
    remembered: Callable[[tf.Tensor], None]
    draw: Callable[[], dict[str, Any]]
    train_on: Callable[[dict[str, Any]], tf.Tensor]
    count: Callable[[tf.Tensor, tf.Tensor, int], None]
    due: Callable[[], tf.Tensor]
    start_size: int


class Phases(Protocol):
    """Steps of training and episodes of evaluation in phases, and the score to stop at."""

    eval_every: int
    eval_episodes: int
    stop_at: float | None


class RunConfig(Protocol):
    """Config of a run, as far as it is used here; a frozen dataclass.

    Attributes:
      environment: Kind, number, backend and arguments of the environments.
      algorithm: Dataclass of the algorithm, which may be a user's.
      train: Lengths of the phases.
      seed: Seed of the run.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    environment: environment_config.Environment
    algorithm: Any
    train: Phases
    seed: int

    def without_memory(self, num_agents: int) -> "RunConfig":
        """Return a config with the smallest allowed replay memory, if there is one."""

    def create_learner(self, description: make.Description) -> Divisible:
        """Create the algorithm for training, on its devices."""

    def create_algorithm(
        self, description: make.Description, num_agents: int | None = None
    ) -> Divisible:
        """Create the algorithm with fresh variables, by default for all agents."""


Data = list[np.ndarray] | dict[str, np.ndarray]
"""Sequences, or entries of a replay memory."""


class Chunk(NamedTuple):
    """Results of one call of an actor, as arrays.

    Attributes:
      data: Data taken from its memory, or a reference to it.
      lengths: Valid steps of each sequence in the data, `[K]`; empty for transitions.
      metrics: Metrics of acting, taken from the algorithm.
      version: Version of the weights that acted.
      env_steps: Number of environment steps.
      scores, episode_lengths: Results of the episodes that ended.
      random: State of the random numbers, if it was passed in.
      seconds: Duration of the call.
    """

    data: "Data | ray.ObjectRef | None"
    lengths: np.ndarray
    metrics: np.ndarray
    version: int
    env_steps: int
    scores: np.ndarray
    episode_lengths: np.ndarray
    random: np.ndarray | None
    seconds: float


class Actor:
    """Process with environments of some rows and an algorithm that acts in them.

    The learner calls its methods in this order:

        actor.build()
        actor.begin(seeds, seed)                 # at every phase
        chunk = actor.collect(steps, quota, version, weights, taken)
    """

    def __init__(
        self,
        config: RunConfig,
        description: make.Description,
        first: int,
        rows: int,
        steps: int,
    ) -> None:
        """Store the arguments for `build`.

        Args:
          config: Config of the whole run.
          description: Description of its environment.
          first: First of these rows among all.
          rows: Number of these rows.
          steps: Largest number of transitions per row and call.
        """
        num_agents = config.environment.num_agents
        if hasattr(config.algorithm, "for_rows"):
            settings = config.algorithm.for_rows(first, rows, num_agents, steps)
            config = dataclasses.replace(config, algorithm=settings)
        self._config, self._description, self._rows = config, description, rows

    def build(self) -> None:
        """Create environments and algorithm, which may fail."""
        use_one_thread()
        self._env = environments(self._config.environment, self._rows)
        self._algorithm = self._config.create_algorithm(self._description, self._rows)
        self._algorithm.learning = False
        self._quota = tf.Variable(0, trainable=False)
        memory = self._algorithm.memory

        # Not a method: TensorFlow unwraps those that Ray has wrapped.
        def is_full():
            return memory.count >= self._quota

        self._until = is_full if memory.whole_episodes else None
        replaying = memory.topology == "replaying"
        take = transfer.taker(memory) if replaying else memory.take
        self._take = tf.function(take, autograph=False)
        self._version: int | None = None
        self._assign = tf.function(_assign(self._algorithm.acting()), autograph=False)

    def begin(self, seeds: np.ndarray, seed: int) -> None:
        """Abandon all episodes; the next ones begin with these seeds `[rows]`."""
        self._env.discontinue(seeds)
        self._algorithm.generator.reset_from_seed(seed)

    def collect(
        self,
        steps: int,
        quota: int | None,
        version: int,
        weights: list[np.ndarray],
        taken: int,
        random: np.ndarray | None = None,
    ) -> Chunk:
        """Act for a number of steps, or until enough episodes have finished.

        Args:
          steps: Steps of every row.
          quota: Largest number of sequences to return; none for transitions.
          version: Version of the weights.
          weights: Values of the algorithm's `acting` variables.
          taken: Environment steps of all actors so far.
          random: State of the random numbers to use; none for the actor's own.
        """
        start = time.perf_counter()
        if version != self._version:
            self._assign(weights)
            self._version = version
        if random is not None:
            self._algorithm.generator.state.assign(random)
        self._quota.assign(quota or 0)
        self._algorithm.steps.assign(taken)
        result = simulation.simulate(
            self._env, self._algorithm, steps, until=self._until
        )
        done = result["done"].numpy()
        return Chunk(
            *self._taken(quota),
            self._algorithm.metrics.take().numpy(),
            version,
            int(self._algorithm.steps) - taken,
            result["score"].numpy()[done],
            result["length"].numpy()[done],
            None if random is None else self._algorithm.generator.state.numpy(),
            time.perf_counter() - start,
        )

    def collect_apart(self, *arguments: Any) -> tuple[Chunk, Data]:
        """Act as in `collect`; return the data separately, so that it can stay here."""
        chunk = self.collect(*arguments)
        return chunk._replace(data=None), chunk.data

    @ray.method(concurrency_group="watch")
    def ready(self) -> None:
        """Show that the process runs."""

    @ray.method(concurrency_group="watch")
    def waiting(self) -> float:
        """Return how long the environments are busy, in seconds; for other threads."""
        called = self._env.called
        return 0.0 if called is None else time.monotonic() - called

    def _taken(self, quota: int | None) -> tuple[Data, np.ndarray]:
        """Take data and lengths from the memory."""
        data, lengths = tf.nest.map_structure(lambda x: x.numpy(), self._take())
        if quota is None:
            return data, lengths
        return [x[:quota] for x in data], lengths[:quota]


def use_one_thread() -> None:
    """Restrict TensorFlow to one thread of this process, without GPUs."""
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()


def _assign(variables: list[tf.Variable]) -> Callable[[list[tf.Tensor]], None]:
    """Create a function that assigns new values."""

    def assign(values):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return assign


def environments(
    environment: environment_config.Environment, rows: int
) -> steps.Environments:
    """Create a batch of environments in the graph, by default in this process.

    Other processes on the machine are other actors, so `auto` chooses `serial` in place
    of `workers`, and one thread for `mujoco`.
    """
    changes: dict[str, Any] = {"num_agents": rows}
    if environment.backend == "auto":
        chosen = make.choose(environment)
        if chosen == "workers":
            changes |= {"backend": "serial", "num_workers": None}
        elif chosen == "mujoco":
            changes |= {"num_workers": 1}
    return make.in_graph(dataclasses.replace(environment, **changes))
