"""Optimizers from nested configs."""

import typing
from collections.abc import Collection, Sequence
from typing import Any

from agents.optimizers import optimizer as optimizer_
from agents.tools import bounds, config

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


def rated(config: Any, name: str, rate: Any) -> Any:
    """Return the optimizer that a field declares, with a learning rate if it takes one.

    The field's default takes it in place of its own rate; other optimizers take it if
    they declare none. Optimizers that step within a trust region have no rate.

    Args:
      config: Dataclass.
      name: Field with a declaration as for `create`, which is returned unchanged if it
        does not take the rate.
      rate: Number or schedule; none changes nothing.
    """
    spec = getattr(config, name)
    return spec if rate is None else _rated(spec, rate, bounds.default_of(config, name))


def unused_rate(config: Any, names: Sequence[str]) -> dict[str, str]:
    """Map the field `learning_rate` to a reason if no optimizer of `names` takes it."""
    if any(rated(config, x, 0.0) is not getattr(config, x) for x in names):
        return {}
    reason = "on optimizers with rates of their own"
    return {"learning_rate": reason} if names else {}


def _rated(spec: Any, rate: Any, default: Any) -> Any:
    """Return a declaration with a learning rate, or itself if it takes none."""
    full = {"type": spec} if isinstance(spec, str) else spec
    if not isinstance(full, dict) or "type" not in full:
        return spec
    if full["type"] not in TYPES or full["type"] in ("evolutionary", "gradient"):
        named = "learning_rate" in full and spec != default
        return spec if named else {**full, "learning_rate": rate}
    given = full.get("optimizer")
    inner = _rated(given, rate, given if spec == default else None)
    return spec if inner is given else {**full, "optimizer": inner}


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
    spec = {"type": spec} if isinstance(spec, str) else spec
    if not isinstance(spec, dict) or "type" not in spec:
        raise config.ConfigError(
            f"config key '{path}' must be a mapping with a 'type', got {spec!r}."
        )
    options = {key: value for key, value in spec.items() if key != "type"}
    kind, arguments = str(spec["type"]), {}
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
