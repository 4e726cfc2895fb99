"""PPO and IMPALA on all spaces, on all backends that step environments of the user."""

import functools
import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import eagerly

from agents import networks, tools
from agents.algorithms import impala, ppo
from agents.environments import Environment, make

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # TensorFlow stays here.

SPACES = {
    "box": gs.Box(np.float32([-1, 0]), np.float32([3, 0.1])),
    "double": gs.Box(-2.0, 5.0, (2, 2), np.float64),
    "discrete": gs.Discrete(3, start=5),
    "multi discrete": gs.MultiDiscrete([2, 3], start=[1, -1]),
    "multi binary": gs.MultiBinary(3),
    "integers": gs.Box(-2, 3, (2,), np.int32),
    "nested": gs.Dict(
        a=gs.Tuple((gs.Discrete(2), gs.Box(-1, 1, (2,)))),
        b=gs.Dict(c=gs.MultiBinary(2), d=gs.MultiDiscrete([2, 2])),
    ),
}
IMAGES = gs.Dict(
    camera=gs.Box(0, 255, (8, 8, 3), np.uint8),
    frames=gs.Box(0, 255, (2, 8, 8), np.uint8),
    speed=gs.Box(-1, 1, ()),
)
BACKENDS = ("serial", "process", "workers", "halves", "vector")


class Sampled(gymnasium.Env):
    """Observes samples of its space and checks that actions are in theirs."""

    def __init__(self, observation_space, action_space):
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action} is not in {self.action_space}.")
        self._time += 1
        return self.observation_space.sample(), 1.0, self._time == 3, False, {}


def vectorized(num_envs, observation_space, action_space):
    """Gymnasium's own vectorization of the same environment."""
    one = functools.partial(Sampled, observation_space, action_space)
    return gymnasium.vector.SyncVectorEnv([one] * num_envs)


def batch(backend, *spaces):
    names = ("observation_space", "action_space")
    kwargs = dict(zip(names, spaces, strict=True))
    if backend == "halves":
        environment = Environment(Sampled, "workers", 4, 2, kwargs=kwargs)
        return make.halves(environment)
    made = vectorized if backend == "vector" else Sampled
    workers = 2 if backend == "workers" else None
    return make.batch(Environment(made, backend, 4, workers, kwargs=kwargs))


def train(backend, observation_space, action_space, name="ppo", run=tools.simulate):
    """Two updates; returns the algorithm."""
    envs = tools.InGraphBatchEnv(batch(backend, observation_space, action_space))
    network = networks.NetworkConfig(convolutions=((4, 4, 4),), layers=(8,))
    options = {"unroll_length": 4, "jit": False, "network": network}
    if name == "ppo":
        cls, config = ppo.PPO, ppo.Config(memory="unrolls", epochs=1, **options)
    else:
        cls, config = impala.IMPALA, impala.Config(queue_size=1, **options)
    agent = cls(observation_space, action_space, 4, 3, config)
    try:
        run(envs, agent, 8 if name == "ppo" else 12)
        result = run(envs, agent, 3, training=False, reset=True)
    finally:
        envs.close()
    assert result["length"].numpy()[2].tolist() == [3] * 4
    return agent


MATRIX = [(backend, name) for backend in BACKENDS for name in SPACES]


@pytest.mark.quick("halves-nested")
@pytest.mark.parametrize(("backend", "name"), MATRIX)
def test_every_space_is_observed_and_acted_in(backend, name):
    agent = train(backend, SPACES[name], SPACES[name])
    metrics = agent.metrics.result()
    for key in ("policy_loss", "value_loss", "entropy", "kl"):
        assert np.isfinite(metrics[key])


@pytest.mark.parametrize(
    "name",
    ["nested", *(pytest.param(x, marks=pytest.mark.slow) for x in list(SPACES)[:-1])],
)
def test_every_space_is_observed_and_acted_in_by_impala(name):
    agent = train("serial", SPACES[name], SPACES[name], "impala")
    assert agent.updates.numpy() == 2
    assert np.isfinite(list(agent.metrics.result().values())).all()


def test_impala_learns_from_images_in_its_queue():
    agent = train("vector", IMAGES, SPACES["discrete"], "impala", eagerly)
    data, _ = agent.memory.oldest()
    for key in ("observation", "next_observation"):
        assert data[key]["camera"].dtype == tf.uint8
        assert data[key]["camera"].numpy().max() > 200


@pytest.mark.parametrize(
    "backend",
    ["vector", *(pytest.param(x, marks=pytest.mark.slow) for x in BACKENDS[:-1])],
)
def test_images_stay_bytes_until_the_network(backend):
    agent = train(backend, IMAGES, SPACES["discrete"], run=eagerly)
    data, _ = agent.memory.data()
    assert data["observation"]["camera"].dtype == tf.uint8
    assert data["observation"]["frames"].dtype == tf.uint8
    assert data["observation"]["camera"].shape == (4, 4, 8, 8, 3)
    assert data["observation"]["camera"].numpy().max() > 200
