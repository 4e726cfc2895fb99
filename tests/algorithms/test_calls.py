"""A phase gives the same numbers for any division into calls of `simulate`."""

import functools

import gymnasium
import numpy as np
import pytest
import robots
import simulated
import tensorflow as tf
from gymnasium import spaces as gs

from agents import tools
from agents.environments import Environment, compiled, functional, make
from agents.experiments import config as experiment
from agents.testing import mocks
from agents.tools import checkpoint, sections

ROWS, LENGTH = 4, 5
CUTTINGS = ((24,), (12, 12), (1, 5, 18))
OBSERVATION = gs.Box(-1, 1, (2,))
UNROLLS = {"unroll_length": 4, "network": {"layers": [4]}, "jit": False}
EPISODES = {"update_every": 3, "network": {"layers": [4]}}
REPLAY = {
    **{"capacity": 40, "start_size": 8, "batch_size": 4, "replay_ratio": 0.2},
    **{"network": {"layers": [4]}, "jit": False},
}
MINIBATCHES = {"epochs": 2, "minibatch_size": 6}
GRU = {"network": {"layers": [4, {"type": "gru", "units": 3}]}, "chunk_length": 2}
TRUST_REGION = {
    "type": "line_search",
    "optimizer": {"type": "natural_gradient", "cg_max_iterations": 3},
}
ALGORITHMS = {
    "a2c": {"type": "a2c", **UNROLLS, **GRU},
    "apex": {"type": "apex", **REPLAY},
    "dqn": {"type": "dqn", **REPLAY, "noisy_std": 0.5, "prioritized": True},
    "impala": {"type": "impala", **UNROLLS, "queue_size": 1},
    "ppo": {"type": "ppo", **EPISODES, **MINIBATCHES, **GRU},
    "ppo unrolls": {"type": "ppo", **UNROLLS, **MINIBATCHES, "memory": "unrolls"},
    "sac": {"type": "sac", **REPLAY},
    "td3": {"type": "td3", **REPLAY, "noise": "parameters"},
    "trpo": {"type": "trpo", **UNROLLS, "optimizer": TRUST_REGION},
    "vpg": {"type": "vpg", **EPISODES},
}
BACKENDS = {
    "serial": ("serial", 1),
    "serial halves": ("serial", 2),
    "process": ("process", 1),
    "process halves": ("process", 2),
    "workers": ("workers", 1),
    "workers halves": ("workers", 2),
    "vector": ("vector", 1),
    "envpool": ("envpool", 1),
    "envpool halves": ("envpool", 2),
    "mujoco": ("mujoco", 1),
    "mujoco halves": ("mujoco", 2),
    "compiled": ("compiled", 1),
}
QUICK = (
    ("serial", "dqn"),
    ("process halves", "impala"),
    ("workers", "sac"),
    ("envpool halves", "ppo unrolls"),
    ("mujoco", "dqn"),
)
MATRIX = [
    pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
    for pair in ((x, y) for x in BACKENDS for y in ALGORITHMS)
]


class Random(functional.FunctionalEnv):
    """As `mocks.RandomEnvironment`, but some of the steps end episodes by chance."""

    observation_space = OBSERVATION
    max_length = LENGTH

    def __init__(self, action_space):
        self.action_space = action_space

    def initial(self, size, seed):
        bits = tf.random.stateless_uniform(  # Floats differ with and without XLA.
            [size, 2], seed, None, None, tf.int32, alg="philox"
        )
        return tf.cast(bits, tf.float32) / 2.0**31

    def transition(self, state, action, seed):
        return self.initial(state.shape[0], seed)

    def observation(self, state):
        return state

    def reward(self, state, action, next_state):
        action = tf.reshape(tf.cast(action, tf.float32), [-1])
        return next_state[:, 0] * (1.0 + action)

    def terminal(self, state):
        return state[:, 1] < -0.5


def vectorized(num_envs, constructor):
    return gymnasium.vector.SyncVectorEnv([constructor] * num_envs)


def environments(backend, action_space):
    """Rows whose episodes end at different times."""
    name, parts = BACKENDS[backend]
    if name == "compiled":
        return compiled.Compiled(Random(action_space), ROWS)
    discrete = isinstance(action_space, gs.Discrete)
    id = functools.partial(mocks.RandomEnvironment, OBSERVATION, action_space, LENGTH)
    limit, kwargs = None, {}
    if name == "vector":
        id, kwargs = vectorized, {"constructor": id}
    if name == "envpool":
        id, limit = ("CartPole-v1", 20) if discrete else ("Pendulum-v1", 6)
    if name == "mujoco":
        id, limit = (robots.Switch if discrete else robots.Varied), 6
        kwargs = {"scale": 0.8}
    function = make.batch if parts == 1 else make.halves
    workers = 2 if name in ("workers", "envpool", "mujoco") else None
    environment = Environment(id, name, ROWS, workers, max_length=limit, kwargs=kwargs)
    return tools.InGraphBatchEnv(function(environment))


def algorithm(name, envs):
    values = ALGORITHMS[name]
    config = experiment.algorithm_config(values["type"])
    return experiment.algorithm_class(values["type"])(
        *(envs.observation_space, envs.action_space, ROWS, 20),
        sections.build(config, values, "algorithm"),
    )


def phase(agent, envs, seed, cutting, training=True):
    """Results of all steps, and metrics."""
    envs.discontinue(seed + np.arange(ROWS))
    parts = [tools.simulate(envs, agent, steps, training) for steps in cutting]
    results = {k: np.concatenate([x[k] for x in parts]) for k in parts[0]}
    return {**results, "metrics": agent.metrics.result()}


def learned(agent, directory):
    """Values of all that is persistent but the memory, whose padding is not defined."""
    checkpoint.Checkpoints(directory).save(0, agent.persistent(), {})
    (path,) = directory.glob("step-*")
    reader = tf.train.load_checkpoint(str(path / "variables"))
    return {k: reader.get_tensor(k) for k in reader.get_variable_to_shape_map()}


@pytest.mark.quick("workers-sac", "mujoco-dqn", "envpool halves-ppo unrolls")
@pytest.mark.parametrize(("backend", "name"), MATRIX)
def test_calls_do_not_matter(backend, name, tmp_path):
    continuous = name in ("sac", "td3")
    envs = environments(backend, gs.Box(-1, 1, (1,)) if continuous else gs.Discrete(2))
    agent, found = algorithm(name, envs), []
    before = learned(agent, tmp_path / "before")
    try:
        for cutting in CUTTINGS:
            checkpoint.Checkpoints(tmp_path / "before").restore(agent.persistent())
            agent.metrics.reset()
            phases = [
                phase(agent, envs, 1, cutting),
                phase(agent, envs, 2, cutting[::-1], training=False),
                phase(agent, envs, 3, (12,)),
            ]
            found.append((phases, learned(agent, tmp_path / str(cutting))))
    finally:
        envs.close()
    whole, *others = found
    for other in others:
        tf.nest.map_structure(np.testing.assert_array_equal, other, whole)
    assert not simulated.same(whole[1].values(), before.values())
    done = whole[0][0]["done"]
    assert done.any()
    if "envpool" not in backend:
        assert len({tuple(row) for row in done.T}) > 1  # Rows end at different times,
        assert done[[0, 5, 11]].any()  # and a cut is where one of them does.


class Constant(tf.Module):
    """In place of a generator, whose floats differ with and without XLA."""

    def uniform(self, shape, *_, **__):
        return tf.fill(shape, 0.37)

    def uniform_full_int(self, shape, dtype):
        return tf.ones(shape, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vpg", "a2c", "ppo unrolls"])
def test_programs_learn_what_graphs_learn(name):
    found = []
    for jit in (True, False):
        envs = environments("compiled", gs.Discrete(2))
        envs.compiled = jit
        agent = algorithm(name, envs)
        agent.generator = Constant()
        found.append(phase(agent, envs, 1, (24,)))
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), *found
    )
    assert found[0]["metrics"]
