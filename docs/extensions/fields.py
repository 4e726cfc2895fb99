"""Sphinx directive that lists the fields of a config: names, types, defaults, meanings.

    ```{fields} agents.algorithms.ppo:Config
    ```

Meanings are the docstrings beneath the fields, inherited where a subclass declares a
field again without one. A field without any is a warning. `type` is left out, since it
is how a config names the dataclass itself.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from typing import Any, NamedTuple

from agents.tools import bounds, schedules, sections
from agents.tools import config as config_


class Field(NamedTuple):
    """Field of a config, as text."""

    name: str
    type: str
    default: str
    meaning: str
    """Docstring; empty if there is none."""


def fields(cls: type) -> list[Field]:
    """Describe the fields of a dataclass."""
    hints = typing.get_type_hints(cls)
    meanings, ranges = docstrings(cls), bounds.ranges(cls)
    return [
        Field(
            field.name,
            type_text(hints[field.name], ranges.get(field.name)),
            default_text(field),
            meanings.get(field.name, ""),
        )
        for field in dataclasses.fields(cls)
        if field.name != "type"
    ]


def docstrings(cls: type) -> dict[str, str]:
    """Map names of fields to the docstrings beneath them, of base classes, too."""
    found = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for field, text in zip(node.body, node.body[1:], strict=False):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(name)),
                        ast.Expr(value=ast.Constant(value=str(docstring))),
                    ):
                        found[name] = " ".join(docstring.split())
    return found


def type_text(hint: Any, allowed: bounds.Bounds | None = None) -> str:
    """Name a type, and the range of its numbers."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        text = " or ".join(map(type_text, options))
    elif options:
        text = f"{hint.__name__} of {type_text(options[0])}"
    else:
        known = {schedules.Schedule: "schedule", type(None): "none"}
        text = known.get(hint, hint.__name__)
    return text if allowed is None else f"{text}, {range_text(allowed)}"


def range_text(allowed: bounds.Bounds) -> str:
    """Say which numbers are allowed; bounds that nothing reaches are left out."""
    if allowed.most > 1:
        return f"{'>' if allowed.open else '≥'}\N{NO-BREAK SPACE}{allowed.least}"
    left = "(" if allowed.open else "["
    return (
        f"in\N{NO-BREAK SPACE}{left}{allowed.least},\N{NO-BREAK SPACE}{allowed.most}]"
    )


def default_text(field: dataclasses.Field) -> str:
    """Return the default as in a config file."""
    made = field.default_factory is not dataclasses.MISSING
    return flow(field.default_factory() if made else field.default)


def flow(value: Any) -> str:
    """Write a value in one line of YAML; of a section, only what differs from defaults."""
    if isinstance(value, schedules.Schedule):
        value = value.to_dict()
    elif dataclasses.is_dataclass(value):
        standard = sections.to_dict(type(value)())
        values = sections.to_dict(value)
        value = {k: x for k, x in values.items() if x != standard[k]}
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}"
        case dict():
            return f"{{{', '.join(f'{k}: {flow(x)}' for k, x in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(flow, value))}]"
    return str(value)


def table(cls: type) -> str:
    """Return a table of the fields of a dataclass in Markdown."""
    rows = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, default, meaning in fields(cls):
        cells = f"`{name}`", kind, f"`{default}`", meaning
        rows.append(f"| {' | '.join(x.replace('|', chr(92) + '|') for x in cells)} |")
    return "\n".join(rows)


def setup(app: Any) -> dict[str, bool]:
    """Add the directive; Sphinx is imported here, so that the functions do without."""
    from sphinx.util import docutils, logging

    logger = logging.getLogger(__name__)

    class Fields(docutils.SphinxDirective):
        """Directive `fields` with the import path of a dataclass."""

        required_arguments = 1

        def run(self) -> list:
            """Return the nodes of the table."""
            cls = config_.find(self.arguments[0])
            self.env.note_dependency(inspect.getsourcefile(cls))
            for field in fields(cls):
                if not field.meaning:
                    text = "field %s of %s has no docstring"
                    where = self.get_location()
                    logger.warning(text, field.name, self.arguments[0], location=where)
            return self.parse_text_to_nodes(table(cls))

    app.add_directive("fields", Fields)
    return {"parallel_read_safe": True}
