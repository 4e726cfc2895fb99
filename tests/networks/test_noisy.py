"""Layers with noise in their weights."""

import numpy as np
import tensorflow as tf

from agents.networks import noisy


def test_initial_weights_are_those_of_the_paper():
    """Means up to 1 / sqrt(inputs), and deviations of std / sqrt(inputs)."""
    layer = noisy.NoisyDense(16, 50, 0.5, seed=0)
    kernel, bias, noise_kernel, noise_bias = (
        next(x for x in layer.weights if x.name == name).numpy()
        for name in ("kernel", "bias", "noise_kernel", "noise_bias")
    )
    for mean in (kernel, bias):
        assert 0.2 < np.abs(mean).max() <= 0.25
    np.testing.assert_array_equal(noise_kernel, np.full([16, 50], 0.125))
    np.testing.assert_array_equal(noise_bias, np.full([50], 0.125))


def test_noise_by_hand():
    """Each side is the signed root of normal noise; weights get their product."""
    layer = noisy.NoisyDense(2, 1, 1.0, seed=0)
    normal, drawing = (tf.random.Generator.from_seed(3, "philox") for _ in range(2))
    for noise in layer.draw(drawing):
        raw = normal.normal(noise.shape).numpy()
        np.testing.assert_allclose(noise, np.sign(raw) * np.abs(raw) ** 0.5, rtol=1e-6)
    noise, size = (tf.constant([2.0, -1.0]), tf.constant([3.0])), 2**-0.5
    features = tf.constant([[1.0, 10.0]])
    change = layer(features, noise) - layer(features)
    # 6 * 1 - 3 * 10 by the kernel and 3 by the bias.
    np.testing.assert_allclose(change, [[-21 * size]], rtol=1e-4)
