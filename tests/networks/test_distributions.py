"""Probabilities against SciPy, and frequencies of samples."""

import itertools

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from agents.networks import distributions


def generator(seed=0):
    return tf.random.Generator.from_seed(seed, alg="philox")


def normal(rng, *shape):
    mean, log_std = rng.normal(size=shape), rng.normal(0, 0.5, shape)
    made = distributions.Normal(
        tf.constant(mean, tf.float32), tf.constant(log_std, tf.float32)
    )
    return made, scipy.stats.norm(mean, np.exp(log_std))


def categorical(rng, *shape):
    logits = rng.normal(0, 2, shape)
    made = distributions.Categorical(tf.constant(logits, tf.float32))
    return made, scipy.special.softmax(logits, -1)


def test_normal_log_prob_and_entropy():
    rng = np.random.default_rng(0)
    for shape in ((5,), (4, 3), (2, 4, 3)):
        made, expected = normal(rng, *shape)
        value = rng.normal(0, 3, shape)
        log_prob = made.log_prob(tf.constant(value, tf.float32))
        assert log_prob.shape == shape[:-1]
        np.testing.assert_allclose(log_prob, expected.logpdf(value).sum(-1), rtol=1e-4)
        np.testing.assert_allclose(
            made.entropy(), expected.entropy().sum(-1), rtol=1e-5, atol=1e-5
        )


def test_normal_kl_equals_the_integral():
    """Gauss-Hermite quadrature of E[log p - log q] is exact for polynomials."""
    rng = np.random.default_rng(1)
    (p, p_scipy), (q, q_scipy) = normal(rng, 6, 1), normal(rng, 6, 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    points = p_scipy.mean() + p_scipy.std() * nodes  # [6, 10]
    difference = p_scipy.logpdf(points) - q_scipy.logpdf(points)
    expected = (difference * weights).sum(-1) / weights.sum()
    np.testing.assert_allclose(p.kl(q), expected, rtol=1e-4)


def test_normal_kl_adds_up_over_dimensions():
    (p, _), (q, _) = (normal(np.random.default_rng(seed), 4, 3) for seed in (2, 3))

    def column(x, i):
        return distributions.Normal(
            **{key: value[:, i : i + 1] for key, value in x.parameters.items()}
        )

    parts = sum(column(p, i).kl(column(q, i)) for i in range(3))
    np.testing.assert_allclose(p.kl(q), parts, rtol=1e-5)


def test_categorical_log_prob_entropy_and_kl():
    rng = np.random.default_rng(4)
    for shape in ((5,), (4, 3), (2, 4, 3)):
        (p, p_probs), (q, q_probs) = categorical(rng, *shape), categorical(rng, *shape)
        value = rng.integers(0, shape[-1], shape[:-1])
        log_prob = p.log_prob(tf.constant(value, tf.int64))
        expected = np.take_along_axis(np.log(p_probs), value[..., None], -1)[..., 0]
        np.testing.assert_allclose(log_prob, expected, rtol=1e-4)
        entropy = scipy.stats.entropy(p_probs, axis=-1)
        np.testing.assert_allclose(p.entropy(), entropy, rtol=1e-4)
        kl = scipy.stats.entropy(p_probs, q_probs, axis=-1)
        np.testing.assert_allclose(p.kl(q), kl, rtol=1e-3, atol=1e-6)
        total = sum(
            tf.exp(p.log_prob(tf.fill(shape[:-1], tf.constant(i, tf.int64))))
            for i in range(shape[-1])
        )
        np.testing.assert_allclose(total, np.ones(shape[:-1]), rtol=1e-5)


@pytest.mark.parametrize("make", [normal, categorical])
def test_divergence_is_zero_from_itself_and_positive_else(make):
    rng = np.random.default_rng(5)
    (p, _), (q, _) = make(rng, 50, 3), make(rng, 50, 3)
    np.testing.assert_array_equal(p.kl(p), np.zeros(50))
    assert (p.kl(q).numpy() > 0).all()
    assert not np.allclose(p.kl(q), q.kl(p))


def test_normal_samples_have_the_distribution():
    mean, std = np.array([-3.0, 0.0, 10.0]), np.array([0.1, 1.0, 5.0])
    ones = np.ones([20_000, 1])
    made = distributions.Normal(
        tf.constant(ones * mean, tf.float32),
        tf.constant(ones * np.log(std), tf.float32),
    )
    sample = made.sample(generator()).numpy()
    for i in range(3):
        test = scipy.stats.kstest(sample[:, i], scipy.stats.norm(mean[i], std[i]).cdf)
        assert test.pvalue > 1e-3
    correlation = np.corrcoef(sample.T) - np.eye(3)
    assert np.abs(correlation).max() < 0.03


def test_categorical_samples_have_the_frequencies():
    probs = np.array([0.6, 0.25, 0.149, 0.001])
    logits = np.log(probs) + 7.0
    made = distributions.Categorical(tf.constant([logits] * 100_000, tf.float32))
    sample = made.sample(generator())
    assert sample.dtype == tf.int64
    counts = np.bincount(sample.numpy(), minlength=4)
    assert scipy.stats.chisquare(counts, probs * 100_000).pvalue > 1e-3


def test_impossible_index_is_never_drawn():
    logits = tf.constant([[0.0, -1e9, 0.0]] * 20_000)
    sample = distributions.Categorical(logits).sample(generator()).numpy()
    assert set(sample) == {0, 2}


@pytest.mark.parametrize("make", [normal, categorical])
def test_samples_go_on_with_the_generator_and_repeat_with_its_state(make):
    made, _ = make(np.random.default_rng(6), 20, 3)
    random = generator(3)
    first, second = made.sample(random), made.sample(random)
    assert (first != second).numpy().any()
    np.testing.assert_array_equal(made.sample(generator(3)), first)


@pytest.mark.parametrize("make", [normal, categorical])
def test_mode_is_the_most_probable_value(make):
    made, _ = make(np.random.default_rng(7), 30, 3)
    best = made.log_prob(made.mode())
    for seed in range(20):
        sample = made.sample(generator(seed))
        assert (made.log_prob(sample) <= best + 1e-6).numpy().all()


def test_parameters_make_the_same_distribution_again():
    rng = np.random.default_rng(8)
    made, _ = normal(rng, 4, 2)
    again = distributions.Normal(**made.parameters)
    np.testing.assert_array_equal(made.kl(again), np.zeros(4))
    made, _ = categorical(rng, 4, 2)
    again = distributions.Categorical(**made.parameters)
    np.testing.assert_array_equal(made.kl(again), np.zeros(4))


def test_gradient_of_the_log_prob_is_that_of_the_definition():
    mean, log_std = tf.constant([[1.0]]), tf.constant([[0.5]])
    with tf.GradientTape() as tape:
        tape.watch([mean, log_std])
        log_prob = distributions.Normal(mean, log_std).log_prob(tf.constant([[2.0]]))
    gradients = tape.gradient(log_prob, [mean, log_std])
    variance = np.exp(1.0)
    np.testing.assert_allclose(gradients[0], [[1 / variance]], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], [[1 / variance - 1]], rtol=1e-6)


def test_extreme_parameters_stay_finite():
    logits = tf.constant([[1e4, -1e4, 0.0], [-1e30, 0.0, 1e30]])
    p = distributions.Categorical(logits)
    for value in (p.entropy(), p.kl(p), p.log_prob(p.mode())):
        assert np.isfinite(value).all()
    p = distributions.Normal(tf.constant([[1e4]]), tf.constant([[-10.0]]))
    q = distributions.Normal(tf.constant([[-1e4]]), tf.constant([[2.0]]))
    for value in (p.entropy(), p.kl(q), p.log_prob(tf.constant([[0.0]]))):
        assert np.isfinite(value).all()


def outcomes(made, values):
    """Log-probabilities `[rows, values]` of all values of a distribution."""
    columns = []
    for value in values:
        rows = made.parameters["logits"].shape[0]
        columns.append(made.log_prob(tf.constant([value] * rows, tf.int64)))
    return np.stack(columns, 1).astype(np.float64)


@pytest.mark.parametrize("kind", ["multi", "binary"])
def test_products_equal_their_enumeration(kind):
    rng = np.random.default_rng(4)
    sizes = [3, 2, 4] if kind == "multi" else [2, 2, 2]
    width = sum(sizes) if kind == "multi" else len(sizes)

    def create():
        logits = tf.constant(rng.normal(0, 2, (5, width)), tf.float32)
        if kind == "multi":
            return distributions.MultiCategorical(logits, sizes)
        return distributions.Bernoulli(logits)

    p, q = create(), create()
    values = list(itertools.product(*map(range, sizes)))
    log_p, log_q = outcomes(p, values), outcomes(q, values)
    np.testing.assert_allclose(np.exp(log_p).sum(1), 1, rtol=1e-5)
    entropy = -(np.exp(log_p) * log_p).sum(1)
    np.testing.assert_allclose(p.entropy(), entropy, rtol=1e-4)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(1)
    np.testing.assert_allclose(p.kl(q), kl, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(p.kl(p), 0, atol=1e-6)
    best = [values[index] for index in log_p.argmax(1)]
    np.testing.assert_array_equal(p.mode(), best)


@pytest.mark.parametrize("kind", ["multi", "binary"])
def test_products_are_sampled_by_their_probabilities(kind):
    logits = [0.5, -1.0, 0.3, 1.0, 0.0] if kind == "multi" else [1.0, -2.0, 0.0]
    logits = tf.constant([logits] * 20_000)
    if kind == "multi":
        made = distributions.MultiCategorical(logits, [3, 2])
        values = list(itertools.product(range(3), range(2)))
    else:
        made = distributions.Bernoulli(logits)
        values = list(itertools.product(range(2), repeat=3))
    sample = made.sample(generator()).numpy()
    counts = [(sample == value).all(1).sum() for value in values]
    expected = np.exp(outcomes(made, values))[0] * len(sample)
    expected *= len(sample) / expected.sum()
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3


def test_certain_bits_are_finite():
    made = distributions.Bernoulli(tf.constant([[200.0, -200.0]]))
    other = distributions.Bernoulli(tf.constant([[-200.0, -200.0]]))
    assert made.sample(generator()).numpy().tolist() == [[1, 0]]
    np.testing.assert_allclose(made.entropy(), 0, atol=1e-6)
    np.testing.assert_allclose(made.kl(other), 200, rtol=1e-5)
