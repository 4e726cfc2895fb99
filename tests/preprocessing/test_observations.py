"""Normalization of observations."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import preprocessing
from agents.tools import spaces

SPACE = gs.Dict(
    {
        "speed": gs.Box(-np.inf, np.inf, (2,), np.float64),
        "camera": gs.Box(0, 255, (4, 4, 1), np.uint8),
        "codes": gs.Box(0, 255, (3,), np.uint8),
        "keys": gs.Tuple((gs.Discrete(5, start=3), gs.Box(-1, 1, ()))),
    }
)


def make(enabled=True, **kwargs):
    return preprocessing.Observations(spaces.spec(SPACE), enabled, **kwargs)


def batch(*leading, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "camera": tf.constant(rng.integers(0, 256, [*leading, 4, 4, 1]), tf.uint8),
        "codes": tf.constant(rng.integers(0, 256, [*leading, 3]), tf.uint8),
        "keys": (
            tf.constant(rng.integers(3, 8, leading), tf.int64),
            tf.constant(rng.normal(2, 3, leading), tf.float32),
        ),
        "speed": tf.constant(rng.normal(-5, 10, [*leading, 2]), tf.float32),
    }


def test_floats_are_normalized_and_integers_pass_unchanged():
    observations, data = make(), batch(8, 50)
    observations.update(data, tf.ones([8, 50], tf.bool))
    result = observations(data)
    assert result["codes"] is data["codes"]
    assert result["keys"][0] is data["keys"][0]
    for leaf in (result["speed"], result["keys"][1]):
        flat = leaf.numpy().reshape(400, -1)
        np.testing.assert_allclose(flat.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(flat.std(0), 1, rtol=1e-2)


@pytest.mark.parametrize("parts", [1, 50])
def test_every_pixel_is_normalized_by_one_of_seventeen_samples(parts):
    observations, data = make(), batch(50, 8)
    mask = np.random.default_rng(1).random([50, 8]) < 0.7
    leaves = [np.split(np.asarray(x), parts) for x in tf.nest.flatten(data)]
    for *some, known in zip(*leaves, np.split(mask, parts), strict=True):
        observations.update(tf.nest.pack_sequence_as(data, some), tf.constant(known))
    pixels = data["camera"].numpy().reshape(400, 16) / 256
    counted = pixels[::17][mask.reshape(400)[::17]]
    shifted = (pixels - counted.mean(0)) / counted.std(0, ddof=1)
    result = observations(data)["camera"].numpy().reshape(400, 16)
    np.testing.assert_allclose(result, np.clip(shifted, -5, 5), rtol=1e-4, atol=1e-5)


def test_unknown_pixels_are_scaled_and_those_that_begin_to_change_stand_out():
    observations, data = make(), batch(3)
    expected = data["camera"].numpy() / 256
    np.testing.assert_array_equal(observations(data)["camera"], expected)
    still = {**batch(99), "camera": tf.fill([99, 4, 4, 1], tf.constant(87, tf.uint8))}
    observations.update(still, tf.ones([99], tf.bool))
    moved = still["camera"].numpy()
    moved[0, 1, 2] += 1
    result = observations({**still, "camera": tf.constant(moved)})["camera"].numpy()
    np.testing.assert_array_equal(result[moved == 87], 0)
    np.testing.assert_array_equal(result[moved == 88], [5])


def test_pixels_of_sequences_are_normalized_as_those_of_single_steps():
    observations, data = make(), batch(9, 30)
    moving = np.eye(4, dtype=bool)[..., None]
    data["camera"] = tf.where(moving, data["camera"], 87)
    observations.update(data, tf.ones([9, 30], tf.bool))
    result = observations(data)["camera"].numpy()
    single = observations(tf.nest.map_structure(lambda x: x[:, 3], data))["camera"]
    np.testing.assert_allclose(result[:, 3], single, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[:, :, ~moving], 0)
    assert np.abs(result[:, :, moving]).max() > 1


def test_results_are_clipped_at_five_deviations():
    observations, data = make(), batch(4, 100)
    observations.update(data, tf.ones([4, 100], tf.bool))
    far = {**data, "speed": data["speed"] * 1000}
    assert np.abs(observations(far)["speed"]).max() == 5


def test_disabled_normalization_changes_and_stores_nothing():
    observations, data = make(enabled=False), batch(3)
    observations.update(data, tf.ones([3], tf.bool))
    result = observations(data)
    tf.nest.map_structure(np.testing.assert_array_equal, result, data)
    assert list(observations.persistent) == []
    assert not observations.variables


def test_padding_does_not_count():
    mask = tf.sequence_mask([3, 5, 1], 5)
    data = batch(3, 5)
    spoilt = tf.nest.map_structure(
        lambda x: tf.where(
            tf.reshape(mask, [3, 5, *[1] * (x.shape.rank - 2)]), x, tf.cast(99, x.dtype)
        ),
        data,
    )
    observations, expected = make(), make()
    observations.update(spoilt, mask)
    expected.update(data, mask)
    for one, other in zip(observations.variables, expected.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_acting_learns_nothing():
    observations, data = make(), batch(6)
    observations.update(data, tf.ones([6], tf.bool))
    before = [x.numpy().tolist() for x in observations.variables]
    observations(batch(6, seed=1))
    assert [x.numpy().tolist() for x in observations.variables] == before


def test_single_leaf_needs_no_structure():
    specs = spaces.spec(gs.Box(-1, 1, (2,)))
    observations = preprocessing.Observations(specs, True)
    data = tf.constant([[1.0, 2.0], [3.0, 6.0]])
    observations.update(data, tf.constant([True, True]))
    result = observations(data)
    half = 0.5**0.5
    np.testing.assert_allclose(result, [[-half, -half], [half, half]], rtol=1e-6)


def test_action_masks_are_neither_normalized_nor_counted():
    children = {"action_mask": gs.Box(0, 1, (3,)), "speed": gs.Box(-1, 1, (2,))}
    nested = gs.Dict({"inner": gs.Dict(children)})
    parts = gs.Tuple([gs.Box(0, 1, (2,)), gs.Box(0, 1, (1,))])
    for mask in (children["action_mask"], parts):
        space = gs.Dict({**children, "action_mask": mask})
        observations = preprocessing.Observations(spaces.spec(space), True)
        assert len(observations.persistent) == 1
        rng = np.random.default_rng(0)
        data = spaces.transform(
            lambda spec, rng=rng: tf.constant(rng.uniform(size=[9, *spec.shape])),
            spaces.spec(space),
        )
        data = tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), data)
        observations.update(data, tf.ones([9], tf.bool))
        result = observations(data)
        tf.nest.map_structure(
            np.testing.assert_array_equal, result["action_mask"], data["action_mask"]
        )
        assert (result["speed"] != data["speed"]).numpy().all()
    observations = preprocessing.Observations(spaces.spec(nested), True)
    assert len(observations.persistent) == 2
