"""A phase of training that actors and a learner share."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from agents.distributed import actor, learner, workers
from agents.tools import loop


@dataclasses.dataclass(frozen=True)
class Options:
    """How workers and learner keep step, where they need not."""

    in_flight: int = 2
    """Chunks that a worker is asked for at a time; with one it waits for the learner,
    and one worker alone does exactly what a local run does."""
    max_lag: int = 10
    """Updates after which an unroll is too old to learn from."""
    steps: int = 8
    """Transitions of a row in a chunk for a replay memory, by the same weights. More
    cost less, but CartPole with 32 of 4 rows did not learn what it did with 8."""
    shards: int = 0
    """Processes that hold the replay memory; with none the learner's process does."""
    prefetch: int = 2
    """Batches of each shard, on average, that are drawn before they are needed."""


class Phase(loop.Progress):
    """What every topology counts. Subclasses do one update in `run`."""

    def __init__(
        self,
        learner: learner.Learner,
        workers: workers.Workers,
        options: Options,
        seed: int,
        phase: int,
    ) -> None:
        """Begin all episodes anew, with seeds made of seed and phase."""
        super().__init__()
        self._options = options
        self._learner, self._workers = learner, workers
        self._learned_before = learner.seconds
        self._steps = self._seconds = 0
        self._started = len(workers.present)
        self._arrived: list[actor.Chunk] = []
        workers.begin(seed, phase)

    def metrics(self) -> dict[str, float]:
        """Faults so far."""
        return {
            "worker_restarts": self._workers.restarts,
            **self._learner.metrics(),
        }

    def timing(self, seconds: float) -> dict[str, float]:
        """Speeds of acting alone and learning alone, and their shares of the time."""
        learned = self._learner.seconds - self._learned_before
        acted = self._seconds / self._started
        return {
            "acting_steps_per_second": round(self._steps / max(acted, 1e-9), 1),
            "learning_steps_per_second": round(self.env_steps / max(learned, 1e-9), 1),
            "acting_share": round(acted / seconds, 3),
            "learning_share": round(learned / seconds, 3),
        }

    def lend(self, index: int) -> np.ndarray | None:
        """The learner's random numbers, if only this worker acts until it learns."""
        alone = len(self._workers.sizes) == 1 and self._options.in_flight == 1
        return self._learner.agent.generator.state.numpy() if alone else None

    def arrive(self, chunk: actor.Chunk) -> None:
        """Count what a worker did."""
        self._steps += chunk.env_steps
        self._seconds += chunk.seconds
        self._learner.agent.metrics.add(chunk.metrics)
        self._arrived.append(chunk)
        if chunk.random is not None:
            self._learner.agent.generator.state.assign(chunk.random)

    def ended(self) -> dict[str, np.ndarray]:
        """Episodes that ended in all that has arrived since the last call."""
        chunks, self._arrived = self._arrived, []
        score = np.concatenate([x.scores for x in chunks] or [np.zeros(0)])
        length = np.concatenate([x.episode_lengths for x in chunks] or [np.zeros(0)])
        return {"done": np.ones(len(score), bool), "score": score, "length": length}


def join(parts: Iterable[Any]) -> tuple[list[np.ndarray], np.ndarray]:
    """Data and lengths of several parts as one; not copied if there is only one."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0].data, parts[0].lengths
    data = [np.concatenate(x) for x in zip(*(x.data for x in parts), strict=True)]
    return data, np.concatenate([x.lengths for x in parts])


def split(chunk: actor.Chunk, size: int) -> tuple[actor.Chunk, actor.Chunk]:
    """The first sequences of a chunk, and the others; views."""
    return tuple(
        chunk._replace(data=[x[part] for x in chunk.data], lengths=chunk.lengths[part])
        for part in (slice(size), slice(size, None))
    )
