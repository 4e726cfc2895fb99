"""Batches of all backends."""

import copy
import functools

import gymnasium
import pytest

from agents.environments import Environment, make


def vectorize(id, backend, max_length, num_envs, **kwargs):
    """Vector environment of Gymnasium with the autoreset mode that the name says."""

    def one():  # Gymnasium keeps references to observations, which mocks reuse.
        env = make.constructor(Environment(id, max_length=max_length, kwargs=kwargs))()
        space = env.observation_space
        return gymnasium.wrappers.TransformObservation(env, copy.deepcopy, space)

    if backend == "vector-async":
        cls, mode = gymnasium.vector.AsyncVectorEnv, "SameStep"
    else:
        cls, mode = gymnasium.vector.SyncVectorEnv, backend.removeprefix("vector-")
    return cls([one] * num_envs, autoreset_mode=gymnasium.vector.AutoresetMode(mode))


@pytest.fixture
def create():
    """Function that makes a batch of two workers, and closes everything at last."""
    batches = []

    def function(id, num_agents, backend, **kwargs):
        if backend.startswith("vector-"):
            id = functools.partial(vectorize, id, backend, kwargs.get("max_length"))
            backend = "vector"
            kwargs.pop("max_length", None)
        if backend in ("workers", "envpool", "mujoco"):
            kwargs["num_workers"] = 2
        environment = Environment(id, backend, num_agents, **kwargs)
        batches.append(make.batch(environment))
        return batches[-1]

    yield function
    for batch in batches:
        batch.close()
