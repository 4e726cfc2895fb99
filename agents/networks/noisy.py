"""Dense layers with learned noise."""

import math
from typing import Any

import keras
import tensorflow as tf


class NoisyDense(keras.layers.Layer):
    """Dense layer whose weights carry factorized Gaussian noise of learned size.

    Fortunato et al. (2018), "Noisy Networks for Exploration", section 3.
    """

    def __init__(self, inputs: int, units: int, std: float, seed: int) -> None:
        """Create weights; `std` is the initial deviation, sigma_0 in the paper."""
        super().__init__()
        self._inputs, self._units = inputs, units
        bound = 1.0 / math.sqrt(inputs)
        uniform = keras.initializers.RandomUniform(-bound, bound, seed)
        size = keras.initializers.Constant(std * bound)
        shapes = {"kernel": (inputs, units), "bias": (units,)}
        self._means, self._sizes = (
            {
                name: self.add_weight(shape=shape, initializer=init, name=kind + name)
                for name, shape in shapes.items()
            }
            for kind, init in (("", uniform), ("noise_", size))
        )

    def draw(self, generator: tf.random.Generator) -> Any:
        """Draw noise for `call`: one vector per side of the layer."""
        noise = generator.normal([self._inputs]), generator.normal([self._units])
        return tuple(tf.sign(x) * tf.sqrt(tf.abs(x)) for x in noise)

    def call(self, features: tf.Tensor, noise: Any = None) -> tf.Tensor:
        """Map `[B, inputs]` to `[B, units]`; without noise, by the mean weights."""
        kernel, bias = self._means["kernel"], self._means["bias"]
        if noise is None:
            return tf.matmul(features, kernel) + bias
        left, right = noise
        kernel = kernel + self._sizes["kernel"] * left[:, None] * right[None]
        return tf.matmul(features, kernel) + bias + self._sizes["bias"] * right
