"""Optimizers from nested configs."""

import inspect
import typing
from collections.abc import Collection
from typing import Any

from agents.optimizers import (
    clipped,
    evolutionary,
    gradient,
    line_search,
    minibatch,
    multi_step,
    natural_gradient,
    plus,
    synchronization,
)
from agents.optimizers import optimizer as optimizer_
from agents.tools import config

TYPES = {
    "clipped": clipped.Clipped,
    "evolutionary": evolutionary.Evolutionary,
    "gradient": gradient.Gradient,
    "line_search": line_search.LineSearch,
    "minibatch": minibatch.Minibatch,
    "multi_step": multi_step.MultiStep,
    "natural_gradient": natural_gradient.NaturalGradient,
    "plus": plus.Plus,
    "synchronization": synchronization.Synchronization,
}
"""Optimizers by the `type` of their config."""
GRADIENTS = gradient.OPTIMIZERS
"""Keras optimizers by their name in lower case, which is a `type` too."""


def create(
    spec: Any, path: str = "optimizer", provided: Collection[str] | None = None
) -> optimizer_.Optimizer:
    """Optimizer from a config such as

        {type: line_search, optimizer: {type: natural_gradient, max_kl: 0.01}}

    where every type is one of `TYPES`, or a Keras optimizer such as `adam` whose
    options stand beside those of `Gradient`.

    Args:
      spec: Mapping, name of a type, or optimizer, which is returned as it is.
      path: Config key, for error messages.
      provided: Names of the functions that `step` will be called with, if known.

    Raises:
      ConfigError: for unknown types and options, for values of a wrong type, and for
        an optimizer that needs a function which is not provided.
    """
    optimizer = _create(spec, path)
    missing = sorted(
        optimizer.needs - set(optimizer.needs if provided is None else provided)
    )
    if missing:
        raise config.ConfigError(
            f"config key '{path}' has an optimizer that needs {missing[0]!r}, which is "
            f"not provided there; {_PROVIDERS[missing[0]]}."
        )
    return optimizer


_PROVIDERS = {
    "kl": "ppo, trpo, vpg and a2c provide it for 'optimizer', the policy's",
    "source": "algorithms with target networks provide it for them",
    "items": "algorithms that train on batches provide it",
    "seed": "all algorithms provide it",
}


def _create(spec: Any, path: str) -> optimizer_.Optimizer:
    if isinstance(spec, optimizer_.Optimizer):
        return spec
    spec = {"type": spec} if isinstance(spec, str) else spec
    if not isinstance(spec, dict) or "type" not in spec:
        raise config.ConfigError(
            f"config key '{path}' must be a mapping with a 'type', got {spec!r}."
        )
    options = {key: value for key, value in spec.items() if key != "type"}
    kind = str(spec["type"])
    if kind in TYPES:
        cls, hints = TYPES[kind], typing.get_type_hints(TYPES[kind].__init__)
    elif kind in GRADIENTS:
        cls, hints = (
            gradient.Gradient,
            typing.get_type_hints(gradient.Gradient.__init__),
        )
        hints = {**_keras_options(GRADIENTS[kind]), **hints}
        del hints["optimizer"]
    else:
        hint = config.did_you_mean(kind, [*TYPES, *GRADIENTS])
        raise config.ConfigError(f"config key '{path}.type' is {kind!r}; {hint}")
    for key in ("return", "options"):
        hints.pop(key, None)
    if "parts" in hints:
        hints = dict.fromkeys(options, hints["parts"])
    arguments = {"optimizer": kind} if kind in GRADIENTS else {}
    for key, value in options.items():
        if key not in hints:
            raise config.ConfigError(
                f"unknown config key '{path}.{key}'; {config.did_you_mean(key, hints)}"
            )
        arguments[key] = _convert(hints[key], value, f"{path}.{key}")
    return config.call(cls, arguments, f"config key '{path}' ({kind})", arguments)


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Value of an option, or the optimizer that it describes."""
    if hint is optimizer_.Optimizer:
        return _create(value, path)
    return config.convert(hint, value, path)


def _keras_options(cls: type) -> dict[str, Any]:
    """Options of a Keras optimizer, and their types, which their defaults tell."""
    left_out = ("kwargs", "learning_rate", "name", "clipnorm")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        if name not in left_out
    }
    return {
        name: int | float | None if default is None else type(default)
        for name, default in defaults.items()
    }
