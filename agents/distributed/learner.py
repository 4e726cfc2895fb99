"""Learner: an algorithm with data from elsewhere."""

import time
from collections.abc import Callable

import numpy as np
import ray
import tensorflow as tf

from agents.distributed import actor
from agents.memories import transfer


class Learner:
    """Trainer of an algorithm on data of actors, which publishes its weights.

    Attributes:
      algorithm: The algorithm.
      version: Number of times that the weights have changed.
      seconds: Total duration of the updates.
    """

    def __init__(self, algorithm: actor.Divisible) -> None:
        self.algorithm = algorithm
        self.version = 0
        self.seconds = 0.0
        self._published: tuple[int, ray.ObjectRef] | None = None
        self._learn = tf.function(self._learn_from, autograph=False)
        self._remember, self._insert = (
            tf.function(function, autograph=False, reduce_retracing=True)
            for function in (self._remember_all, self._insert_all)
        )

    def weights(self) -> tuple[int, ray.ObjectRef, int]:
        """Return the version, a reference to values of `acting` variables, and steps.

        The values enter Ray's store once per version, and all actors read them there.
        Steps, which schedules depend on, also pass without updates.
        """
        if self._published is None or self._published[0] != self.version:
            values = [np.asarray(x) for x in self.algorithm.acting()]
            self._published = self.version, ray.put(values)
        return *self._published, int(self.algorithm.steps)

    def metrics(self) -> dict[str, float]:
        """Return further metrics of a finished phase."""
        return {}

    def learn(self, data: list[np.ndarray], lengths: np.ndarray, steps: int) -> None:
        """Update on one batch that was taken from memories, of `steps` steps."""
        self._update(self._learn, data, lengths, steps)

    def remember(self, data: list[np.ndarray], lengths: np.ndarray, steps: int) -> None:
        """Extend the algorithm's own memory; update if it is full."""
        self._update(self._remember, data, lengths, steps)

    def insert(self, data: dict[str, np.ndarray], first_row: int, steps: int) -> None:
        """Extend the algorithm's replay memory; run the updates that are due."""
        rows, steps_ = tf.constant(first_row), tf.constant(steps, tf.int64)
        before = int(self.algorithm.updates)
        self._call(self._insert, data, (rows, steps_), steps)
        self.version += int(self.algorithm.updates) > before

    def detach(self, first_row: int, rows: int) -> None:
        """Detach rows of the replay memory from their worker, which another replaces."""
        transfer.detach(self.algorithm.memory, first_row, rows)

    def _update(
        self,
        function: Callable,
        data: list[np.ndarray],
        lengths: np.ndarray,
        steps: int,
    ) -> None:
        self._call(function, data, lengths, steps)
        self.version += 1

    def _call(
        self,
        function: Callable,
        data: actor.Data,
        arguments: np.ndarray | tuple[tf.Tensor, ...],
        steps: int,
    ) -> None:
        start = time.perf_counter()
        self.algorithm.steps.assign_add(steps)
        function(data, arguments)
        self.seconds += time.perf_counter() - start

    def _learn_from(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        self.algorithm.learn(*self.algorithm.memory.unpack(data, lengths))

    def _insert_all(self, data: dict[str, tf.Tensor], arguments: tuple) -> None:
        first_row, steps = arguments
        agent = self.algorithm
        index = transfer.extend(agent.memory, data, first_row)
        if agent.observations.persistent:
            observation = agent.memory.get(index)["observation"]
            agent.observations.update(observation, tf.ones_like(index, tf.bool))
        agent.remembered(steps)

    def _remember_all(self, data: list[tf.Tensor], lengths: tf.Tensor) -> None:
        memory = self.algorithm.memory
        memory.extend(data, lengths)
        self.algorithm.train_when(memory.full())
