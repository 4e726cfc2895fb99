"""Phases with workers that are lost for good, without Ray."""

import types

import numpy as np
import pytest

from agents.distributed import actor, cluster, phases


class Workers:
    """Workers of one row each; `lost` ones disappear when they are asked for results."""

    restarts = 0

    def __init__(self, present, lost=()):
        self.sizes, self.present, self._lost = [1, 1, 1], list(present), list(lost)
        self._pending, self._versions = [], []

    def begin(self, seed, phase):
        pass

    def collect(self, index, steps, rows, version, *_):
        assert index in self.present
        self._pending.append(index)
        self._versions.append(version)

    def num_pending(self, index):
        return self._pending.count(index)

    def require_any(self):
        if not self.present:
            raise cluster.WorkerError("no worker is left")

    def next(self):
        self.require_any()
        assert self._pending  # Else it would wait forever.
        if self._lost:
            index = self._lost.pop()
            self._pending = [x for x in self._pending if x != index]
            self.present.remove(index)
            return index, None
        index, version = self._pending.pop(0), self._versions.pop(0)
        rows, none = self.sizes[index], np.zeros(0)
        data = [np.full((rows, 2), index)]
        lengths = np.full(rows, 2)
        return index, actor.Chunk(
            *(data, lengths, none, version, 2 * rows, none, none, None, 0.1)
        )


class Learner:
    """Learner that keeps the data it gets."""

    version = seconds = 0

    def __init__(self):
        self.batches = []
        nothing = types.SimpleNamespace(add=lambda metrics: None)
        state = types.SimpleNamespace(numpy=lambda: None)
        self.algorithm = types.SimpleNamespace(
            batch_steps=2,
            generator=types.SimpleNamespace(state=state),
            metrics=nothing,
            memory=types.SimpleNamespace(whole_episodes=False),
        )

    def weights(self):
        return self.version, [], 0

    def metrics(self):
        return {}

    def learn(self, data, lengths, steps):
        self.batches.append(data[0][:, 0].tolist())
        self.version += 1

    remember = learn


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("present", [[0, 1, 2], [0, 2], [1]])
def test_few_workers_fill_batches_of_all_rows(present, in_flight):
    learner, options = Learner(), phases.Options(in_flight=in_flight)
    phase = phases.Streaming(learner, Workers(present), options, 0, 0)
    for _ in range(3):
        phase.run(100)
    assert [len(batch) for batch in learner.batches] == [3] * 3
    assert {row for batch in learner.batches for row in batch} == set(present)


@pytest.mark.parametrize(("max_lag", "dropped"), [(0, 4), (1, 0)])
def test_the_rest_of_a_chunk_may_be_too_old_for_the_next_batch(max_lag, dropped):
    learner, workers = Learner(), Workers([0])
    workers.sizes = [3, 1]  # So batches take four unrolls of chunks of three.
    options = phases.Options(in_flight=1, max_lag=max_lag)
    phase = phases.Streaming(learner, workers, options, 0, 0)
    for _ in range(3):
        phase.run(100)
    metrics = phase.metrics()
    assert metrics["dropped_unrolls"] == dropped
    assert metrics["lag_max"] == max_lag
    assert metrics["lag"] == (0 if dropped else 3 / 12)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("topology", [phases.Synchronous, phases.Streaming])
def test_runs_end_if_all_workers_are_lost(topology, whole):
    learner = Learner()
    learner.algorithm.memory.whole_episodes = whole
    learner.algorithm.memory.room = 3
    workers = Workers([0, 1, 2], [0, 1, 2])
    phase = topology(learner, workers, phases.Options(), 0, 0)
    with pytest.raises(cluster.WorkerError, match="no worker is left"):
        phase.run(2)


@pytest.mark.parametrize("topology", [phases.Synchronous, phases.Streaming])
def test_workers_that_are_lost_are_not_asked_again(topology):
    learner = Learner()
    phase = topology(learner, Workers([0, 1, 2], [1]), phases.Options(), 0, 0)
    phase.run(2)
    (batch,) = learner.batches
    assert len(batch) == 3
    assert set(batch) == {0, 2}
