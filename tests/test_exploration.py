"""Exploration: laws of the noise, rows, schedules, graphs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import exploration
from agents.tools import conditional, schedules

STEPS = tf.constant(0, tf.int64)
FALL = schedules.Schedule("linear", 1.0, 0.0, 100)
KINDS = ("gaussian", "ornstein_uhlenbeck", "epsilon_greedy", "masked")
SIZE = 3


def generator(seed=0):
    return tf.random.Generator.from_seed(seed, alg="philox")


def everyone(rows):
    return tf.range(rows)


def create(kind, rows, rate):
    """Exploration and the action `[rows, ...]` it is given in tests of all kinds."""
    if kind == "gaussian":
        noise = exploration.Gaussian(SIZE, rows, rate)
    elif kind == "ornstein_uhlenbeck":
        noise = exploration.OrnsteinUhlenbeck(SIZE, rows, rate)
    else:
        greedy = exploration.EpsilonGreedy([50], rows, rate)
        mask = tf.ones([rows, 50], tf.bool) if kind == "masked" else None
        action = tf.fill([rows], tf.constant(7, tf.int64))
        return greedy, action, {"mask": mask}
    return noise, tf.zeros([rows, SIZE]), {}


def assert_frequency(hits, probability):
    """Five standard deviations of the binomial distribution."""
    hits = np.asarray(hits)
    bound = 5 * np.sqrt(probability * (1 - probability) / hits.size)
    assert abs(hits.mean() - probability) < max(bound, 1e-12)


# Common to all.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["eager", "graph", "xla"])
def test_same_generator_state_gives_the_same_actions(kind, how):
    noise, action, keywords = create(kind, 5, 0.3)
    steps = tf.Variable(0, dtype=tf.int64)
    random = generator(3)

    def explore(rows):
        noise.begin(rows)
        return noise(rows, action, steps, random, **keywords)

    if how != "eager":
        explore = tf.function(explore, jit_compile=how == "xla", autograph=False)
    first = explore(everyone(5)).numpy()
    second = explore(everyone(5)).numpy()
    random.reset_from_seed(3)
    np.testing.assert_array_equal(explore(everyone(5)), first)
    np.testing.assert_array_equal(explore(everyone(5)), second)
    assert first.shape == action.shape
    assert first.dtype == action.dtype.as_numpy_dtype
    assert kind in ("epsilon_greedy", "masked") or (first != second).all()
    if how != "eager":
        assert explore.experimental_get_tracing_count() == 1
    if how == "xla":  # TensorFlow's generators have other numbers there.
        return
    expected, action, keywords = create(kind, 5, 0.3)
    eager = expected(everyone(5), action, steps, generator(3), **keywords)
    np.testing.assert_allclose(first, eager, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("jit", [False, True])
def test_rate_follows_the_environment_steps_in_one_trace(kind, jit):
    rows = 4000
    noise, action, keywords = create(kind, rows, FALL)
    steps = tf.Variable(0, dtype=tf.int64)
    random = generator()

    @tf.function(autograph=False, jit_compile=jit)
    def explore():
        noise.begin(everyone(rows))
        return noise(everyone(rows), action, steps, random, **keywords)

    for step, rate in [(0, 1.0), (50, 0.5), (80, 0.2), (100, 0.0), (500, 0.0)]:
        steps.assign(step)
        actual = explore().numpy()
        if actual.ndim == 1:
            assert_frequency(actual != 7, rate * 49 / 50)
        elif rate <= 0.2:  # Clipping changes the others.
            assert actual.std() == pytest.approx(rate, rel=0.05)
    assert explore.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_can_have_its_own_rate(kind):
    rates = [0.0, 0.02, 0.1, 0.2]
    noise, action, keywords = create(kind, 4, rates)
    random = generator()
    rows = tf.constant([3, 0, 1])
    keywords = {k: x if x is None else x[:3] for k, x in keywords.items()}
    results = []
    for _ in range(400):
        noise.begin(rows)
        results.append(noise(rows, action[:3], STEPS, random, **keywords).numpy())
    results = np.stack(results, 1)
    for row, values in zip([3, 0, 1], results, strict=True):
        if values.ndim == 1:
            assert_frequency(values != 7, rates[row] * 49 / 50)
        else:
            assert values.std() == pytest.approx(rates[row], rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (-0.1, "from 0 to"),
        (float("nan"), "from 0 to"),
        ([0.1, 0.1, 0.1, -0.1], "from 0 to"),
        (schedules.Schedule("linear", 1.0, -0.5, 10), "from 0 to"),
        ([0.1, 0.2], "one for each of 4 rows"),
        ([[0.1, 0.1, 0.1, 0.1]], "one for each of 4 rows"),
    ],
)
def test_impossible_rates_raise(kind, rate, message):
    with pytest.raises(ValueError, match=message):
        create(kind, 4, rate)


# Noise on continuous actions.


@pytest.mark.parametrize("kind", ["gaussian", "ornstein_uhlenbeck"])
def test_noise_is_added_and_clipped(kind):
    rows = 2000
    noise, _, _ = create(kind, rows, 0.3)
    action = tf.tile([[0.2, -0.9, 1.0]], [rows, 1])
    actual = noise(everyone(rows), action, STEPS, generator()).numpy()
    assert np.abs(actual).max() == 1.0
    assert_frequency(actual[:, 2] == 1.0, 0.5)
    assert actual[:, 0].mean() == pytest.approx(0.2, abs=0.03)
    same, _, _ = create(kind, rows, 0.3)
    plain = same(everyone(rows), tf.zeros_like(action), STEPS, generator()).numpy()
    inside = (np.abs(actual) < 1) & (np.abs(plain) < 1)
    np.testing.assert_allclose((actual - plain)[inside], action[inside], atol=1e-6)


def test_gaussian_noise_is_independent_over_time_rows_and_dimensions():
    noise, random = exploration.Gaussian(2, 3, 0.1), generator()
    series = np.stack(
        [
            noise(everyone(3), tf.zeros([3, 2]), STEPS, random).numpy().ravel()
            for _ in range(1500)
        ]
    )
    bound = 5 / np.sqrt(1500)
    assert np.abs(np.corrcoef(series.T) - np.eye(6)).max() < bound
    for column in series.T:
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < bound
    assert series.std() == pytest.approx(0.1, rel=0.05)


def process(noise, rows, steps, seed=0):
    """Series `[steps, rows, size]` of a process under zero actions."""
    random = generator(seed)

    @tf.function(autograph=False)
    def step():
        return noise(everyone(rows), tf.zeros([rows, 1]), STEPS, random)

    return np.stack([step().numpy() for _ in range(steps)])


@pytest.mark.parametrize(("theta", "dt"), [(0.15, 1.0), (0.5, 0.5), (1.0, 1.0)])
def test_ornstein_uhlenbeck_has_its_variance_and_correlation(theta, dt):
    std, rows = 0.08, 20000
    noise = exploration.OrnsteinUhlenbeck(1, rows, std, theta, dt)
    series = process(noise, rows, 50)[:, :, 0]
    kept = 1 - theta * dt
    variance = 0.0  # Zero before the first step.
    for step, values in enumerate(series):
        variance = kept**2 * variance + std**2 * dt
        if step in (0, 1, 5, 49):
            assert values.var() == pytest.approx(variance, rel=0.06)
            assert abs(values.mean()) < 5 * np.sqrt(variance / rows)
    assert variance == pytest.approx(std**2 / (theta * (2 - theta * dt)), rel=1e-5)
    for lag in (1, 2, 5):
        correlation = np.corrcoef(series[-1], series[-1 - lag])[0, 1]
        assert correlation == pytest.approx(kept**lag, abs=5 / np.sqrt(rows))
    increments = series[1:] - kept * series[:-1]
    assert np.corrcoef(increments[:2])[0, 1] == pytest.approx(0, abs=0.04)
    assert increments.std() == pytest.approx(std * dt**0.5, rel=0.01)


def test_rows_of_ornstein_uhlenbeck_are_independent():
    series = process(exploration.OrnsteinUhlenbeck(1, 3, 0.1, 0.8), 3, 1500)[:, :, 0]
    assert np.abs(np.corrcoef(series.T) - np.eye(3)).max() < 0.15


@pytest.mark.parametrize("jit", [False, True])
def test_begin_resets_and_steps_move_only_the_named_rows(jit):
    noise = exploration.OrnsteinUhlenbeck(2, 4, [0.1, 0.1, 0.1, 0.0], theta=0.25)
    random = generator()
    signature = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 2])]
    step = tf.function(
        lambda rows, action: noise(rows, action, STEPS, random), autograph=False
    )
    begin = tf.function(
        noise.begin, input_signature=signature[:1], autograph=False, jit_compile=jit
    )
    state = noise.variables[0]
    step(tf.range(4), tf.zeros([4, 2]))
    before = state.numpy()
    assert (before[:3] != 0).all()
    begin(tf.constant([2, 0]))
    np.testing.assert_array_equal(state.numpy()[[0, 2]], 0)
    np.testing.assert_array_equal(state.numpy()[[1, 3]], before[[1, 3]])
    begin(tf.constant([], tf.int32))
    np.testing.assert_array_equal(state.numpy()[[1, 3]], before[[1, 3]])
    state.assign(tf.fill([4, 2], 0.8))
    actual = step(tf.constant([3]), tf.constant([[0.1, -0.5]]))
    np.testing.assert_allclose(actual, [[0.7, 0.1]], rtol=1e-6)
    expected = [[0.8, 0.8]] * 3 + [[0.6, 0.6]]
    np.testing.assert_allclose(state, expected, rtol=1e-6)


@pytest.mark.parametrize(("theta", "dt"), [(0, 1), (-1, 1), (3, 0.5), (1, 0), (-1, -1)])
def test_unstable_processes_raise(theta, dt):
    with pytest.raises(ValueError, match="theta"):
        exploration.OrnsteinUhlenbeck(1, 1, 0.1, theta, dt)


# Epsilon greedy.


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.4, 1.0])
def test_frequency_of_random_actions(epsilon):
    rows, size = 20000, 5
    greedy = exploration.EpsilonGreedy([size], rows, epsilon)
    action = tf.fill([rows], tf.constant(3, tf.int64))
    actual = greedy(everyone(rows), action, STEPS, generator()).numpy()
    for value in range(size):
        expected = epsilon / size + (1 - epsilon) * (value == 3)
        assert_frequency(actual == value, expected)


@pytest.mark.parametrize("with_mask", [False, True])
def test_whole_rows_are_replaced_and_dimensions_drawn_independently(with_mask):
    rows, sizes, epsilon = 20000, [2, 3, 4], 0.4
    greedy = exploration.EpsilonGreedy(sizes, rows, epsilon)
    action = tf.fill([rows, 3], tf.constant(-1, tf.int64))  # Shows who was replaced.
    mask = tf.ones([rows, 9], tf.bool) if with_mask else None
    actual = greedy(everyone(rows), action, STEPS, generator(), mask).numpy()
    replaced = (actual >= 0).all(1)
    np.testing.assert_array_equal(replaced, (actual >= 0).any(1))
    assert_frequency(replaced, epsilon)
    drawn = actual[replaced]
    combined = (drawn[:, 0] * 3 + drawn[:, 1]) * 4 + drawn[:, 2]
    assert set(combined) == set(range(24))
    for value in range(24):
        assert_frequency(combined == value, 1 / 24)


def test_masks_leave_uniform_choices_among_the_allowed_ones():
    rows = 30000
    greedy = exploration.EpsilonGreedy([4], rows, 1.0)
    kinds = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]], bool)
    which = np.arange(rows) % 4
    action = tf.zeros([rows], tf.int64)
    actual = greedy(everyone(rows), action, STEPS, generator(), kinds[which]).numpy()
    for index, allowed in enumerate(kinds):
        for value in range(4):
            hits = actual[which == index] == value
            assert_frequency(hits, allowed[value] / allowed.sum())


def test_masks_of_several_dimensions():
    rows = 6000
    greedy = exploration.EpsilonGreedy([2, 3], rows, 1.0)
    mask = tf.tile([[False, True, True, False, True]], [rows, 1])
    action = tf.zeros([rows, 2], tf.int64)
    actual = greedy(everyone(rows), action, STEPS, generator(), mask).numpy()
    assert (actual[:, 0] == 1).all()
    assert set(actual[:, 1]) == {0, 2}
    assert_frequency(actual[:, 1] == 0, 0.5)


def test_greedy_actions_are_untouched_by_masks():
    greedy = exploration.EpsilonGreedy([3], 2, 0.0)
    action = tf.constant([0, 2], tf.int64)
    mask = tf.constant([[True, False, False], [False, True, True]])
    actual = greedy(everyone(2), action, STEPS, generator(), mask)
    np.testing.assert_array_equal(actual, [0, 2])


def test_a_mask_that_allows_all_changes_nothing():
    for sizes in ([3], [7, 2, 18], [1000]):
        greedy = exploration.EpsilonGreedy(sizes, 500, 0.7)
        action = tf.zeros([500, len(sizes)], tf.int64)
        mask = tf.ones([500, sum(sizes)], tf.bool)
        plain = greedy(everyone(500), action, STEPS, generator())
        masked = greedy(everyone(500), action, STEPS, generator(), mask)
        np.testing.assert_array_equal(plain, masked)


def test_extreme_random_numbers_stay_in_range():
    largest = np.nextafter(np.float32(1), np.float32(0))
    for size in (1, 2, 3, 7, 18, 1000, 2**20 - 1):
        greedy = exploration.EpsilonGreedy([size], 2, 1.0)
        chance = tf.constant([[0.0], [largest]])
        expected = [[0], [size - 1]]
        np.testing.assert_array_equal(greedy._choose(chance, None), expected)
        mask = tf.ones([2, size], tf.bool)
        np.testing.assert_array_equal(greedy._choose(chance, mask), expected)


def test_epsilon_above_one_raises():
    for epsilon in (1.1, [0.5, 1.5], schedules.Schedule("constant", 2.0)):
        with pytest.raises(ValueError, match="epsilon must be from 0 to 1"):
            exploration.EpsilonGreedy([2], 2, epsilon)


# Ape-X.


def test_ladder():
    np.testing.assert_allclose(
        exploration.ladder(8), [0.4 ** (1 + i) for i in range(8)], rtol=1e-12
    )
    np.testing.assert_allclose(
        exploration.ladder(3, base=0.5, alpha=2.0), [0.5, 0.25, 0.125], rtol=1e-12
    )
    np.testing.assert_allclose(exploration.ladder(2), [0.4, 0.00065536], rtol=1e-6)


def test_ladder_of_a_single_agent_is_finite():
    np.testing.assert_array_equal(exploration.ladder(1), [0.4])
    greedy = exploration.EpsilonGreedy([2], 1, exploration.ladder(1))
    action = greedy(everyone(1), tf.zeros([1], tf.int64), STEPS, generator())
    assert int(action[0]) in (0, 1)


def test_ladder_gives_every_row_its_epsilon():
    greedy = exploration.EpsilonGreedy([1000], 3, exploration.ladder(3, 0.5, 2.0))
    random = generator()
    action = tf.fill([3], tf.constant(-1, tf.int64))

    @tf.function(autograph=False)
    def explores():
        return greedy(everyone(3), action, STEPS, random) >= 0

    explored = [explores().numpy() for _ in range(2000)]
    for hits, epsilon in zip(np.transpose(explored), [0.5, 0.25, 0.125], strict=True):
        assert_frequency(hits, epsilon)


# Noise on parameters.


def perturbed(rows, std, **options):
    """Network of tanh, its noise, and a function that acts and returns both actions."""
    layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(32, "tanh")]
    model = keras.Sequential(layers)
    model.build([None, 16])
    noise = exploration.ParameterNoise(
        model, model.trainable_variables, rows, std, **options
    )
    random = generator()

    def act(rows, seen):
        action = model(seen)
        return action, noise(rows, action, STEPS, random, seen)

    return model, noise, act


@pytest.mark.parametrize("jit", [False, True])
def test_rows_keep_their_parameters_for_an_episode(jit):
    model, noise, act = perturbed(4, 0.5, factor=1.000001)
    before = [np.array(x) for x in model.get_weights()]
    seen = tf.tile(tf.random.Generator.from_seed(1).normal([1, 16]), [4, 1])
    if not jit:
        act = tf.function(act, autograph=False)
    else:
        plain = act

        @tf.function(autograph=False, jit_compile=True)
        def act(rows, seen):
            with conditional.program():
                return plain(rows, seen)

    plain, first = act(everyone(4), seen)
    _, again = act(everyone(4), seen)
    np.testing.assert_allclose(first, again, atol=1e-5)
    differences = np.abs(first - np.array(first)[:, None]).mean(-1)
    assert (differences[~np.eye(4, dtype=bool)] > 0.05).all()  # Each row has its own.
    assert (np.abs(first - plain).mean(1) > 0.05).all()
    noise.begin(tf.constant([1, 3]))
    _, new = act(everyone(4), seen)
    moved = np.abs(new - first).mean(1)
    assert (moved[[1, 3]] > 0.05).all()
    assert (moved[[0, 2]] < 1e-5).all()
    _, part = act(tf.constant([3, 0, 1, 2]), seen)
    np.testing.assert_allclose(part, np.array(new)[[3, 0, 1, 2]], atol=1e-5)
    for old, weight in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, weight)


def test_noise_on_parameters_is_of_the_deviation():
    bias = keras.Variable(tf.fill([50], 7.0))
    noise = exploration.ParameterNoise(lambda seen: seen + bias, [bias], 300, 0.5)
    seen = tf.zeros([300, 50])

    def drawn():
        return np.array(noise(everyone(300), seen + bias, STEPS, generator(), seen)) - 7

    first = drawn()
    assert first.std() == pytest.approx(0.1, rel=0.05)
    assert abs(first.mean()) < 0.005
    noise.deviation.assign(0.3)
    np.testing.assert_allclose(drawn(), 3 * first, atol=1e-5)


def test_noise_on_parameters_follows_the_network():
    model, noise, act = perturbed(3, 0.5)
    seen = tf.zeros([3, 16])
    act(everyone(3), seen)
    model.layers[-1].bias.assign_add(tf.fill([32], 100.0))
    _, noisy = act(everyone(3), seen)
    np.testing.assert_allclose(noisy, 1.0)


def test_deviation_of_parameters_adapts_towards_that_of_actions():
    _, noise, act = perturbed(8, 0.2, factor=1.1)
    act = tf.function(act, autograph=False)
    random = tf.random.Generator.from_seed(1)
    noise.deviation.assign(3.0)
    distances = []
    for _ in range(300):
        noise.begin(everyone(8))
        plain, noisy = act(everyone(8), random.normal([8, 16]))
        distances.append(float(tf.sqrt(tf.reduce_mean((plain - noisy) ** 2))))
    assert distances[0] > 0.6
    assert np.mean(distances[-50:]) == pytest.approx(0.2, rel=0.2)
    assert act.experimental_get_tracing_count() == 1


def test_deviation_of_actions_is_reached_within_an_episode_and_kept():
    _, noise, act = perturbed(8, 0.2)
    act = tf.function(act, autograph=False)
    random = tf.random.Generator.from_seed(1)
    for _ in range(2):
        noise.begin(everyone(8))
        distances = []
        for _ in range(400):
            plain, noisy = act(everyone(8), random.normal([8, 16]))
            distances.append(float(tf.sqrt(tf.reduce_mean((plain - noisy) ** 2))))
        assert np.mean(distances[-50:]) == pytest.approx(0.2, rel=0.1)


def test_deviation_of_parameters_is_in_checkpoints(tmp_path):
    _, old, _ = perturbed(2, 0.2)
    old.deviation.assign(0.7)
    path = tf.train.Checkpoint(**old.persistent).write(str(tmp_path / "noise"))
    _, new, _ = perturbed(2, 0.2)
    tf.train.Checkpoint(**new.persistent).read(path).assert_consumed()
    assert float(new.deviation) == pytest.approx(0.7)


def test_structured_observations_reach_the_network():
    bias = keras.Variable([0.5])

    def network(seen):
        return tf.tanh(seen["a"] + tf.cast(seen["b"][0], tf.float32) + bias.value)

    noise = exploration.ParameterNoise(network, [bias], 3, 0.1)
    seen = {"a": tf.zeros([3, 1]), "b": (tf.ones([3, 1], tf.int64),)}
    action = network(seen)
    noisy = noise(everyone(3), action, STEPS, generator(), seen)
    assert noisy.shape == action.shape
    assert len(set(np.ravel(noisy).tolist())) == 3


@pytest.mark.parametrize(("std", "factor"), [(-1.0, 1.01), (0.1, 1.0)])
def test_impossible_parameter_noise_raises(std, factor):
    with pytest.raises(ValueError, match="must be"):
        exploration.ParameterNoise(lambda x: x, [], 2, std, factor)


@pytest.mark.parametrize("size", [1, 2])
def test_parameter_noise_of_convolutions_in_batches_of_any_size(size):
    model = keras.Sequential(
        [keras.layers.Conv2D(4, 3), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    model.build([None, 6, 6, 1])
    noise = exploration.ParameterNoise(model, model.trainable_variables, 3, 0.5)
    random = generator()
    seen = tf.random.Generator.from_seed(1).normal([3, 6, 6, 1])

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None, 6, 6, 1]),
        ]
    )
    def act(rows, seen):
        return noise(rows, model(seen), STEPS, random, seen)

    together = act(tf.range(3), seen)
    noise.deviation.assign(0.1)
    rows = tf.constant([2, 0][:size])
    np.testing.assert_allclose(
        act(rows, tf.gather(seen, rows)), tf.gather(together, rows), atol=1e-5
    )
