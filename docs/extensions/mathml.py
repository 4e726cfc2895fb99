"""Equations as MathML, which browsers draw without a program and without the network."""

from typing import Any

import docutils.nodes
import latex2mathml.converter


def inline(self, node: docutils.nodes.math) -> None:
    """Write an equation within a text."""
    self.body.append(latex2mathml.converter.convert(node.astext()))
    raise docutils.nodes.SkipNode


def block(self, node: docutils.nodes.math_block) -> None:
    """Write an equation in lines of its own."""
    converted = latex2mathml.converter.convert(node.astext(), display="block")
    self.body.append(f'<div class="math">{converted}</div>')
    raise docutils.nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
