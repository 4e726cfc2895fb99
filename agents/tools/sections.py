"""Conversion between sections of configs, which are dataclasses, and mappings.

Names, types, ranges and effects of fields are checked. Every mistake is a `ConfigError`
of one line that says what to do.
"""

import dataclasses
import typing
from typing import Any

import numpy as np

from agents.tools import bounds, errors, schedules
from agents.tools import config as config_


def build(cls: type, values: Any, path: str = "") -> Any:
    """Build a dataclass from a mapping; raise ConfigError for wrong keys and types."""
    where = f"config key '{path}'" if path else "the config"
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise config_.ConfigError(
            f"{where} needs a dataclass to tell its keys, got {cls}."
        )
    if isinstance(values, cls):
        return values
    if not isinstance(values, dict):
        raise config_.ConfigError(f"{where} must be a mapping, got {values!r}.")
    with errors.framed(f"types of the keys of {cls.__name__}", config_.ConfigError):
        hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            full = f"{path}.{key}" if path else key
            raise config_.ConfigError(
                f"unknown config key '{full}'; {config_.did_you_mean(key, known)}"
            )
    arguments = {
        key: config_.convert(
            hints[key], value, f"{path}.{key}" if path else key, section
        )
        for key, value in values.items()
    }
    with errors.framed(where, config_.ConfigError):
        try:
            made = cls(**arguments)
            bounds.require(made)
            bounds.require_effect(made)
        except bounds.OutOfBounds as error:
            full = f"{path}.{error.field}" if path else error.field
            raise config_.ConfigError(f"config key '{full}' {error.text}") from error
        except errors.Mistake:
            raise
        except ValueError as error:  # Raised by dataclasses that refuse values.
            raise config_.ConfigError(f"{where}: {error}") from error
    return made


def section(hint: type, value: Any, path: str) -> Any:
    """Build a section of a config from a mapping or from its short form."""
    if isinstance(value, str | list | tuple) and hasattr(hint, "short"):
        value = hint.short(value)
    return build(hint, value, path)


def to_dict(config: Any) -> Any:
    """Convert a config to plain dicts, lists and scalars, in order of its fields."""
    if isinstance(config, schedules.Schedule):
        return config.to_dict()
    if dataclasses.is_dataclass(config):
        return {
            field.name: to_dict(getattr(config, field.name))
            for field in dataclasses.fields(config)
        }
    if isinstance(config, dict):
        return {key: to_dict(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_dict(value) for value in config]
    return config.item() if isinstance(config, np.generic) else config
