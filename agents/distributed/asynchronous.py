"""Asynchronous unrolls: workers act while the learner learns."""

import numpy as np

from agents.distributed import actor, phase


class Unrolls(phase.Phase):
    """Batches of the unrolls that come first, of whatever workers.

    A worker is asked for another unroll when one of it was learned from, so it waits for
    the learner, and the learner never waits for a certain worker. Unrolls that are too
    old are left out.
    """

    def __init__(self, *arguments) -> None:
        """Arguments are those of `Phase`."""
        super().__init__(*arguments)
        self._idle = self._workers.present * self._options.in_flight
        self._waiting: list[tuple[int, actor.Chunk]] = []
        self._lags: list[int] = []
        self._dropped = 0

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """One update on as many rows as there are."""
        self._ask()
        size = sum(self._workers.sizes)
        while (rows := sum(len(x.lengths) for _, x in self._waiting)) < size:
            self._receive()
        batch, self._waiting = self._waiting, []
        self._idle = [index for index, _ in batch]
        if rows > size:  # What is left of the last one is for the next batch.
            index, last = batch.pop()
            first, rest = phase.split(last, len(last.lengths) - (rows - size))
            batch.append((index, first))
            self._waiting.append((index, rest))
            self._idle.pop()
        self._lags += [self._learner.version - chunk.version for _, chunk in batch]
        steps = size * self._learner.agent.batch_steps
        self.env_steps += steps
        self._learner.learn(*phase.join(chunk for _, chunk in batch), steps)
        return self.ended()

    def metrics(self) -> dict[str, float]:
        """Lag in updates, and unrolls that were too old."""
        lags = self._lags or [0]
        return {
            **super().metrics(),
            "lag": float(np.mean(lags)),
            "lag_max": max(lags),
            "dropped_unrolls": self._dropped,
        }

    def _ask(self) -> None:
        """Ask idle workers for one more unroll of each of their rows."""
        steps = self._learner.agent.batch_steps
        for index in self._idle:
            rows, weights = self._workers.sizes[index], self._learner.weights()
            busy = self._workers.num_pending(index) >= self._options.in_flight
            if index in self._workers.present and not busy:
                self._workers.collect(index, steps, rows, *weights, self.lend(index))
        self._idle = []

    def _receive(self) -> None:
        """Wait for one unroll, or for a worker that replaces another one."""
        index, chunk = self._workers.next()
        if chunk is None:
            self._idle = [index] * self._options.in_flight
        else:
            self.arrive(chunk)
            if self._learner.version - chunk.version <= self._options.max_lag:
                self._waiting.append((index, chunk))
                return
            self._dropped += len(chunk.lengths)
            self._idle = [index]
        self._ask()
