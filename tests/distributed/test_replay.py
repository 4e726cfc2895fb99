"""Workers that extend the replay memory of the learner."""

import numpy as np
import pytest
import tensorflow as tf

from agents.testing import algorithms

SMALL = (
    "train.eval_every=128",
    "train.eval_episodes=2",
    "environment.id=CartPole-v1",
    "environment.max_length=30",
    "environment.num_agents=4",
    "environment.backend=serial",
    "algorithm.capacity=300",
    "algorithm.start_size=64",
    "algorithm.batch_size=16",
    "algorithm.normalize_observations=false",
    "algorithm.jit=false",
    "algorithm.network={layers: [16]}",
)
# With a uniform selector it depends on the order of changes which ones are drawn.
DQN = ("algorithm.capacity=4000", "algorithm.n_step=1")
PRIORITIZED = (*DQN, "algorithm.replay_ratio=0.5", "algorithm.prioritized=true")
APEX = (
    "algorithm.type=apex",
    "algorithm.epsilon=0.4",
    "algorithm.replay_ratio=0.5",
    "algorithm.target_period=10",
    "algorithm.prioritized=true",
)
# With several steps, observations arrive when their transitions are complete.
NORMALIZED = (*APEX, "algorithm.n_step=1", "algorithm.normalize_observations=true")


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [DQN, PRIORITIZED, APEX, NORMALIZED])
def test_one_worker_in_step_is_a_local_run(execute, run_here, assert_same, overrides):
    overrides = (*SMALL, *overrides)
    executor = execute("cartpole_dqn", *overrides, in_flight=1, steps=1)
    ours = executor.run(384)
    local, theirs = run_here("cartpole_dqn", 384, *overrides)
    assert int(local.updates) > 100
    assert_same(executor.algorithm, local)
    before = algorithms._values(executor.algorithm)
    list(executor._loop._evaluate())
    after = algorithms._values(executor.algorithm)
    tf.nest.map_structure(np.testing.assert_array_equal, before, after)
    drawn = [x.memory.sample(256, [1, 2]) for x in (executor.algorithm, local)]
    tf.nest.map_structure(np.testing.assert_array_equal, *drawn)
    for one, other in zip(ours, theirs, strict=True):
        assert (one.phase, one.step) == (other.phase, other.step)
        metrics = dict(one.metrics)
        if one.phase == "train":
            assert metrics.pop("worker_restarts") == 0
        assert metrics == pytest.approx(other.metrics, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 2])
def test_chunks_bring_what_a_local_run_remembers(execute, run_here, in_flight):
    """Random actions do not depend on weights, so transitions are the same ones."""
    overrides = (
        *SMALL,
        *("algorithm.capacity=4000", "algorithm.n_step=3", "algorithm.epsilon=1.0"),
        *("algorithm.replay_ratio=0", "train.eval_episodes=0", "train.eval_every=512"),
    )
    executor = execute("cartpole_dqn", *overrides, in_flight=in_flight, steps=32)
    executor.run(512)
    local, _ = run_here("cartpole_dqn", 512, *overrides)
    assert int(executor.algorithm.memory.size) == int(local.memory.size) > 480
    if in_flight > 1:  # Nobody lends random numbers, so other actions are drawn.
        return
    tables = []
    for agent in (executor.algorithm, local):
        items = agent.memory.sample(20_000, [1, 2])
        del items["index"]
        rows = [np.reshape(x, [20_000, -1]) for _, x in sorted(items.items())]
        tables.append(np.unique(np.concatenate(rows, 1).astype(np.float32), axis=0))
    np.testing.assert_array_equal(*tables)


def test_observations_are_normalized_by_those_of_all_workers(execute):
    overrides = (
        *SMALL,
        *("algorithm.capacity=4000", "algorithm.n_step=3"),
        *("algorithm.normalize_observations=true", "algorithm.replay_ratio=0"),
        *("train.eval_episodes=0", "train.eval_every=512"),
    )
    executor = execute("cartpole_dqn", *overrides, num_workers=2)
    executor.run(512)
    agent = executor.algorithm
    (normalizer,) = agent.observations.persistent
    items = agent.memory.sample(20_000, [1, 2])
    _, first = np.unique(items["index"], return_index=True)
    seen = items["observation"].numpy()[first]
    assert int(normalizer.count) == int(agent.memory.size) == len(seen) > 480
    np.testing.assert_allclose(normalizer.mean, seen.mean(0), rtol=1e-5, atol=1e-6)
    deviation = seen.std(0, ddof=1, dtype=np.float64)
    np.testing.assert_allclose(normalizer.std, deviation, rtol=1e-4)
