"""YAML with plain values only, read in bounded time and memory for any text.

Plain values are those of JSON: mappings of text, lists, text, numbers, flags and null.
Tags of other types are refused, and dates stay text.
"""

import warnings
from typing import Any

from ruamel import yaml

from agents.tools import errors

LONGEST = 50_000
"""Largest number of characters in a text."""
MOST = 10_000
"""Largest number of values in a text, after replacing aliases by their values."""
DEEPEST = 50
"""Largest number of levels of nested mappings and lists."""

TYPES = ("null", "bool", "int", "float", "str", "seq", "map")
"""Allowed tags."""


class PlainError(errors.Mistake):
    """Description of a text that is not plain YAML, beginning with a verb."""


class _Constructor(yaml.constructor.SafeConstructor):
    """Constructor of plain values only."""

    yaml_constructors = {
        tag: function
        for tag, function in yaml.constructor.SafeConstructor.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in TYPES
    }

    def construct_short_int(self, node: Any) -> int:
        """Construct an integer, unless it takes Python too long to read."""
        if len(node.value) > 100:
            raise PlainError("has an integer of more than 64 bits.")
        return self.construct_yaml_int(node)


for _name, _function in (
    ("timestamp", _Constructor.construct_yaml_str),
    ("int", _Constructor.construct_short_int),
):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_name}", _function)


def read(text: str) -> Any:
    """Parse a text; raises PlainError."""
    if len(text) > LONGEST:
        raise PlainError(f"is longer than {LONGEST:,} characters.")
    try:
        with warnings.catch_warnings(action="ignore"):  # For repeated anchors.
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
    except Exception as error:  # The parser raises all kinds of errors.
        reason = f"{type(error).__name__}: {error}"
        raise PlainError(f"is not valid YAML: {reason}.") from error


def _require_bounded(text: str) -> None:
    """Raise PlainError if a text contains too many values or nests too deeply."""
    sizes: dict[str | None, int] = {}  # Values of each anchor.
    around: list[list] = []  # Anchor and values so far of each open collection.
    for event in yaml.YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, yaml.events.CollectionStartEvent):
            sizes[event.anchor] = MOST + 1  # It contains itself.
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
    """Copy a value without sharing by aliases; raise PlainError if it is not plain.

    Files, arrays and names must be able to hold the numbers and texts.
    """
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise PlainError(f"has the key {key!r}, which is not text; quote it.")
        return {_plain(key): _plain(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_plain(x) for x in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise PlainError("has an integer of more than 64 bits.")
    if isinstance(value, str):
        units = value.encode(
            "utf-16", "surrogatepass"
        )  # JSON may write a pair of them.
        value = units.decode("utf-16", "surrogatepass")
        if wrong := errors.control(value):
            raise PlainError(f"has text with the character {ascii(wrong)}.")
    return value
