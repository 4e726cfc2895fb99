"""From features to actions that environments accept."""

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces as gs

from agents import tools
from agents.networks import heads, kinds, parts
from agents.networks.config import NetworkConfig
from agents.tools import spaces

ASYMMETRIC = gs.Box(
    np.array([-1.0, 0.0, 5.0], np.float32), np.array([3.0, 0.1, 500.0], np.float32)
)


def make(space, seed=0, **config):
    head = kinds.head(space, NetworkConfig(**config), seed)
    head(tf.zeros([1, 4]))  # Builds it.
    return head


def delivered(head, rows=500, seed=0):
    """Samples and actions for random features."""
    features = tf.random.stateless_normal([rows, 4], [seed, 1]) * 5
    generator = tf.random.Generator.from_seed(seed, alg="philox")
    sample = head.distribution(head(features)).sample(generator)
    return sample, head.action(sample)


@pytest.mark.parametrize(
    "space",
    [
        ASYMMETRIC,
        gs.Box(-1, 1, (2, 3)),
        gs.Box(-1, 1, ()),
        gs.Box(-2.5, 2.5, (1,), np.float64),
        gs.Box(-np.inf, np.inf, (2,)),
        gs.Box(0.0, np.inf, (2,)),
        gs.Box(-np.inf, -3.0, (1,)),
        gs.Box(np.array([-1, -np.inf], np.float32), np.array([2, np.inf], np.float32)),
        gs.Discrete(5),
        gs.Discrete(5, start=-3),
        gs.Discrete(2, start=7),
        gs.Discrete(1),
        gs.MultiDiscrete([2, 3]),
        gs.MultiDiscrete([[2, 3], [4, 1]]),
        gs.MultiDiscrete([2, 3], start=[5, -7]),
        gs.MultiBinary(3),
        gs.MultiBinary([2, 2]),
        gs.Box(250, 255, (2,), np.uint8),
        gs.Box(np.array([-3, 4]), np.array([-1, 9]), dtype=np.int32),
    ],
    ids=str,
)
def test_actions_lie_in_the_space(space):
    head = make(space, initial_std=2.0, output_scale=3.0, mean_activation="linear")
    _, action = delivered(head)
    spec = spaces.spec(space)
    assert action.shape == (500, *spec.shape)
    assert action.dtype == spec.dtype

    class Env(gymnasium.Env):
        action_space = space
        observation_space = gs.Box(-1, 1, (1,))

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            assert space.contains(action)
            return np.zeros(1, np.float32), 0.0, False, False, {}

    batch = tools.BatchEnv([Env() for _ in range(500)], blocking=True)
    batch.reset()
    batch.step(action.numpy())


def test_bounds_are_those_of_the_unit_interval():
    head = make(ASYMMETRIC)
    unit = tf.constant([[-1.0] * 3, [0.0] * 3, [1.0] * 3, [-7.0] * 3, [0.5, 9.0, 9.0]])
    expected = [
        [-1, 0, 5],
        [1, 0.05, 252.5],
        [3, 0.1, 500],
        [-1, 0, 5],
        [2, 0.1, 500],
    ]
    np.testing.assert_allclose(head.action(unit), expected, rtol=1e-6)


def test_all_discrete_actions_are_delivered_with_their_start():
    head = make(gs.Discrete(4, start=-2))
    sample, action = delivered(head)
    assert set(sample.numpy()) == {0, 1, 2, 3}
    assert set(action.numpy()) == {-2, -1, 0, 1}
    np.testing.assert_array_equal(action, sample - 2)


def test_probability_is_that_of_the_unclipped_sample():
    """Else all samples beyond a bound would count as if they were on it."""
    head = make(gs.Box(-1, 1, (1,)), initial_std=1.0)
    sample, action = delivered(head, rows=2000)
    outside = np.abs(sample.numpy()[:, 0]) > 1
    assert outside.any()
    assert (np.abs(action.numpy()) <= 1).all()
    parameters = {"mean": tf.zeros([2000, 1]), "log_std": tf.zeros([2000, 1])}
    log_prob = head.distribution(parameters).log_prob(sample).numpy()
    expected = -0.5 * sample.numpy()[:, 0] ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
    assert (log_prob[outside] < -0.5 - 0.5 * np.log(2 * np.pi)).all()


def test_initial_deviation_and_small_initial_means():
    for std in (0.35, 0.6):
        head = make(gs.Box(-1, 1, (3,)), initial_std=std, output_scale=0.01)
        parameters = head(tf.random.stateless_normal([100, 4], [0, 0]))
        np.testing.assert_allclose(tf.exp(parameters["log_std"]), std, rtol=1e-6)
        assert parameters["log_std"].shape == (100, 3)
        assert np.abs(parameters["mean"]).max() < 0.5
    head = make(gs.Discrete(4), output_scale=0.001)
    parameters = head(tf.random.stateless_normal([100, 4], [0, 0]))
    probs = tf.nn.softmax(parameters["logits"])
    np.testing.assert_allclose(probs, 0.25, atol=0.05)


@pytest.mark.parametrize("initializer", ["scaled", "orthogonal"])
def test_output_scale_scales_the_last_layer(initializer):
    features = tf.random.stateless_normal([100, 4], [0, 0])

    def mean(scale):
        head = make(
            gs.Box(-1, 1, (3,)),
            output_scale=scale,
            mean_activation="linear",
            initializer=initializer,
        )
        return head(features)["mean"].numpy()

    # Variance scaling scales the variance, orthogonal weights the weights.
    ratio = 0.1 if initializer == "orthogonal" else 0.1**0.5
    np.testing.assert_allclose(mean(0.01), ratio * mean(0.1), rtol=1e-4, atol=1e-6)


def test_mean_activation_bounds_the_mean():
    features = 1e3 * tf.random.stateless_normal([50, 4], [0, 0])
    bounded = make(gs.Box(-1, 1, (1,)), mean_activation="tanh")(features)["mean"]
    linear = make(gs.Box(-1, 1, (1,)), mean_activation="linear")(features)["mean"]
    assert np.abs(bounded).max() <= 1
    assert np.abs(linear).max() > 1


def test_deviation_is_one_trainable_vector_and_bounded():
    head = make(gs.Box(-1, 1, (3,)))
    (log_std,) = [v for v in head.trainable_variables if "log_std" in v.name]
    assert tuple(log_std.shape) == (3,)
    for value, limit in ((-100.0, -20.0), (100.0, 2.0)):
        log_std.assign(np.full(3, value))
        np.testing.assert_array_equal(head(tf.zeros([2, 4]))["log_std"], limit)


@pytest.mark.parametrize("space", [gs.Box(-1, 1, (2, 3)), gs.Discrete(4, start=2)])
def test_specs_describe_what_is_stored(space):
    head = make(space)
    parameters = head(tf.zeros([7, 4]))
    sample, _ = delivered(head, rows=7)
    assert sample.shape[1:] == head.sample_spec.shape
    assert sample.dtype == head.sample_spec.dtype
    for name, spec in head.parameter_specs.items():
        assert parameters[name].shape[1:] == spec.shape
        assert parameters[name].dtype == spec.dtype
    assert set(parameters) == set(head.parameter_specs)


def test_parameters_of_sequences():
    head = make(gs.Box(-1, 1, (2,)))
    features = tf.random.stateless_normal([3, 5, 4], [0, 0])
    sequence = head(features)
    for step in range(5):
        single = head(features[:, step])
        for name, value in single.items():
            np.testing.assert_allclose(sequence[name][:, step], value, atol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        gs.Box(0, 2000, (2,), np.int32),
        gs.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (1,), np.int64),
        gs.Dict({"a": gs.Text(3)}),
        gs.Dict({}),
    ],
    ids=str,
)
def test_other_spaces_are_refused(space):
    for function in (make, kinds.check_action_space):
        with pytest.raises(spaces.UnsupportedSpaceError, match="supported|empty"):
            function(space)


NESTED = gs.Dict(
    {
        "b": gs.Tuple((gs.MultiBinary(2), gs.Box(-1, 1, (2,)))),
        "a": gs.MultiDiscrete([2, 3]),
        "c": gs.Discrete(3, start=1),
    }
)


def test_nested_actions_are_independent_and_lie_in_the_space():
    head = make(NESTED)
    sample, action = delivered(head, rows=6)
    tf.nest.map_structure(lambda x: x.numpy(), action)
    for row in range(6):
        a, c = (action[key][row].numpy() for key in "ac")
        b = tuple(leaf[row].numpy() for leaf in action["b"])
        assert NESTED.contains({"a": a, "b": b, "c": int(c)})
    parameters = head(tf.random.stateless_normal([6, 4], [0, 1]))
    joint = head.distribution(parameters)
    other = head.distribution(tf.nest.map_structure(lambda x: 0.5 * x, parameters))
    parts = [
        part.distribution(x) for part, x in zip(head._heads, parameters, strict=True)
    ]
    others = [
        part.distribution(tf.nest.map_structure(lambda y: 0.5 * y, x))
        for part, x in zip(head._heads, parameters, strict=True)
    ]
    pairs = list(zip(parts, sample, strict=True))
    np.testing.assert_allclose(
        joint.log_prob(sample), sum(p.log_prob(x) for p, x in pairs), rtol=1e-6
    )
    np.testing.assert_allclose(
        joint.entropy(), sum(p.entropy() for p in parts), rtol=1e-6
    )
    expected = sum(p.kl(q) for p, q in zip(parts, others, strict=True))
    np.testing.assert_allclose(joint.kl(other), expected, rtol=1e-6)


def test_seed_decides_the_weights():
    features = tf.random.stateless_normal([3, 4], [0, 0])
    space = gs.Discrete(3)
    first, again, other = (make(space, seed)(features) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first["logits"], again["logits"])
    assert not np.allclose(first["logits"], other["logits"])


@pytest.mark.parametrize("continuous", ["tanh_normal", "beta"])
@pytest.mark.parametrize(
    "space",
    [
        ASYMMETRIC,
        gs.Box(-1, 1, (2, 3)),
        gs.Box(-1, 1, ()),
        gs.Box(-2.5, 2.5, (1,), np.float64),
    ],
    ids=str,
)
def test_squashed_actions_reach_the_bounds_and_stay_inside(continuous, space):
    head = make(space, continuous=continuous, initial_std=0.5, output_scale=100.0)
    sample, action = delivered(head)
    spec = spaces.spec(space)
    assert action.shape == (500, *spec.shape)
    assert action.dtype == spec.dtype
    assert sample.shape[1:] == head.sample_spec.shape
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    assert (action >= low).numpy().all()
    assert (action <= high).numpy().all()
    parameters = head(tf.zeros([7, 4]))
    assert set(parameters) == set(head.parameter_specs)
    for name, expected in head.parameter_specs.items():
        assert parameters[name].shape == (7, *expected.shape)
        assert parameters[name].dtype == expected.dtype
    log_prob = head.distribution(head(tf.zeros([500, 4]))).log_prob(sample)
    assert np.isfinite(log_prob).all()


def test_squashed_samples_are_scaled_to_the_bounds():
    expected = [[-1, 0, 5], [1, 0.05, 252.5], [3, 0.1, 500], [2, 0.075, 376.25]]
    unit = np.array([-1, 0, 1, 0.5], np.float32)[:, None] * np.ones(3, np.float32)
    pre = tf.constant(np.arctanh(unit.clip(-1 + 1e-7, 1 - 1e-7)), tf.float32)
    tanh = make(ASYMMETRIC, continuous="tanh_normal")
    np.testing.assert_allclose(tanh.action(pre), expected, rtol=1e-5, atol=1e-5)
    far = tf.constant([[-20.0] * 3, [20.0] * 3, [-1e30] * 3, [1e30] * 3])
    corners = [ASYMMETRIC.low, ASYMMETRIC.high] * 2
    np.testing.assert_array_equal(tanh.action(far), corners)
    beta = make(ASYMMETRIC, continuous="beta")
    np.testing.assert_allclose(beta.action((unit + 1) / 2), expected, rtol=1e-5)


def test_initial_deviation_of_squashed_actions():
    features = tf.random.stateless_normal([20_000, 4], [0, 0])
    generator = tf.random.Generator.from_seed(0, alg="philox")
    for continuous, std, expected in [
        ("beta", 0.2, 0.2),
        ("beta", 0.5, 0.5),
        ("beta", 0.6, 0.56),  # At most about that of the uniform distribution.
        ("tanh_normal", 0.2, 0.19),
    ]:
        head = make(
            gs.Box(-1, 1, (1,)),
            continuous=continuous,
            initial_std=std,
            output_scale=1e-6,
        )
        action = head.action(head.distribution(head(features)).sample(generator))
        np.testing.assert_allclose(np.std(action), expected, atol=0.01)


def test_mean_of_tanh_normal_has_no_activation():
    features = 1e3 * tf.random.stateless_normal([50, 4], [0, 0])
    head = make(gs.Box(-1, 1, (1,)), continuous="tanh_normal", mean_activation="tanh")
    assert np.abs(head(features)["mean"]).max() > 1


@pytest.mark.parametrize("continuous", ["tanh_normal", "beta"])
@pytest.mark.parametrize(
    "space",
    [
        gs.Box(-np.inf, np.inf, (2,)),
        gs.Box(0.0, np.inf, (2,)),
        gs.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,)),
        gs.Dict({"a": gs.Discrete(2), "b": gs.Box(-np.inf, 1, (1,))}),
    ],
    ids=str,
)
def test_squashed_actions_need_bounds(continuous, space):
    with pytest.raises(spaces.UnsupportedSpaceError, match="not bounded.*'normal'"):
        make(space, continuous=continuous)


def test_boxes_as_large_as_their_dtype_count_as_unbounded():
    limit = np.finfo(np.float32).max
    head = make(gs.Box(-limit, limit, (1,)))
    np.testing.assert_array_equal(head.action(tf.constant([[3.5]])), [[3.5]])


def test_leaves_of_nested_actions_are_squashed_too():
    head = make(NESTED, continuous="beta")
    sample, action = delivered(head, rows=6)
    assert (sample[2].numpy() > 0).all()
    assert (sample[2].numpy() < 1).all()
    assert np.abs(action["b"][1]).max() <= 1


def test_masked_actions_are_impossible():
    head = make(gs.Discrete(5), output_scale=3.0)
    features = tf.random.stateless_normal([10_000, 4], [0, 0])
    allowed = np.array([True, False, True, True, False])
    logits = head(features)["logits"]
    parameters = parts.masked({"logits": logits}, tf.constant(allowed))
    made = head.distribution(parameters)
    generator = tf.random.Generator.from_seed(0, alg="philox")
    assert set(made.sample(generator).numpy()) == {0, 2, 3}
    assert set(made.mode().numpy()) <= {0, 2, 3}
    rest = head.distribution({"logits": logits.numpy()[:, allowed]})
    np.testing.assert_allclose(made.entropy(), rest.entropy(), rtol=1e-5, atol=1e-6)
    for action, index in ((0, 0), (2, 1), (3, 2)):
        ours, theirs = (
            d.log_prob(tf.fill([10_000], tf.constant(i, tf.int64)))
            for d, i in ((made, action), (rest, index))
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    gone = made.log_prob(tf.fill([10_000], tf.constant(1, tf.int64)))
    np.testing.assert_array_equal(np.exp(gone), 0)


@pytest.mark.parametrize("space", [gs.Discrete(5), gs.MultiDiscrete([3, 2])])
def test_masked_logits_get_no_gradient(space):
    head = make(space, output_scale=3.0)
    allowed = tf.constant([True, False, True, True, False])
    logits = tf.Variable(head(tf.random.stateless_normal([6, 4], [0, 0]))["logits"])
    other = parts.masked({"logits": tf.reverse(logits, [0])}, allowed)
    with tf.GradientTape(persistent=True) as tape:
        made = head.distribution(parts.masked({"logits": logits}, allowed))
        values = {
            "log_prob": made.log_prob(made.mode()),
            "entropy": made.entropy(),
            "kl": made.kl(head.distribution(other)),
            "reverse kl": head.distribution(other).kl(made),
        }
    for name, value in values.items():
        gradient = tape.gradient(value, logits).numpy()
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[:, ~allowed.numpy()], 0, name)
        # Where one value is left, as for the second number, nothing is to learn.
        assert np.abs(gradient[:, [0, 2]]).max() > 0


def test_divergence_of_masked_distributions_is_that_of_the_rest():
    head = make(gs.Discrete(4))
    rng = np.random.default_rng(0)
    p, q = (rng.normal(0, 2, (5, 4)).astype(np.float32) for _ in range(2))
    allowed = tf.constant([[True, False, True, True]] * 5)
    masked = [
        head.distribution(parts.masked({"logits": tf.constant(x)}, allowed))
        for x in (p, q)
    ]
    rest = [head.distribution({"logits": x[:, [0, 2, 3]]}) for x in (p, q)]
    np.testing.assert_allclose(masked[0].kl(masked[1]), rest[0].kl(rest[1]), rtol=1e-4)


def test_deviations_return_into_their_range():
    head = make(gs.Box(-np.inf, np.inf, (2,)))
    head._log_std.assign([3.0, 1.0])
    with tf.GradientTape() as tape:
        entropy = tf.reduce_sum(head.distribution(head(tf.zeros([1, 4]))).entropy())
    gradient = tape.gradient(entropy, head._log_std.value)
    assert gradient.numpy().tolist() == [1.0, 1.0]
    np.testing.assert_allclose(head(tf.zeros([1, 4]))["log_std"], [[2.0, 1.0]])
    with pytest.raises(ValueError, match="initial_std must be at most 7, got 8"):
        NetworkConfig(initial_std=8.0)


@pytest.mark.parametrize(("low", "high"), [(5, np.inf), (-np.inf, -9)])
def test_actions_behind_a_single_bound_differ(low, high):
    space = gs.Box(low, high, (1,))
    head = make(space)
    sample = np.linspace(-0.9, 0.9, 7, dtype=np.float32)[:, None]
    action = head.action(tf.constant(sample))
    assert len(set(action.numpy().ravel().tolist())) == 7
    assert all(space.contains(x) for x in action.numpy())
    np.testing.assert_allclose(head.sample_of(action), sample, atol=1e-5)


def test_center_by_hand():
    low = np.float32([5, -np.inf, -np.inf, 0, 5, -3e38])
    high = np.float32([np.inf, 3, np.inf, 3e38, 7, 3e38])
    center = heads.center(gs.Box(low, high))
    np.testing.assert_array_equal(center, np.float32([6, 2, 0, 1, 6, 0]))


def test_equal_leaves_begin_differently():
    head = make(gs.Tuple((gs.Discrete(3), gs.Discrete(3))))
    left, right = head(tf.ones([1, 4]))
    assert not np.isclose(left["logits"], right["logits"]).any()
