"""Stages that observations pass before the algorithm sees them."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import preprocessing
from agents.preprocessing import stages
from agents.tools import config

IMAGE = gs.Box(0, 255, (4, 6, 3), np.uint8)
VECTOR = gs.Box(-1, 1, (3,))
HERE = __name__


class Double:
    """Of a user."""

    def __init__(self, factor=2.0):
        self.factor = factor

    def __call__(self, value):
        return self.factor * value


def halve(value):
    return value / 2.0


def make(space, *declared):
    return preprocessing.Preprocessing(space, list(declared))


def apply(space, value, *declared):
    made = make(space, *declared)
    result, _ = made(tf.constant(value), made.initial_state(len(value)))
    assert made.space.shape == tuple(result.shape[1:])
    assert made.space.dtype == result.dtype.as_numpy_dtype
    return result.numpy()


def test_grayscale_by_hand():
    image = np.zeros([1, 1, 2, 3], np.uint8)
    image[0, 0] = [[255, 0, 0], [10, 20, 30]]
    space = gs.Box(0, 255, (1, 2, 3), np.uint8)
    expected = [[[[76], [18]]]]  # 0.299 * 255; 2.99 + 11.74 + 3.42.
    np.testing.assert_array_equal(apply(space, image, "grayscale"), expected)


def test_resized_pixels_are_means_of_those_they_cover():
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(1, 4, 6, 3)
    half = apply(IMAGE, image, {"type": "image_resize", "height": 2, "width": 3})
    blocks = image.reshape(1, 2, 2, 3, 2, 3).mean((2, 4))
    np.testing.assert_array_equal(half, np.floor(blocks + 0.5))
    got = apply(IMAGE, image, {"type": "image_resize", "height": 4, "width": 6})
    np.testing.assert_array_equal(got, image)
    flat = np.full([1, 4, 6, 3], 77, np.uint8)
    got = apply(IMAGE, flat, {"type": "image_resize", "height": 2, "width": 3})
    np.testing.assert_array_equal(got, np.full([1, 2, 3, 3], 77))


def test_sizes_that_do_not_divide_and_that_grow():
    row = np.array([0, 90, 30], np.uint8).reshape(1, 1, 3, 1)
    space = gs.Box(0, 255, (1, 3, 1), np.uint8)
    got = apply(space, row, {"type": "image_resize", "height": 1, "width": 2})
    assert got.ravel().tolist() == [30, 50]  # (0 + 90 / 2) / 1.5, (90 / 2 + 30) / 1.5.
    got = apply(space, row, {"type": "image_resize", "height": 2, "width": 6})
    assert got[0, 1].ravel().tolist() == [0, 0, 90, 90, 30, 30]
    got = apply(space, row, {"type": "image_resize", "height": 1, "width": 1})
    assert got.ravel().tolist() == [40]
    pair = np.array([0, 5], np.uint8).reshape(1, 1, 2, 1)
    space = gs.Box(0, 255, (1, 2, 1), np.uint8)
    got = apply(space, pair, {"type": "image_resize", "height": 1, "width": 1})
    assert got.ravel().tolist() == [3]  # Halves go up.


def test_centered_observations_have_mean_zero():
    got = apply(VECTOR, np.float32([[1, 2, 6], [0, 0, 0]]), "center")
    np.testing.assert_allclose(got, [[-2, -1, 3], [0, 0, 0]])
    image = np.zeros([1, 4, 6, 3], np.uint8)
    image[:, :2] = 255
    got = apply(IMAGE, image, "center")
    np.testing.assert_allclose(got[:, :2], 0.5)
    np.testing.assert_allclose(got[:, 2:], -0.5)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (20, 200, [20, 100, 200, 200]),
        (-1, 1, [0, 1, 1, 1]),
        (0, 1000, [0, 100, 240, 255]),
        (10, 300, [10, 100, 240, 255]),
        (-5, -2, [0, 0, 0, 0]),
    ],
)
def test_bytes_are_clipped_by_any_bounds(low, high, expected):
    space = gs.Box(0, 255, (4,), np.uint8)
    value = np.array([[0, 100, 240, 255]], np.uint8)
    clipped = apply(space, value, {"type": "clip", "low": low, "high": high})
    np.testing.assert_array_equal(clipped, [expected])


def test_clip_flatten_and_one_hot():
    clip = {"type": "clip", "low": -1, "high": 0.5}
    np.testing.assert_allclose(
        apply(VECTOR, np.float32([[-9, 0, 9]]), clip), [[-1, 0, 0.5]]
    )
    image = np.arange(72, dtype=np.uint8).reshape(1, 4, 6, 3)
    np.testing.assert_array_equal(apply(IMAGE, image, "flatten"), image.reshape(1, -1))
    got = apply(gs.Discrete(3, start=5), np.int64([7, 5]), "one_hot")
    np.testing.assert_array_equal(got, [[0, 0, 1], [1, 0, 0]])
    got = apply(gs.MultiDiscrete([2, 3]), np.int64([[1, 2]]), "one_hot")
    np.testing.assert_array_equal(got, [[0, 1, 0, 0, 1]])
    got = apply(gs.Box(-1, 1, (2,), np.int8), np.int8([[-1, 1]]), "one_hot")
    np.testing.assert_array_equal(got, [[1, 0, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(np.int8, -128, 127), (np.uint16, 0, 9), (np.int64, 2**40, 2**40 + 9)],
)
def test_one_hot_of_all_integers(dtype, low, high):
    space = gs.Box(low, high, (2,), dtype)
    got = apply(space, np.array([[low, high]], dtype), "one_hot")
    assert got.shape == (1, 2 * (high - low + 1))
    np.testing.assert_array_equal(np.flatnonzero(got), [0, got.size - 1])


def test_own_classes_and_functions():
    value = np.float32([[1, 2, 4]])
    declared = {"type": f"{HERE}:Double", "factor": 3.0}
    np.testing.assert_allclose(apply(VECTOR, value, declared), [[3, 6, 12]])
    declared = [f"{HERE}:Double", {"type": "function", "path": f"{HERE}:halve"}]
    np.testing.assert_allclose(apply(VECTOR, value, *declared), value)


@pytest.mark.parametrize("shape", [(), (3,), (4, 5, 1)])
def test_sequence_is_that_of_gymnasium(shape):
    """Byte for byte, but that frames lie along the last axis."""

    class Frames(gymnasium.Env):
        observation_space = gs.Box(0, 255, shape, np.uint8)
        action_space = gs.Discrete(2)

        def reset(self, seed=None, options=None):
            self.random = np.random.default_rng(seed)
            return self.frame(), {}

        def step(self, action):
            return self.frame(), 0.0, False, False, {}

        def frame(self):
            return self.random.integers(0, 256, shape).astype(np.uint8)

    reference = gymnasium.wrappers.FrameStackObservation(Frames(), 4)
    plain = Frames()
    made = make(plain.observation_space, {"type": "sequence", "length": 4})
    for seed in range(2):
        wanted, seen = reference.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        state = made.initial_state(1)
        for _ in range(6):
            got, state = made(tf.constant(seen[None]), state)
            axes = [*range(1, len(shape)), 0, len(shape)] if shape else [0]
            wanted = np.transpose(wanted, axes).reshape(made.space.shape)
            np.testing.assert_array_equal(got[0], wanted)
            wanted, seen = reference.step(0)[0], plain.step(0)[0]


def test_normalize_learns_after_it_was_applied():
    made = make(VECTOR, {"type": "clip", "low": 0, "high": 10}, "normalize")
    state = made.initial_state(2)
    values = tf.constant([[1.0, 2.0, -3.0], [3.0, 6.0, -9.0]])
    assert made.learns
    first, _ = made(values, state, learn=tf.ones(len(values), tf.bool))
    np.testing.assert_allclose(first, [[1, 2, 0], [3, 5, 0]])  # Clipped at 5 only.
    frozen = [x.numpy() for x in made.variables]
    second, _ = made(values, state)
    half = 2**-0.5
    np.testing.assert_allclose(second, [[-half, -half, 0], [half, half, 0]], atol=1e-4)
    for before, variable in zip(frozen, made.variables, strict=True):
        np.testing.assert_array_equal(before, variable)


def test_parts_have_stages_of_their_own():
    space = gs.Dict({"a": VECTOR, "deep": gs.Dict({"b": gs.Discrete(2)})})
    made = preprocessing.Preprocessing(space, {"deep/b": ["one_hot"]})
    observation = {
        "a": tf.ones([1, 3]),
        "deep": {"b": tf.constant([1], tf.int64)},
    }
    got, _ = made(observation, made.initial_state(1))
    np.testing.assert_array_equal(got["deep"]["b"], [[0, 1]])
    np.testing.assert_array_equal(got["a"], [[1, 1, 1]])
    assert made.space["deep"]["b"].shape == (2,)
    assert made.space["a"] == VECTOR


@pytest.mark.parametrize(
    ("space", "declared", "message"),
    [
        (VECTOR, ["grayscal"], "unknown preprocessing 'grayscal'; did you mean 'gray"),
        (VECTOR, [{"type": "clip", "lo": 1}], "unknown argument 'lo' of .*mean 'low'"),
        (VECTOR, [{"type": "clip", "low": 1}], "missing 1 required.*'high'"),
        (VECTOR, [{"type": "clip", "low": 1, "high": 0}], "low must be less than high"),
        (VECTOR, [{"type": "sequence", "length": 0}], "length must be positive"),
        (VECTOR, ["grayscale"], r"images \[H, W, 3\] are needed, got the shape \[3\]"),
        (VECTOR, ["one_hot"], "only integers"),
        (VECTOR, ["no_such_module:f"], "cannot import 'no_such_module:f'"),
        (VECTOR, [{"length": 3}], "mapping with a 'type'"),
        (gs.Dict({"x": VECTOR}), ["flatten"], "has a list, but .* the parts 'x'"),
        (gs.Dict({"x": VECTOR}), {"y": ["flatten"]}, "has 'y', but .* the parts 'x'"),
    ],
)
def test_mistakes_are_one_line(space, declared, message):
    with pytest.raises(config.ConfigError, match=message) as error:
        preprocessing.Preprocessing(space, declared)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1e19, 7), (-1e30, float("inf"), 7), (-float("inf"), 5, 5), (9, 2**63, 9)],
)
def test_large_integers_are_clipped_by_any_bounds(low, high, expected):
    clip = {"type": "clip", "low": low, "high": high}
    assert apply(gs.Discrete(10), np.array([7]), clip).tolist() == [expected]


def test_flags_stay_flags():
    value = np.array([[[True, False], [False, False]]])
    result = apply(gs.Box(0, 1, (2, 2), bool), value, "flatten")
    assert result.tolist() == [[True, False, False, False]]


def test_bits_are_integers():
    result = apply(gs.MultiBinary(2), np.array([[1, 0]], np.int8), "one_hot")
    assert result.tolist() == [[0, 1, 1, 0]]


def in_float64():
    return lambda value: tf.cast(value, tf.float64)


@pytest.mark.parametrize(
    ("space", "declared", "expected"),
    [
        (gs.Discrete(3, start=5), "flatten", gs.MultiDiscrete([3], start=[5])),
        (
            *(gs.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]), "flatten"),
            gs.MultiDiscrete([2, 3, 4, 5], start=[0, 1, 2, 3]),
        ),
        (
            *(gs.Discrete(3, start=5), {"type": "sequence", "length": 2}),
            gs.MultiDiscrete([3, 3], start=[5, 5]),
        ),
        (gs.MultiBinary([2, 2]), "flatten", gs.Box(0, 1, (4,), np.int8)),
        (
            *(gs.Box(-2, 3, (2, 3), np.int16), "flatten"),
            gs.Box(-2, 3, (6,), np.int16),
        ),
        (
            *(gs.Box(0, 255, (2, 2, 1), np.uint8), {"type": "sequence", "length": 4}),
            gs.Box(0, 255, (2, 2, 4), np.uint8),
        ),
    ],
)
def test_rearranged_integers_keep_their_bounds_and_choices_remain(
    space, declared, expected
):
    assert make(space, declared).space == expected


def test_results_of_other_types_are_refused():
    with pytest.raises(config.ConfigError, match="returns float64; cast it to float32"):
        make(VECTOR, f"{HERE}:in_float64")


def test_parts_may_have_the_same_path():
    space = gs.Dict({"a/b": gs.Box(-9, 9, (2,)), "a": gs.Dict(b=gs.Box(-9, 9, (3,)))})
    made = preprocessing.Preprocessing(space, {"a/b": ["center"]})
    assert made.space["a/b"].shape == (2,)
    assert made.space["a"]["b"].shape == (3,)


@pytest.mark.parametrize("declared", [None, 5, "center", {"type": "center"}])
def test_stages_are_lists(declared):
    with pytest.raises(config.ConfigError, match="must have a list of stages for 'a'"):
        preprocessing.Preprocessing(gs.Dict(a=VECTOR), {"a": declared})


@pytest.mark.parametrize("clip", [-1, 0])
def test_bounds_of_normalized_numbers_are_positive(clip):
    with pytest.raises(config.ConfigError, match="clip must be positive"):
        make(VECTOR, {"type": "normalize", "clip": clip})


def test_integers_are_clipped_between_broken_bounds():
    space, clip = gs.Box(-9, 9, (5,), np.int64), {"type": "clip", "low": 1.5}
    value = np.array([[-3, -1, 0, 1, 9]])
    result = apply(space, value, {**clip, "high": 4.7})
    assert result.tolist() == [[2, 2, 2, 2, 4]]
    with pytest.raises(config.ConfigError, match="low must be less than high"):
        make(space, {**clip, "high": float("nan")})


def test_integers_between_bounds_are_needed():
    space = gs.Box(0, 9, (5,), np.int64)
    with pytest.raises(config.ConfigError, match="no integer between"):
        make(space, {"type": "clip", "low": 0.2, "high": 0.8})


@pytest.mark.parametrize("stage", ["grayscale", {"height": 2, "width": 3}], ids=str)
def test_pixels_have_at_most_16_bits(stage):
    """Others would overflow, or be rounded."""
    if isinstance(stage, dict):
        stage = {"type": "image_resize", **stage}
    for low, high in ((0, 2**16), (-(2**31), 0)):
        with pytest.raises(config.ConfigError, match="at most 16 bits are needed"):
            make(gs.Box(low, high, (4, 6, 3), np.int32), stage)
    for dtype in (np.uint16, np.int32, np.int64):
        space = gs.Box(0, 2**16 - 1, (4, 6, 3), dtype)
        image = np.full((1, 4, 6, 3), 2**16 - 1, dtype)
        assert (apply(space, image, stage) == 2**16 - 1).all()


@pytest.mark.parametrize("path", [3, None, "name", "module:"])
def test_functions_need_import_paths(path):
    with pytest.raises(config.ConfigError, match="is not an import path") as caught:
        make(VECTOR, {"type": "function", "path": path})
    assert "\n" not in str(caught.value)


def test_masks_of_actions_stay_as_they_are():
    children = {"action_mask": gs.Box(0, 1, (3,), np.int8), "speed": VECTOR}
    with pytest.raises(config.ConfigError, match="for 'action_mask', which must stay"):
        preprocessing.Preprocessing(gs.Dict(children), {"action_mask": ["normalize"]})


@pytest.mark.parametrize(
    "stage",
    [
        {"type": "image_resize", "height": 20, "width": 30},
        "grayscale",
        {"type": "sequence", "length": 2},
    ],
    ids=["resize", "grayscale", "sequence"],
)
def test_images_with_channels_first_become_channels_last(stage):
    space = gs.Box(0, 255, (40, 50, 3), np.uint8)
    first = gs.Box(0, 255, (3, 40, 50), np.uint8)
    image = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), np.uint8)
    expected = apply(space, image, stage)
    got = apply(first, image.transpose(0, 3, 1, 2), stage)
    np.testing.assert_array_equal(got, expected)


def test_clipped_integers_know_their_bounds():
    clip = {"type": "clip", "low": 0, "high": 2}
    made = make(gs.Discrete(7, start=-2), clip)
    assert made.space == gs.Discrete(3)
    values = np.arange(-2, 5)
    expected = np.eye(3)[np.clip(values, 0, 2)]
    np.testing.assert_array_equal(
        apply(gs.Discrete(7, start=-2), values, clip, "one_hot"), expected
    )
    wide = gs.Box(-(2**63), 2**63 - 1, (2,), np.int64)
    assert make(wide, clip).space == gs.Box(0, 2, (2,), np.int64)
    unsigned = gs.Box(0, 2**64 - 1, (1,), np.uint64)
    values = np.array([[2**64 - 1]], np.uint64)
    beyond = {"type": "clip", "low": -1, "high": 1e30}
    np.testing.assert_array_equal(apply(unsigned, values, beyond), values)


def test_luminance_of_bytes_is_rounded():
    image = np.uint8([[[[0, 0, 5], [0, 1, 0], [0, 0, 4]]]])
    space = gs.Box(0, 255, (1, 3, 3), np.uint8)
    gray, _ = make(space, "grayscale")(tf.constant(image), [[()]])
    # 0.57, 0.587 and 0.456.
    np.testing.assert_array_equal(gray, [[[[1], [1], [0]]]])


def test_statistics_of_fragments_are_those_of_episodes():
    """The frames of a new episode do not follow those of the one before."""
    made = make(gs.Box(-9, 9, (1,)), {"type": "sequence", "length": 2}, "normalize")
    fragments = {
        "observation": tf.constant([[[1.0], [3.0], [8.0], [5.0]]]),
        "terminated": tf.constant([[False, True, False, False]]),
        "truncated": tf.zeros([1, 4], tf.bool),
    }
    made.learn(fragments, tf.constant([[True, True, True, False]]))
    # Of the pairs (1, 1), (1, 3) and (8, 8); the last step is not valid.
    (count,) = [x.numpy() for x in made.variables if x.shape == ()]
    assert count == 3
    found = [x.numpy() for x in made.variables if x.shape == (2,)]
    assert any(np.allclose(x, [10 / 3, 4]) for x in found)


def test_pixels_may_not_be_below_those_of_16_bits():
    for low, fits in ((-(2**15), True), (-(2**15) - 1, False)):
        space = gymnasium.spaces.Box(low, 0, (4, 4, 3), np.int32)
        if fits:
            stages.create("grayscale", space)
            continue
        with pytest.raises(config.ConfigError, match="at most 16 bits"):
            stages.create("grayscale", space)


def test_integers_of_functions_may_be_negative():
    space = gymnasium.spaces.Box(0, 5, (2,), np.int8)
    stage = stages.create({"type": "function", "path": "tensorflow:negative"}, space)
    expected = gymnasium.spaces.Box(-128, 127, (2,), np.int8)
    assert stages.result(stage, space) == expected
