"""Optimizers from nested configs."""

import typing
from collections.abc import Collection, Sequence
from typing import Any

from agents.optimizers import optimizer as optimizer_
from agents.tools import config

TYPES = {
    "clipped": "agents.optimizers.clipped:Clipped",
    "evolutionary": "agents.optimizers.evolutionary:Evolutionary",
    "gradient": "agents.optimizers.gradient:Gradient",
    "guarded": "agents.optimizers.guarded:Guarded",
    "line_search": "agents.optimizers.line_search:LineSearch",
    "minibatch": "agents.optimizers.minibatch:Minibatch",
    "multi_step": "agents.optimizers.multi_step:MultiStep",
    "natural_gradient": "agents.optimizers.natural_gradient:NaturalGradient",
    "plus": "agents.optimizers.plus:Plus",
    "synchronization": "agents.optimizers.synchronization:Synchronization",
}
"""Import paths of optimizers by the `type` of their config."""


def create(
    spec: Any, path: str = "optimizer", provided: Collection[str] | None = None
) -> optimizer_.Optimizer:
    """Create an optimizer from a config such as

        {type: line_search, optimizer: {type: natural_gradient, max_kl: 0.01}}

    where every type is one of `TYPES`, or a Keras optimizer such as `adam` whose
    options stand beside those of `Gradient`.

    Args:
      spec: Mapping, name of a type, or optimizer, which is returned unchanged.
      path: Config key, for error messages.
      provided: Names of the functions that `step` will get, if known.

    Raises:
      ConfigError: for unknown types and options, for values of a wrong type, and for an
        optimizer that needs a function that is not provided.
    """
    optimizer = _create(spec, path)
    missing = [] if provided is None else sorted(optimizer.needs - set(provided))
    if missing:
        raise config.ConfigError(
            f"config key '{path}' has an optimizer that needs {missing[0]!r}, which is "
            f"not provided there; {_PROVIDERS[missing[0]]}."
        )
    return optimizer


def rated(spec: Any, rate: Any) -> Any:
    """Return a declaration with a learning rate, or itself if it takes none.

    Optimizers that declare a rate keep it, and those that step within a trust region
    have none.

    Args:
      spec: Declaration as for `create`.
      rate: Number or schedule.
    """
    full = {"type": spec} if isinstance(spec, str) else spec
    if not isinstance(full, dict) or "type" not in full:
        return spec
    if full["type"] not in TYPES or full["type"] in ("evolutionary", "gradient"):
        return spec if "learning_rate" in full else {**full, "learning_rate": rate}
    given = full.get("optimizer")
    inner = rated(given, rate)
    return spec if inner is given else {**full, "optimizer": inner}


def unused_rate(specs: Sequence[Any]) -> dict[str, str]:
    """Map `learning_rate` to a reason if there are optimizers and none takes it."""
    given = [spec for spec in specs if spec is not None]
    if not given or any(rated(spec, 0.0) is not spec for spec in given):
        return {}
    return {"learning_rate": "on optimizers with rates of their own"}


_PROVIDERS = {
    "kl": "ppo, trpo, vpg and a2c provide it for 'optimizer', the policy's",
    "source": "algorithms with target networks provide it for them",
    "items": "algorithms that train on batches provide it",
    "mask": "policy gradients and impala provide it, for 'block'",
    "parts": "algorithms put optimizers together themselves; use another type than plus",
    "seed": "all algorithms provide it",
}


def _create(spec: Any, path: str) -> optimizer_.Optimizer:
    if isinstance(spec, optimizer_.Optimizer):
        return spec
    options = config.declaration(spec, f"config key '{path}'")
    kind, arguments = str(options.pop("type")), {}
    if kind in TYPES:
        cls = config.imported(TYPES[kind])
        hints = typing.get_type_hints(cls.__init__)
    else:
        cls = config.imported(TYPES["gradient"])
        if kind not in cls.KERAS:
            hint = config.did_you_mean(kind, [*TYPES, *cls.KERAS])
            raise config.ConfigError(f"config key '{path}.type' is {kind!r}; {hint}")
        hints, arguments = cls.options(kind), {"optimizer": kind}
    hints = {k: v for k, v in hints.items() if k not in ("return", "options")}
    if "parts" in hints:
        hints = dict.fromkeys(options, hints["parts"])
    for key, value in options.items():
        if key not in hints:
            raise config.ConfigError(
                f"unknown config key '{path}.{key}'; {config.did_you_mean(key, hints)}"
            )
        arguments[key] = _convert(hints[key], value, f"{path}.{key}")
    return config.call(cls, arguments, f"config key '{path}' ({kind})", arguments)


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Convert the value of an option, or create the optimizer that it describes."""
    if hint is optimizer_.Optimizer:
        return _create(value, path)
    return config.convert(hint, value, path)
