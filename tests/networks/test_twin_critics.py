"""Critics of observations and actions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents.networks import torsos, twin_critics
from agents.networks.config import NetworkConfig
from agents.testing import conformance
from agents.tools import sections

VECTOR = gs.Box(-1, 1, (3,))
IMAGE = gs.Box(0, 255, (6, 5, 2), np.uint8)
PARTS = gs.Dict(image=IMAGE, turn=gs.Discrete(3), x=VECTOR)
CONV = {"type": "conv2d", "filters": 4, "kernel_size": 3}
EMBEDDING = {"type": "embedding", "output_dim": 4}
ACTION = tf.constant([[0.3, -0.9], [-0.5, 0.1]])
STREAMS = {"image": [CONV, "flatten", 6], "turn": [EMBEDDING, 6], "x": [6]}


class Model(keras.Sequential):
    """Layers of a user."""

    def __init__(self):
        super().__init__([keras.layers.Dense(8, "tanh")])


CASES = {
    "vector": (VECTOR, [8]),
    "normalized": (VECTOR, ["layer_normalization", 8]),
    "only normalized": (VECTOR, ["layer_normalization"]),
    "custom": (VECTOR, [f"{__name__}:Model"]),
    "image": (IMAGE, {"convolutions": [[4, 3, 2]], "layers": [8]}),
    "declared image": (IMAGE, [CONV, "flatten", 8]),
    "nothing behind": (IMAGE, [CONV, 4, "flatten", "layer_normalization"]),
    "choice": (gs.Discrete(5), [EMBEDDING, "layer_normalization"]),
    "choices": (gs.MultiDiscrete([2, 3]), [EMBEDDING, "flatten", 8]),
    "parts": (PARTS, [8]),
    "streams": (PARTS, {"streams": STREAMS, "join": "product", "layers": []}),
}


def make(case):
    space, declared = CASES[case]
    network = sections.section(NetworkConfig, declared, "network")
    critics = twin_critics.TwinCritics(space, 2, network, 0, False)
    for index, variable in enumerate(critics.trainable_variables):
        shape, seed = variable.shape, [index, 1]
        variable.assign(variable + 0.3 * tf.random.stateless_normal(shape, seed))
    seen = conformance.samples(space, 0, 2)
    return critics, tf.nest.map_structure(tf.constant, seen)


@pytest.mark.parametrize("case", CASES)
def test_values_depend_on_actions_and_observations_together(case):
    """A sum of functions of either would make the second difference zero."""
    critics, seen = make(case)
    here, there = critics(seen, ACTION), critics(seen, ACTION[::-1])
    difference = (here - there)[:, 0] - (there - here)[:, 1]
    assert here.shape == (2, 2)
    assert (np.abs(difference) > 1e-3).all()
    other = tf.nest.map_structure(lambda x: x[::-1], seen)
    np.testing.assert_allclose(critics(other, ACTION[::-1]), here[:, ::-1], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_gradients_reach_all_weights_and_actions(case):
    critics, seen = make(case)
    with tf.GradientTape() as tape:
        tape.watch(ACTION)
        value = tf.reduce_sum(critics(seen, ACTION))
    sources = [*critics.trainable_variables, ACTION]
    gradients = tape.gradient(value, sources)
    moved = [np.any(tf.convert_to_tensor(x) != 0.0) for x in gradients]
    assert all(moved)


def test_actions_are_beside_vectors_from_the_first_layer_on():
    critics, seen = make("vector")
    kernel, bias, last, offset, *_ = critics.trainable_variables
    hidden = tf.nn.relu(tf.concat([seen, ACTION], 1) @ kernel + bias)
    expected = (hidden @ last + offset)[:, 0]
    np.testing.assert_allclose(critics(seen, ACTION)[0], expected, atol=1e-6)


def test_actions_are_beside_images_behind_convolutions():
    critics, seen = make("declared image")
    kernel, bias, dense, dense_bias, last, offset, *_ = critics.trainable_variables
    image = tf.cast(seen, tf.float32) / 255.0
    image = tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "VALID") + bias)
    joined = tf.concat([tf.reshape(image, [2, -1]), ACTION], 1)
    expected = tf.nn.relu(joined @ dense + dense_bias) @ last + offset
    np.testing.assert_allclose(critics(seen, ACTION)[0], expected[:, 0], atol=1e-5)


@pytest.mark.parametrize(("case", "added"), [("vector", 0), ("only normalized", 1)])
def test_a_dense_layer_follows_the_action(case, added):
    critics, _ = make(case)
    sizes = [x.shape for x in critics.trainable_variables if x.ndim == 2]
    assert len(sizes) == 2 * 2
    assert sizes[0] == (5, torsos.MIXING if added else 8)


def test_discrete_critics_take_no_actions():
    critics = twin_critics.TwinCritics(
        VECTOR, 4, NetworkConfig(layers=(8,)), 0, discrete=True
    )
    assert critics(tf.zeros([5, 3])).shape == (2, 5, 4)
    assert critics.trainable_variables[0].shape == (3, 8)


def test_critics_begin_differently():
    """Else they would stay equal, and their minimum would be either."""
    critics = twin_critics.TwinCritics(VECTOR, 2, NetworkConfig(layers=(8,)), 0, False)
    first, second = critics(tf.ones([2, 3]), ACTION).numpy()
    assert not np.isclose(first, second).any()
