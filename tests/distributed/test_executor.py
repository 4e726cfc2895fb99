"""How algorithms are divided among workers."""

import pytest

from agents.distributed import cluster


def test_algorithms_that_cannot_be_divided():
    from agents.distributed import executor

    with pytest.raises(cluster.DistributedError, match="its memory is none that"):
        executor.topology(object())
