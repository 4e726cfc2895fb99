"""Clusters that are missing, too small, or lose a node."""

import os
import signal
import sys
import types

import pytest

from agents import distributed
from agents.distributed import cluster, phases, workers
from agents.experiments import named
from agents.scripts import commands, train
from agents.tools import errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray_address", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1'"),
        (["--ray_address", "auto"], "no Ray cluster answers at 'auto' within 5 s"),
        (["--ray_address", "here"], "--ray_address must be host:port or auto, got"),
        (["--num_workers", "0"], "--num_workers must be positive, got 0"),
        (["--num_workers", "4000"], "4000 workers need a CPU each, but "),
        (
            ["--num_workers", "2", "--set", "environment.num_agents=1"],
            "2 workers cannot share 1 agents",
        ),
    ],
)
def test_wrong_arguments(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(commands, "start_tensorflow", lambda debug=False: None)
    monkeypatch.setattr(commands, "use_threads", lambda config: None)
    monkeypatch.setattr(cluster, "_start", None)  # Nothing is started.
    monkeypatch.setattr(cluster, "TIMEOUT", 5.0)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # What auto looks at first.
    monkeypatch.setattr(cluster.os, "sched_getaffinity", lambda _: {0, 1})
    arguments = ["--executor", "ray", "--logdir", str(tmp_path), *arguments]
    assert train.main(["--config", "debug", *arguments]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ray_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        cluster.DistributedError, match=r"pip install 'agents-in-graph\[ray\]'"
    ):
        cluster.require_ray()


def test_options_need_the_executor():
    with pytest.raises(errors.Mistake, match="need --executor ray"):
        train.parse(["--config", "debug", "--num_workers", "2"])


def test_signals_while_ray_starts():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def start():
        with cluster._signals():
            signal.signal(signal.SIGTERM, lambda *_: None)
            signal.raise_signal(signal.SIGINT)
            seen.append("the end")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert seen == ["the end"]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("name", ["in_flight", "steps", "prefetch", "shards"])
def test_options_are_checked(name):
    with pytest.raises(errors.Mistake, match=f"{name} must be "):
        phases.Options(**{name: -1})


def test_other_addresses_than_that_of_the_connection_are_refused(monkeypatch):
    import ray

    context = types.SimpleNamespace(gcs_address="host:1")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(cluster, "free_cpus", lambda wanted: 4)
    for address in (None, "auto", "host:1"):
        with cluster.connected(address, 1, 2) as sizes:
            assert sizes == [2]
    with pytest.raises(cluster.DistributedError, match="connected to Ray at host:1;"):
        cluster.connected("other:1", 1, 2).__enter__()


def test_ray_has_the_processors_of_this_process(monkeypatch):
    import ray

    found = []
    monkeypatch.setattr(ray, "init", lambda **options: found.append(options))
    for free in (1, 1000):
        monkeypatch.setattr(cluster.workers, "num_cpus", lambda free=free: free)
        for address in (None, "auto"):
            cluster._start(address)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert [x.get("num_cpus") for x in found] == [1, None, None, None]


@pytest.mark.parametrize(
    ("agents", "workers", "sizes"),
    [(4, 2, [2, 2]), (5, 2, [3, 2]), (3, None, [1, 1, 1]), (9, None, [3, 2, 2, 2])],
)
def test_rows_are_shared(agents, workers, sizes):
    assert cluster.share(agents, workers, 4, "here") == sizes


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_numbers_of_workers(count):
    with pytest.raises(errors.Mistake, match="num_workers must be a positive integer"):
        cluster.share(4, count, 4, "here")


@pytest.fixture
def three_nodes():
    """Cluster of three nodes with a CPU each, to which this process is connected."""
    cluster.require_ray()
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    with cluster.connected(nodes.address, 3, 3):
        yield nodes
    nodes.shutdown()
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["debug", "cartpole_impala", "cartpole_dqn"])
def test_node_that_is_removed(three_nodes, monkeypatch, name):
    settings = ["train.eval_episodes=0", "environment.num_agents=6"]
    config = named.load(name, [*settings, "algorithm.jit=false"])
    options = phases.Options()
    with distributed.RayExecutor(config, 3, options=options) as executor:
        executor.run(2000)
        before = int(executor.algorithm.steps)
        monkeypatch.setattr(workers, "START_TIMEOUT", 15.0)
        three_nodes.remove_node(sorted(three_nodes.worker_nodes, key=str)[0])
        reports = executor.run(4000)
        assert reports[-1].metrics["worker_restarts"] >= 1
        assert int(executor.algorithm.steps) == reports[-1].step >= before + 4000
        if name == "debug":  # The others do not wait for the worker that is lost.
            assert len(executor._loop._workers.present) == 2
