"""Conjugate gradients."""

import numpy as np
import pytest
import tensorflow as tf

from agents import optimizers


def solve(matrix, target, iterations=10, tolerance=1e-5, dtype=tf.float64):
    """Solution, relative residual, and number of products."""
    matrix, count = tf.constant(matrix, dtype), []

    def product(x):
        count.append(1)
        return tf.linalg.matvec(matrix, x)

    solver = optimizers.ConjugateGradient(iterations, tolerance)
    x, residual = solver.solve(product, tf.constant(target, dtype))
    return x.numpy(), float(residual), len(count)


def definite(size, seed=0):
    """Random symmetric positive definite matrix, and a vector."""
    rng = np.random.default_rng([size, seed])
    matrix = rng.normal(size=[size, size])
    return matrix @ matrix.T / size + 0.1 * np.eye(size), rng.normal(size=size)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 30])
@pytest.mark.parametrize("seed", range(3))
def test_solves_definite_systems(size, seed):
    matrix, target = definite(size, seed)
    x, residual, _ = solve(matrix, target, 3 * size, 1e-12)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, target), 1e-8, 1e-8)
    assert residual <= 1e-12


def test_one_iteration_by_hand(compiled):
    @compiled
    def function(target):
        solver = optimizers.ConjugateGradient(1)
        return solver.solve(lambda x: x * [1.0, 3.0], target)

    # The step along (1, 1) is 2 / 4, which leaves (1, 1) - (0.5, 1.5).
    x, residual = function(tf.ones([2]))
    np.testing.assert_allclose(x, [0.5, 0.5])
    np.testing.assert_allclose(residual, 0.5)


def test_compiled_solution(compiled):
    matrix, target = definite(6)

    @compiled
    def function(target):
        solver = optimizers.ConjugateGradient(20, 1e-12)
        return solver.solve(lambda x: tf.linalg.matvec(matrix, x), target)

    x, _ = function(tf.constant(target))
    np.testing.assert_allclose(x, np.linalg.solve(matrix, target), 1e-8, 1e-8)


@pytest.mark.parametrize(
    ("diagonal", "products"), [([2, 2, 2], 1), ([1, 4, 4, 1], 2), ([1, 2, 5, 2], 3)]
)
def test_takes_as_many_products_as_there_are_eigenvalues(diagonal, products):
    x, _, count = solve(np.diag(diagonal), np.ones(len(diagonal)))
    np.testing.assert_allclose(x, 1 / np.array(diagonal), 1e-10)
    assert count == products


def test_zeros_are_the_solution_for_zeros(compiled):
    @compiled
    def function(target):
        return optimizers.ConjugateGradient().solve(lambda x: 3.0 * x, target)

    x, residual = function(tf.zeros([4]))
    np.testing.assert_array_equal(x, np.zeros(4))
    assert float(residual) == 0


@pytest.mark.parametrize("tolerance", [0.5, 1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_stops_at_the_tolerance(tolerance, scale):
    matrix, target = definite(20)
    _, residual, count = solve(matrix, scale * target, 100, tolerance)
    assert residual <= tolerance
    assert 0 < count < 40
    _, before, _ = solve(matrix, scale * target, count - 1, tolerance)
    assert before > tolerance


@pytest.mark.parametrize("iterations", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_residual_is_the_truth(iterations, dtype):
    matrix, target = definite(10)
    x, residual, count = solve(matrix, target, iterations, 1e-30, dtype)
    expected = np.linalg.norm(target - matrix @ x) / np.linalg.norm(target)
    np.testing.assert_allclose(residual, expected, 1e-4, 1e-6)
    assert count == iterations


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros([3, 3]),
        -np.eye(3),
        np.diag([1.0, 0.0, 2.0]),
        np.diag([1.0, -1.0, 2.0]),
        np.diag([1.0, -1.0, 0.0]),  # The first curvature is zero.
        np.diag([1e-30, 1.0, 1e10]),
        np.ones([3, 3]),
        np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    ],
)
def test_is_finite_for_matrices_that_are_not_definite(matrix, dtype):
    for iterations in (1, 2, 3, 50):
        x, residual, _ = solve(matrix, np.ones(3), iterations, dtype=dtype)
        assert np.isfinite(x).all()
        assert np.isfinite(residual)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize("seed", range(5))
def test_random_singular_matrices(seed, dtype):
    rng = np.random.default_rng(seed)
    half, signs = rng.normal(size=[8, 3]), rng.choice([-1.0, 1.0], 3)
    # There is a solution for the first target, and none for the second.
    for target in (half @ [1, 2, 3], np.ones(8)):
        x, residual, _ = solve(half @ half.T, target, 50, 1e-12, dtype)
        error = np.linalg.norm(target - half @ half.T @ x) / np.linalg.norm(target)
        np.testing.assert_allclose(residual, error, 1e-2, 1e-4)
        x, residual, _ = solve(half * signs @ half.T, target, 50, 1e-12, dtype)
        assert np.isfinite([*x, residual]).all()
