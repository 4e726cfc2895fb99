"""Workers: the actors of all rows, each of which is replaced when it dies."""

import logging
import math
import time
from typing import Any

import numpy as np
import ray
import tensorflow as tf

from agents.distributed import actor, cluster
from agents.environments import make, singles
from agents.tools import errors

MAX_DEATHS = 5
"""Allowed number of consecutive deaths of a process without any work in between."""

LOOK_EVERY = 5.0
"""Seconds between checks of Ray and of workers, if none has died."""

START_TIMEOUT = 120.0
"""Seconds within which an actor's process must start, and create its algorithm."""

_NOTES = logging.getLogger(__name__)


class RayWorkers:
    """Ray actors that act for some rows each, with their open requests.

        workers.begin(seed, phase)
        workers.collect(index, ...)               # for all in `present`
        index, chunk = workers.next()             # None: it was replaced, ask again

    A worker that dies, or waits for its environments for longer than their timeout, is
    replaced by one for its rows, which starts over; its current work is lost. If no CPU
    is left for it, it is no longer `present`, and the others continue.

    Attributes:
      sizes: Rows of each worker.
      restarts: Number of workers that were replaced.
      present: Indices of the workers that are not lost for good.
    """

    def __init__(
        self,
        config: actor.RunConfig,
        description: make.Description,
        sizes: list[int],
        steps: int,
        apart: bool = False,
    ) -> None:
        """Start one actor for each of the numbers of rows, and wait for them.

        Args:
          config: Config for `Actor`.
          description: Description of its environment.
          sizes: Rows of each worker.
          steps: Largest number of transitions per row and call; see `Actor`.
          apart: Whether the data stays on the workers, with references in chunks.

        Raises:
          DistributedError: if environments cannot be created there.
        """
        self.sizes, self.restarts = sizes, 0
        self.present = list(range(len(sizes)))
        self._ends = np.cumsum(sizes)  # First row after those of each.
        options = {"num_cpus": 1, "concurrency_groups": {"watch": 1}}
        self._create = ray.remote(max_restarts=0, **options)(actor.Actor).remote
        self._timeout = config.environment.timeout
        self._start_timeout = config.environment.start_timeout
        self._arguments, self._steps = (config, description), steps
        self._apart = apart
        self._deaths = [0] * len(sizes)
        # Worker and data, by result.
        self._pending: dict[ray.ObjectRef, tuple[int, ray.ObjectRef | None]] = {}
        # Worker, the time of its creation, and a sign of life, by result.
        self._building: dict[ray.ObjectRef, tuple[int, float, ray.ObjectRef]] = {}
        self._lost = ""  # Why the last worker was lost for good.
        # Question and its time, by worker.
        self._asked: dict[int, tuple[ray.ObjectRef, float]] = {}
        self._actors: dict[int, ray.actor.ActorHandle] = {}
        self._begun: tuple[int, int] | None = None
        self._pulse, self._next_look = cluster.Pulse(), 0.0
        try:
            for index in self.present:
                self._build(index)
            while self._building:
                self._wait()
            if len(self.present) < len(sizes):
                raise cluster.DistributedError(f"{self._lost}.")
        except BaseException:
            self.close()
            raise

    def first_row(self, index: int) -> int:
        """Return the first row of a worker."""
        return int(self._ends[index]) - self.sizes[index]

    def begin(self, seed: int, phase: int) -> None:
        """Abandon all work; all episodes start over."""
        self._pending.clear()
        self._begun = seed, phase
        for index in self.present:
            self._begin(index)

    def collect(self, index: int, *arguments: Any) -> None:
        """Request `Actor.collect` from a worker, after its other requests."""
        worker, data = self._actors[index], None
        if self._apart:
            collect = worker.collect_apart.options(num_returns=2)
            result, data = collect.remote(*arguments)
        else:
            result = worker.collect.remote(*arguments)
        self._pending[result] = index, data

    def num_pending(self, index: int) -> int:
        """Return the number of open requests for chunks of a worker."""
        return sum(index == other for other, _ in self._pending.values())

    def next(self) -> tuple[int, actor.Chunk | None]:
        """Wait for the next result of any worker; None if it was replaced or lost.

        Raises:
          WorkerError: if no worker is left, or one has failed in another way.
          Exception: of the environments.
        """
        while True:
            found = self._wait()
            if found is not None:
                return found

    def require_any(self) -> None:
        """Raise WorkerError if no worker is left."""
        if not self.present:
            raise cluster.WorkerError("no worker is left; no CPU is free for any.")

    def close(self) -> None:
        """End all actors."""
        self._pending.clear()
        for worker in self._actors.values():
            ray.kill(worker)
        self.present, self._actors = [], {}

    def _wait(self) -> tuple[int, actor.Chunk | None] | None:
        """Wait for the next event; return it if it is a result or a replacement."""
        self.require_any()
        hung = self._look()
        if hung is not None:
            self._replace(hung, "hangs")
            return hung, None
        first: dict[int, ray.ObjectRef] = {}  # A worker's results arrive in order.
        for reference, (index, _) in self._pending.items():
            first.setdefault(index, reference)
        references = [*self._building, *first.values()]
        ready, _ = ray.wait(references, num_returns=1, timeout=1.0)
        if not ready:
            return self._expire()
        (reference,) = ready
        index, *_ = self._building.pop(reference, (None,))
        built, data = index is not None, None
        if not built:
            index, data = self._pending.pop(reference)
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            self.close()
            raise cause(error, f"Worker {index}") from error
        except ray.exceptions.RayError:  # The process, its node or the data are gone.
            self._replace(index, "has died")
            return index, None
        if built:
            return None
        self._deaths[index] = 0
        return index, result._replace(data=data) if self._apart else result

    def _look(self) -> int | None:
        """Check Ray from time to time, and return a worker that hangs, if any."""
        if time.monotonic() < self._next_look:
            return None
        self._pulse.check()
        self._next_look = time.monotonic() + LOOK_EVERY
        building = {index for index, *_ in self._building.values()}
        for index in {index for index, _ in self._pending.values()} - building:
            if self._waits(index) > self._timeout:
                return index
        return None

    def _waits(self, index: int) -> float:
        """Return for how many seconds a worker waits for environments or is silent."""
        if index not in self._asked:
            question = self._actors[index].waiting.remote()
            self._asked[index] = question, time.monotonic()
        question, since = self._asked[index]
        if not ray.wait([question], timeout=0)[0]:
            return time.monotonic() - since
        del self._asked[index]
        try:
            return ray.get(question)
        except ray.exceptions.RayError:
            return 0.0  # It has died, as its results show.

    def _replace(self, index: int, reason: str) -> None:
        """Replace an actor by a new one."""
        self._pulse.check()
        self.restarts += 1
        self._deaths[index] += 1
        if self._deaths[index] > MAX_DEATHS:
            self.close()
            raise cluster.WorkerError(
                f"worker {index} died or hung {MAX_DEATHS + 1} times in a row before it "
                "had done anything; see what its environments print in the logs of Ray."
            )
        _NOTES.info("worker %d %s and is replaced", index, reason)
        self._forget(index)
        self._build(index)
        if self._begun:
            self._begin(index)

    def _forget(self, index: int) -> None:
        """Drop all requests of an actor, and kill it."""
        ray.kill(self._actors[index])
        self._asked.pop(index, None)
        self._pending = {r: x for r, x in self._pending.items() if x[0] != index}
        self._building = {r: x for r, x in self._building.items() if x[0] != index}

    def _expire(self) -> tuple[int, None] | None:
        """Give up on a worker that has not started in time, and return it, if any."""
        for index, since, sign in list(self._building.values()):
            patience, problem = START_TIMEOUT, f"no CPU is free for worker {index}"
            if ray.wait([sign], timeout=0)[0]:
                patience += self.sizes[index] * (self._start_timeout or math.inf)
                problem = (
                    f"worker {index} has not created its {self.sizes[index]} "
                    f"environments within {patience:g} s; see environment.start_timeout"
                )
            if time.monotonic() > since + patience:
                self._forget(index)
                self.present.remove(index)
                self._lost = problem
                _NOTES.info("%s; %d workers are left", problem, len(self.present))
                return index, None
        return None

    def _build(self, index: int) -> None:
        rows = self.first_row(index), self.sizes[index]
        self._actors[index] = self._create(*self._arguments, *rows, self._steps)
        sign = self._actors[index].ready.remote()
        reference = self._actors[index].build.remote()
        self._building[reference] = index, time.monotonic(), sign

    def _begin(self, index: int) -> None:
        """Begin episodes, with seeds that no earlier worker had."""
        seed, phase = self._begun
        first = self.first_row(index)
        sequence = [seed, phase, self.restarts]  # A zero at the end changes nothing.
        seeds = np.random.SeedSequence(sequence).generate_state(self._ends[-1])
        seeds = seeds.astype(np.int64)[first : first + self.sizes[index]] >> 1
        (own,) = np.random.SeedSequence([*sequence, 1 + index]).generate_state(1)
        self._actors[index].begin.remote(seeds, int(own))


def cause(error: ray.exceptions.RayTaskError, process: str) -> Exception:
    """Return the exception to raise for an error of a process."""
    cause = error.cause
    if isinstance(cause, singles.EnvironmentNotFound):
        return cluster.DistributedError(
            f"{str(cause).rstrip('.')} on a worker; an environment that is registered "
            "by your program only must be named as module:function."
        )
    if isinstance(cause, ValueError | RuntimeError | tf.errors.OpError):
        text = str(cause)
        if text.startswith("Environment row"):  # One of this worker's rows.
            cause.args = (f"{process}, e{text[1:]}",)
        return cause
    return cluster.WorkerError(f"{process}: {errors.reason(cause)}")
