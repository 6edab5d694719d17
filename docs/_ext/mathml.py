"""Formulas as MathML, which browsers show by themselves: the site loads no script for them and needs no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def visit(translator: Any, node: nodes.math | nodes.math_block) -> None:
    """One formula, with its TeX as the text for whoever cannot see it."""
    block = isinstance(node, nodes.math_block)
    made = convert(node.astext(), display="block" if block else "inline")
    translator.body.append(f'<div class="math">{made}</div>' if block else made)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(visit, None), block_renderers=(visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
