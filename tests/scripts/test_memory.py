"""Memory of the trainer over long runs."""

import re
import subprocess
import sys

import psutil
import pytest

from agents import tools
from agents.experiments import named, runs, training
from agents.tools import checkpoint, loop


@pytest.mark.slow
def test_memory_is_flat_over_a_million_steps():
    overrides = ["algorithm.minibatch_size=512", "algorithm.epochs=2"]
    config = named.load("cartpole_clip", [*overrides, "environment.num_agents=64"])
    batch_env = runs.environments(config)
    try:
        agent = runs.algorithm(config, runs.describe(config))
        process = psutil.Process()
        tools.simulate(batch_env, agent, 20 * 128)  # Compiles, and fills all caches.
        before = process.memory_info().rss
        while batch_env.steps < 64 * 20 * 128 + 1_000_000:
            tools.simulate(batch_env, agent, 128)
        grown = (process.memory_info().rss - before) / 2**20
    finally:
        batch_env.close()
    assert grown < 20


@pytest.mark.slow
def test_memory_is_flat_when_the_replay_is_full(tmp_path, monkeypatch):
    """Also while it is saved; a copy of it per phase would be 14 MB."""
    monkeypatch.setattr(checkpoint, "BLOCK_BYTES", 1 << 16)
    overrides = ["environment.backend=serial", "environment.num_agents=16"]
    overrides += ["algorithm.capacity=20000", "algorithm.replay_ratio=0.02"]
    overrides += ["algorithm.prioritized=true", "algorithm.jit=false"]
    config = named.load("cartpole_dqn", overrides)
    batch_env = runs.environments(config)
    agent = runs.algorithm(config, runs.describe(config))
    plan = loop.Plan(100_000, 4_000, 4)
    checkpoints = checkpoint.Checkpoints(tmp_path, keep=2)
    process, used = psutil.Process(), []
    for report in loop.Loop(batch_env, agent, plan, 0, checkpoints).run():
        if report.finished and report.step >= 40_000:
            assert int(agent.memory.size) > 19_000
            used.append(process.memory_info().rss / 2**20)
    assert len(used) == 2 * 16
    assert list(max(tmp_path.glob("step-*")).glob("*.block"))
    assert used[-1] - used[0] < 5


PROGRAM = """
import pathlib
import sys
from agents.scripts import evaluate
assert evaluate.main(["--logdir", sys.argv[1], "--num_episodes", "2"]) == 0
print(pathlib.Path("/proc/self/status").read_text())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_evaluation_does_without_the_memory_of_training(tmp_path):
    peaks = []
    for capacity in (1_000, 10_000_000):
        overrides = [f"algorithm.capacity={capacity}", "environment.backend=serial"]
        config = named.load("cartpole_dqn", overrides)
        agent = runs.algorithm(config, runs.describe(config))
        run = tmp_path / str(capacity)
        training.prepare(run, config)
        checkpoints = checkpoint.Checkpoints(run / "checkpoints")
        checkpoints.save(0, agent.persistent(), {"step": 0})
        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(run)],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(re.search(r"VmHWM:\s+(\d+)", answer.stdout)[1]) * 1024)
    size = agent.memory.num_bytes
    assert size > 400_000_000
    assert peaks[1] - peaks[0] < size / 10
