"""Asynchronous replay: workers extend the learner's memory while it learns."""

import numpy as np

from agents.distributed import phase


class Transitions(phase.Phase):
    """Chunks of transitions, of whatever worker comes first.

    After each of them the learner does all updates that are due, and only then asks its
    worker for another one. So the replay ratio is that of a local run: the learner waits
    for data, and workers wait for the learner.
    """

    def __init__(self, *arguments) -> None:
        """Arguments are those of `Phase`."""
        super().__init__(*arguments)
        self._idle = self._workers.present * self._options.in_flight

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """Remember one chunk, and do the updates that are due."""
        steps = min(limit, self._options.steps)
        for index in self._idle:
            weights = self._learner.weights()
            self._workers.collect(index, steps, 0, *weights, self.lend(index))
        index, chunk = self._workers.next()
        self._idle = [index]
        if chunk is None:
            self._idle *= self._options.in_flight * (index in self._workers.present)
            return self.ended()
        self.arrive(chunk)
        self.env_steps += chunk.env_steps
        first = self._workers.first_row(index)
        self._learner.insert(chunk.data, first, chunk.env_steps)
        return self.ended()
