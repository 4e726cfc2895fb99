"""Torsos: from structured observations and recurrent state to features."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agents.networks import initializers
from agents.networks.presets import NetworkConfig
from agents.tools import spaces


class Torso(keras.layers.Layer):
    """Images through convolutions, the rest flat, then dense and recurrent layers.

    Every image, `[H, W, C]` or `[C, H, W]`, has convolutions of its own. Leaves are
    concatenated. Integers that are no images enter one-hot. Recurrent state is a tuple
    of `[B, units]`, empty without a recurrent layer.
    """

    def __init__(self, space: Any, config: NetworkConfig, seed: int) -> None:
        super().__init__()
        self._spaces = spaces.leaf_spaces(space)
        self._filters = [
            _filters(config, seed + 30 * index) if _is_image(leaf, config) else []
            for index, leaf in enumerate(self._spaces)
        ]
        self._dense = [
            keras.layers.Dense(
                units,
                config.activation,
                kernel_initializer=initializers.hidden(config, seed + 10 + i),
            )
            for i, units in enumerate(config.layers)
        ]
        self._cell = _cell(config, seed + 20)

    def initial_state(self, size: int) -> tuple[tf.Tensor, ...]:
        """State at the beginning of episodes, a tuple of `[size, units]`."""
        if self._cell is None:
            return ()
        count = 2 if isinstance(self._cell, keras.layers.LSTMCell) else 1
        return (tf.zeros([size, self._cell.units]),) * count

    def step(self, observation: Any, state: tuple) -> tuple[tf.Tensor, tuple]:
        """Features `[B, F]` of observations `[B, ...]`, and the next state."""
        features = self._encode(observation)
        if self._cell is None:
            return features, state
        return self._advance(features, state)

    def unroll(self, observation: Any, state: tuple, first: tf.Tensor) -> tf.Tensor:
        """Features `[B, T, F]` of sequences; arguments as for `sequence`."""
        return self.sequence(observation, state, first)[0]

    def sequence(
        self, observation: Any, state: tuple, first: tf.Tensor
    ) -> tuple[tf.Tensor, tuple]:
        """Features `[B, T, F]` of sequences, and states after each step.

        Args:
          observation: Structure of `[B, T, ...]`.
          state: State before the first step, `[B, units]`.
          first: Steps that begin an episode, where the state is zero, bool `[B, T]`.
        """
        leading = tf.shape(first)
        flat = tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, *x.shape[2:]]), observation
        )
        features = self._encode(flat)
        features = tf.reshape(features, [*tf.unstack(leading), features.shape[-1]])
        if self._cell is None:
            return features, state

        def step(carried, inputs):
            features, first = inputs
            kept = tuple(tf.where(first[:, None], 0.0, x) for x in carried[1])
            return self._advance(features, kept)

        inputs = (tf.transpose(features, [1, 0, 2]), tf.transpose(first))
        outputs = tf.scan(step, inputs, (tf.zeros_like(state[0]), state))
        return tf.nest.map_structure(lambda x: tf.transpose(x, [1, 0, 2]), outputs)

    def _advance(self, features: tf.Tensor, state: tuple) -> tuple[tf.Tensor, tuple]:
        """One step of the recurrent layer."""
        output, state = self._cell(features, list(state))
        return output, tuple(state) if isinstance(state, list | tuple) else (state,)

    def _encode(self, observation: Any) -> tf.Tensor:
        """Features `[B, F]` before the recurrent layer."""
        leaves = [
            self._encode_leaf(leaf, space, filters)
            for leaf, space, filters in zip(
                tf.nest.flatten(observation), self._spaces, self._filters, strict=True
            )
        ]
        features = leaves[0] if len(leaves) == 1 else tf.concat(leaves, -1)
        for layer in self._dense:
            features = layer(features)
        return features

    def _encode_leaf(self, leaf: tf.Tensor, space: Any, filters: list) -> tf.Tensor:
        """Flat float32 features `[B, F]` of one leaf."""
        if hasattr(space, "n") and hasattr(space, "start"):
            return tf.one_hot(leaf - int(space.start), int(space.n))
        if hasattr(space, "nvec"):
            sizes = np.ravel(space.nvec)
            starts = np.broadcast_to(np.ravel(space.start), sizes.shape)
            columns = tf.unstack(tf.reshape(leaf, [-1, len(sizes)]), axis=1)
            triples = zip(columns, sizes, starts, strict=True)
            return tf.concat([tf.one_hot(c - int(s), int(n)) for c, n, s in triples], 1)
        image = leaf.dtype == tf.uint8
        leaf = tf.cast(leaf, tf.float32) / (255.0 if image else 1.0)
        if filters and space.shape[0] < space.shape[2]:  # Channels come first.
            leaf = tf.transpose(leaf, [0, 2, 3, 1])
        for layer in filters:
            leaf = layer(leaf)
        return tf.reshape(leaf, [-1, int(np.prod(leaf.shape[1:]))])


def _is_image(space: Any, config: NetworkConfig) -> bool:
    """Whether a leaf goes through convolutions."""
    return len(space.shape) == 3 and bool(config.convolutions or config.residual)


def _filters(config: NetworkConfig, seed: int) -> list[keras.layers.Layer]:
    """Convolutions for one image, or sections of residual blocks."""
    if config.residual:
        return [
            *(
                Section(filters, config, seed + SECTION * index)
                for index, filters in enumerate(config.residual)
            ),
            keras.layers.Activation(config.activation),
        ]
    return [
        keras.layers.Conv2D(
            filters,
            size,
            stride,
            activation=config.activation,
            kernel_initializer=initializers.hidden(config, seed + index),
        )
        for index, (filters, size, stride) in enumerate(config.convolutions)
    ]


SECTION = 5
"""Convolutions of a section."""


class Section(keras.layers.Layer):
    """A convolution, pooling that halves the size, and two residual blocks.

    Espeholt et al. (2018), figure 3, right.
    """

    def __init__(self, filters: int, config: NetworkConfig, seed: int) -> None:
        super().__init__()
        self._activation = keras.activations.get(config.activation)
        self._pool = keras.layers.MaxPooling2D(3, 2, "same")
        self._first, *self._blocks = (
            keras.layers.Conv2D(
                filters,
                3,
                padding="same",
                kernel_initializer=initializers.hidden(config, seed + index),
            )
            for index in range(SECTION)
        )

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Image `[B, H / 2, W / 2, filters]`."""
        image = self._pool(self._first(image))
        for index in range(0, len(self._blocks), 2):
            change = self._blocks[index](self._activation(image))
            image += self._blocks[index + 1](self._activation(change))
        return image


def _cell(config: NetworkConfig, seed: int) -> keras.layers.Layer | None:
    """Recurrent cell that the config names, if any."""
    if not config.recurrent:
        return None
    cells = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
    return cells[config.recurrent](
        config.recurrent_units,
        kernel_initializer=keras.initializers.GlorotUniform(seed),
        recurrent_initializer=keras.initializers.Orthogonal(seed=seed + 1),
        seed=seed,  # Of dropout, which there is none of; else it would be random.
    )
