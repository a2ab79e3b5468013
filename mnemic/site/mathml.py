"""Sphinx's formulas as MathML, which browsers set without a script or a font from the network."""

import html
from functools import cache
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

UNKNOWN = {r"\arg": r"\operatorname{arg}"}
"""What latex2mathml does not read, and what says the same."""


@cache
def mathml(latex: str, *, block: bool = False) -> str:
    """Return LaTeX as a MathML element; what has a command that is not known, as code."""
    text = latex
    for unknown, known in UNKNOWN.items():
        text = text.replace(unknown, known)
    found = str(convert(text, display="block" if block else "inline"))
    if "\\" not in found:
        return found
    logging.getLogger(__name__).warning("no MathML for %s", latex)
    return f"<code>{html.escape(latex)}</code>"


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
