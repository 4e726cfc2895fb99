"""Conjugate gradients."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf


class ConjugateGradient:
    """Solver of A x = b for a symmetric positive definite A, given by products.

    Hestenes and Stiefel (1952); Shewchuk (1994), B2.
    """

    def __init__(self, max_iterations: int = 10, tolerance: float = 1e-5) -> None:
        """Set the largest number of products, and the |b - A x| / |b| to stop at.

        In exact arithmetic, as many iterations as b has elements suffice.
        """
        self._max_iterations = max_iterations
        self._tolerance = tolerance

    def solve(
        self, product: Callable[[tf.Tensor], tf.Tensor], target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compute the solution `[D]` and its relative residual.

        Args:
          product: Function from x `[D]` to A x `[D]`.
          target: The vector b, `[D]`; zeros have zeros as solution.
        """
        scale = tf.reduce_sum(target**2)
        smallest = scale * self._tolerance**2
        rounding = 10.0 * np.finfo(target.dtype.as_numpy_dtype).eps

        def unfinished(index, x, residual, direction, square, largest):
            return square > smallest

        def iterate(index, x, residual, direction, square, largest):
            image = product(direction)
            norm = tf.reduce_sum(direction**2)
            curvature = tf.reduce_sum(direction * image) / norm
            largest = tf.maximum(largest, curvature)
            # Directions with curvature from rounding only would make x explode.
            curved = curvature > rounding * largest
            length = tf.where(curved, square / norm / curvature, 0.0)
            x += length * direction
            residual -= length * image
            new = tf.where(curved, tf.reduce_sum(residual**2), 0.0)
            direction = residual + new / square * direction
            return index + 1, x, residual, direction, new, largest

        _, x, residual, *_ = tf.while_loop(
            unfinished,
            iterate,
            (0, tf.zeros_like(target), target, target, scale, tf.zeros_like(scale)),
            maximum_iterations=self._max_iterations,
            parallel_iterations=1,
        )
        relative = tf.sqrt(tf.math.divide_no_nan(tf.reduce_sum(residual**2), scale))
        return x, relative
