"""Layers from declarations: names, mappings with a `type`, or import paths."""

import contextlib
import contextvars
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from agents.tools import config, errors

CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}
"""Layers that remember earlier steps of an episode."""


class Pooling(keras.layers.Layer):
    """Reduces everything between the batch and the features."""

    def __init__(self, by: str = "mean") -> None:
        """`by` is `mean`, `max` or `sum`."""
        super().__init__()
        if by not in POOLS:
            raise ValueError(f"by must be one of {', '.join(POOLS)}, got {by!r}.")
        self._reduce = POOLS[by]

    def call(self, value: tf.Tensor) -> tf.Tensor:
        """Features `[B, F]` of `[B, ..., F]`."""
        return self._reduce(value, list(range(1, value.shape.rank - 1)))


POOLS = {"mean": tf.reduce_mean, "max": tf.reduce_max, "sum": tf.reduce_sum}


class SelfAttention(keras.layers.Layer):
    """Every element of a sequence attends to all; Vaswani et al. (2017)."""

    def __init__(self, num_heads: int, key_dim: int, **options: Any) -> None:
        """Options are those of `keras.layers.MultiHeadAttention`."""
        super().__init__()
        self._attend = keras.layers.MultiHeadAttention(num_heads, key_dim, **options)

    def call(self, value: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Sequences `[B, L, F]` of sequences `[B, L, F]`."""
        return self._attend(value, value, training=training)


class Function(keras.layers.Layer):
    """Applies a function without variables, by its import path."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._function = config.find(path)

    def call(self, value: tf.Tensor) -> tf.Tensor:
        """What the function returns."""
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
"""What there is, in short."""


@functools.cache
def _types() -> dict[str, type]:
    """Layers by the names that declarations use; those of Keras in snake case."""
    known = {
        _snake(name): cls
        for name, cls in vars(keras.layers).items()
        if inspect.isclass(cls) and issubclass(cls, keras.layers.Layer)
    }
    ours = {"pooling": Pooling, "attention": SelfAttention, "function": Function}
    return {**known, **ours}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def complete(declaration: Any) -> dict:
    """Mapping of a declaration: units of a dense layer, name, path or mapping."""
    if isinstance(declaration, int):
        return {"type": "dense", "units": declaration}
    return config.declaration(declaration, "a layer, unless a number of units,")


def is_recurrent(declaration: Any) -> bool:
    """Whether a layer remembers earlier steps of an episode."""
    layer = complete(declaration)
    return layer["type"] in CELLS and layer.get("over", "steps") == "steps"


def takes_vectors(declaration: Any) -> bool:
    """Whether a layer is given flat numbers, whatever is observed."""
    return complete(declaration)["type"] == "dense" or is_recurrent(declaration)


def mixes(declaration: Any) -> bool:
    """Whether a layer lets its inputs act together: a dense one, or a user's."""
    return takes_vectors(declaration) or ":" in complete(declaration)["type"]


def create(declaration: Any, seed: int, **defaults: Any) -> Any:
    """Layer of a declaration.

    Args:
      declaration: Number of units of a dense layer; name of a layer, which is that of
        a Keras layer in snake case, `pooling`, `attention` (to itself) or `function`;
        import path `module:name` of a class or of a function that returns a layer; or
        a mapping with one of these as `type` and all else as arguments. `lstm` and
        `gru` remember earlier steps of the episode, unless `over` is `sequence`: then
        they run along a sequence that was observed at once.
      seed: Of random weights, where the layer has any.
      defaults: Arguments for layers that take them.

    Raises:
      ConfigError: for unknown layers and arguments, what cannot be imported, and
        values that the layer refuses.
    """
    options = complete(declaration)
    kind = options.pop("type")
    if is_recurrent(declaration):
        options.pop("over", None)
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
    options = {**_seeded(known, seed), **defaults, **options}
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
    """Parameters and their defaults."""
    named = config.parameters(cls)
    if cls is SelfAttention:
        named = {**config.parameters(keras.layers.MultiHeadAttention), **named}
    if cls.__module__.startswith("keras."):
        named |= {"name": None, "dtype": None, "trainable": True}
    return named


def _seeded(parameters: dict[str, Any], seed: int) -> dict[str, Any]:
    """Arguments that make the initial weights, and dropout, those of a seed."""
    seeded = {"seed": seed} if "seed" in parameters else {}
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
    """Regularizer, initializer or constraint of a mapping with a `type`."""
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
    """Output of a layer that `create` made; in training mode, see `training`.

    Raises:
      ConfigError: if it does not take such a value.
    """
    options = {}
    if "training" in inspect.signature(getattr(layer, "call", layer)).parameters:
        options = {"training": _training.get()}
    name = getattr(layer, "name", str(layer))
    shapes = tf.nest.map_structure(lambda x: tuple(x.shape[1:]), value)
    what = f"layer {name} cannot take what has the shape {shapes}"
    with errors.framed(what, config.ConfigError, tf.errors.OpError):
        result = layer(value, **options)
    if not tf.is_tensor(result):
        raise config.ConfigError(
            f"layer {name} returns {result!r}, which is no tensor."
        )
    return result


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Layers that are applied here learn: they drop out, and update statistics."""
    token = _training.set(True)
    try:
        yield
    finally:
        _training.reset(token)


_training: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "_training", default=False
)


def learning(loss: Callable, network: keras.layers.Layer) -> Callable:
    """Loss whose layers are in training mode, plus the penalties of regularization.

    Args:
      loss: Returns a loss and metrics.
      network: What may have regularized layers.
    """

    def penalized(*args: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with training():
            value, metrics = loss(*args)
        return value + sum(network.losses), metrics

    return penalized
