"""Probabilities against SciPy, and frequencies of samples."""

import itertools

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from agents.networks import beta as beta_
from agents.networks import distributions, joint


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
            return joint.MultiCategorical(logits, sizes)
        return joint.Bernoulli(logits)

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
        made = joint.MultiCategorical(logits, [3, 2])
        values = list(itertools.product(range(3), range(2)))
    else:
        made = joint.Bernoulli(logits)
        values = list(itertools.product(range(2), repeat=3))
    sample = made.sample(generator()).numpy()
    counts = [(sample == value).all(1).sum() for value in values]
    expected = np.exp(outcomes(made, values))[0] * len(sample)
    expected *= len(sample) / expected.sum()
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3


def test_certain_bits_are_finite():
    made = joint.Bernoulli(tf.constant([[200.0, -200.0]]))
    other = joint.Bernoulli(tf.constant([[-200.0, -200.0]]))
    assert made.sample(generator()).numpy().tolist() == [[1, 0]]
    np.testing.assert_allclose(made.entropy(), 0, atol=1e-6)
    np.testing.assert_allclose(made.kl(other), 200, rtol=1e-5)


def tanh_normal(rng, *shape):
    mean, log_std = rng.normal(size=shape), rng.normal(-0.5, 0.5, shape)
    made = distributions.TanhNormal(
        tf.constant(mean, tf.float32), tf.constant(log_std, tf.float32)
    )
    return made, scipy.stats.norm(mean, np.exp(log_std))


def beta(rng, *shape):
    alpha, beta = 1 + rng.gamma(2, 2, shape), 1 + rng.gamma(2, 2, shape)
    made = beta_.Beta(tf.constant(alpha, tf.float32), tf.constant(beta, tf.float32))
    return made, scipy.stats.beta(alpha, beta)


def column(made, i):
    """Distribution of the dimension i only."""
    parameters = made.parameters.items()
    return type(made)(**{key: value[..., i : i + 1] for key, value in parameters})


@pytest.mark.parametrize("make", [tanh_normal, beta])
def test_densities_on_boxes_integrate_to_one(make):
    """By the midpoint rule over the box, in two dimensions at once."""
    made, _ = make(np.random.default_rng(9), 1, 2)
    low = -1 if make is tanh_normal else 0
    points = np.linspace(low, 1, 801)
    points = (points[1:] + points[:-1]) / 2
    grid = np.stack(np.meshgrid(points, points), -1).reshape(-1, 2)
    value = np.arctanh(grid) if make is tanh_normal else grid
    density = np.exp(made.log_prob(tf.constant(value, tf.float32)).numpy())
    area = (1 - low) ** 2 / len(grid)
    np.testing.assert_allclose(density.sum() * area, 1, atol=1e-3)


def test_tanh_normal_log_prob_is_that_of_the_squashed_value():
    made, expected = tanh_normal(np.random.default_rng(10), 2, 4, 3)
    value = np.random.default_rng(11).normal(0, 1.5, (2, 4, 3))
    log_prob = expected.logpdf(value) - np.log(1 - np.tanh(value) ** 2)
    result = made.log_prob(tf.constant(value, tf.float32))
    assert result.shape == (2, 4)
    np.testing.assert_allclose(result, log_prob.sum(-1), rtol=1e-4, atol=1e-4)


def test_tanh_normal_is_exact_where_tanh_is_one():
    value = tf.constant([[20.0, -20.0], [-88.0, 88.0], [0.0, 0.0]])
    mean, log_std = tf.Variable(tf.zeros([3, 2])), tf.Variable(tf.zeros([3, 2]))
    with tf.GradientTape() as tape:
        made = distributions.TanhNormal(mean, log_std)
        log_prob = made.log_prob(value)
        loss = tf.reduce_sum(log_prob)
    x = np.abs(value.numpy().astype(np.float64))
    log_slope = 2 * (np.log(2) - x - np.log1p(np.exp(-2 * x)))
    expected = (scipy.stats.norm.logpdf(x) - log_slope).sum(-1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    gradients = tape.gradient(loss, [mean, log_std])
    np.testing.assert_allclose(gradients[0], value, rtol=1e-6)
    np.testing.assert_allclose(gradients[1], value**2 - 1, rtol=1e-6)


@pytest.mark.parametrize("std", [0.05, 0.35, 1.0, 2.0, 3.0])
def test_tanh_normal_entropy_equals_the_integral(std):
    means = np.array([0.0, 0.3, -1.0, 2.0, -5.0])
    made = distributions.TanhNormal(
        tf.constant(means[:, None], tf.float32), tf.fill([5, 1], tf.math.log(std))
    )
    points = means[:, None] + std * np.linspace(-10, 10, 100_001)
    density = scipy.stats.norm(means[:, None], std).pdf(points)
    log_slope = 2 * (np.log(2) - points - np.logaddexp(0, -2 * points))
    mean = (density * log_slope).sum(1) / density.sum(1)
    expected = scipy.stats.norm(means, std).entropy() + mean
    np.testing.assert_allclose(made.entropy(), expected, atol=1e-3)


def test_tanh_normal_entropy_has_its_gradient_and_adds_up():
    made, _ = tanh_normal(np.random.default_rng(12), 4, 3)
    parts = sum(column(made, i).entropy() for i in range(3))
    np.testing.assert_allclose(made.entropy(), parts, rtol=1e-5, atol=1e-5)
    for name, step in (("mean", 1e-2), ("log_std", 1e-2)):
        with tf.GradientTape() as tape:
            tape.watch(made.parameters[name])
            entropy = distributions.TanhNormal(**made.parameters).entropy()
        gradient = tf.reduce_sum(tape.gradient(entropy, made.parameters[name]), -1)
        up, down = (
            distributions.TanhNormal(
                **{**made.parameters, name: made.parameters[name] + change}
            ).entropy()
            for change in (step, -step)
        )
        np.testing.assert_allclose(gradient, (up - down) / (2 * step), atol=1e-3)


def test_tanh_normal_samples_mode_and_divergence_are_those_before_tanh():
    made, _ = tanh_normal(np.random.default_rng(13), 20, 3)
    other, _ = tanh_normal(np.random.default_rng(14), 20, 3)
    before, after = (distributions.Normal(**x.parameters) for x in (made, other))
    np.testing.assert_array_equal(made.kl(other), before.kl(after))
    np.testing.assert_array_equal(made.sample(generator()), before.sample(generator()))
    np.testing.assert_array_equal(made.mode(), made.parameters["mean"])


def test_beta_log_prob_entropy_and_mode():
    rng = np.random.default_rng(15)
    for shape in ((5,), (4, 3), (2, 4, 3)):
        made, expected = beta(rng, *shape)
        value = rng.uniform(0.01, 0.99, shape)
        log_prob = made.log_prob(tf.constant(value, tf.float32))
        assert log_prob.shape == shape[:-1]
        log_prob_ = expected.logpdf(value).sum(-1)
        np.testing.assert_allclose(log_prob, log_prob_, rtol=1e-4, atol=1e-4)
        entropy = expected.entropy().sum(-1)
        np.testing.assert_allclose(made.entropy(), entropy, rtol=1e-4, atol=1e-4)
        best = made.log_prob(made.mode())
        for seed in range(20):
            assert (
                (made.log_prob(made.sample(generator(seed))) <= best + 1e-5)
                .numpy()
                .all()
            )


def test_beta_kl_equals_the_integral_and_adds_up():
    rng = np.random.default_rng(16)
    (p, p_scipy), (q, q_scipy) = beta(rng, 6, 1), beta(rng, 6, 1)
    edges = np.linspace(0, 1, 20_001)
    points = (edges[1:] + edges[:-1]) / 2
    difference = p_scipy.logpdf(points) - q_scipy.logpdf(points)
    expected = (p_scipy.pdf(points) * difference).mean(-1)
    np.testing.assert_allclose(p.kl(q), expected, rtol=1e-3, atol=1e-4)
    (p, _), (q, _) = beta(rng, 50, 3), beta(rng, 50, 3)
    np.testing.assert_array_equal(p.kl(p), np.zeros(50))
    assert (p.kl(q).numpy() > 0).all()
    parts = sum(column(p, i).kl(column(q, i)) for i in range(3))
    np.testing.assert_allclose(p.kl(q), parts, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (1, 4), (3.5, 2), (60, 1.5)])
def test_beta_samples_have_the_distribution(alpha, beta):
    ones = tf.ones([20_000, 1])
    made = beta_.Beta(alpha * ones, beta * ones)
    sample = made.sample(generator()).numpy()[:, 0]
    expected = scipy.stats.beta(alpha, beta)
    assert scipy.stats.kstest(sample, expected.cdf).pvalue > 1e-3
    np.testing.assert_allclose(sample.mean(), expected.mean(), atol=0.01)
    np.testing.assert_allclose(sample.var(), expected.var(), rtol=0.05)


def test_beta_samples_are_independent_and_go_on_with_the_generator():
    made = beta_.Beta(tf.fill([20_000, 2], 2.0), tf.fill([20_000, 2], 3.0))
    random = generator(3)
    first, second = made.sample(random), made.sample(random)
    np.testing.assert_array_equal(made.sample(generator(3)), first)
    columns = np.concatenate([first, second], 1)
    assert np.abs(np.corrcoef(columns.T) - np.eye(4)).max() < 0.03


def test_beta_is_finite_at_its_edges():
    """Zero padding must not spoil gradients that are multiplied by zero."""
    edges = tf.constant([[0.0, 1.0], [1.0, 0.0]])
    for scale in (0.0, 1.0, 1e4):
        alpha = beta = tf.fill([2, 2], scale)
        old = beta_.Beta(alpha, beta)
        new = [tf.Variable(tf.fill([2, 2], x)) for x in (1.0, 2.5)]
        with tf.GradientTape() as tape:
            made = beta_.Beta(*new)
            losses = [made.log_prob(edges), old.kl(made), made.kl(old), made.entropy()]
            loss = tf.add_n(losses)
        assert np.isfinite(loss).all()
        assert all(np.isfinite(x).all() for x in tape.gradient(loss, new))
        sample = old.sample(generator())
        assert np.isfinite(old.log_prob(sample)).all()
    flat = beta_.Beta(tf.ones([1, 1]), tf.ones([1, 1]))
    assert flat.mode().numpy() == 0.5
    extreme = beta_.Beta(tf.constant([[1e6]]), tf.constant([[1.0]]))
    assert 0 < extreme.sample(generator()).numpy() < 1
    assert 0 < extreme.mode().numpy() < 1


@pytest.mark.quick("normal", "tanh_normal")
@pytest.mark.parametrize("make", [normal, tanh_normal, beta])
def test_everything_compiles(make):
    """Under XLA as without, up to the products that natural gradients need."""
    rng = np.random.default_rng(17)
    (p, _), (q, _) = make(rng, 7, 3), make(rng, 7, 3)
    kind = type(p)
    vector = dict(zip(p.parameters, (0.5, -1.0), strict=True))

    def compute(ours, theirs):
        with tf.GradientTape() as outer:
            outer.watch(theirs)
            with tf.GradientTape() as inner:
                inner.watch(theirs)
                old, new = (kind(**x) for x in (ours, theirs))
                kl = tf.reduce_sum(old.kl(new) + new.kl(old))
            gradients = inner.gradient(kl, theirs)
            product = tf.add_n(
                [tf.reduce_sum(gradients[x] * vector[x]) for x in vector]
            )
        curvature = outer.gradient(product, theirs)
        mode = old.mode()
        return mode, old.log_prob(mode), old.entropy(), kl, gradients, curvature

    plain = compute(p.parameters, q.parameters)
    compiled = tf.function(compute, jit_compile=True)(p.parameters, q.parameters)
    for one, other in zip(
        tf.nest.flatten(compiled), tf.nest.flatten(plain), strict=True
    ):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4)


def test_compiled_samples_of_beta_have_the_distribution():
    """Which are others than those that are not compiled."""
    random = generator()

    @tf.function(jit_compile=True)
    def draw(alpha, beta):
        return beta_.Beta(alpha, beta).sample(random)

    sample = draw(tf.fill([20_000, 1], 1.2), tf.fill([20_000, 1], 5.0)).numpy()[:, 0]
    assert scipy.stats.kstest(sample, scipy.stats.beta(1.2, 5).cdf).pvalue > 1e-3


def test_curvature_of_the_beta_divergence_is_the_fisher_information():
    """The Hessian of KL(p || q) at q = p, by SciPy's trigamma function."""
    made, expected = beta(np.random.default_rng(18), 5, 1)
    alpha, zeros = (made.parameters[key] for key in ("alpha", "beta"))
    with tf.GradientTape() as outer:
        outer.watch(alpha)
        with tf.GradientTape() as inner:
            inner.watch(alpha)
            kl = made.kl(beta_.Beta(alpha, zeros))
        gradient = inner.gradient(kl, alpha)
    a, b = expected.args
    fisher = scipy.special.polygamma(1, a) - scipy.special.polygamma(1, a + b)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)
    np.testing.assert_allclose(outer.gradient(gradient, alpha), fisher, rtol=1e-3)


def test_samples_of_beta_have_no_gradient():
    """The one through rejection sampling would be wrong."""
    alpha = tf.constant([[2.0, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(alpha)
        sample = beta_.Beta(alpha, alpha).sample(generator())
    assert tape.gradient(sample, alpha) is None
