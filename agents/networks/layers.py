"""Layers from declarations: names, mappings with a `type`, or import paths."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from agents.networks import modes
from agents.networks.config import complete, is_recurrent
from agents.tools import config, errors, placement

CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
"""Layers that remember earlier steps of an episode."""
OVER = ("steps", "sequence")
"""Paths of these layers: the steps of an episode, or what is observed at once."""


class Pooling(keras.layers.Layer):
    """Reduction of all dimensions between the batch and the features."""

    def __init__(self, by: str = "mean") -> None:
        """Set the reduction `by`: `mean`, `max` or `sum`."""
        super().__init__()
        if by not in POOLS:
            raise ValueError(f"by must be one of {', '.join(POOLS)}, got {by!r}.")
        self._reduce = POOLS[by]

    def call(self, value: tf.Tensor) -> tf.Tensor:
        """Reduce `[B, ..., F]` to features `[B, F]`."""
        return self._reduce(value, list(range(1, value.shape.rank - 1)))


POOLS = {"mean": tf.reduce_mean, "max": tf.reduce_max, "sum": tf.reduce_sum}


class SelfAttention(keras.layers.Layer):
    """Attention of all elements of a sequence to each other; Vaswani et al. (2017)."""

    def __init__(
        self, num_heads: int, key_dim: int, seed: int | None = None, **options: Any
    ) -> None:
        """Create the layer; options are those of `keras.layers.MultiHeadAttention`."""
        super().__init__()
        self._seed, options = seed, {"seed": seed, **options}
        self._attend = keras.layers.MultiHeadAttention(num_heads, key_dim, **options)

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Create the weights; queries, keys and values draw one after the other."""
        if len(shape) != 3:
            raise ValueError(f"needs sequences [L, F], got the shape {shape[1:]}.")
        with placement.seeded(self._seed):
            self._attend.build(shape, shape)

    def call(self, value: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Map sequences `[B, L, F]` to sequences `[B, L, F]`."""
        return self._attend(value, value, training=training)


class FunctionLayer(keras.layers.Layer):
    """Layer that applies a function without variables, found by its import path."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._function = config.find(path)

    def call(self, value: tf.Tensor) -> tf.Tensor:
        """Apply the function."""
        return self._function(value)


SHOWN = (
    "dense",
    "conv2d",
    "flatten",
    "pooling",
    "embedding",
    "gru",
    "lstm",
    "attention",
    "dropout",
    "layer_normalization",
    "all other layers of Keras in snake case",
    "module:name for your own",
)
"""Summary of known layers for error messages."""


@functools.cache
def _types() -> dict[str, type]:
    """Map the names of layers in declarations to classes, Keras' in snake case."""
    known = {
        _snake(name): cls
        for name, cls in vars(keras.layers).items()
        if inspect.isclass(cls) and issubclass(cls, keras.layers.Layer)
    }
    ours = {"pooling": Pooling, "attention": SelfAttention, "function": FunctionLayer}
    return {**known, **ours}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def create(declaration: Any, seed: int, **defaults: Any) -> Any:
    """Create a layer from its declaration.

    Args:
      declaration: Number of units of a dense layer; name of a layer, which is that of a
        Keras layer in snake case, `pooling`, `attention` (to itself) or `function`;
        import path `module:name` of a class or of a function that returns a layer; or a
        mapping with one of these as `type` and further keys as arguments. `lstm` and
        `gru` remember earlier steps of the episode, or, with `over: sequence`, run
        along a sequence that is observed at once.
      seed: Seed of random weights, if the layer has any.
      defaults: Arguments for layers that accept them.

    Raises:
      ConfigError: for unknown layers and arguments, failed imports, and values that the
        layer refuses.
    """
    options = complete(declaration)
    kind = options.pop("type")
    if kind in CELLS and options.get("over", "steps") not in OVER:
        raise config.ConfigError(
            f"layer {kind} goes over {options['over']!r}; choose from {', '.join(OVER)}."
        )
    if is_recurrent(declaration):
        options.pop("over", None)
        for name in ("dropout", "recurrent_dropout"):
            if options.get(name):
                raise config.ConfigError(
                    f"layer {kind} has no {name} while it remembers steps; declare a "
                    "layer dropout in front of it, or 'over: sequence'."
                )
        cls = CELLS[kind]
    elif ":" in str(kind):
        cls = config.find(kind)
    else:
        cls = _find_type(kind)
    if kind in CELLS and options.pop("over", None) == "sequence":
        defaults = {**defaults, "return_sequences": True}
    known = _parameters(cls)
    defaults = {key: x for key, x in defaults.items() if key in known}
    options = {key: _part(key, x) for key, x in options.items()}
    options = {**_seeded(cls, known, seed), **defaults, **options}
    layer = config.call(cls, options, f"layer {kind}", known)
    if not callable(layer):
        raise config.ConfigError(f"layer {kind} is {layer!r}, which is not callable.")
    return layer


def _find_type(kind: Any) -> type:
    known = _types()
    if kind not in known:
        hint = config.did_you_mean(kind, known, SHOWN)
        raise config.ConfigError(f"unknown layer {kind!r}; {hint}")
    return known[kind]


def _parameters(cls: Callable) -> dict[str, Any]:
    """Return the parameters of a layer and their defaults."""
    named = config.parameters(cls)
    if cls is SelfAttention:
        named = {**config.parameters(keras.layers.MultiHeadAttention), **named}
    if cls.__module__.startswith("keras."):
        named |= {"name": None, "dtype": None, "trainable": True}
    return named


def _seeded(cls: Callable, parameters: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return arguments that seed the initial weights and dropout."""
    seeded = {"seed": seed} if "seed" in parameters else {}
    if cls is SelfAttention:  # One seed would make queries, keys and values equal.
        return seeded
    names = [x for x in parameters if x.endswith("_initializer")]
    for index, name in enumerate(names):
        if not isinstance(parameters[name], str):
            continue
        initializer = keras.initializers.get(parameters[name])
        if hasattr(initializer, "seed"):
            options = {**initializer.get_config(), "seed": seed + 1000 * index}
            seeded[name] = type(initializer).from_config(options)
    return seeded


def _part(key: str, value: Any) -> Any:
    """Create a regularizer, initializer or constraint from its declaration."""
    kinds = {
        "_regularizer": keras.regularizers,
        "_initializer": keras.initializers,
        "_constraint": keras.constraints,
    }
    for suffix, module in kinds.items():
        if not key.endswith(suffix) or value is None:
            continue
        options = config.declaration(value, key)
        kind = options.pop("type")
        known = {
            _snake(name): cls
            for name, cls in vars(module).items()
            if inspect.isclass(cls)
        }
        if kind not in known:
            hint = config.did_you_mean(kind, known)
            raise config.ConfigError(f"{key} {kind!r} is unknown; {hint}")
        return config.call(known[kind], options, f"{key} {kind}")
    return value


def apply(layer: Any, value: Any) -> Any:
    """Apply a layer of `create` to a value; in training mode, see `modes`.

    Raises:
      ConfigError: if the layer does not accept the value.
    """
    options = {}
    if "training" in inspect.signature(getattr(layer, "call", layer)).parameters:
        options = {"training": modes.in_training()}
    name = getattr(layer, "name", str(layer))
    if isinstance(layer, keras.layers.Embedding) and value.dtype.is_floating:
        raise config.ConfigError(
            f"layer {name} needs integers, but gets floating point numbers; declare it "
            "as the first layer."
        )
    shapes = tf.nest.map_structure(lambda x: tuple(x.shape[1:]), value)
    what = f"layer {name} cannot take what has the shape {shapes}"
    with errors.framed(what, config.ConfigError, tf.errors.OpError):
        result = layer(value, **options)
    if not tf.is_tensor(result):
        raise config.ConfigError(
            f"layer {name} returns {result!r}, which is not a tensor."
        )
    return result
