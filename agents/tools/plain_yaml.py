"""YAML of plain values, read in bounded time and memory whatever the text is.

Plain are mappings of text, lists, text, numbers, flags and null: what JSON has. There
are no tags of other types and no dates, which stay text.
"""

import warnings
from typing import Any

from ruamel import yaml

from agents.tools import errors

LONGEST = 50_000
"""Characters of a text."""
MOST = 10_000
"""Values in a text, after aliases are replaced by what they stand for."""
DEEPEST = 50
"""Levels of mappings and lists within each other."""

TYPES = ("null", "bool", "int", "float", "str", "seq", "map")
"""Tags that are allowed."""


class PlainError(ValueError):
    """Why a text is not plain YAML, beginning with a verb."""


class _Constructor(yaml.constructor.SafeConstructor):
    """Makes plain values only."""

    yaml_constructors = {
        tag: function
        for tag, function in yaml.constructor.SafeConstructor.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in TYPES
    }

    def construct_short_int(self, node: Any) -> int:
        """Integer, unless it is too long for Python to read it in time."""
        if len(node.value) > 100:
            raise PlainError("has an integer of more than 64 bits.")
        return self.construct_yaml_int(node)


for _name, _function in (
    ("timestamp", _Constructor.construct_yaml_str),
    ("int", _Constructor.construct_short_int),
):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_name}", _function)


def read(text: str) -> Any:
    """Value of a text; raises PlainError."""
    if len(text) > LONGEST:
        raise PlainError(f"is longer than {LONGEST:,} characters.")
    try:
        with warnings.catch_warnings(action="ignore"):  # Of anchors used twice.
            _require_bounded(text)
            reader = yaml.YAML(typ="safe", pure=True)
            reader.Constructor = _Constructor
            return _plain(reader.load(text))
    except PlainError:
        raise
    except yaml.error.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        if "could not determine a constructor" in problem:
            raise PlainError(
                f"has a tag that is not allowed: {problem}; use plain YAML."
            ) from error
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise PlainError(f"is not valid YAML{line}: {problem}.") from error
    except Exception as error:  # Of the parser, which raises all kinds of them.
        reason = f"{type(error).__name__}: {error}"
        raise PlainError(f"is not valid YAML: {reason}.") from error


def _require_bounded(text: str) -> None:
    """Raise PlainError if a text stands for too many values, or nests too deeply."""
    sizes: dict[str | None, int] = {}  # Values that an anchor stands for.
    around: list[list] = []  # Anchors, and values so far, of what is not closed.
    for event in yaml.YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, yaml.events.CollectionStartEvent):
            sizes[event.anchor] = MOST + 1  # Within itself it would have no end.
            around.append([event.anchor, 1])
            if len(around) > DEEPEST:
                raise PlainError(f"nests values more than {DEEPEST} levels deep.")
            continue
        if isinstance(event, yaml.events.CollectionEndEvent):
            anchor, size = around.pop()
        elif isinstance(event, yaml.events.AliasEvent):
            anchor, size = None, sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.events.ScalarEvent):
            anchor, size = event.anchor, 1
        else:
            continue
        sizes[anchor] = size
        if around:
            around[-1][1] += size
        if size > MOST:
            raise PlainError(f"stands for more than {MOST:,} values.")


def _plain(value: Any) -> Any:
    """Copy of a value without what aliases share; raises PlainError if it is not plain.

    Numbers and text must be such that files, arrays and names can hold them.
    """
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise PlainError(f"has the key {key!r}, which is no text; quote it.")
        return {_plain(key): _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise PlainError("has an integer of more than 64 bits.")
    if isinstance(value, str) and (wrong := errors.control(value)):
        raise PlainError(f"has text with the character {ascii(wrong)}.")
    return value
