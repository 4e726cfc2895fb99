"""Configs are dataclasses: read from YAML, overridden from the command line, checked.

Every mistake is a `ConfigError` of one line that says what to do.
"""

import contextlib
import contextvars
import dataclasses
import difflib
import importlib
import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from agents.tools import bounds, errors, files, schedules


class ConfigError(errors.Mistake):
    """A mistake in a config, in one line."""


class NotImportedError(ConfigError):
    """Something that a config names, where nothing may be imported."""


_importing = contextvars.ContextVar("_importing", default=True)


@contextlib.contextmanager
def without_imports() -> Iterator[None]:
    """Configs are read here without the code that they name, so less is checked."""
    token = _importing.set(False)
    try:
        yield
    finally:
        _importing.reset(token)


def did_you_mean(
    name: str, known: Iterable[str], shown: Iterable[str] | None = None
) -> str:
    """Suggestion for a misspelt name, or the known ones, or those that are shown."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name)[:100], known, 1, 0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(known if shown is None else shown)}."


def declaration(value: Any, what: str = "it") -> dict:
    """Mapping with a `type` of a declaration, which may be the name of the type alone.

    Raises:
      ConfigError: if it is neither.
    """
    if isinstance(value, str):
        return {"type": value}
    if not isinstance(value, dict) or "type" not in value:
        raise ConfigError(
            f"{what} is a name or a mapping with a 'type', got {value!r}."
        )
    return dict(value)


def find(path: str) -> Any:
    """Class or function at an import path `module:name`.

    Raises:
      ConfigError: if there is none, with the traceback of a module that fails.
      NotImportedError: where nothing may be imported.
    """
    if not _importing.get():
        raise NotImportedError(f"{path!r} is not imported here.")
    module, _, name = path.partition(":")
    if not all([*module.split("."), *name.split(".")]):
        raise ConfigError(f"{path!r} is no import path 'module:name'.")
    what = f"cannot import {path!r}"
    with errors.framed(what, ConfigError):
        found = imported = importlib.import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                kind = f"module {module!r}" if found is imported else f"{found!r}"
                raise ConfigError(f"{what}: {kind} has no attribute {part!r}.")
            found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{path!r} is no class or function.")
    return found


def parameters(function: Callable) -> dict[str, Any]:
    """Named parameters and their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def call(
    function: Callable, arguments: dict, what: str, known: Iterable[str] | None = None
) -> Any:
    """Result of a function of declared arguments.

    Args:
      function: Class or function.
      arguments: By name.
      what: Name for error messages.
      known: Names that it takes, by default those of its parameters.

    Raises:
      ConfigError: for unknown arguments, and for what the function refuses.
    """
    known = parameters(function) if known is None else known
    for key in arguments:
        if known and key not in known:
            shown = [name for name in known if name != "space"]
            raise ConfigError(
                f"unknown argument {key!r} of {what}; {did_you_mean(key, shown)}"
            )
    with errors.framed(what, ConfigError):
        return function(**arguments)


def build(cls: type, values: Any, path: str = "") -> Any:
    """Dataclass from a mapping; unknown keys and mistyped values raise ConfigError."""
    where = f"config key '{path}'" if path else "the config"
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ConfigError(f"{where} needs a dataclass to tell its keys, got {cls}.")
    if isinstance(values, cls):
        return values
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a mapping, got {values!r}.")
    with errors.framed(f"types of the keys of {cls.__name__}", ConfigError):
        hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            full = f"{path}.{key}" if path else key
            raise ConfigError(
                f"unknown config key '{full}'; {did_you_mean(key, known)}"
            )
    arguments = {
        key: convert(hints[key], value, f"{path}.{key}" if path else key)
        for key, value in values.items()
    }
    with errors.framed(where, ConfigError):
        try:
            made = cls(**arguments)
            bounds.require(made)
        except errors.Mistake:
            raise
        except bounds.OutOfBounds as error:
            full = f"{path}.{error.field}" if path else error.field
            raise ConfigError(f"config key '{full}' {error.text}") from error
        except ValueError as error:  # How dataclasses refuse values.
            raise ConfigError(f"{where}: {error}") from error
    return made


def convert(hint: Any, value: Any, path: str) -> Any:
    """Value as the type of its field, if it can be without guessing."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _convert_union(arguments, value, path)
    if dataclasses.is_dataclass(hint):
        return _convert_dataclass(hint, value, path)
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is ...:
            return tuple(convert(arguments[0], x, path) for x in value)
        if len(arguments) == len(value):
            pairs = zip(arguments, value, strict=True)
            return tuple(convert(kind, x, path) for kind, x in pairs)
    if dict in (hint, origin) and isinstance(value, dict):
        return dict(value)
    if list in (hint, origin) and isinstance(value, list | tuple):
        return list(value)
    converted = _convert_scalar(hint, value)
    if converted is None:
        raise ConfigError(
            f"config key '{path}' must be {_name(hint, value)}, got {value!r}."
        )
    return converted


def _name(hint: Any, value: Any) -> str:
    """Demand that a value does not meet."""
    if hint is float and isinstance(value, float):
        return "a finite float"
    return (
        str(hint) if typing.get_origin(hint) else getattr(hint, "__name__", str(hint))
    )


def _convert_scalar(hint: Any, value: Any) -> Any:
    """Number, flag or text as its type; None if it is something else."""
    if hint is float and isinstance(value, str):  # YAML 1.1 leaves 1e-4 as text.
        with contextlib.suppress(ValueError):
            value = float(value)
    finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    number = finite and not isinstance(value, bool)
    if hint is float and number:
        return float(value)
    if hint is int and number and float(value).is_integer():
        return int(value)
    return value if hint in (bool, str) and isinstance(value, hint) else None


def _convert_dataclass(hint: type, value: Any, path: str) -> Any:
    """Section of a config, also by its short forms, or schedule."""
    if hint is schedules.Schedule:
        return _schedule(value, path)
    if isinstance(value, str | list | tuple) and hasattr(hint, "short"):
        return hint.short(value)
    return build(hint, value, path)


def _convert_union(arguments: tuple, value: Any, path: str) -> Any:
    """First member of a union that takes the value; error of the best match else."""
    errors = []
    if value is None and type(None) in arguments:
        return None
    for hint in arguments:
        if hint is type(None):
            continue
        try:
            return convert(hint, value, path)
        except ConfigError as error:
            errors.append((dataclasses.is_dataclass(hint), error))
    mapping = isinstance(value, dict)
    raise next((e for nested, e in errors if nested == mapping), errors[0][1])


def _schedule(value: Any, path: str) -> schedules.Schedule:
    keys = schedules.Schedule.KEYS
    if isinstance(value, schedules.Schedule):
        return value
    if not isinstance(value, dict):
        raise ConfigError(f"config key '{path}' must be a number or a schedule.")
    for key in value:
        if key not in keys:
            raise ConfigError(
                f"unknown config key '{path}.{key}'; {did_you_mean(key, keys)}"
            )
    needed = schedules.Schedule.needed(value.get("type"))
    missing = ", ".join(repr(key) for key in needed if key not in value)
    if missing:
        raise ConfigError(f"config key '{path}' is a schedule without {missing}.")
    hints = typing.get_type_hints(schedules.Schedule)
    arguments = {
        keys[key]: convert(hints[keys[key]], member, f"{path}.{key}")
        for key, member in value.items()
    }
    return build(schedules.Schedule, arguments, path)


def to_dict(config: Any) -> Any:
    """Plain dicts, lists and scalars of a config, in the order of its fields."""
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
    return config


def override(values: dict, assignments: Iterable[str]) -> dict:
    """Copy of a nested mapping with assignments `a.b=value` applied; values are YAML.

    Only the form is checked here; `build` checks names and types.
    """
    values = to_dict(values)
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set takes key=value, got {assignment!r}.")
        *parents, last = path.split(".")
        node = values
        for parent in parents:
            if parent not in node:
                hint = did_you_mean(parent, node)
                raise ConfigError(f"unknown config key '{path}'; {hint}")
            if not isinstance(node[parent], dict):
                raise ConfigError(
                    f"unknown config key '{path}'; {parent!r} is {node[parent]!r}."
                )
            node = node[parent]
        node[last] = parse(text, f"--set {path}")
    return values


def parse(text: str, name: str) -> Any:
    """Value of a YAML text; tags that construct Python objects are refused."""
    from agents.tools import plain_yaml

    try:
        return plain_yaml.read(text)
    except plain_yaml.PlainError as error:
        raise ConfigError(f"{name} {error}") from error


def require_name(name: str, what: str) -> None:
    """Raise ConfigError unless a text can be part of the name of a directory.

    So what is named by it stays in the directory where it belongs.
    """
    if "/" in name or name in (".", "..") or not name.isprintable():
        raise ConfigError(
            f"{what} is {name!r}, but directories are named by it; use plain text "
            "without '/'."
        )


def load(filename: str | pathlib.Path) -> Any:
    """Content of a YAML file."""
    from agents.tools import plain_yaml

    path = pathlib.Path(filename)
    try:
        if path.exists() and not path.is_file():  # Pipes and devices may never end.
            raise ConfigError(
                f"cannot read config file {filename}: it is no regular file."
            )
        with path.open(encoding="utf-8") as file:
            text = file.read(plain_yaml.LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read config file {filename}: {error}") from error
    return parse(text, str(filename))


def load_mapping(filename: str | pathlib.Path) -> dict:
    """Content of a YAML file that is a mapping of config keys."""
    values = load(filename)
    if not isinstance(values, dict):
        raise ConfigError(f"{filename} is not a mapping of config keys.")
    return values


def dump(config: Any, target: str | pathlib.Path | TextIO) -> None:
    """Write a config as a YAML file that `load` and `build` read back."""
    from ruamel import yaml

    writer = yaml.YAML(typ="safe", pure=True)
    writer.default_flow_style = None
    writer.sort_base_mapping_type_on_output = False
    values = to_dict(config)
    if not isinstance(target, str | pathlib.Path):
        writer.dump(values, target)
        return
    with files.whole(target) as partial:
        writer.dump(values, partial)


def differences(old: dict, new: dict, path: str = "") -> list[str]:
    """Lines `a.b: old -> new` for every leaf in which two nested mappings differ."""
    lines = []
    for key in [*old, *(k for k in new if k not in old)]:
        full = f"{path}.{key}" if path else str(key)
        left, right = old.get(key), new.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            lines += differences(left, right, full)
        elif left != right:
            lines.append(f"{full}: {left!r} -> {right!r}")
    return lines
