"""Replay memories in separate processes."""

import os
import pickle

import numpy as np
import pytest

from agents.distributed import actor, cluster, phases, shards
from agents.scripts import commands, train
from agents.tools import errors

SMALL = (
    "train.eval_every=512",
    "train.eval_episodes=0",
    "environment.max_length=30",
    "environment.num_agents=4",
    "environment.backend=serial",
    "algorithm.capacity=4000",
    "algorithm.start_size=64",
    "algorithm.batch_size=16",
    "algorithm.replay_ratio=0.25",
    "algorithm.n_step=2",
    "algorithm.normalize_observations=false",
    "algorithm.jit=false",
    "algorithm.network={layers: [16]}",
)


def on_shards(executor, function):
    """Return the results of a function for every shard."""
    import ray

    actors = executor._loop._shards._actors
    return ray.get([x.__ray_call__.remote(function) for x in actors])


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [(), ("algorithm.type=apex", "algorithm.epsilon=0.4")]
)
def test_shards_hold_what_workers_did(execute, overrides):
    overrides = (*SMALL, *overrides)
    executor = execute("cartpole_dqn", *overrides, num_workers=2, shards=2)
    (report,) = executor.run(512)
    assert report.metrics["shard_restarts"] == 0
    agent = executor.algorithm
    assert int(agent.steps) == report.step >= 512
    assert int(agent.updates) == int(agent._counted) // 4 > 80
    assert int(agent.memory.size) == 0  # The learner's own is empty.
    sizes = on_shards(executor, lambda x: int(x._algorithm.memory.size))
    entries = on_shards(executor, lambda x: int(sum(x._algorithm.memory._state[:, 0])))
    rows = on_shards(executor, lambda x: x._algorithm.memory._state.shape[0])
    assert rows == [2, 2]
    assert sum(entries) >= report.step  # The last observations of episodes, too.
    # But for two steps of every row, which are not complete.
    assert report.step - 4 * 2 <= sum(sizes) <= report.step
    assert executor._loop._shards.size == sum(sizes)
    one, other = on_shards(executor, lambda x: x.draw(0)["observation"])
    assert one.shape == other.shape == (16, 4)
    assert not np.array_equal(one, other)


@pytest.mark.slow
def test_priorities_go_back_to_their_shard(execute):
    overrides = (*SMALL, "algorithm.prioritized=true", "algorithm.replay_ratio=0")
    executor = execute("cartpole_dqn", *overrides, shards=1)
    executor.run(512)
    divided = executor._loop._shards
    shard, items = divided.next(512)
    index = np.unique(items["index"])
    divided.update(shard, index, np.full(len(index), 1e12, np.float32))
    (drawn,) = on_shards(executor, lambda x: x.draw(0)["index"])
    assert set(drawn) <= set(index)  # All others have the priority of new ones, 1.


@pytest.mark.slow
def test_killed_shard_is_replaced_by_an_empty_one(execute, kill):
    executor = execute("cartpole_dqn", *SMALL, num_workers=2, shards=2)
    executor.run(512)
    before = int(executor.algorithm.updates)
    _, lost = on_shards(executor, lambda x: int(x._algorithm.memory.size))
    first, _ = on_shards(executor, lambda _: os.getpid())
    kill(executor._loop._shards._actors[1])
    (report,) = executor.run(512)
    assert report.metrics["shard_restarts"] == 1
    assert report.metrics["worker_restarts"] == 0
    assert int(executor.algorithm.updates) > before + 80
    one, other = on_shards(executor, lambda x: int(x._algorithm.memory.size))
    assert other > 0
    assert one + other <= 1024 - lost
    assert first == on_shards(executor, lambda _: os.getpid())[0]


@pytest.mark.slow
def test_learns_by_shards(execute):
    raw = "algorithm.normalize_observations=false"
    executor = execute("cartpole_dqn", raw, num_workers=1, shards=1)
    reports = executor.run(50_000)
    returns = [x.metrics["score"] for x in reports if x.phase == "evaluate"]
    assert max(returns) >= 475


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_resume_restores_shards(ray, tmp_path, monkeypatch, count):
    monkeypatch.setattr(commands, "start_tensorflow", lambda debug=False: None)
    monkeypatch.setattr(commands, "use_threads", lambda config: None)
    found = []
    restore = shards.Shards.restore
    monkeypatch.setattr(
        shards.Shards,
        "restore",
        lambda self, *args: [restore(self, *args), found.append(list(self.sizes))],
    )
    arguments = [
        *("--config", "cartpole_dqn", "--logdir", str(tmp_path), "--timestamp", "1"),
        *("--executor", "ray", "--num_workers", str(count), "--quiet"),
        *("--num_shards", str(count)),
        *[x for y in SMALL for x in ("--set", y)],
    ]
    report = phases.Phase.report

    def interrupted(self, kind, step, *rest):
        if step > 600:
            raise RuntimeError("stop here")
        return report(self, kind, step, *rest)

    monkeypatch.setattr(phases.Phase, "report", interrupted)
    with pytest.raises(RuntimeError, match="stop here"):
        train.main([*arguments, "--set", "train.steps=1024"])
    monkeypatch.setattr(phases.Phase, "report", report)
    assert train.main([*arguments, "--set", "train.steps=1024"]) == 0
    (sizes,) = found
    assert len(sizes) == count
    assert 500 <= sum(sizes) <= 600
    folder = tmp_path / f"1-cartpole_dqn/checkpoints/shard-{count - 1}"
    assert len(list(folder.glob("step-*"))) == 2


@pytest.mark.slow
def test_observations_are_copied_once_per_hop(ray):
    """Into Ray's store: without a copy before, and read in place on the other side."""
    frames = np.zeros([64, 84, 84], np.uint8)
    fields = dict.fromkeys(actor.Chunk._fields)
    chunk = actor.Chunk(**{**fields, "data": {"observations_0": frames}})
    outside = []
    inside = pickle.dumps(chunk, 5, buffer_callback=outside.append)
    assert len(inside) < 2_000
    (buffer,) = outside
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), frames)

    def in_place(data):
        array = data["observations_0"]
        return not array.flags.owndata and not array.flags.writeable

    received = ray.get(ray.remote(num_cpus=0)(lambda: chunk).remote())
    assert in_place(received.data)
    passed_on = ray.put(received.data)
    assert ray.get(ray.remote(num_cpus=0)(in_place).remote(passed_on))


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("debug", 1, "PPO has no replay memory that could be divided"),
        ("cartpole_apex", 2, "2 shards need as many workers, there are 1"),
    ],
)
def test_wrong_number_of_shards(execute, name, count, message):
    with pytest.raises(cluster.DistributedError, match=message):
        execute(name, "environment.backend=serial", shards=count)


def test_shards_refuse_statistics_of_all_observations(execute):
    with pytest.raises(cluster.DistributedError, match="leave out --num_shards"):
        execute("cartpole_dqn", "algorithm.capacity=2000", shards=1)


def test_memory_that_is_too_large(execute):
    with pytest.raises(errors.Mistake, match="bytes, but .* are free"):
        execute("cartpole_apex", "algorithm.capacity=100000000000", shards=1)
