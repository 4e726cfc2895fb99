"""Configs in YAML: files, and overrides from the command line.

Every mistake is a `ConfigError` of one line that says what to do.
"""

import io
import pathlib
import re
from collections.abc import Iterable
from typing import Any, TextIO

from ruamel import yaml

from agents.tools import config as config_
from agents.tools import files, plain_yaml, sections

ENDINGS = (".json", ".yaml", ".yml")
"""Endings of config file names."""
_PLAIN = re.compile(r"\w[\w./ -]*(:[\w./-]+)*")
"""Texts that need no quotes inside of lists in brackets, unless they look like numbers."""


class _Representer(yaml.representer.SafeRepresenter):
    """Representer that quotes what could be read in another way."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None if _PLAIN.fullmatch(text) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


class _Emitter(yaml.emitter.Emitter):
    """Emitter that does not break texts with escapes, which would change some."""

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        super().write_double_quoted(text, split=False)


_Representer.add_representer(str, _Representer.represent_text)


def override(values: dict, assignments: Iterable[str]) -> dict:
    """Copy a nested mapping with assignments `a.b=value` applied; values are YAML.

    A key inside of another one is assigned after it; otherwise, the last one counts.
    Only the form is checked here; `sections.build` checks names and types.
    """
    values = sections.to_dict(values)
    for assignment in sorted(assignments, key=_depth):
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise config_.ConfigError(f"--set takes key=value, got {assignment!r}.")
        *parents, last = path.split(".")
        node = values
        for parent in parents:
            if parent not in node:
                hint = f"there is no {parent!r} yet, so assign it a mapping."
                hint = config_.did_you_mean(parent, node) if node else hint
                raise config_.ConfigError(f"unknown config key '{path}'; {hint}")
            if not isinstance(node[parent], dict):
                raise config_.ConfigError(
                    f"unknown config key '{path}'; {parent!r} is {node[parent]!r}."
                )
            node = node[parent]
        node[last] = parse(text, f"--set {path}")
    return values


def _depth(assignment: str) -> int:
    """Return how deep the key of an assignment is."""
    return assignment.partition("=")[0].count(".")


def parse(text: str, name: str) -> Any:
    """Parse a YAML value; `name` says in errors where it is from.

    Raises:
      ConfigError: for other text, and for tags, which could construct Python objects.
    """
    try:
        return plain_yaml.read(text)
    except plain_yaml.PlainError as error:
        raise config_.ConfigError(f"{name} {error}") from error


def load(filename: str | pathlib.Path) -> Any:
    """Read a YAML file."""
    path = pathlib.Path(filename)
    try:
        if path.exists() and not path.is_file():  # Pipes and devices may never end.
            raise config_.ConfigError(
                f"cannot read {filename}: it is not a regular file."
            )
        with path.open(encoding="utf-8") as file:
            text = file.read(plain_yaml.LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise config_.ConfigError(f"cannot read {filename}: {error}") from error
    return parse(text, str(filename))


def load_mapping(filename: str | pathlib.Path) -> dict:
    """Read a YAML file of config keys.

    Raises:
      ConfigError: if it cannot be read, or is not a mapping.
    """
    values = load(filename)
    if not isinstance(values, dict):
        raise config_.ConfigError(f"{filename} is not a mapping of config keys.")
    return values


def dump(config: Any, target: str | pathlib.Path | TextIO) -> None:
    """Write a config as a YAML file that `load` and `sections.build` read back.

    Raises:
      ConfigError: for values that YAML has no form for.
    """
    writer = yaml.YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style = None
    writer.Emitter = _Emitter
    writer.sort_base_mapping_type_on_output = False
    text = io.StringIO()
    try:
        writer.dump(sections.to_dict(config), text)
    except yaml.representer.RepresenterError as error:
        value = str(error).partition(": ")[2]
        raise config_.ConfigError(
            f"a config cannot contain {value}, as its file could not; use numbers, text, "
            "lists and mappings."
        ) from None
    if isinstance(target, str | pathlib.Path):
        files.write(target, text.getvalue())
    else:
        target.write(text.getvalue())


def at(config: dict, path: str) -> Any:
    """Return a value of nested mappings, or None."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return config


def differences(old: dict, new: dict) -> list[str]:
    """List `a.b: old -> new` for every leaf in which two nested mappings differ."""
    return [
        f"{'.'.join(map(str, path))}: {left!r} -> {right!r}"
        for path, (left, right) in changes(old, new).items()
    ]


def changes(old: dict, new: dict, path: tuple = ()) -> dict[tuple, tuple]:
    """Map the keys of every leaf in which two nested mappings differ to both values."""
    found = {}
    for key in [*old, *(k for k in new if k not in old)]:
        left, right = old.get(key), new.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found |= changes(left, right, (*path, key))
        elif not _same(left, right):
            found[*path, key] = left, right
    return found


def _same(left: Any, right: Any) -> bool:
    """Return whether two values are equal, or both not a number."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return not changes(left, right)
    return left == right or (left != left and right != right)


def require_name(name: str, what: str) -> None:
    """Raise ConfigError unless a text can be part of a directory name.

    This keeps files in the directory where they belong.
    """
    if "/" in name or name in ("", ".", "..") or not name.isprintable():
        raise config_.ConfigError(
            f"{what} is {name!r}, but directories are named by it; use plain text "
            "without '/'."
        )
