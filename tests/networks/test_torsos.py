"""From structured observations and recurrent state to features."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents.networks import parts, torsos
from agents.networks.config import NetworkConfig
from agents.tools import config, images

VECTOR = gs.Box(-1, 1, (3,))


def make(space, seed=0, **config):
    config = {"layers": (), **config}
    if any(config[key] for key in config if key != "join"):
        config.setdefault("activation", "linear")
    return torsos.Torso(space, NetworkConfig(**config), seed)


def remembering(cell):
    return ({"type": cell, "units": 4},) if cell else ()


def encode(torso, observation):
    features, _ = torso.step(observation, torso.initial_state(1))
    return features.numpy()


def random(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 0])


def randomized(layer, seed=0):
    """The layer with random weights, so that no bias is zero."""
    for i, variable in enumerate(layer.trainable_variables):
        variable.assign(0.5 * random(*variable.shape, seed=seed + i))
    return layer


def test_leaves_are_concatenated_in_order():
    space = gs.Dict(
        {
            "z": gs.Discrete(3, start=5),
            "a": gs.Box(-1, 1, (2, 2)),
            "m": gs.MultiDiscrete([2, 3], start=[0, -1]),
            "n": gs.MultiBinary(2),
            "t": gs.Tuple((gs.Box(-5, 5, (), np.int32),)),
        }
    )
    observation = {
        "a": tf.constant([[[1.0, 2.0], [3.0, 4.0]]]),
        "m": tf.constant([[1, -1]], tf.int64),
        "n": tf.constant([[1, 0]], tf.int8),
        "t": (tf.constant([-4]),),
        "z": tf.constant([7], tf.int64),
    }
    expected = [[1, 2, 3, 4, 0, 1, 1, 0, 0, 1, 0, -4, 0, 0, 1]]
    np.testing.assert_array_equal(encode(make(space), observation), expected)


def test_images_are_scaled_and_integers_before_that():
    space = gs.Box(0, 255, (2, 1, 1), np.uint8)
    image = tf.constant([[[[0]], [[51]]], [[[255]], [[102]]]], tf.uint8)
    expected = [[0, 0.2], [1, 0.4]]
    np.testing.assert_allclose(encode(make(space), image), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_convolutions_equal_layers_applied_by_hand(dtype):
    space = gs.Box(0, 255, (12, 10, 2), dtype)
    torso = make(
        space, convolutions=((4, 3, 2), (5, 2, 1)), layers=(6,), activation="relu"
    )
    image = tf.cast(tf.random.stateless_uniform([3, 12, 10, 2], [0, 0]) * 255, dtype)
    encode(torso, image)
    randomized(torso)
    first, first_bias, second, second_bias, dense, bias = torso.trainable_variables
    x = tf.cast(image, tf.float32) / (255 if dtype is np.uint8 else 1)
    x = tf.nn.relu(tf.nn.conv2d(x, first, 2, "VALID") + first_bias)
    x = tf.nn.relu(tf.nn.conv2d(x, second, 1, "VALID") + second_bias)
    x = tf.nn.relu(tf.reshape(x, [3, -1]) @ dense + bias)
    np.testing.assert_allclose(encode(torso, image), x, rtol=1e-4, atol=1e-3)


def test_residual_sections_equal_layers_applied_by_hand():
    """Espeholt et al. (2018), figure 3: twice a section, then a dense layer."""
    torso = make(
        gs.Box(-1, 1, (9, 8, 2)), residual=(4, 3), layers=(6,), activation="relu"
    )
    image = random(3, 9, 8, 2, seed=1)
    encode(torso, image)
    randomized(torso)
    variables = iter(torso.trainable_variables)

    def convolution(x):
        return tf.nn.conv2d(x, next(variables), 1, "SAME") + next(variables)

    x = image
    for _ in range(2):
        x = tf.nn.max_pool2d(convolution(x), 3, 2, "SAME")
        for _ in range(2):
            x += convolution(tf.nn.relu(convolution(tf.nn.relu(x))))
    assert x.shape == (3, 3, 2, 3)
    x = tf.reshape(tf.nn.relu(x), [3, -1])
    x = tf.nn.relu(x @ next(variables) + next(variables))
    assert next(variables, None) is None
    np.testing.assert_allclose(encode(torso, image), x, rtol=1e-4, atol=1e-3)


def test_convolutions_of_residual_sections_differ():
    torso = make(gs.Box(-1, 1, (8, 8, 4)), residual=(4, 4))
    encode(torso, random(1, 8, 8, 4))
    kernels = [v.numpy() for v in torso.trainable_variables if v.ndim == 4]
    assert len(kernels) == 10
    assert len({kernel.tobytes() for kernel in kernels}) == 10


def test_deep_network_of_the_paper():
    """15 convolutions with 16, 32 and 32 filters, 84 pixels halved thrice to 11."""
    config = NetworkConfig.preset("residual_lstm")
    torso = torsos.Torso(gs.Box(0, 255, (84, 84, 4), np.uint8), config, 0)
    state = torso.initial_state(2)
    assert [x.shape for x in state] == [(2, 256)] * 2
    features, _ = torso.step(tf.zeros([2, 84, 84, 4], tf.uint8), state)
    assert features.shape == (2, 256)
    shapes = [tuple(v.shape) for v in torso.trainable_variables if v.ndim > 1]
    sections = ((4, 16), (16, 32), (32, 32))
    expected = [
        (3, 3, first if index == 0 else filters, filters)
        for first, filters in sections
        for index in range(5)
    ]
    assert shapes[:15] == expected
    assert shapes[15:] == [(11 * 11 * 32, 256), (256, 1024), (256, 1024)]
    forward = NetworkConfig.preset("residual")
    assert (forward.recurrent, forward.residual) == (False, (16, 32, 32))


def test_images_go_through_convolutions_or_residual_sections():
    with pytest.raises(ValueError, match="convolutions or residual, not both"):
        NetworkConfig(convolutions=((2, 4, 4),), residual=(2,))


def test_vectors_go_around_the_convolutions():
    space = gs.Dict({"image": gs.Box(0, 255, (8, 8, 1), np.uint8), "x": VECTOR})
    torso = make(space, convolutions=((2, 4, 4),))
    observation = {"image": tf.zeros([5, 8, 8, 1], tf.uint8), "x": random(5, 3)}
    features = encode(torso, observation)
    assert features.shape == (5, 2 * 2 * 2 + 3)
    np.testing.assert_array_equal(features[:, 8:], observation["x"])


def test_dense_layers_and_their_activation():
    torso = make(VECTOR, layers=(4, 2), activation="tanh")
    encode(torso, random(1, 3))
    randomized(torso)
    x = random(6, 3, seed=9)
    kernel, bias, kernel2, bias2 = torso.trainable_variables
    expected = tf.tanh(tf.tanh(x @ kernel + bias) @ kernel2 + bias2)
    np.testing.assert_allclose(encode(torso, x), expected, atol=1e-6)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_layer_is_the_cell_of_keras(cell):
    torso = make(VECTOR, layers=remembering(cell))
    torso.step(random(1, 3), torso.initial_state(1))
    randomized(torso)
    kinds = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}
    layer = kinds[cell](4, return_sequences=True)
    x = random(2, 7, 3)
    layer(x)
    layer.set_weights([v.numpy() for v in torso.trainable_variables])
    first = tf.zeros([2, 7], tf.bool)
    unrolled = torso.unroll(x, torso.initial_state(2), first)
    np.testing.assert_allclose(unrolled, layer(x), atol=1e-5)


@pytest.mark.parametrize("cell", ["", "gru", "lstm"])
def test_unroll_equals_step_by_step_with_resets_in_the_middle(cell):
    torso = make(VECTOR, layers=(5, *remembering(cell)), activation="tanh")
    x = random(3, 9, 3)
    torso.step(x[:, 0], torso.initial_state(3))
    randomized(torso)
    first = np.zeros([3, 9], bool)
    first[0, 4] = first[1, [0, 1, 8]] = True  # At the ends, twice, and never.
    start = tf.nest.map_structure(
        lambda s: random(*s.shape, seed=5), torso.initial_state(3)
    )
    state, expected = start, []
    for step in range(9):
        begins = tf.constant(first[:, step, None])
        state = tf.nest.map_structure(lambda s, b=begins: tf.where(b, 0.0, s), state)
        features, state = torso.step(x[:, step], state)
        expected.append(features)
    unrolled = torso.unroll(x, start, tf.constant(first))
    np.testing.assert_allclose(unrolled, tf.stack(expected, 1), atol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_nothing_from_before_a_reset_matters(cell):
    torso = make(VECTOR, layers=remembering(cell))
    x, other = random(1, 6, 3), random(1, 6, 3, seed=1)
    first = tf.one_hot([3], 6, True, False, dtype=tf.bool)
    state = torso.initial_state(1)
    mixed = tf.concat([other[:, :3], x[:, 3:]], 1)
    ours, theirs = (torso.unroll(data, state, first) for data in (x, mixed))
    np.testing.assert_array_equal(ours[:, 3:], theirs[:, 3:])
    assert not np.allclose(ours[:, :3], theirs[:, :3])
    state = tf.nest.map_structure(lambda s: s + 1, state)
    theirs = torso.unroll(x, state, first)
    np.testing.assert_array_equal(ours[:, 3:], theirs[:, 3:])
    assert not np.allclose(ours[:, :3], theirs[:, :3])


@pytest.mark.parametrize(("cell", "count"), [("", 0), ("gru", 1), ("lstm", 2)])
def test_initial_state_is_zero(cell, count):
    torso = make(VECTOR, layers=remembering(cell))
    state = torso.initial_state(3)
    assert [x.shape for x in state] == [(3, 4)] * count
    assert all((x.numpy() == 0).all() for x in state)


def test_seed_decides_the_weights():
    for cell in ("", "gru"):
        x = random(2, 3)
        first, again, other = (
            encode_two(make(VECTOR, seed, layers=(4, *remembering(cell))), x)
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, again)
        assert not np.allclose(first, other)


def encode_two(torso, x):
    return torso.step(x, torso.initial_state(2))[0].numpy()


def test_layers_of_equal_shape_differ():
    torso = make(gs.Box(-1, 1, (4,)), layers=(4, 4, 4))
    encode(torso, random(1, 4))
    kernels = [v.numpy() for v in torso.trainable_variables if v.ndim == 2]
    assert len(kernels) == 3
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])


def test_orthogonal_weights():
    torso = make(gs.Box(-1, 1, (8,)), layers=(8,), initializer="orthogonal")
    encode(torso, random(1, 8))
    (kernel,) = [v.numpy() for v in torso.trainable_variables if v.ndim == 2]
    np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-5)


def kernels(space, **config):
    """Shapes of the kernels of convolutions in a torso, after one step."""
    torso = torsos.Torso(space, NetworkConfig(**config), 0)
    zeros = parts.zeros(space)
    torso.step(zeros, torso.initial_state(1))
    return [x.shape[:3] for x in torso.trainable_variables if x.shape.rank == 4]


def nature(channels):
    return [(8, 8, channels), (4, 4, 32), (3, 3, 64)]


@pytest.mark.parametrize(
    ("shape", "dtype", "channels"),
    [
        ((96, 96, 3), np.uint8, 3),
        ((36, 40, 1), np.float32, 1),
        ((3, 48, 36), np.uint8, 3),  # Channels first.
        ((4, 84, 84), np.uint8, 4),  # Gray frames.
        ((84, 84), np.uint8, 1),
        ((4, 48, 36, 3), np.uint8, 12),  # Frames in color.
        ((4, 3, 48, 36), np.float32, 12),
    ],
)
def test_undeclared_layers_for_images_are_those_of_nature(shape, dtype, channels):
    image = gs.Box(0, 255, shape, dtype)
    assert kernels(image) == nature(channels)
    assert kernels(image, layers=(8, {"type": "gru", "units": 4})) == nature(channels)
    inside = gs.Dict({"camera": gs.Tuple((image, VECTOR)), "x": VECTOR})
    assert kernels(inside) == nature(channels)
    assert kernels(image, convolutions=((4, 8, 8),)) == [(8, 8, channels)]
    assert kernels(image, convolutions=()) == []
    assert kernels(image, layers=()) == []


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((35, 96, 3), np.uint8),
        ((7, 7, 3), np.uint8),
        ((64, 64, 64), np.float32),
        ((84, 84), np.float32),
        ((96, 96, 3), np.int32),
        ((128,), np.uint8),
    ],
)
def test_other_arrays_are_no_images(shape, dtype):
    assert kernels(gs.Box(0, 255, shape, dtype)) == []


def test_declared_layers_for_images_replace_the_default():
    image = gs.Box(0, 255, (48, 48, 3), np.uint8)
    own = ({"type": "conv2d", "filters": 2, "kernel_size": 9}, "flatten", 8)
    assert kernels(image, layers=own) == [(9, 9, 3)]
    space = gs.Dict({"left": image, "right": image})
    assert kernels(space, streams={"left": own}) == [(9, 9, 3), *nature(3)]


def test_stacked_frames_are_channels():
    space = gs.Box(0, 255, (2, 40, 36, 3), np.uint8)
    frames = random(1, 2, 40, 36, 3)
    expected = tf.concat([frames[:, 0], frames[:, 1]], -1)
    np.testing.assert_array_equal(images.channels_last(frames), expected)
    first = tf.transpose(frames, [0, 1, 4, 2, 3])
    np.testing.assert_array_equal(images.channels_last(first), expected)
    assert images.recognized(space)


def test_the_default_for_images_is_said_once(caplog):
    caplog.set_level("INFO", "agents")
    space = gs.Dict({"camera": gs.Box(0, 255, (50, 37, 3), np.uint8), "x": VECTOR})
    for _ in range(2):
        torsos.Torso(space, NetworkConfig(), 0)
    (text,) = caplog.messages
    assert text == (
        "The image camera [50, 37, 3] passes through the convolutions of the Nature "
        "network; algorithm.network declares others."
    )


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((84, 84, 3), (0, 1, 2)),
        ((3, 84, 84), (1, 2, 0)),
        ((8, 8, 18), (0, 1, 2)),
        ((18, 8, 8), (1, 2, 0)),
        ((210, 160, 3), (0, 1, 2)),
        ((3, 210, 160), (1, 2, 0)),
        ((4, 84, 84, 3), (1, 2, 0, 3)),
    ],
)
def test_squares_tell_channels_from_rows(shape, order):
    frames = np.arange(np.prod(shape), dtype=np.float32).reshape(1, *shape)
    expected = frames.transpose(0, *(1 + axis for axis in order))
    expected = expected.reshape(*expected.shape[:3], -1)
    np.testing.assert_array_equal(images.channels_last(tf.constant(frames)), expected)


@pytest.mark.parametrize("count", [2**20 + 1, 2**32 + 3, 2**40])
@pytest.mark.parametrize("layer", [4, {"type": "embedding", "output_dim": 2}])
def test_choices_of_too_many_values_are_refused(count, layer):
    with pytest.raises(config.ConfigError, match=f"have {count:,} values, too many"):
        make(gs.Discrete(count), layers=(layer, "flatten", 4)).step(
            tf.zeros([1], tf.int64), ()
        )


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 84, 84), (0,)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_empty_parts_add_nothing(shape, dtype):
    space = gs.Dict(a=gs.Box(0, 1, shape, dtype), b=VECTOR)
    torso = make(space, layers=(4,), convolutions=None)
    seen = {"a": tf.zeros([5, *shape], dtype), "b": tf.zeros([5, 3])}
    assert torso.step(seen, ())[0].shape == [5, 4]


def keep(x):
    """Return numbers of a part as a vector, so that their order shows."""
    return tf.reshape(x, [-1, x.shape[1] * x.shape[2] * x.shape[3]])


def keeper():
    return keep


@pytest.mark.parametrize("shape", [(2, 5, 4), (6, 7, 16)])
def test_layers_of_users_get_observations_in_their_shape(shape):
    torso = make(gs.Box(-1, 1, shape), layers=(f"{__name__}:keeper",))
    seen = np.random.default_rng(0).uniform(-1, 1, (3, *shape)).astype(np.float32)
    features, _ = torso.step(tf.constant(seen), ())
    np.testing.assert_array_equal(features, seen.reshape(3, -1))


def test_streams_of_equal_shape_differ():
    config = NetworkConfig(streams={"a": (4,), "b": (4,)}, layers=())
    torso = torsos.Torso(gs.Dict(a=VECTOR, b=VECTOR), config, 0)
    torso.step({"a": tf.ones([1, 3]), "b": tf.ones([1, 3])}, ())
    left, right = (x.numpy() for x in torso.trainable_variables if x.ndim == 2)
    assert not np.isclose(left, right).any()
