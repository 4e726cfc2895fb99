"""Actors: processes that act and remember; training happens elsewhere."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import ray
import tensorflow as tf

from agents import memories
from agents.environments import make
from agents.tools import simulation


class Chunk(NamedTuple):
    """What an actor did in one go, as arrays.

    Attributes:
      data: What its memory held, as taken from it; or a reference to that.
      lengths: Valid steps of each sequence in it, `[K]`; none for transitions.
      metrics: What the algorithm reports of acting, as taken from its metrics.
      version: Of the weights that acted.
      env_steps: Environment steps that were done.
      scores, episode_lengths: Of the episodes that ended.
      random: State of the random numbers, if it was lent.
      seconds: How long that took.
    """

    data: list[np.ndarray] | dict[str, np.ndarray] | Any
    lengths: np.ndarray
    metrics: np.ndarray
    version: int
    env_steps: int
    scores: np.ndarray
    episode_lengths: np.ndarray
    random: np.ndarray | None
    seconds: float


class Actor:
    """Environments of some rows and an algorithm that acts there, in one process.

    actor.build()
    actor.begin(seeds, seed)                 # at every phase
    chunk = actor.collect(steps, quota, version, weights)
    """

    def __init__(
        self,
        config: Any,
        description: make.Description,
        first: int,
        rows: int,
        steps: int,
    ) -> None:
        """Take what is to be made.

        Args:
          config: Of the whole run.
          description: Of its environment.
          first: First row, of all.
          rows: Number of rows.
          steps: Transitions of a row that are collected at a time, at most.
        """
        num_agents = config.environment.num_agents
        if hasattr(config.algorithm, "for_rows"):
            settings = config.algorithm.for_rows(first, rows, num_agents, steps)
            config = dataclasses.replace(config, algorithm=settings)
        self._config, self._description, self._rows = config, description, rows

    def build(self) -> None:
        """Make environments and algorithm, which may fail."""
        use_one_thread()
        self._env = environments(self._config.environment, self._rows)
        self._agent = self._config.create_algorithm(self._description, self._rows)
        self._agent.train = lambda: None  # What is remembered waits until it is taken.
        self._quota = tf.Variable(0, trainable=False)
        memory = self._agent.memory
        if isinstance(memory, memories.Episodes):
            self._agent.paused = lambda: memory.count >= self._quota
        self._since = tf.zeros([self._rows], tf.int64)
        self._take = tf.function(memory.take, autograph=False)
        self._version = None
        self._assign = tf.function(_assign(self._agent.acting()), autograph=False)

    def begin(self, seeds: np.ndarray, seed: int) -> None:
        """Discontinue all episodes; the next ones begin with these seeds `[rows]`."""
        self._env.discontinue(seeds)
        self._agent.generator.reset_from_seed(seed)

    def collect(
        self,
        steps: int,
        quota: int,
        version: int,
        weights: list[np.ndarray],
        random: np.ndarray | None = None,
    ) -> Chunk:
        """Act for so many steps, or until so many episodes are finished.

        Args:
          steps: Of every row.
          quota: Sequences, unrolls or episodes, to return at most.
          version: Of the weights.
          weights: Values of what the algorithm is `acting` with.
          random: State of the random numbers to use, else its own.
        """
        start = time.perf_counter()
        if version != self._version:
            self._assign(weights)
            self._version = version
        if random is not None:
            self._agent.generator.state.assign(random)
        self._quota.assign(quota)
        before = int(self._agent.steps)
        result = simulation.simulate(self._env, self._agent, steps)
        done = result["done"].numpy()
        return Chunk(
            *self._taken(quota),
            self._agent.metrics.take().numpy(),
            version,
            int(self._agent.steps) - before,
            result["score"].numpy()[done],
            result["length"].numpy()[done],
            None if random is None else self._agent.generator.state.numpy(),
            time.perf_counter() - start,
        )

    def collect_apart(self, *arguments: Any) -> tuple[Chunk, Any]:
        """As `collect`; the data is a result of its own, which may go elsewhere."""
        chunk = self.collect(*arguments)
        return chunk._replace(data=None), chunk.data

    @ray.method(concurrency_group="watch")
    def waiting(self) -> float:
        """Seconds for which the environments have not returned, while others call."""
        called = self._env.called
        return 0.0 if called is None else time.monotonic() - called

    def _taken(self, quota: int) -> tuple[Any, np.ndarray]:
        """Data and lengths of what is remembered."""
        if isinstance(self._agent.memory, memories.Replay):
            data = self._take(self._since)
            self._since = data["state"][:, 0]
            return {name: x.numpy() for name, x in data.items()}, np.zeros(0, np.int32)
        data, lengths = self._take()
        return [x[:quota].numpy() for x in data], lengths[:quota].numpy()


def use_one_thread() -> None:
    """Let TensorFlow use one thread of this process, and no GPU."""
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.experimental.enable_op_determinism()
    assert not tf.config.get_visible_devices("GPU")


def _assign(variables: list[tf.Variable]) -> Callable[[list[tf.Tensor]], None]:
    """Function that assigns new values."""

    def assign(values):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return assign


def environments(environment: Any, rows: int) -> Any:
    """Batch of environments in the graph, by default in the process of the caller.

    The other processes of the machine are other actors, so `auto` chooses `serial`
    where it would choose workers.
    """
    backend = environment.backend
    if backend == "auto" and make.choose(environment.id, backend) == "workers":
        backend = "serial"
    return dataclasses.replace(environment, num_agents=rows, backend=backend).create()
