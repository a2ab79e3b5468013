"""What the page of a spec says of its derivation, as plain data that a cache can keep."""

import ast
from typing import Any, Final

import sympy as sp

from mnemic import pipeline
from mnemic.compiler.explain import letters, printing
from mnemic.compiler.explain.explanation import Argument, explain
from mnemic.compiler.explain.in_words import words_of
from mnemic.compiler.explain.render_latex import formula
from mnemic.compiler.rule import Derived, Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import MnemicError

COSTS: Final = {
    "state": "state, numbers", "train_flops": "training, FLOPs a token",
    "train_bytes": "training, bytes a token", "decode_flops": "decoding, FLOPs a token",
    "decode_bytes": "decoding, bytes a token",
}  # fmt: skip


def describe(spec: Spec) -> dict[str, Any]:
    """Derive and compile a spec; return its derivation and its recurrent code.

    A formula is ``{"latex": ...}``, or ``{"text": ...}`` where it has none.
    """
    rule = pipeline.derive(spec)
    e, timed, words = explain(rule), printing.steps_of(rule), words_of(rule)
    return {
        "problem": e.problem,
        "steps": [_step(step, timed) for step in e.steps],
        "equations": [
            {"number": q.number, "name": q.name, "latex": q.latex, "words": words.get(q.name)}
            for q in e.equations
        ],
        "remarks": list(e.remarks),
        "layer": [{"number": q.number, "name": q.name, "latex": q.latex} for q in e.layer],
        "layer_words": list(e.layer_words),
        "class": e.kind,
        "reason": e.reason,
        "forms": list(e.forms),
        "approximations": list(e.approximations),
        "coefficients": [_argument(a) for a in e.arguments],
        "costs": [
            {"key": name, "name": COSTS[name], "latex": sp.latex(x)} for name, x in e.cost.rows()
        ],
        "sizes": [f"D = {printing.text(e.cost.features)}", *e.cost.notes],
        "stability": e.stability.sentence,
        "warnings": list(e.warnings),
        **_code(rule),
    }


def _step(step: Derived, timed: dict[str, bool]) -> dict[str, Any]:
    text = formula(step.equation, timed)
    plain = step.equation is None or isinstance(step.equation, str)
    shown = {"text": step.equation or "none in closed form"} if plain else {"latex": text[1:-1]}
    return {"title": step.title, "reason": step.reason, **shown}


def _argument(a: Argument) -> dict[str, Any]:
    fixed = None if a.argument is not None else printing.latex(a.value)
    return {"latex": letters.tex(a.name), "argument": a.argument, "shape": a.shape,
            "range": a.span, "fixed": fixed}  # fmt: skip


def _code(rule: Rule) -> dict[str, Any]:
    """Return the functions of the recurrent form; or why there is no code."""
    spec = rule.problem.spec
    try:
        source = pipeline.compile(spec).source
    except MnemicError as refused:
        return {"code": None, "refused": str(refused)}
    found = [node for node in ast.parse(source).body
             if isinstance(node, ast.FunctionDef) and node.name == "recurrent"]  # fmt: skip
    parts = (ast.get_source_segment(source, node) for node in found)
    return {"code": "\n\n\n".join(part for part in parts if part), "refused": None}
