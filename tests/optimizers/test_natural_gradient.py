"""Natural gradients within a trust region."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers
from agents.optimizers import natural_gradient
from agents.tools import schedules

SEED = tf.constant([1, 2])
A = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
G = np.array([1.0, -2.0], np.float32)  # A^-1 G is (1, -1), and G A^-1 G is 3.
START = np.array([0.5, 0.25], np.float32)


def policy(kind):
    """Variables of a tiny policy, its mean divergence, and its Fisher information."""
    rng = np.random.default_rng(0)
    layers = [
        keras.layers.Dense(size, name, kernel_initializer=init, bias_initializer=init)
        for size, name, init in (
            (3, "tanh", keras.initializers.RandomNormal(0, 1, seed=1)),
            (2, None, keras.initializers.RandomNormal(0, 1, seed=2)),
        )
    ]
    network = keras.Sequential(layers)
    items = tf.constant(rng.normal(size=[5, 2]), tf.float32)
    network.build([None, 2])
    log_std = keras.Variable([0.3, -0.7])
    variables = list(network.trainable_weights)
    if kind == "normal":
        variables.append(log_std)

    def outputs(items):
        out = network(items)
        if kind == "normal":
            return tf.concat([out, tf.broadcast_to(log_std.value, tf.shape(out))], 1)
        return tf.nn.log_softmax(out)

    def kl(items, local=False):
        new = outputs(items)
        old = tf.stop_gradient(new)
        if kind == "categorical":
            return tf.reduce_mean(tf.reduce_sum(tf.exp(old) * (old - new), 1))
        (mean0, std0), (mean1, std1) = tf.split(old, 2, 1), tf.split(new, 2, 1)
        terms = tf.exp(2 * (std0 - std1)) + (mean0 - mean1) ** 2 * tf.exp(-2 * std1)
        return tf.reduce_mean(tf.reduce_sum(0.5 * terms + std1 - std0, 1))

    with tf.GradientTape() as tape:
        out = network(items) if kind == "categorical" else outputs(items)
    values = [variable.value for variable in variables]
    jacobian = [
        tf.reshape(x, [*out.shape, -1]).numpy() for x in tape.jacobian(out, values)
    ]
    jacobian = np.concatenate(jacobian, -1)
    if kind == "categorical":
        p = tf.nn.softmax(out).numpy()
        inner = np.array([np.diag(x) - np.outer(x, x) for x in p])
    else:
        inner = np.exp(-2 * out.numpy()[:, 2:])
        inner = np.array([np.diag([*x, 2.0, 2.0]) for x in inner])
    fisher = np.mean(jacobian.transpose(0, 2, 1) @ inner @ jacobian, 0)
    return variables, kl, items, fisher


@pytest.mark.parametrize("kind", ["categorical", "normal"])
def test_fisher_product_is_that_of_the_explicit_matrix(kind):
    variables, kl, items, fisher = policy(kind)
    size = len(fisher)
    assert size == 9 + 8 + 2 * (kind == "normal")

    @tf.function(autograph=False)
    def product(vector):
        return natural_gradient.fisher_product(kl, variables, vector, items)

    rows = [product(row).numpy() for row in np.eye(size, dtype=np.float32)]
    np.testing.assert_allclose(rows, fisher, 1e-4, 1e-5)
    np.testing.assert_allclose(np.transpose(rows), rows, 1e-4, 1e-5)
    rng = np.random.default_rng(1)
    for u, v in rng.normal(size=[5, 2, size]).astype(np.float32):
        image = product(v).numpy()
        np.testing.assert_allclose(image, fisher @ v, 1e-3, 1e-4)
        np.testing.assert_allclose(u @ image, v @ product(u).numpy(), 1e-3, 1e-4)
        assert v @ image + 0.01 * v @ v > 0


def test_fisher_product_in_all_modes(compiled):
    variables, kl, items, fisher = policy("normal")
    vector = np.arange(len(fisher), dtype=np.float32) - 9

    @compiled
    def product(vector):
        return natural_gradient.fisher_product(kl, variables, vector, items)

    np.testing.assert_allclose(product(vector), fisher @ vector, 1e-4, 1e-3)


def quadratic():
    """Variables that are split in two, and the loss and divergence of a quadratic."""
    variables = [keras.Variable(START[:1]), keras.Variable(START[1])]

    def point():
        return tf.stack([variables[0].value[0], tf.convert_to_tensor(variables[1])])

    def loss_fn(items):
        loss = tf.reduce_sum(G * point())
        return loss, {"loss": loss}

    def kl(items, local=False):
        change = point() - (tf.stop_gradient(point()) if local else START)
        return 0.5 * tf.reduce_sum(change * tf.linalg.matvec(A, change))

    return variables, point, loss_fn, kl


@pytest.mark.parametrize(
    ("max_kl", "damping", "change"),
    [
        (1.5, 0.0, [-1.0, 1.0]),
        # The square root is of all of 2 max_kl / 3. If max_kl went in without it, as
        # in TensorForce, the divergences here would be the squares of what they are.
        (0.06, 0.0, [-0.2, 0.2]),
        (6.0, 0.0, [-2.0, 2.0]),
        # A + 1 has the determinant 11.
        (10 / 11, 1.0, [-6 / 11, 7 / 11]),
    ],
)
def test_step_on_a_quadratic_by_hand(compiled, max_kl, damping, change):
    variables, point, loss_fn, kl = quadratic()
    optimizer = optimizers.NaturalGradient(max_kl, cg_damping=damping)
    optimizer.build(variables)

    @compiled
    def step():
        return optimizer.step(loss_fn, variables, kl=kl)

    metrics = step()
    np.testing.assert_allclose(point() - START, change, 1e-5)
    if not damping:
        np.testing.assert_allclose(kl(None), max_kl, 1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], 5**0.5, 1e-6)
    np.testing.assert_allclose(metrics["loss"], 0.0, atol=1e-6)  # That before.
    assert float(metrics["cg_residual"]) < 1e-5


def test_divergence_follows_a_schedule(compiled):
    """And so does that which a line search around it accepts."""
    variables, point, loss_fn, kl = quadratic()
    falling = schedules.Schedule("linear", 1.5, 0.06, 100)
    optimizer = optimizers.NaturalGradient(falling, cg_damping=0.0)
    search = optimizers.LineSearch(optimizer)
    search.build(variables)

    @compiled
    def step(time):
        search.schedule(time)
        return optimizer.step(loss_fn, variables, kl=kl)

    for time, divergence in ((0, 1.5), (50, 0.78), (200, 0.06)):
        for variable, value in zip(variables, (START[:1], START[1]), strict=True):
            variable.assign(value)
        step(tf.constant(time, tf.int64))
        np.testing.assert_allclose(kl(None), divergence, 1e-5)
        np.testing.assert_allclose(search.max_kl, divergence, 1e-6)


def test_few_iterations_keep_the_divergence():
    """The step is scaled by its own curvature, not by that of the exact solution."""
    variables, point, loss_fn, kl = quadratic()
    optimizer = optimizers.NaturalGradient(0.06, 1, 0.0)
    metrics = optimizer.step(loss_fn, variables, kl=kl)
    np.testing.assert_allclose(kl(None), 0.06, 1e-5)
    change = (point() - START).numpy()
    np.testing.assert_allclose(change[1], -2 * change[0], 1e-4)  # Along G still.
    assert float(metrics["cg_residual"]) > 0.1


def test_bad_gradients_leave_the_variables_untouched(compiled):
    variables, point, _, kl = quadratic()
    optimizer = optimizers.NaturalGradient()
    loss_fn = lambda factor: (factor * tf.reduce_sum(point()), {})  # noqa: E731
    step = compiled(lambda x: optimizer.step(loss_fn, variables, items=x, kl=kl))
    for factor in (0.0, np.nan, np.inf):
        step(tf.constant(factor))
        np.testing.assert_array_equal(point(), START)
    step(tf.constant(1.0))
    assert (point() != START).numpy().all()


def test_divergence_that_is_not_finite_leaves_the_variables_untouched():
    variables, point, loss_fn, kl = quadratic()
    optimizer = optimizers.NaturalGradient()
    optimizer.step(loss_fn, variables, kl=lambda items, local: np.nan * kl(items, True))
    np.testing.assert_array_equal(point(), START)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("fraction", "count", "size"),
    [(0.25, 12, 3), (0.25, 10, 3), (0.01, 12, 1), (1.0, 12, 12)],
)
def test_subsampling_is_for_the_fisher_product_only(fraction, count, size, dynamic):
    variable, losses, kls = keras.Variable([2.0]), [], []

    def record(seen, items):
        tf.numpy_function(lambda x: seen.append(x.tolist()), [items], [])

    def loss_fn(items):
        record(losses, items)
        return tf.reduce_sum(items) * variable.value[0], {}

    def kl(items, local=False):
        record(kls, items)
        change = variable.value[0] - tf.stop_gradient(variable.value[0])
        return 0.5 * tf.reduce_mean(items) * change**2

    optimizer = optimizers.NaturalGradient(
        0.02, cg_damping=0.0, subsampling_fraction=fraction
    )
    assert optimizer.needs == {"kl"} | ({"items", "seed"} if fraction < 1 else set())

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec([None if dynamic else count])],
    )
    def step(items):
        return optimizer.step(loss_fn, [variable], items=items, kl=kl, seed=SEED)

    items = np.arange(1.0, count + 1, dtype=np.float32)
    metrics = step(items)
    assert losses == [items.tolist()]
    np.testing.assert_allclose(metrics["gradient_norm"], items.sum())
    assert len(kls) == 2  # One iteration, and the curvature of the solution.
    assert kls[0] == kls[1]
    assert len(set(kls[0])) == len(kls[0]) == size
    # On these, the divergence is max_kl.
    change = variable.numpy()[0] - 2.0
    np.testing.assert_allclose(0.5 * np.mean(kls[0]) * change**2, 0.02, 1e-4)


def test_subsamples_are_decided_by_the_seed():
    chosen = []

    def kl(items, local=False):
        chosen.append(tuple(items.numpy()))
        return 0.0 * tf.reduce_sum(variable.value)

    variable = keras.Variable([2.0])
    optimizer = optimizers.NaturalGradient(subsampling_fraction=0.5)
    loss_fn = lambda items: (variable.value[0], {})  # noqa: E731
    for seed in ([1, 2], [1, 2], [1, 3], [2, 2]):
        optimizer.step(
            loss_fn, [variable], items=tf.range(20.0), kl=kl, seed=tf.constant(seed)
        )
    assert len(set(chosen)) == 3


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_bad_fraction(fraction):
    with pytest.raises(ValueError, match="subsampling_fraction"):
        optimizers.NaturalGradient(subsampling_fraction=fraction)
