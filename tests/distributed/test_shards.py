"""Replay memories in separate processes."""

import os
import pickle
import signal

import numpy as np
import pytest
import tensorflow as tf

from agents.distributed import actor, cluster, phases, shards, workers
from agents.environments import make
from agents.experiments import named
from agents.scripts import commands, train
from agents.tools import errors

RAW = "algorithm.normalize_observations=false"

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
    RAW,
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
    one, other = on_shards(executor, lambda x: x.draw(0, 0)["observation"])
    assert one.shape == other.shape == (16, 4)
    assert not np.array_equal(one, other)


@pytest.mark.slow
def test_priorities_go_back_to_their_shard(execute):
    overrides = (*SMALL, "algorithm.prioritized=true", "algorithm.replay_ratio=0")
    executor = execute("cartpole_dqn", *overrides, shards=1)
    executor.run(512)
    divided = executor._loop._shards
    shard, items = divided.next(512, 0)
    index = np.unique(items["index"])
    divided.update(shard, index, np.full(len(index), 1e12, np.float32))
    (drawn,) = on_shards(executor, lambda x: x.draw(0, 0)["index"])
    assert set(drawn) <= set(index)  # All others have the priority of new ones, 1.


@pytest.mark.slow
def test_killed_shard_is_replaced_by_an_empty_one(execute, kill, monkeypatch):
    monkeypatch.setattr(workers, "MAX_DEATHS", 1)  # In a row.
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
    kill(executor._loop._shards._actors[1])
    (report,) = executor.run(512)
    assert report.metrics["shard_restarts"] == 2


@pytest.mark.slow
def test_hanging_shard_is_replaced(execute):
    settings = *SMALL, "environment.timeout=5"
    executor = execute("cartpole_dqn", *settings, num_workers=2, shards=2)
    executor.run(512)
    before = int(executor.algorithm.updates)
    os.kill(on_shards(executor, lambda _: os.getpid())[1], signal.SIGSTOP)
    report = executor.run(1024)[-1]
    assert report.metrics["shard_restarts"] == 1
    assert int(executor.algorithm.updates) > before + 200
    assert min(on_shards(executor, lambda x: int(x._algorithm.memory.size))) > 0


@pytest.mark.slow
def test_hanging_shard_does_not_stop_a_checkpoint(execute, tmp_path, monkeypatch):
    settings = *SMALL, "environment.timeout=5"
    executor = execute("cartpole_dqn", *settings, num_workers=2, shards=2)
    executor.run(512)
    monkeypatch.chdir(tmp_path)  # Where the shards are not.
    os.kill(on_shards(executor, lambda _: os.getpid())[1], signal.SIGSTOP)
    executor.save("saved")
    names = [
        x.relative_to(tmp_path).parts for x in tmp_path.glob("saved/shard-*/step-*")
    ]
    assert [x[1] for x in names] == ["shard-0"]
    report = executor.run(512)[-1]
    assert report.metrics["shard_restarts"] == 1
    executor.save("saved")
    assert len([*tmp_path.glob("saved/shard-1/step-*")]) == 1


class Here:
    """Stands in for `Shards`: one shard, in this process, of any size."""

    def __init__(self, shard, capacity):
        self.shard, self.capacity, self.size, self.updates = shard, capacity, 0, []

    def insert(self, first_row, data):
        """Insert nothing."""

    def wait(self):
        return self.size

    def next(self, steps, updates):
        self.updates.append(updates)
        return 0, self.shard.draw(steps, updates)

    def update(self, shard, index, errors):
        self.shard.update(index, errors)


@pytest.fixture
def divide(monkeypatch):
    """Make learners with a shard that holds 40 steps of four rows."""
    monkeypatch.setattr(actor, "use_one_thread", lambda: None)

    def function(*overrides):
        config = named.load("cartpole_dqn", (*SMALL, *overrides))
        description = make.describe(config.environment)
        shard = shards.Shard(config, description, 4, 0)
        shard.build()
        memory, never = shard._algorithm.memory, tf.zeros([4], tf.bool)
        memory.begin(tf.range(4))
        for number in range(40):
            observation = tf.fill([4, 4], float(number))
            step = tf.zeros([4, 1], tf.int64), tf.zeros([4]), never, never
            memory.append(tf.range(4), observation, *step, observation + 1)
        agent = config.without_memory(4).create_learner(description)
        divided = Here(shard, config.algorithm.capacity)
        return shards.ShardedLearner(agent, divided), divided

    return function


@pytest.mark.parametrize("start_size", [200, 1000])
def test_full_memory_starts_the_updates(divide, start_size):
    """Ends of episodes take entries, so it never has as many transitions."""
    sizes = ("algorithm.capacity=200", f"algorithm.start_size={start_size}")
    learner, divided = divide(*sizes, "algorithm.replay_ratio=0")
    counted = []
    for size in (50, 100, 150, 180, 180, 0, 20):  # All is lost once.
        divided.size = size
        learner.insert(None, 0, 60)
        counted.append(int(learner.algorithm._counted))
    assert counted == [0, 0, 0, 60, 120, 120, 180]


def test_schedules_of_a_shard_follow_the_updates(divide):
    beta = "{type: linear, from: 0, to: 1, over: 10, unit: updates}"
    schedule = f"algorithm.priority_beta={beta}", "algorithm.prioritized=true"
    learner, divided = divide(*schedule, "algorithm.replay_ratio=0.1")
    divided.size = 160
    for _ in range(3):
        learner.insert(None, 0, 20)
    assert divided.updates == [0, 1, 2, 3, 4, 5]
    divided.shard.update(np.arange(80), np.arange(80, dtype=np.float32))
    assert divided.shard.draw(0, 0)["weight"].min() == 1
    assert divided.shard.draw(0, 10)["weight"].min() < 0.5


@pytest.mark.slow
def test_updates_begin_when_the_memory_is_full(execute):
    """In the chunk that fills it, and later on; the shard knows their number."""
    overrides = (
        *(*SMALL, "algorithm.capacity=200", "algorithm.start_size=200"),
        *("algorithm.n_step=1", "environment.max_length=5"),
    )
    executor = execute("cartpole_dqn", *overrides, shards=1, steps=5)
    executor.run(400)
    assert executor._loop._shards.size < 200
    assert int(executor.algorithm._counted) == 400 - 200 + 4 * 5
    assert int(executor.algorithm.updates) == 220 // 4
    (known,) = on_shards(executor, lambda x: int(x._algorithm.updates))
    assert 220 // 4 - 4 <= known < 220 // 4  # Two batches are drawn in advance.


@pytest.mark.slow
def test_learns_by_shards(execute):
    raw = "algorithm.normalize_observations=false"
    executor = execute("cartpole_dqn", raw, num_workers=1, shards=1)
    reports = executor.run(50_000)
    returns = [x.metrics["score"] for x in reports if x.phase == "evaluate"]
    assert max(returns) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_resume_restores_shards(ray, tmp_path, monkeypatch, capsys, count):
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
    local = [x for x in arguments if x not in ("--executor", "ray")]
    local = [*local[: local.index("--num_workers")], *local[local.index("--set") :]]
    capsys.readouterr()
    assert train.main([*local, "--quiet", "--set", "train.steps=1024"]) == 2
    shown = (
        f"{count} shards for {count} workers; go on with --executor ray --num_shards"
    )
    assert shown in capsys.readouterr().err


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
    ("name", "settings", "count", "message"),
    [
        ("debug", (), 1, "PPO has no replay memory that could be divided"),
        ("cartpole_apex", (RAW,), 2, "2 shards need as many workers, there are 1"),
    ],
)
def test_wrong_number_of_shards(execute, name, settings, count, message):
    with pytest.raises(cluster.DistributedError, match=message):
        execute(name, "environment.backend=serial", *settings, shards=count)


def test_shards_refuse_statistics_of_all_observations(execute):
    with pytest.raises(cluster.DistributedError, match="leave out --num_shards"):
        execute("cartpole_dqn", "algorithm.capacity=2000", shards=1)


def test_memory_that_is_too_large(execute):
    with pytest.raises(errors.Mistake, match="bytes, but .* are free"):
        execute("cartpole_apex", RAW, "algorithm.capacity=100000000000", shards=1)


def test_share_of_the_memory_that_is_smaller_than_a_batch(execute):
    sizes = ("algorithm.capacity=100", "algorithm.batch_size=64")
    with pytest.raises(cluster.DistributedError) as caught:
        execute("cartpole_dqn", *SMALL, *sizes, num_workers=2, shards=2)
    assert str(caught.value) == (
        "a replay shard cannot have a capacity of 50: batch_size 64 must not be larger "
        "than what is stored at the first update, capacity 50; lower --num_shards, or "
        "raise algorithm.capacity."
    )


def test_shard_that_dies_again_and_again(ray, monkeypatch):
    class Shard:
        def build(self):
            """Never runs."""

    dead = ray.remote(num_cpus=0)(Shard).remote()
    ray.kill(dead)
    monkeypatch.setattr(shards.Shards, "_create", lambda *_: dead)
    config = named.load("cartpole_dqn", SMALL)
    description = make.describe(config.environment)
    with pytest.raises(cluster.WorkerError, match="shard 0 died or hung 6 times"):
        shards.Shards(config, description, [4], 1, 2)
