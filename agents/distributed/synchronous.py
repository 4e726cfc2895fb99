"""Synchronous batches: all workers act by the same weights, then the learner learns."""

import numpy as np

from agents import memories
from agents.distributed import actor, phase


class Batches(phase.Phase):
    """One round of all workers per update, joined in the order of their rows.

    The first worker draws the learner's random numbers, which it is lent while it acts.
    So one worker does exactly what a local run does.
    """

    def run(self, limit: int) -> dict[str, np.ndarray]:
        """One round, and an update if the learner's memory is full then."""
        memory = self._learner.agent.memory
        whole = isinstance(memory, memories.Episodes)
        size = int(memory.room) if whole else sum(self._workers.sizes)
        steps = limit if whole else self._learner.agent.batch_steps
        chunks = self._round(steps, size)
        if not whole:  # What lost workers leave out, the others make up for.
            while (missing := size - sum(len(x.lengths) for x in chunks)) > 0:
                chunks += self._round(steps, missing)
        data, lengths = phase.join(chunks)
        env_steps = sum(chunk.env_steps for chunk in chunks)
        if not whole:
            data, lengths = [x[:size] for x in data], lengths[:size]
            env_steps = size * steps
        self.env_steps += env_steps
        self._learner.remember(data, lengths, env_steps)
        return self.ended()

    def _round(self, steps: int, size: int) -> list[actor.Chunk]:
        """Chunks of this number of sequences together, at most, in order."""
        quotas = self._quotas(size)
        for index, quota in quotas.items():
            self._ask(index, steps, quota)
        chunks: dict[int, actor.Chunk] = {}
        while missing := set(quotas) & set(self._workers.present) - set(chunks):
            index, chunk = self._workers.next()
            if chunk is not None:
                self.arrive(chunk)
                chunks[index] = chunk
            elif index in missing:
                self._ask(index, steps, quotas[index])
        return [chunks[index] for index in sorted(chunks)]

    def _quotas(self, size: int) -> dict[int, int]:
        """Sequences by worker, as equal as possible; those with none do not act."""
        present = self._workers.present
        if isinstance(self._learner.agent.memory, memories.Unrolls):
            return {index: self._workers.sizes[index] for index in present}
        each, more = divmod(size, len(present))
        quotas = {x: each + (place < more) for place, x in enumerate(present)}
        return {index: quota for index, quota in quotas.items() if quota}

    def _ask(self, index: int, steps: int, quota: int) -> None:
        weights = self._learner.weights()
        self._workers.collect(index, steps, quota, *weights, self.lend(index))

    def lend(self, index: int) -> np.ndarray | None:
        """The learner's random numbers, to the first worker."""
        return None if index else self._learner.agent.generator.state.numpy()
