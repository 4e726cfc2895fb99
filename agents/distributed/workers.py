"""Workers: the actors of all rows, each of which is replaced when it dies."""

import logging
import time
from typing import Any

import numpy as np
import ray

from agents.distributed import actor, cluster
from agents.environments import make

MAX_DEATHS = 5
"""Times that a worker may die in a row before it has done anything."""

LOOK_EVERY = 5.0
"""Seconds after which Ray and workers are looked after again, if none has died."""

START_TIMEOUT = 120.0
"""Seconds in which an actor must be there, so that CPUs that are gone are noticed."""

_NOTES = logging.getLogger(__name__)


class Workers:
    """Ray actors that act for some rows each, and what is under way there.

        workers.begin(seed, phase)
        workers.collect(index, ...)               # for all in `present`
        index, chunk = workers.next()             # None: it was replaced, ask again

    A worker that dies, or waits for its environments for longer than their timeout, is
    replaced by one for the same rows, which begins anew; what it was doing is lost. If no
    CPU is left for it, it is not `present` any more, and the others go on.

    Attributes:
      sizes: Rows of each worker.
      restarts: Number of workers that were replaced.
      present: Indices of the workers that are not lost for good.
    """

    def __init__(
        self,
        config: Any,
        description: make.Description,
        sizes: list[int],
        steps: int,
        apart: bool = False,
    ) -> None:
        """Start one actor for each of the numbers of rows, and wait for them.

        Args:
          config: Of `Actor`, as the next one.
          description: Of its environment.
          sizes: Rows of each worker.
          steps: Of `Actor`.
          apart: The data of chunks stays where it is, chunks have references to it.

        Raises:
          DistributedError: if environments cannot be made there, in one line.
        """
        self.sizes, self.restarts = sizes, 0
        self.present = list(range(len(sizes)))
        self._ends = np.cumsum(sizes)  # Rows behind those of each.
        options = {"num_cpus": 1, "concurrency_groups": {"watch": 1}}
        self._create = ray.remote(max_restarts=0, **options)(actor.Actor).remote
        self._timeout = config.environment.timeout
        self._arguments, self._steps = (config, description), steps
        self._apart = apart
        self._deaths = [0] * len(sizes)
        self._pending: dict[Any, tuple[int, Any]] = {}  # Worker and data, by result.
        self._building: dict[Any, tuple[int, float]] = {}  # Their deadlines, too.
        self._asked: dict[int, tuple[Any, float]] = {}  # How long it waits, and when.
        self._actors: list[Any] = [None] * len(sizes)
        self._begun: tuple[int, int] | None = None
        self._pulse, self._next_look = cluster.Pulse(), 0.0
        for index in self.present:
            self._build(index)
        while self._building:
            self._wait()
        if self.restarts or len(self.present) < len(sizes):
            self.close()
            raise cluster.DistributedError(
                f"the workers did not start; {cluster.free_cpus()} CPUs are free."
            )

    def first_row(self, index: int) -> int:
        """First row of a worker."""
        return int(self._ends[index]) - self.sizes[index]

    def begin(self, seed: int, phase: int) -> None:
        """Discontinue what is under way; all episodes begin anew."""
        self._pending.clear()
        self._begun = seed, phase
        for index in self.present:
            self._begin(index)

    def collect(self, index: int, *arguments: Any) -> None:
        """Let a worker do what `Actor.collect` says, after what it is doing."""
        worker, data = self._actors[index], None
        if self._apart:
            collect = worker.collect_apart.options(num_returns=2)
            result, data = collect.remote(*arguments)
        else:
            result = worker.collect.remote(*arguments)
        self._pending[result] = index, data

    def num_pending(self, index: int) -> int:
        """Chunks that a worker was asked for and that were not seen by `next` yet."""
        return sum(index == other for other, _ in self._pending.values())

    def next(self) -> tuple[int, actor.Chunk | None]:
        """Wait for the next result, of whatever worker; none if it died or is lost.

        Raises:
          WorkerError: if no worker is left, or one has failed in another way.
          Exception: what the environments raised.
        """
        while True:
            found = self._wait()
            if found is not None:
                return found

    def close(self) -> None:
        """End all actors."""
        self._pending.clear()
        for index in self.present:
            ray.kill(self._actors[index])
        self.present = []

    def _wait(self) -> tuple[int, actor.Chunk | None] | None:
        """What happens next, if it is a result or a replacement."""
        if not self.present:
            raise cluster.WorkerError("no worker is left; no CPU is free for any.")
        hung = self._look()
        if hung is not None:
            self._replace(hung, "hangs")
            return hung, None
        first: dict[int, Any] = {}  # Results of a worker only in their order.
        for reference, (index, _) in self._pending.items():
            first.setdefault(index, reference)
        references = [*self._building, *first.values()]
        ready, _ = ray.wait(references, num_returns=1, timeout=1.0)
        if not ready:
            return self._expire()
        (reference,) = ready
        index, _ = self._building.pop(reference, (None, None))
        built, data = index is not None, None
        if not built:
            index, data = self._pending.pop(reference)
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            self.close()
            raise _cause(error) from error
        except ray.exceptions.RayError:  # The process, its node or the data are gone.
            self._replace(index, "has died")
            return index, None
        if built:
            return None
        self._deaths[index] = 0
        return index, result._replace(data=data) if self._apart else result

    def _look(self) -> int | None:
        """From time to time, make sure that Ray is there, and find a worker that hangs."""
        if time.monotonic() < self._next_look:
            return None
        self._pulse.check()
        self._next_look = time.monotonic() + LOOK_EVERY
        building = {index for index, _ in self._building.values()}
        for index in {index for index, _ in self._pending.values()} - building:
            if self._waits(index) > self._timeout:
                return index
        return None

    def _waits(self, index: int) -> float:
        """Seconds for which a worker waits for environments, or does not answer."""
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
            return 0.0  # It has died, which its results tell.

    def _replace(self, index: int, reason: str) -> None:
        """Start another actor in place of one."""
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
        """Nothing that an actor was asked for matters any more."""
        ray.kill(self._actors[index])
        self._asked.pop(index, None)
        self._pending = {r: x for r, x in self._pending.items() if x[0] != index}
        self._building = {r: x for r, x in self._building.items() if x[0] != index}

    def _expire(self) -> tuple[int, None] | None:
        """Give up a worker that could not be started in time, if there is one."""
        for index, deadline in list(self._building.values()):
            if time.monotonic() > deadline:
                self._forget(index)
                self.present.remove(index)
                _NOTES.info(
                    "no CPU is free for worker %d; %d are left",
                    *(index, len(self.present)),
                )
                return index, None
        return None

    def _build(self, index: int) -> None:
        rows = self.first_row(index), self.sizes[index]
        self._actors[index] = self._create(*self._arguments, *rows, self._steps)
        reference = self._actors[index].build.remote()
        self._building[reference] = index, time.monotonic() + START_TIMEOUT

    def _begin(self, index: int) -> None:
        """Begin episodes, with other seeds than any worker had before."""
        seed, phase = self._begun
        first = self.first_row(index)
        sequence = [seed, phase, self.restarts]  # A zero at the end changes nothing.
        seeds = np.random.SeedSequence(sequence).generate_state(self._ends[-1])
        seeds = seeds.astype(np.int64)[first : first + self.sizes[index]] >> 1
        (own,) = np.random.SeedSequence([*sequence, 1 + index]).generate_state(1)
        self._actors[index].begin.remote(seeds, int(own))


def _cause(error: Any) -> Exception:
    """What to raise in place of an error of an actor."""
    cause = error.cause
    if isinstance(cause, make.EnvironmentNotFound):
        return cluster.DistributedError(
            f"{str(cause).rstrip('.')} on a worker; an environment that is registered "
            "by your program only must be named as module:function."
        )
    if isinstance(cause, ValueError | make.ConstructorError | RuntimeError):
        return cause
    return cluster.WorkerError(str(error))
