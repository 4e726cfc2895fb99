"""Streaming normalization."""

import numpy as np
import pytest
import tensorflow as tf

from agents import preprocessing


def fed(samples, sizes=None, mask=None, **kwargs):
    """Normalizer that has seen samples `[N, ...]` in batches of these sizes."""
    samples = np.asarray(samples)
    normalizer = preprocessing.StreamingNormalize(samples.shape[1:], **kwargs)
    mask = np.ones(len(samples), bool) if mask is None else np.asarray(mask)
    start = 0
    for size in sizes or [len(samples)]:
        part = slice(start, start + size)
        normalizer.update(tf.constant(samples[part]), tf.constant(mask[part]))
        start += size
    assert start == len(samples)
    return normalizer


def state(normalizer):
    return [x.numpy().tolist() for x in normalizer.variables]


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1e6, 1.0), (-3e4, 20.0)])
def test_statistics_equal_those_of_numpy_after_a_million_samples(mean, std):
    samples = np.random.default_rng(0).normal(mean, std, [1_000_000, 2])
    samples = samples.astype(np.float32)
    normalizer = fed(samples, [1, 9, 990, 99_000, *[100_000] * 9])
    expected = samples.astype(np.float64)
    assert normalizer.count.numpy() == 1_000_000
    np.testing.assert_allclose(normalizer.mean, expected.mean(0), rtol=1e-6, atol=1e-6)
    variance = expected.var(0, ddof=1)
    np.testing.assert_allclose(normalizer.std**2, variance, rtol=1e-6)
    result = normalizer(tf.constant(samples)).numpy()
    # Near 1e6, neighbors in float32 are 0.06 apart.
    tolerance = 0.07 if mean == 1e6 else 2e-3
    exact = (expected - expected.mean(0)) / expected.std(0)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, exact, atol=tolerance)


def test_numbers_by_hand():
    normalizer = fed([[1.0], [3.0], [8.0]])
    assert normalizer.mean.numpy() == 4
    np.testing.assert_allclose(normalizer.std**2, [13.0])
    result = normalizer(tf.constant([[[4.0], [17.0]]]))
    np.testing.assert_allclose(result, [[[0.0], [13**0.5]]], rtol=1e-6)


def test_dimensions_are_normalized_on_their_own():
    samples = np.random.default_rng(0).normal(size=[50, 2, 3]).astype(np.float32)
    samples *= np.arange(1, 7).reshape(2, 3)
    normalizer = fed(samples)
    result = normalizer(tf.constant(samples)).numpy()
    np.testing.assert_allclose(result.mean(0), np.zeros([2, 3]), atol=1e-6)
    np.testing.assert_allclose(result.std(0, ddof=1), np.ones([2, 3]), rtol=1e-6)


@pytest.mark.parametrize("sizes", [[1] * 40, [39, 1], [1, 39], [7, 13, 20]])
def test_batches_do_not_matter(sizes):
    samples = np.random.default_rng(1).normal(100, 3, [40, 3]).astype(np.float32)
    whole, split = fed(samples), fed(samples, sizes)
    np.testing.assert_allclose(split.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(split.std, whole.std, rtol=1e-10)
    assert split.count.numpy() == whole.count.numpy()


def test_masked_samples_do_not_count():
    samples = np.random.default_rng(2).normal(5, 2, [30, 2]).astype(np.float32)
    mask = np.random.default_rng(3).random(30) < 0.5
    spoilt = np.where(mask[:, None], samples, 1e9).astype(np.float32)
    expected, result = fed(samples[mask]), fed(spoilt, [10, 20], mask)
    np.testing.assert_allclose(result.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(result.std, expected.std, rtol=1e-10)
    assert result.count.numpy() == mask.sum()


def test_mask_of_several_dimensions():
    samples = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    mask = tf.constant([[True, False, True], [False, True, False]])
    normalizer = preprocessing.StreamingNormalize([2])
    normalizer.update(tf.constant(samples), mask)
    np.testing.assert_allclose(normalizer.mean, [4, 5])  # Of 0, 4, 8 and 1, 5, 9.
    np.testing.assert_allclose(normalizer.std**2, [16, 16])


def test_nothing_valid_changes_nothing():
    normalizer = fed([[1.0], [2.0]])
    before = state(normalizer)
    normalizer.update(tf.constant([[5.0]]), tf.constant([False]))
    assert state(normalizer) == before
    empty = preprocessing.StreamingNormalize([1])
    empty.update(tf.constant([[5.0]]), tf.constant([False]))
    assert empty(tf.constant([[3.0]])).numpy() == 3


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("count", [0, 1])
def test_values_are_unchanged_before_the_second_sample(center, count):
    normalizer = fed(np.full([count, 2], 7, np.float32), center=center)
    value = tf.constant([[3.0, -40.0]])
    np.testing.assert_array_equal(normalizer(value), value)
    clipped = fed(np.full([count, 2], 7, np.float32), center=center, clip=5.0)
    np.testing.assert_array_equal(clipped(value), [[3.0, -5.0]])


def test_constant_values_stay_finite():
    normalizer = fed(np.full([10, 1], 3.0, np.float32))
    np.testing.assert_allclose(normalizer(tf.constant([[3.0]])), [[0.0]], atol=1e-3)
    assert np.isfinite(normalizer(tf.constant([[4.0]]))).all()


def test_without_centering_values_are_divided_by_their_root_mean_square():
    samples = np.random.default_rng(4).normal(3, 2, 1000).astype(np.float32)
    normalizer = fed(samples, center=False)
    result = normalizer(tf.constant(samples)).numpy()
    np.testing.assert_allclose((result**2).mean(), 1.0, rtol=1e-3)
    assert (np.sign(result) == np.sign(samples)).all()
    ones = fed(np.full(10, 5.0, np.float32), center=False)
    np.testing.assert_allclose(ones(tf.constant([5.0, 2.5])), [1.0, 0.5], rtol=1e-6)


def test_without_scaling_values_are_only_centered():
    normalizer = fed([1.0, 3.0], scale=False)
    np.testing.assert_allclose(normalizer(tf.constant([5.0, 1.0])), [3.0, -1.0])


def test_results_are_clipped():
    normalizer = fed(np.array([-1.0, 1.0] * 500, np.float32), clip=2.0)
    values = tf.constant([-9.0, -1.0, 0.5, 9.0])
    np.testing.assert_allclose(normalizer(values), [-2, -1, 0.5, 2], rtol=1e-2)


def test_normalizing_changes_no_statistics():
    normalizer = fed([[1.0], [2.0], [4.0]])
    before = state(normalizer)
    normalizer(tf.constant([[100.0]]))
    assert state(normalizer) == before


def test_gradient_passes_through_the_values_and_nothing_is_trainable():
    normalizer = fed([[1.0], [3.0]])
    value = tf.constant([[5.0]])
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = normalizer(value)
    np.testing.assert_allclose(tape.gradient(result, value), [[1 / 2**0.5]], rtol=1e-6)
    assert not normalizer.trainable_variables


def test_works_in_a_graph_of_dynamic_size_in_one_trace():
    normalizer = preprocessing.StreamingNormalize([2])

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.bool)],
    )
    def update(value, mask):
        normalizer.update(value, mask)
        return normalizer(value)

    samples = np.random.default_rng(5).normal(size=[9, 2]).astype(np.float32)
    for part in (samples[:4], samples[4:]):
        update(part, np.ones(len(part), bool))
    np.testing.assert_allclose(normalizer.mean, fed(samples).mean, rtol=1e-12)
    assert update.experimental_get_tracing_count() == 1


def test_statistics_survive_a_checkpoint(tmp_path):
    normalizer = fed(np.random.default_rng(6).normal(size=[20, 3]))
    path = tf.train.Checkpoint(x=normalizer).write(str(tmp_path / "x"))
    other = preprocessing.StreamingNormalize([3])
    tf.train.Checkpoint(x=other).read(path).assert_consumed()
    assert state(other) == state(normalizer)
