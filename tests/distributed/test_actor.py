"""Actors, without Ray."""

import numpy as np
import pytest

from agents.distributed import actor
from agents.environments import make
from agents.experiments import named

OVERRIDES = (
    *("environment.num_agents=4", "environment.max_length=30"),
    *("algorithm.memory=episodes", "algorithm.update_every=8"),
    "algorithm.unroll_length=128",
    *(
        "algorithm.chunk_length=5",
        "algorithm.network={layers: [8, {type: gru, units: 4}]}",
    ),
)


@pytest.mark.parametrize("backend", ["serial", "compiled"])
def test_sequences_are_whole_episodes_wherever_they_are_taken(backend, monkeypatch):
    monkeypatch.setattr(actor, "use_one_thread", lambda: None)  # TensorFlow runs.
    config = named.load("debug", [*OVERRIDES, f"environment.backend={backend}"])
    worker = actor.Actor(config, make.describe(config.environment), 0, 4, 1)
    worker.build()
    worker.begin(np.arange(4), 0)
    weights = [np.asarray(x) for x in worker._algorithm.acting()]
    for _ in range(20):
        chunk = worker.collect(2000, 2, 0, weights, 0)
        assert chunk.lengths.tolist() == chunk.episode_lengths[:2].tolist()
        data, mask = worker._algorithm.memory._finished.unpack(
            chunk.data, chunk.lengths
        )
        last = np.arange(mask.shape[1]) == chunk.lengths[:, None] - 1
        np.testing.assert_array_equal(data["done"] & mask, last)
        assert not data["state"][0][0][:, 0].any()


def test_steps_of_all_actors_count(monkeypatch):
    """Schedules in actors go on, even if no update has published new weights."""
    monkeypatch.setattr(actor, "use_one_thread", lambda: None)
    config = named.load("debug", OVERRIDES)
    worker = actor.Actor(config, make.describe(config.environment), 0, 4, 1)
    worker.build()
    worker.begin(np.arange(4), 0)
    acting = worker._algorithm.acting()
    assert any(x is worker._algorithm.updates for x in acting)
    weights = [np.asarray(x) for x in acting]
    for taken in (0, 1_000):
        chunk = worker.collect(3, 9, 0, weights, taken)
        assert chunk.env_steps == 12
        assert worker._algorithm.steps == taken + 12
