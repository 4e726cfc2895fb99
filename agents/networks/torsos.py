"""Torsos: from structured observations and recurrent state to features."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from agents.networks import layers, parts
from agents.networks.config import (
    JOINS,
    NATURE,
    NetworkConfig,
    complete,
    is_recurrent,
    mixes,
    takes_vectors,
)
from agents.tools import config as config_
from agents.tools import images, rows, spaces


class Torso(keras.layers.Layer):
    """Network from parts of an observation, through their streams, to joint layers.

    Images are recognized as in `tools.images`; other integers become one-hot vectors.
    Recurrent state is a tuple of `[B, units]`, empty without a recurrent layer.

    The torso of a critic also gets an action. It joins the features in front of the
    first layer with vectors as input: at once for observed vectors, after the
    convolutions for images; Lillicrap et al. (2016), section 7, also let actions enter
    late. If no dense layer follows, one is added, since values would otherwise be the
    sum of a function of the observation and a linear one of the action. A network
    without any layers stays linear.
    """

    def __init__(
        self, space: Any, config: NetworkConfig, seed: int, action_size: int = 0
    ) -> None:
        """Create the layers; their first use builds them.

        Args:
          space: Observation space.
          config: Description of the layers.
          seed: Seed of the initial weights.
          action_size: Size of action vectors in a critic.

        Raises:
          ConfigError: for streams of unknown parts of observations.
        """
        super().__init__()
        paths = spaces.paths(spaces.spec(space))
        for name in config.streams:
            if name not in paths:
                hint = config_.did_you_mean(name, [x for x in paths if x] or ["layers"])
                raise config_.ConfigError(f"network has a stream {name!r}; {hint}")
        self._parts = [
            _Part(config, path, leaf, len(paths) == 1, seed + 30 * index)
            for index, (path, leaf) in enumerate(
                zip(paths, spaces.flatten(space), strict=True)
            )
        ]
        self._join = config.join
        if config.join not in JOINS:
            self._join = layers.create(config.join, seed + 9)
        first = self._parts[0].space if len(paths) == 1 else None
        self._behind = _create(config, config.layers, seed + 10, first)
        self._entrance = None  # Index of the layer after the junction.
        if action_size:
            self._entrance = self._find_entrance(space)
            behind = config.layers[self._entrance :]
            if not config.linear and not any(map(mixes, behind)):
                self._behind.extend(_create(config, [MIXING], seed + 8, None))

    @staticmethod
    def check(config: NetworkConfig) -> None:
        """Create every declared layer once, to raise ConfigError early."""
        for name, declared in {"layers": config.layers, **config.streams}.items():
            for layer in declared:
                with contextlib.suppress(config_.NotImportedError):
                    layers.create(layer, 0, input_dim=1)  # For embeddings.
                if name in config.streams and is_recurrent(layer):
                    raise config_.ConfigError(
                        f"stream {name!r} has a layer that remembers steps, which only "
                        "'layers' may have; give it 'over: sequence' to run along what "
                        "is observed at once."
                    )

    def initial_state(self, size: int) -> tuple[tf.Tensor, ...]:
        """Return the state at the beginning of episodes, a tuple of `[size, units]`."""
        cells = [layer for layer in self._behind if _is_cell(layer)]
        return tuple(
            tf.zeros([size, cell.units]) for cell in cells for _ in range(_states(cell))
        )

    def step(
        self, observation: Any, state: tuple, action: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tuple]:
        """Compute features `[B, F]` of observations `[B, ...]`, and the next state.

        Args:
          observation: Structure of `[B, ...]`.
          state: State before the step, `[B, units]`.
          action: Vectors `[B, A]`, for a critic.
        """
        return self._advance_all(self._encode(observation), state, _advance, action)

    def unroll(self, observation: Any, state: tuple, first: tf.Tensor) -> tf.Tensor:
        """Compute features `[B, T, F]` of sequences; arguments as in `sequence`."""
        return self.sequence(observation, state, first)[0]

    def sequence(
        self, observation: Any, state: tuple, first: tf.Tensor
    ) -> tuple[tf.Tensor, tuple]:
        """Compute features `[B, T, F]` of sequences, and the states after each step.

        Args:
          observation: Structure of `[B, T, ...]`.
          state: State before the first step, `[B, units]`.
          first: Steps that begin an episode, where the state is zero, bool `[B, T]`.
        """
        leading = tf.unstack(tf.shape(first))

        def remember(cell, features, state):
            features = tf.reshape(features, [*leading, features.shape[-1]])
            features, states = _scan(cell, features, state, first)
            return rows.merge_time(features), states

        features = self._encode(rows.merge_time(observation))
        features, states = self._advance_all(features, state, remember)
        return tf.reshape(features, [*leading, features.shape[-1]]), states

    def _find_entrance(self, space: Any) -> int:
        """Return the index of the first layer with vector inputs, or of the end."""
        features = self._encode(parts.zeros(space))
        for index, layer in enumerate(self._behind):
            if features.shape.rank == 2 and features.dtype.is_floating:
                return index
            features = layers.apply(layer, features)
        return len(self._behind)

    def _advance_all(
        self,
        features: Any,
        state: tuple,
        remember: Callable,
        action: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tuple]:
        """Apply all layers; return features `[B, F]` and recurrent states."""
        following = ()
        for index, layer in enumerate(self._behind):
            if index == self._entrance:
                features = _join(features, action)
            if not _is_cell(layer):
                features = layers.apply(layer, features)
                continue
            count = _states(layer)
            features, new = remember(layer, features, state[:count])
            following, state = following + new, state[count:]
        if self._entrance == len(self._behind):
            features = _join(features, action)
        return _require_vectors(features), following

    def _encode(self, observation: Any) -> Any:
        """Apply the streams and join their outputs, `[B, ...]`."""
        leaves, vectors = [], len(self._parts) > 1 and self._join == "concat"
        for part, leaf in zip(self._parts, tf.nest.flatten(observation), strict=True):
            with _naming(part.stream):
                leaf = part.encode(leaf)
                leaves.append(_require_vectors(leaf) if vectors else leaf)
        if self._join not in JOINS:
            parts = tf.nest.pack_sequence_as(observation, leaves)
            return layers.apply(self._join, parts)
        if len(leaves) == 1:
            return leaves[0]
        if vectors:
            return tf.concat(leaves, -1)
        shapes = {tuple(x.shape[1:]) for x in leaves}
        if len(shapes) > 1:
            raise config_.ConfigError(
                f"network joins its streams by {self._join}, but they end with the "
                f"shapes {', '.join(map(str, sorted(shapes)))}; make them equal."
            )
        reduce = {"product": tf.reduce_prod, "sum": tf.reduce_sum}
        return reduce.get(self._join, tf.reduce_mean)(tf.stack(leaves), 0)


@contextlib.contextmanager
def _naming(stream: str | None) -> Iterator[None]:
    """Begin messages of ConfigError with the name of a declared stream."""
    try:
        yield
    except config_.ConfigError as error:
        if stream is None:
            raise
        raise config_.ConfigError(f"stream {stream!r}: {error}") from error


def _join(features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
    """Join features and actions to vectors `[B, F + A]`."""
    return tf.concat([_require_vectors(features), action], -1)


MIXING = 256
"""Units of the layer after the action, if none is declared there."""


class _Part(keras.layers.Layer):
    """Layers of one part of an observation, which becomes flat if none are declared.

    Attributes:
      stream: Name of its stream, or None if none is declared.
    """

    def __init__(
        self, config: NetworkConfig, path: str, space: Any, only: bool, seed: int
    ) -> None:
        super().__init__()
        self.space = space
        stream, custom = config.streams.get(path), config.join not in JOINS
        self.stream = None if stream is None else path
        self._flatten, following = False, stream
        if stream is None:
            behind = config.layers if only and config.layers else ("dense",)
            if not custom and takes_vectors(behind[0]):
                config = _with_convolutions(config, path, space)
            self._flatten = not custom and _is_image(space, config)
            following = () if custom or self._flatten else behind
        first = complete(following[0])["type"] if following else ""
        self._raw = not following or not takes_vectors(following[0])
        self._indices = first == "embedding"
        self._converts = self._flatten or (
            len(space.shape) == 3
            and (images.recognized(space) or "2d" in first.replace("_", "").lower())
        )
        if hasattr(space, "start") and not self._raw:
            _require_few(space, "one-hot vectors")
        self._stream = _filters(config, seed) if self._flatten else []
        if stream is not None:
            self._stream = _create(config, stream, seed, space)

    def encode(self, leaf: tf.Tensor) -> tf.Tensor:
        """Compute features `[B, F]`, or the outputs of declared layers."""
        leaf = self._numbers(leaf) if self._raw else self._vector(leaf)
        for layer in self._stream:
            leaf = layers.apply(layer, leaf)
        return _flat(leaf) if self._flatten else leaf

    def _vector(self, leaf: tf.Tensor) -> tf.Tensor:
        """Convert `[B, ...]` to float32 `[B, F]`, and integers to one-hot vectors."""
        space = self.space
        if hasattr(space, "start"):
            low, count = (x.ravel() for x in spaces.integer_range(space))
            columns = tf.unstack(
                _indices(tf.reshape(leaf, [-1, len(low)]), low), axis=1
            )
            parts = zip(columns, count, strict=True)
            return tf.concat([tf.one_hot(x, int(n)) for x, n in parts], 1)
        return _flat(_scaled(leaf))

    def _numbers(self, leaf: tf.Tensor) -> tf.Tensor:
        """Convert to float32, bytes to [0, 1], images to channels last."""
        if self._indices:
            if leaf.dtype.is_floating:
                raise config_.ConfigError(
                    "an embedding needs integers, but these observations are "
                    "normalized; set algorithm.normalize_observations=false."
                )
            return _indices(leaf, _values(self.space)[0])
        leaf = _scaled(leaf)
        if self._converts:
            leaf = images.channels_last(leaf)
        return leaf


def _scaled(leaf: tf.Tensor) -> tf.Tensor:
    """Convert to float32, and bytes to [0, 1]."""
    scaled = tf.cast(leaf, tf.float32)
    return scaled / 255.0 if leaf.dtype == tf.uint8 else scaled


def _indices(leaf: tf.Tensor, low: Any) -> tf.Tensor:
    """Convert integers to int32 offsets from `low`; LiteRT cannot divide wider ones."""
    return tf.cast(tf.cast(leaf, tf.int64) - low, tf.int32)


def _flat(value: tf.Tensor) -> tf.Tensor:
    """Flatten to `[B, F]`."""
    if value.shape.rank == 2:
        return value
    size = int(np.prod(value.shape[1:]))
    return tf.reshape(value, [-1 if size else tf.shape(value)[0], size])


MOST = 2**20
"""Largest number of values of a part that become one-hot vectors or embeddings."""


def _values(space: Any) -> tuple[int, int | None]:
    """Return lowest integer of a space and their number; (0, None) if too many."""
    low, count = spaces.integer_range(space)
    low, high = int(np.min(low)), int(np.max(low + count - 1))
    return (low, high - low + 1) if high - low < MOST else (0, None)


def _vocabulary(space: Any, declared: Any) -> int | None:
    """Return the number of values that an embedding gets, unless it declares that."""
    if space.dtype.kind == "f":
        raise config_.ConfigError(
            f"an embedding needs integers, but these observations are {space}."
        )
    if "input_dim" not in complete(declared):
        _require_few(space, "an embedding")
    return _values(space)[1]


def _require_few(space: Any, what: str) -> None:
    """Raise ConfigError if an integer space has too many values for one-hot vectors."""
    count = int(spaces.integer_range(space)[1].max(initial=0))
    if count > MOST:
        raise config_.ConfigError(
            f"observations {space} have {count:,} values, too many for {what}, at most "
            f"{MOST:,}."
        )


def _require_vectors(features: tf.Tensor) -> tf.Tensor:
    """Return the features, or raise ConfigError unless they are vectors."""
    if features.shape.rank != 2:
        shape = tuple(features.shape[1:])
        raise config_.ConfigError(
            f"network layers end with the shape {shape}, which must have one "
            "dimension; add 'flatten' or 'pooling'."
        )
    return features


def _is_cell(layer: Any) -> bool:
    return isinstance(layer, keras.layers.GRUCell | keras.layers.LSTMCell)


def _states(cell: keras.layers.Layer) -> int:
    return 2 if isinstance(cell, keras.layers.LSTMCell) else 1


def _advance(
    cell: keras.layers.Layer, features: tf.Tensor, state: tuple
) -> tuple[tf.Tensor, tuple]:
    """Compute one step of a recurrent layer."""
    output, state = cell(_require_vectors(features), list(state))
    return output, tuple(state) if isinstance(state, list | tuple) else (state,)


def _scan(
    cell: keras.layers.Layer, features: tf.Tensor, state: tuple, first: tf.Tensor
) -> tuple[tf.Tensor, tuple]:
    """Compute outputs `[B, T, units]` and states of all steps of a recurrent layer."""

    def step(carried, inputs):
        features, first = inputs
        kept = tuple(tf.where(first[:, None], 0.0, x) for x in carried[1])
        return _advance(cell, features, kept)

    inputs = rows.swap_time((features, first))
    return rows.swap_time(tf.scan(step, inputs, (tf.zeros_like(state[0]), state)))


def _create(config: NetworkConfig, declared: Any, seed: int, space: Any) -> list:
    """Create layers from declarations; the first one gets values of the space."""
    result = []
    for index, layer in enumerate(declared):
        kind, defaults = complete(layer)["type"], {}
        if kind == "dense" or "conv" in kind:
            defaults["activation"] = config.activation
            defaults["kernel_initializer"] = parts.hidden_weights(config, seed + index)
        if kind == "embedding" and index == 0 and space is not None:
            defaults["input_dim"] = _vocabulary(space, layer)
        result.append(layers.create(layer, seed + index, **defaults))
    return result


def _is_image(space: Any, config: NetworkConfig) -> bool:
    """Return whether a leaf passes through convolutions."""
    declared = bool(config.convolutions or config.residual)
    return declared and (len(space.shape) == 3 or images.recognized(space))


def _with_convolutions(config: NetworkConfig, path: str, space: Any) -> NetworkConfig:
    """Return the config with default convolutions for an image, if it has none."""
    undeclared = config.convolutions is None and not config.residual
    if not undeclared or config.linear or not images.recognized(space):
        return config
    _say(
        f"The image {path or 'observation'} {list(space.shape)} passes through the "
        "convolutions of the Nature network; algorithm.network declares others."
    )
    return dataclasses.replace(config, convolutions=NATURE)


@functools.cache
def _say(text: str) -> None:
    """Log a text once, even if several networks are alike."""
    logging.getLogger(__name__).info(text)


def _filters(config: NetworkConfig, seed: int) -> list[keras.layers.Layer]:
    """Create the convolutions for an image, or sections of residual blocks."""
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
            kernel_initializer=parts.hidden_weights(config, seed + index),
        )
        for index, (filters, size, stride) in enumerate(config.convolutions)
    ]


SECTION = 5
"""Convolutions of a section."""


class Section(keras.layers.Layer):
    """Convolution, pooling that halves the size, and two residual blocks.

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
                kernel_initializer=parts.hidden_weights(config, seed + index),
            )
            for index in range(SECTION)
        )

    def call(self, image: tf.Tensor) -> tf.Tensor:
        """Map images `[B, H, W, C]` to `[B, H / 2, W / 2, filters]`."""
        image = self._pool(self._first(image))
        for index in range(0, len(self._blocks), 2):
            change = self._blocks[index](self._activation(image))
            image += self._blocks[index + 1](self._activation(change))
        return image
