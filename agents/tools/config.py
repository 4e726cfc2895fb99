"""Values that configs may have, and names of code that they may declare.

Every mistake is a `ConfigError` of one line that says what to do.
"""

import contextlib
import contextvars
import dataclasses
import difflib
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agents.tools import bounds, errors, schedules


class ConfigError(errors.Mistake):
    """Mistake in a config, in one line."""


class NotImportedError(ConfigError):
    """Class or function of a config that must not be imported here."""


_importing = contextvars.ContextVar("_importing", default=True)


@contextlib.contextmanager
def without_imports() -> Iterator[None]:
    """Read configs without importing code that they name, and with fewer checks."""
    token = _importing.set(False)
    try:
        yield
    finally:
        _importing.reset(token)


def did_you_mean(
    name: str, known: Iterable[str], shown: Iterable[str] | None = None
) -> str:
    """Suggest a known name for a misspelt one, or list the known or shown names."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name)[:100], known, 1, 0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose from {', '.join(known if shown is None else shown)}."


def declaration(value: Any, what: str = "it") -> dict:
    """Return a declaration as a mapping with a `type`, given that or a type's name.

    Raises:
      ConfigError: if it is neither.
    """
    if isinstance(value, str):
        return {"type": value}
    if not isinstance(value, dict) or "type" not in value:
        raise ConfigError(
            f"{what} must be a name or a mapping with a 'type', got {value!r}."
        )
    return dict(value)


def imported(path: str) -> Any:
    """Import the class or function at `module:name`, which must exist.

    Tables can name everything this way, and only used entries are imported.
    """
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def find(path: str) -> Any:
    """Find the class or function at an import path `module:name`.

    Raises:
      ConfigError: if there is none, with the traceback if the module fails.
      NotImportedError: inside `without_imports`.
    """
    if not _importing.get():
        raise NotImportedError(f"{path!r} is not imported here.")
    module, _, name = str(path).partition(":")
    if not all([*module.split("."), *name.split(".")]):
        raise ConfigError(f"{path!r} is not an import path 'module:name'.")
    what = f"cannot import {path!r}"
    with errors.framed(what, ConfigError):
        found = imported = importlib.import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                kind = f"module {module!r}" if found is imported else f"{found!r}"
                raise ConfigError(f"{what}: {kind} has no attribute {part!r}.")
            found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{path!r} is neither a class nor a function.")
    return found


def parameters(function: Callable) -> dict[str, Any]:
    """Return named parameters and their defaults; none of functions in C without them."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:
        found = ()
    return {x.name: x.default for x in found if "VAR_" not in x.kind.name}


def call(
    function: Callable, arguments: dict, what: str, known: Iterable[str] | None = None
) -> Any:
    """Call a function with arguments from a declaration.

    Args:
      function: Class or function.
      arguments: Arguments by name.
      what: Name for error messages.
      known: Names of legal arguments, by default of the parameters; if empty, all are.

    Raises:
      ConfigError: for unknown arguments, and for arguments that the function refuses.
    """
    known = parameters(function) if known is None else known
    for key in arguments:
        if known and key not in known:
            shown = [name for name in known if name != "space"]
            raise ConfigError(
                f"unknown argument {key!r} of {what}; {did_you_mean(key, shown)}"
            )
    with errors.framed(what, ConfigError):
        try:
            return function(**arguments)
        except bounds.OutOfBounds as error:
            raise ConfigError(f"{what}: {error}") from error


def convert(
    hint: Any,
    value: Any,
    path: str,
    section: Callable[[type, Any, str], Any] | None = None,
) -> Any:
    """Convert a value to the type of its field, without guessing.

    Args:
      hint: Type of the field.
      value: Value from a config file.
      path: Config key, for error messages.
      section: Function of hint, value and path that makes dataclasses.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _convert_union(arguments, value, path, section)
    if dataclasses.is_dataclass(hint):
        schedule = hint is schedules.Schedule
        return _schedule(value, path) if schedule else section(hint, value, path)
    if tuple in (hint, origin) and isinstance(value, list | tuple):
        kinds = arguments or (Any, ...)
        kinds = kinds[:1] * len(value) if kinds[-1] is ... else kinds
        if len(kinds) == len(value):
            pairs = zip(kinds, value, strict=True)
            return tuple(convert(kind, x, path, section) for kind, x in pairs)
    kind = arguments[-1] if arguments else Any  # Of the members.
    if dict in (hint, origin) and isinstance(value, dict):
        return {k: convert(kind, x, f"{path}.{k}", section) for k, x in value.items()}
    if list in (hint, origin) and isinstance(value, list | tuple):
        return [convert(kind, x, path, section) for x in value]
    converted = _convert_scalar(hint, value)
    if converted is None:
        raise ConfigError(
            f"config key '{path}' must be {_name(hint, value)}, got {value!r}."
        )
    return converted


def _name(hint: Any, value: Any) -> str:
    """Describe the type that a value should have."""
    if hint is float and isinstance(value, float):
        return "a finite float"
    return (
        str(hint) if typing.get_origin(hint) else getattr(hint, "__name__", str(hint))
    )


def _convert_scalar(hint: Any, value: Any) -> Any:
    """Convert to a number, flag or text; return None if that is impossible."""
    if typing.get_origin(hint) is typing.Literal:
        return value if value in typing.get_args(hint) else None
    if hint is float and isinstance(value, str):  # In YAML 1.1, 1e-4 is text.
        with contextlib.suppress(ValueError):
            value = float(value)
    finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    number = finite and not isinstance(value, bool)
    if hint is float and number:
        return float(value)
    if hint is int and number and float(value).is_integer():
        return int(value)
    return value if hint in (bool, str) and isinstance(value, hint) else None


def _convert_union(arguments: tuple, value: Any, path: str, section: Any) -> Any:
    """Convert by the first type that fits, or raise the best match's error."""
    errors = []
    if value is None and type(None) in arguments:
        return None
    for hint in arguments:
        if hint is type(None):
            continue
        try:
            return convert(hint, value, path, section)
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
    try:
        return schedules.Schedule(**arguments)
    except ValueError as error:
        raise ConfigError(f"config key '{path}': {error}") from error
