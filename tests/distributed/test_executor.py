"""How algorithms are divided among workers."""

import pytest

from agents.distributed import cluster
from agents.experiments import named


def test_algorithms_that_cannot_be_divided():
    from agents.distributed import executor
    from agents.experiments import runs

    with pytest.raises(cluster.DistributedError, match="its memory is none that"):
        executor.topology(object())
    config = named.load(
        "cartpole_dqn",
        ["algorithm.capacity=2000", "algorithm.normalize_observations=true"],
    )
    algorithm = runs.algorithm(config, runs.describe(config))
    with pytest.raises(cluster.DistributedError, match="normalize_observations=false"):
        executor.topology(algorithm)
