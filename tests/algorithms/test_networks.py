"""Every network that a policy takes, on every observation, in every algorithm."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs
from simulated import numbers, same, without_graphs

import agents
from agents.testing import conformance

BOX, CHOICES = gs.Box(-2.0, 1.0, (2,)), gs.Discrete(3, start=1)
STEPS = 8
UNROLLS = {"unroll_length": STEPS, "jit": False}
REPLAY = {"capacity": 64, "start_size": 8, "batch_size": 8, "jit": False}

ALGORITHMS = {
    "ppo": ({"type": "ppo", "memory": "unrolls", "epochs": 1, **UNROLLS}, BOX),
    "trpo": ({"type": "trpo", "memory": "unrolls", **UNROLLS}, BOX),
    "vpg": ({"type": "vpg", "memory": "unrolls", **UNROLLS}, CHOICES),
    "a2c": ({"type": "a2c", **UNROLLS}, BOX),
    "impala": ({"type": "impala", "queue_size": 0, **UNROLLS}, CHOICES),
    "dqn": ({"type": "dqn", "dueling": True, **REPLAY}, CHOICES),
    "noisy": ({"type": "dqn", "noisy_std": 0.5, "atoms": 5, **REPLAY}, CHOICES),
    "apex": ({"type": "apex", **REPLAY}, CHOICES),
    "sac": ({"type": "sac", **REPLAY}, BOX),
    "discrete sac": ({"type": "sac", **REPLAY}, CHOICES),
    "td3": ({"type": "td3", **REPLAY}, BOX),
    "parameters": ({"type": "td3", "noise": "parameters", **REPLAY}, BOX),
}

IMAGE = gs.Box(0, 255, (12, 10, 3), np.uint8)
CHANNELS_FIRST = gs.Box(0, 255, (3, 12, 10), np.uint8)
SEQUENCE = gs.Box(-1, 1, (5, 3))
WORDS = gs.Box(-2, 6, (4,), np.int64)
PARTS = gs.Dict(
    image=IMAGE,
    state=gs.Dict(speed=gs.Box(-1, 1, (2,)), turn=gs.Discrete(3, start=1)),
    words=WORDS,
)
CONV = {"type": "conv2d", "filters": 4, "kernel_size": 3, "strides": 2}
EMBEDDING = {"type": "embedding", "output_dim": 4}
ALL_STREAMS = {
    "image": [CONV, "flatten", 6],
    "state/speed": ["layer_normalization", 6],
    "state/turn": [{"type": "embedding", "output_dim": 6}],
    "words": [EMBEDDING, {"type": "lstm", "units": 6, "over": "sequence"}, "pooling"],
}


class Pair(keras.layers.Layer):
    """Joins the parts of an observation, by their names."""

    def call(self, parts):
        bright = tf.reduce_mean(parts["image"], [1, 2, 3])[:, None]
        return tf.concat([bright, parts["state"]["speed"]], -1)


NETWORKS = {
    "vector": (gs.Box(-1, 1, (3,)), [8]),
    "normalized vector": (gs.Box(-1, 1, (3,)), ["layer_normalization", 8]),
    "number": (gs.Box(-1, 1, ()), [8]),
    "matrix": (SEQUENCE, [8]),
    "doubles": (gs.Box(-1, 1, (3,), np.float64), [8, {"type": "dropout", "rate": 0.1}]),
    "choice": (gs.Discrete(5, start=2), [8]),
    "embedded choice": (gs.Discrete(5, start=2), [EMBEDDING, 8]),
    "choices": (gs.MultiDiscrete([2, 3]), [8]),
    "embedded choices": (gs.MultiDiscrete([2, 3]), [EMBEDDING, "flatten", 8]),
    "bits": (gs.MultiBinary(3), [8]),
    "words": (WORDS, [8]),
    "embedded words": (WORDS, [EMBEDDING, "pooling", 8]),
    "image": (IMAGE, {"convolutions": [[4, 3, 2]], "layers": [8]}),
    "residual image": (IMAGE, {"residual": [4], "layers": [8]}),
    "flat image": (IMAGE, [8]),
    "declared image": (IMAGE, [CONV, "flatten", 8]),
    "channels first": (CHANNELS_FIRST, [CONV, "flatten", 8]),
    "nothing behind": (IMAGE, [CONV, "flatten"]),
    "dense before": (IMAGE, [CONV, 4, "pooling"]),
    "pooled": (SEQUENCE, [{"type": "pooling", "by": "max"}, 8]),
    "attended": (
        SEQUENCE,
        [{"type": "attention", "num_heads": 2, "key_dim": 3}, "pooling", 8],
    ),
    "recurrent": (
        SEQUENCE,
        [{"type": "gru", "units": 4, "over": "sequence"}, "pooling"],
    ),
    "custom": (gs.Box(-1, 1, (3,)), [f"{__name__}:Double", 8]),
    "parts": (PARTS, [8]),
    "tuple": (gs.Tuple((gs.Discrete(2), gs.Box(-1, 1, (2,)))), {"streams": {"1": [8]}}),
    "one stream": (PARTS, {"streams": {"words": ALL_STREAMS["words"]}, "layers": [8]}),
    "streams": (PARTS, {"streams": ALL_STREAMS, "layers": [8]}),
    "product": (PARTS, {"streams": ALL_STREAMS, "join": "product", "layers": [8]}),
    "sum": (PARTS, {"streams": ALL_STREAMS, "join": "sum", "layers": []}),
    "mean": (PARTS, {"streams": ALL_STREAMS, "join": "mean", "layers": [8]}),
    "custom join": (PARTS, {"join": f"{__name__}:Pair", "layers": [8]}),
    "shared": (PARTS, {"streams": ALL_STREAMS, "shared": True, "layers": [8]}),
}


class Double(keras.layers.Layer):
    """Layer of a user."""

    def call(self, value):
        return 2.0 * value


def steps(observation_space, action_space):
    """Steps of two episodes, for `Agent.update`."""
    seen = conformance.samples(observation_space, 0, STEPS + 1)
    return {
        "observation": tf.nest.map_structure(lambda x: x[:-1], seen),
        "action": conformance.samples(action_space, 1, STEPS),
        "reward": np.linspace(-1.0, 1.0, STEPS),
        "terminated": np.arange(STEPS) == 3,
        "truncated": np.arange(STEPS) == STEPS - 1,
        "next_observation": tf.nest.map_structure(lambda x: x[1:], seen),
    }


QUICK = {
    "ppo": ("product", "embedded choices"),
    "trpo": ("embedded choice",),
    "impala": ("shared",),
    "noisy": ("custom join",),
    "discrete sac": ("mean",),
    "parameters": ("declared image",),
    "sac": ("product", "custom join", "embedded choice", "nothing behind", "tuple"),
    "td3": ("one stream", "declared image", "pooled", "embedded choices", "recurrent"),
}
MATRIX = [
    pytest.param(
        algorithm,
        network,
        marks=[] if network in QUICK.get(algorithm, ()) else pytest.mark.slow,
    )
    for algorithm, (declared, _) in ALGORITHMS.items()
    for network in NETWORKS
    if network != "shared" or REPLAY.items() - declared.items()
]


@pytest.mark.parametrize(("algorithm", "network"), MATRIX)
def test_every_algorithm_takes_every_network(algorithm, network):
    config, action_space = ALGORITHMS[algorithm]
    observation_space, declared = NETWORKS[network]
    traced = network == "streams"  # Which takes long.
    with contextlib.nullcontext() if traced else without_graphs():
        agent = agents.Agent.create(
            {**config, "network": declared}, observation_space, action_space
        )
        before = numbers(agent.algorithm.acting())
        metrics = agent.update(steps(observation_space, action_space))
        agent.algorithm.begin_episodes(tf.range(1))
        seen = conformance.samples(observation_space, 2, 1)
        action = agent.algorithm.perform(
            tf.range(1), tf.nest.map_structure(tf.constant, seen)
        )
    assert np.isfinite(list(metrics.values())).all()
    assert not same(before, numbers(agent.algorithm.acting()))
    conformance.require_fits("", "", action_space, 1, action)
