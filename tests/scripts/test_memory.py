"""Memory of the trainer over long runs."""

import psutil
import pytest

from agents import tools
from agents.scripts import configs, runs


@pytest.mark.slow
def test_memory_is_flat_over_a_million_steps():
    overrides = ["algorithm.minibatch_size=512", "algorithm.epochs=2"]
    config = configs.load("cartpole_clip", [*overrides, "environment.num_agents=64"])
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
