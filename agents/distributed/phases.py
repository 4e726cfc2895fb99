"""Phases of training by actors and a learner, one class for each topology."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from agents.distributed import actor, learner, workers
from agents.tools import bounds, loop


@dataclasses.dataclass(frozen=True)
class Options:
    """Options for the coordination of workers and learner."""

    in_flight: bounds.Size = 2
    """Chunks requested from a worker at a time; with one it waits for the learner, and
    a single worker does exactly the work of a local run."""
    max_lag: bounds.Whole = 10
    """Updates after which an unroll is too old for learning."""
    steps: bounds.Size = 8
    """Transitions per row in a chunk for a replay memory, by the same weights. Larger
    chunks cost less, but CartPole with 32 steps of 4 rows learned worse than with 8."""
    shards: bounds.Whole = 0
    """Processes that store the replay memory; if zero, the learner's process does."""
    prefetch: bounds.Size = 2
    """Batches of each shard, on average, to draw before they are needed."""

    def __post_init__(self) -> None:
        bounds.require(self)


class Phase(loop.Progress):
    """Base of all topologies, with their counters. Subclasses update once in `run`."""

    def __init__(
        self,
        learner: learner.Learner,
        workers: workers.RayWorkers,
        options: Options,
        seed: int,
        phase: int,
    ) -> None:
        """Begin all episodes, with seeds derived from seed and phase."""
        super().__init__()
        self._options = options
        self._learner, self._workers = learner, workers
        self._learned_before = learner.seconds
        self._steps = self._seconds = 0
        self._started = len(workers.present)
        self._arrived: list[actor.Chunk] = []
        learner.version += 1  # The caller may have changed the weights in between.
        workers.begin(seed, phase)

    def metrics(self) -> dict[str, float]:
        """Return the faults so far."""
        return {
            "worker_restarts": self._workers.restarts,
            **self._learner.metrics(),
        }

    def timing(self, seconds: float) -> dict[str, float]:
        """Return the speeds of acting and of learning, and their shares of the time."""
        learned = self._learner.seconds - self._learned_before
        acted = self._seconds / self._started
        return {
            "acting_steps_per_second": round(self._steps / max(acted, 1e-9), 1),
            "learning_steps_per_second": round(self.env_steps / max(learned, 1e-9), 1),
            "acting_share": round(acted / seconds, 3),
            "learning_share": round(learned / seconds, 3),
        }

    def lend(self, index: int) -> np.ndarray | None:
        """Return the learner's random numbers if no other worker is acting."""
        alone = len(self._workers.sizes) == 1 and self._options.in_flight == 1
        return self._learner.algorithm.generator.state.numpy() if alone else None

    def arrive(self, chunk: actor.Chunk) -> None:
        """Count the results of a worker."""
        self._steps += chunk.env_steps
        self._seconds += chunk.seconds
        self._learner.algorithm.metrics.add(chunk.metrics)
        self._arrived.append(chunk)
        if chunk.random is not None:
            self._learner.algorithm.generator.state.assign(chunk.random)

    def ended(self) -> dict[str, np.ndarray]:
        """Return episodes that ended in all chunks since the last call."""
        chunks, self._arrived = self._arrived, []
        score = np.concatenate([x.scores for x in chunks] or [np.zeros(0)])
        length = np.concatenate([x.episode_lengths for x in chunks] or [np.zeros(0)])
        return {"done": np.ones(len(score), bool), "score": score, "length": length}


class Synchronous(Phase):
    """Phase with one round of all workers per update, joined in order of their rows.

    The first worker draws from the learner's random numbers, which it borrows while it
    acts. So a single worker does exactly the work of a local run.
    """

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Run one round, and update if the learner's memory is full."""
        memory = self._learner.algorithm.memory
        whole = memory.whole_episodes
        size = int(memory.room) if whole else sum(self._workers.sizes)
        steps = limit if whole else self._learner.algorithm.batch_steps
        chunks = self._round(steps, size)
        if not whole:  # The others compensate for lost workers.
            while (missing := size - sum(len(x.lengths) for x in chunks)) > 0:
                chunks += self._round(steps, missing)
        data, lengths = join(chunks)
        env_steps = sum(chunk.env_steps for chunk in chunks)
        if not whole:
            data, lengths = [x[:size] for x in data], lengths[:size]
            env_steps = size * steps
        self.env_steps += env_steps
        self._learner.remember(data, lengths, env_steps)
        return self.ended()

    def _round(self, steps: int, size: int) -> list[actor.Chunk]:
        """Return chunks with at most `size` sequences together, in order."""
        quotas = self._quotas(size)
        for index, quota in quotas.items():
            self._ask(index, steps, quota)
        chunks: dict[int, actor.Chunk] = {}
        while missing := set(quotas) & set(self._workers.present) - set(chunks):
            index, chunk = self._workers.next()
            if chunk is not None:
                self.arrive(chunk)
                chunks[index] = chunk
            elif index in missing and index in self._workers.present:
                self._ask(index, steps, quotas[index])
        if not chunks:
            self._workers.require_any()
        return [chunks[index] for index in sorted(chunks)]

    def _quotas(self, size: int) -> dict[int, int]:
        """Return sequences by worker, as equal as possible, without zeros."""
        present = self._workers.present
        if not self._learner.algorithm.memory.whole_episodes:
            return {index: self._workers.sizes[index] for index in present}
        each, more = divmod(size, len(present))
        quotas = {x: each + (place < more) for place, x in enumerate(present)}
        return {index: quota for index, quota in quotas.items() if quota}

    def _ask(self, index: int, steps: int, quota: int) -> None:
        weights = self._learner.weights()
        self._workers.collect(index, steps, quota, *weights, self.lend(index))

    def lend(self, index: int) -> np.ndarray | None:
        """Return the learner's random numbers for the first worker, None for others."""
        return None if index else self._learner.algorithm.generator.state.numpy()


class Streaming(Phase):
    """Phase with batches of the unrolls that arrive first.

    A worker gets its next request once one of its unrolls has been used, so it waits
    for the learner, and the learner never waits for a particular worker. If workers are
    lost and all unrolls of the others are not enough, they act once more. Unrolls that
    are too old are dropped.
    """

    def __init__(self, *arguments) -> None:
        """Create the phase; the arguments are those of `Phase`."""
        super().__init__(*arguments)
        self._idle = self._workers.present * self._options.in_flight
        self._waiting: list[tuple[int, actor.Chunk]] = []
        self._lags: list[int] = []
        self._dropped = 0

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Update once on as many unrolls as there are rows."""
        rest, self._waiting = self._waiting, []
        for index, chunk in rest:  # The weights have changed since then.
            self._keep(index, chunk)
        self._ask()
        size = sum(self._workers.sizes)
        while (rows := sum(len(x.lengths) for _, x in self._waiting)) < size:
            self._receive()
        batch, self._waiting = self._waiting, []
        self._idle += [index for index, _ in batch]
        if rows > size:  # The rest is for the next batch.
            index, last = batch.pop()
            first, rest = split(last, len(last.lengths) - (rows - size))
            batch.append((index, first))
            self._waiting.append((index, rest))
            self._idle.pop()
        for _, chunk in batch:
            self._lags += [self._lag(chunk)] * len(chunk.lengths)
        steps = size * self._learner.algorithm.batch_steps
        self.env_steps += steps
        self._learner.learn(*join(chunk for _, chunk in batch), steps)
        return self.ended()

    def metrics(self) -> dict[str, float]:
        """Return the lag in updates, and the number of dropped unrolls."""
        lags = self._lags or [0]
        return {
            **super().metrics(),
            "lag": float(np.mean(lags)),
            "lag_max": max(lags),
            "dropped_unrolls": self._dropped,
        }

    def _ask(self) -> None:
        """Ask idle workers for one more unroll of each of their rows."""
        steps = self._learner.algorithm.batch_steps
        for index in self._idle:
            rows, weights = self._workers.sizes[index], self._learner.weights()
            busy = self._workers.num_pending(index) >= self._options.in_flight
            if index in self._workers.present and not busy:
                self._workers.collect(index, steps, rows, *weights, self.lend(index))
        self._idle = []

    def _receive(self) -> None:
        """Wait for one unroll, or for the replacement of a worker."""
        present = self._workers.present
        if not any(map(self._workers.num_pending, present)):
            self._idle = list(present)
            self._ask()
        index, chunk = self._workers.next()
        if chunk is None:
            self._idle = [index] * self._options.in_flight
        else:
            self.arrive(chunk)
            self._keep(index, chunk)
        self._ask()

    def _keep(self, index: int, chunk: actor.Chunk) -> None:
        """Let the unrolls of a worker wait for the batch, unless they are too old."""
        if self._lag(chunk) <= self._options.max_lag:
            self._waiting.append((index, chunk))
        else:
            self._dropped += len(chunk.lengths)
            self._idle.append(index)

    def _lag(self, chunk: actor.Chunk) -> int:
        """Return the number of updates since the weights that acted."""
        return self._learner.version - chunk.version


class Replaying(Phase):
    """Phase with chunks of transitions from the worker that finishes first.

    After each chunk the learner runs all updates that are due, and only then asks its
    worker for another one. So the replay ratio is that of a local run: the learner
    waits for data, and workers wait for the learner.
    """

    def __init__(self, *arguments) -> None:
        """Create the phase; the arguments are those of `Phase`."""
        super().__init__(*arguments)
        self._idle = self._workers.present * self._options.in_flight

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Remember one chunk, and run the updates that are due."""
        steps = min(limit, self._options.steps)
        for index in self._idle:
            weights = self._learner.weights()
            self._workers.collect(index, steps, None, *weights, self.lend(index))
        index, chunk = self._workers.next()
        first, self._idle = self._workers.first_row(index), [index]
        if chunk is None:
            self._learner.detach(first, self._workers.sizes[index])
            self._idle *= self._options.in_flight * (index in self._workers.present)
            return self.ended()
        self.arrive(chunk)
        self.env_steps += chunk.env_steps
        self._learner.insert(chunk.data, first, chunk.env_steps)
        return self.ended()


TOPOLOGIES = {
    "synchronous": Synchronous,
    "streaming": Streaming,
    "replaying": Replaying,
}
"""Phases by the `topology` of the memory."""


def join(parts: Iterable[actor.Chunk]) -> tuple[list[np.ndarray], np.ndarray]:
    """Join data and lengths of several parts; a single part is not copied."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0].data, parts[0].lengths
    data = [np.concatenate(x) for x in zip(*(x.data for x in parts), strict=True)]
    return data, np.concatenate([x.lengths for x in parts])


def split(chunk: actor.Chunk, size: int) -> tuple[actor.Chunk, actor.Chunk]:
    """Split a chunk into views of its first `size` sequences and of the others."""
    return tuple(
        chunk._replace(data=[x[part] for x in chunk.data], lengths=chunk.lengths[part])
        for part in (slice(size), slice(size, None))
    )
