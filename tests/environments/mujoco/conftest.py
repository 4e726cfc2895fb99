"""Batches of robots."""

import pytest

from agents.environments.mujoco import backend


@pytest.fixture
def create():
    """Function that makes a batch of a robot, and closes it at last."""
    batches = []

    def function(robot, size=3, **kwargs):
        batches.append(backend.Mujoco(robot, size, 2, **kwargs))
        return batches[-1]

    yield function
    for batch in batches:
        batch.close()
