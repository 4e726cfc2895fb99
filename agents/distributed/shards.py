"""Shards: a replay memory that is divided among several processes."""

import dataclasses
import functools
import logging
import os
import time
from typing import Any

import numpy as np
import ray
import tensorflow as tf

from agents.distributed import actor, cluster, learner, workers
from agents.environments import make
from agents.memories import transfer
from agents.tools import checkpoint

WAITING_INSERTS = 8
"""Chunks that may wait for a shard before workers wait for it."""

_NOTES = logging.getLogger(__name__)


class Shard:
    """Process with the replay memory of some rows."""

    def __init__(
        self,
        config: actor.RunConfig,
        description: make.Description,
        rows: int,
        seed: int,
    ) -> None:
        """Store the arguments of an algorithm, which is created for its memory."""
        self._config = dataclasses.replace(config, seed=seed)
        self._description, self._rows = description, rows

    @ray.method(concurrency_group="watch")
    def answer(self) -> None:
        """Show that the process runs, also while it is at work."""

    def build(self) -> int:
        """Allocate the memory, which may fail; return its size."""
        actor.use_one_thread()
        self._algorithm = self._config.create_algorithm(self._description, self._rows)
        memory = self._algorithm.memory
        self._extend, self._update = (
            tf.function(function, autograph=False, reduce_retracing=True)
            for function in (
                functools.partial(transfer.extend, memory),
                memory.update,
            )
        )
        self._draw = tf.function(self._algorithm.draw, autograph=False)
        return self._size()

    def insert(self, data: dict[str, np.ndarray], first_row: int) -> int:
        """Extend the memory from this row on; return its new size."""
        self._extend(data, tf.constant(first_row))
        return self._size()

    def draw(self, steps: int, updates: int) -> dict[str, Any]:
        """Draw a batch, after these steps of all workers and updates of the learner."""
        self._algorithm.steps.assign(steps)
        self._algorithm.updates.assign(updates)
        return tf.nest.map_structure(lambda x: x.numpy(), self._draw())

    def update(self, index: np.ndarray, errors: np.ndarray) -> None:
        """Pass the errors of transitions of a batch to the memory."""
        self._update(index, errors)

    def detach(self, first_row: int, rows: int) -> None:
        """Detach rows from their worker; see `transfer.detach`."""
        transfer.detach(self._algorithm.memory, first_row, rows)

    def save(self, directory: str, keep: int, step: int) -> None:
        """Write a checkpoint of the memory."""
        checkpoint.Checkpoints(directory, keep).save(step, self._trackables(), {})

    def restore(self, directory: str, name: str) -> int:
        """Load a checkpoint; return the new size of the memory."""
        checkpoint.Checkpoints(directory).restore(self._trackables(), name)
        self.detach(0, self._rows)
        return self._size()

    def _trackables(self) -> dict[str, Any]:
        return {
            checkpoint.MEMORY: self._algorithm.memory.persistent,
            "generator": self._algorithm.generator,
        }

    def _size(self) -> int:
        return int(self._algorithm.memory.size)


class Shards:
    """Ray actors with parts of a replay memory, and batches drawn in advance.

        shards.insert(first_row, reference)
        shard, items = shards.next(steps, updates)
        shards.update(shard, items["index"], errors)

    Every shard has the rows of some workers. Each batch comes from one shard, drawn in
    proportion to the sizes of the shards. An empty shard replaces one that dies, or does
    not answer within `environment.timeout`.

    Attributes:
      capacity: Largest number of transitions in all shards.
      restarts: Number of shards that were replaced.
      sizes: Transitions in each shard, as far as known.
    """

    def __init__(
        self,
        config: actor.RunConfig,
        description: make.Description,
        sizes: list[int],
        count: int,
        prefetch: int,
    ) -> None:
        """Start the shards, and wait for them.

        Args:
          config: Config of the run.
          description: Description of its environment.
          sizes: Rows of each worker.
          count: Number of shards.
          prefetch: Batches of each shard, on average, to draw in advance.

        Raises:
          DistributedError: if there are more shards than workers, or the memory cannot
            be divided into so many.
          Mistake: if a memory cannot be created.
        """
        if count > len(sizes):
            raise cluster.DistributedError(
                f"{count} shards need as many workers, there are {len(sizes)}; lower "
                "--num_shards."
            )
        self.restarts, self.sizes = 0, [0] * count
        self.capacity = config.algorithm.capacity
        self._deaths = [0] * count  # Since the last insertion.
        self._description, self._seed = description, config.seed
        self._prefetch, self._timeout = prefetch * count, config.environment.timeout
        ends = np.cumsum(sizes)  # First row after those of each worker.
        last = [len(sizes) * (i + 1) // count - 1 for i in range(count)]
        self._ends = ends[last]  # First row after those of each shard.
        self._configs = [_part(config, self._rows(index)) for index in range(count)]
        self._random = np.random.default_rng(config.seed)
        # Shard by result, in order.
        self._inserts: dict[ray.ObjectRef, int] = {}
        self._draws: dict[ray.ObjectRef, int] = {}
        self._actors = [self._create(index) for index in range(count)]
        for index in range(count):
            try:
                self._build(index)
            except BaseException:
                self.close()
                raise

    @property
    def size(self) -> int:
        """Number of transitions in all shards, as far as known."""
        if waiting := list(self._inserts):
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            for reference in ready:
                self._inserted(reference)
        return sum(self.sizes)

    def wait(self) -> int:
        """Wait until everything is inserted; return the size."""
        while self._inserts:
            self._inserted(next(iter(self._inserts)))
        return sum(self.sizes)

    def insert(self, first_row: int, data: ray.ObjectRef) -> None:
        """Extend the shard of this row by the data of a reference."""
        shard, first_row = self._place(first_row)
        while sum(index == shard for index in self._inserts.values()) > WAITING_INSERTS:
            self._inserted(next(x for x, i in self._inserts.items() if i == shard))
        self._inserts[self._actors[shard].insert.remote(data, first_row)] = shard

    def detach(self, first_row: int, rows: int) -> None:
        """Detach rows from their worker, in order with the insertions."""
        shard, first_row = self._place(first_row)
        self._actors[shard].detach.remote(first_row, rows)

    def next(self, steps: int, updates: int) -> tuple[int, dict[str, Any]]:
        """Wait for the next batch; return its shard and its items.

        Args:
          steps: Environment steps so far, for schedules.
          updates: Updates so far, for schedules.

        Raises:
          WorkerError: if no transition is left after losses of shards.
        """
        while True:
            total = self.size or self.wait()
            if not total:
                raise cluster.WorkerError("all replay shards were lost.")
            weights = np.array(self.sizes) / total
            while len(self._draws) < self._prefetch:
                shard = int(self._random.choice(len(weights), p=weights))
                draw = self._actors[shard].draw.remote(steps, updates)
                self._draws[draw] = shard
            ready, _ = ray.wait(list(self._draws), timeout=self._timeout)
            if not ready:
                for shard in {*self._draws.values()}:
                    self._replace(shard)
                continue
            (reference,) = ready
            shard = self._draws.pop(reference)
            items = self._get(shard, reference, self._timeout)
            if items is not None:
                return shard, items

    def update(self, shard: int, index: np.ndarray, errors: np.ndarray) -> None:
        """Pass the errors of a batch to a shard, without waiting."""
        self._actors[shard].update.remote(index, errors)

    def save(self, directory: str | os.PathLike, keep: int, step: int) -> None:
        """Write checkpoints `shard-i/step-...` to a directory that all can reach."""
        results = [
            shard.save.remote(_folder(directory, index), keep, step)
            for index, shard in enumerate(self._actors)
        ]
        for index, result in enumerate(results):
            self._get(index, result, self._timeout, at_work=True)

    def restore(self, directory: str | os.PathLike, name: str) -> None:
        """Load checkpoints; a shard without one begins empty."""
        for index, shard in enumerate(self._actors):
            restored = shard.restore.remote(_folder(directory, index), name)
            try:
                size = self._get(index, restored, self._timeout, at_work=True)
            except checkpoint.CheckpointError as error:
                _NOTES.info("replay shard %d begins empty: %s", index, error)
            else:
                self.sizes[index] = size or 0

    def close(self) -> None:
        """End all shards."""
        for shard in self._actors:
            ray.kill(shard)
        self._actors = []

    def _place(self, row: int) -> tuple[int, int]:
        """Return the shard of a row of the run, and its number there."""
        shard = int(np.searchsorted(self._ends, row, "right"))
        return shard, row - self._first_row(shard)

    def _first_row(self, shard: int) -> int:
        return int(self._ends[shard - 1]) if shard else 0

    def _rows(self, shard: int) -> int:
        return int(self._ends[shard]) - self._first_row(shard)

    def _create(self, shard: int) -> ray.actor.ActorHandle:
        sequence = np.random.SeedSequence([self._seed, self.restarts, 1 + shard])
        (seed,) = sequence.generate_state(1)
        options = {"num_cpus": 0, "concurrency_groups": {"watch": 1}}
        create = ray.remote(max_restarts=0, **options)(Shard).remote
        arguments = self._configs[shard], self._description, self._rows(shard)
        return create(*arguments, int(seed) >> 1)

    def _inserted(self, reference: ray.ObjectRef) -> None:
        """Wait for an insertion, and store the new size of its shard."""
        shard = self._inserts.pop(reference, None)
        if shard is None:  # It was replaced.
            return
        size = self._get(shard, reference, self._timeout)
        if size is not None:
            self.sizes[shard], self._deaths[shard] = size, 0

    def _get(
        self,
        shard: int,
        reference: ray.ObjectRef,
        patience: float | None,
        at_work: bool = False,
    ) -> Any:
        """Return the result of a shard; None if it was replaced, or data was lost.

        Args:
          shard: Number of the shard.
          reference: Its future result.
          patience: Seconds after which a shard that does not answer is replaced.
          at_work: Whether the result may take longer, while the process answers.
        """
        try:
            while at_work and not ray.wait([reference], timeout=workers.LOOK_EVERY)[0]:
                ray.get(self._actors[shard].answer.remote(), timeout=patience)
            return ray.get(reference, timeout=patience)
        except ray.exceptions.RayTaskError as error:
            raise workers.cause(error, f"Replay shard {shard}") from error
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            self._replace(shard)
        except ray.exceptions.RayError:  # A worker's data was lost with its node.
            pass
        return None

    def _replace(self, shard: int) -> None:
        """Replace a shard by an empty one."""
        self.restarts += 1
        self._deaths[shard] += 1
        if self._deaths[shard] > workers.MAX_DEATHS:
            raise cluster.WorkerError(
                f"replay shard {shard} died or hung {workers.MAX_DEATHS + 1} times in a row "
                "before it had stored anything; see the logs of Ray, and whether its "
                "machine has enough memory."
            )
        _NOTES.info("replay shard %d is lost and replaced by an empty one", shard)
        ray.kill(self._actors[shard])
        for waiting in (self._inserts, self._draws):
            for reference in [x for x, index in waiting.items() if index == shard]:
                del waiting[reference]
        self.sizes[shard] = 0
        self._actors[shard] = self._create(shard)
        self._build(shard)

    def _build(self, shard: int) -> None:
        """Let a new shard allocate its memory."""
        built = self._actors[shard].build.remote()
        self._get(shard, built, workers.START_TIMEOUT, at_work=True)


def _folder(directory: str | os.PathLike, shard: int) -> str:
    """Return the directory of a shard's checkpoints, in any process."""
    return os.path.join(os.path.abspath(directory), f"shard-{shard}")


def _part(config: actor.RunConfig, rows: int) -> actor.RunConfig:
    """Return a config with the share of the capacity of some rows."""
    capacity = -(-config.algorithm.capacity * rows // config.environment.num_agents)
    try:
        settings = dataclasses.replace(config.algorithm, capacity=capacity)
    except ValueError as error:
        raise cluster.DistributedError(
            f"a replay shard cannot have a capacity of {capacity}: "
            f"{str(error).rstrip('.')}; lower --num_shards, or raise "
            "algorithm.capacity."
        ) from error
    return dataclasses.replace(config, algorithm=settings)


class ShardedLearner(learner.Learner):
    """Learner that trains on batches of shards, as often as it is due."""

    def __init__(self, algorithm: actor.Divisible, shards: Shards) -> None:
        super().__init__(algorithm)
        self._shards = shards
        self._train_on = tf.function(algorithm.train_on, autograph=False)

    def metrics(self) -> dict[str, float]:
        """Return the faults so far."""
        return {"shard_restarts": self._shards.restarts}

    def detach(self, first_row: int, rows: int) -> None:
        """Detach rows of a shard from their worker, which another replaces."""
        self._shards.detach(first_row, rows)

    def insert(self, data: ray.ObjectRef, first_row: int, steps: int) -> None:
        """Send a reference to its shard; run the updates that are due."""
        algorithm = self.algorithm
        self._shards.insert(first_row, data)
        algorithm.steps.assign_add(steps)
        size = self._shards.size
        if size < algorithm.start_size:  # Else the count depends on the clock.
            size = self._shards.wait()
        new = tf.constant(steps, tf.int64)
        algorithm.count(new, tf.constant(size), self._shards.capacity)
        updates = int(algorithm.due())
        algorithm.made.assign_add(updates)
        for _ in range(updates):
            done = int(algorithm.steps), int(algorithm.updates)
            shard, items = self._shards.next(*done)
            start = time.perf_counter()
            errors = self._train_on(items)
            self.seconds += time.perf_counter() - start
            self._shards.update(shard, items["index"], errors.numpy())
        self.version += bool(updates)
