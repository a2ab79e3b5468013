"""The derivation as Markdown, formulas between dollars."""

import sympy as sp

from mnemic.compiler.explain import letters, printing
from mnemic.compiler.explain.equations import Equation
from mnemic.compiler.explain.explanation import Explanation, explain
from mnemic.compiler.explain.render_latex import formula
from mnemic.compiler.rule import Rule


def to_markdown(rule: Rule) -> str:
    """Return the derivation as Markdown."""
    e, timed = explain(rule), printing.steps_of(rule)
    steps = [f"{i}. {s.title}: {formula(s.equation, timed)} ({s.reason})"
             for i, s in enumerate(e.steps, 1)]  # fmt: skip
    blocks = [
        f"# {e.title or e.name}",
        f"`{e.name}`: {e.problem}.",
        "## Derivation",
        "\n".join(steps),
        "## Rule",
        _formulas(e.equations),
        *e.remarks,
        "## Layer",
        _formulas(e.layer),
        " ".join(e.layer_words),
        f"**Class {e.kind}**: {e.reason}. {_forms(e)}",
        _listed("Approximations", e.approximations),
        "## Coefficients" if e.arguments else "",
        _coefficients(e),
        "## Cost of one head",
        _costs(e),
        "## Stability",
        e.stability.sentence,
        _listed("Warnings", e.warnings),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _formulas(found: tuple[Equation, ...]) -> str:
    return "\n\n".join(rf"$$ {q.latex} \tag{{{q.number}}} $$" for q in found)


def _forms(e: Explanation) -> str:
    known = "Forms: " + (", ".join(f"`{f}`" for f in e.forms) if e.forms else "none yet") + "."
    return known + (f" Not compiled: {e.missing}." if e.missing else "")


def _listed(title: str, lines: tuple[str, ...]) -> str:
    return f"**{title}**\n\n" + "\n".join(f"- {line}" for line in lines) if lines else ""


def _coefficients(e: Explanation) -> str:
    if not e.arguments:
        return ""
    rows = ["| coefficient | argument | shape | range |", "| --- | --- | --- | --- |"]
    for a in e.arguments:
        name = f"${letters.tex(a.name)}$"
        if a.argument is None:
            rows.append(f"| {name} | fixed | | ${printing.latex(a.value)}$ |")
        else:
            rows.append(f"| {name} | `{a.argument}` | `{a.shape}` | {a.span} |")
    return "\n".join(rows)


def _costs(e: Explanation) -> str:
    rows = ["| | |", "| --- | --- |"]
    rows += [f"| {name.replace('_', ' ')} | ${sp.latex(x)}$ |" for name, x in e.cost.rows()]
    fixed = f"D = {printing.text(e.cost.features)}"
    return "\n".join([*rows, "", "; ".join([fixed, *e.cost.notes]) + "."])
