"""The derivation for people: plain text, and the way to LaTeX, Markdown and JSON."""

from typing import Any

import sympy as sp

from mnemic.compiler.explain import letters, network_lines, printing
from mnemic.compiler.explain.equations import Equation, equations
from mnemic.compiler.explain.explanation import Explanation, explain
from mnemic.compiler.explain.render_latex import latex_of, to_latex
from mnemic.compiler.explain.render_markdown import to_markdown
from mnemic.compiler.rule import Derived, Rule

__all__ = ["Equation", "equations", "latex_of", "to_json", "to_latex", "to_markdown", "to_text"]


def to_text(rule: Rule, kernels: tuple[str, ...] = ()) -> str:
    """Return the derivation as plain Unicode lines, for the terminal; ``kernels`` tells the fused
    ones."""
    e, timed = explain(rule), printing.steps_of(rule)
    head = e.name + (f": {e.title}" if e.title else "")
    blocks = [
        [head, "=" * len(head)],
        _block("Problem", [e.problem]),
        _block("Derivation", [_step(s, timed) for s in e.steps]),
        _block("Rule", _numbered(e.equations, of=e.layer)),
        _block("Remarks", list(e.remarks)),
        _block("Layer", [*_numbered(e.layer, of=e.layer), *e.layer_words]),
        _block("Class", [*_kind(e), *(f"fused kernel: {text}" for text in kernels)]),
        _block("Approximations", list(e.approximations)),
        _block("Coefficients", _arguments(e, timed)),
        _block("Cost of one head", _costs(e)),
        _block("Stability", [e.stability.sentence]),
        _block("Warnings", list(e.warnings)),
    ]
    return "\n\n".join("\n".join(line.rstrip() for line in b) for b in blocks if b) + "\n"


def _numbered(found: tuple[Equation, ...], of: tuple[Equation, ...]) -> list[str]:
    """Return equations in columns, as wide as the last number of all asks."""
    width = len(f"({of[-1].number})")
    return [f"{f'({q.number})':<{width}} {q.name:<11} {q.text}" for q in found]


def _block(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)] if lines else []


def _step(step: Derived, timed: dict[str, bool]) -> str:
    return f"{step.title}: {equation_text(step.equation, timed)}  [{step.reason}]"


def equation_text(equation: Any, timed: dict[str, bool]) -> str:
    """Return a step's equation as text; both sides of an equality as they stand."""
    if isinstance(equation, sp.Eq):
        names = {"ell": "ℓ", "e": "e", "dual": "∇R(W)", "phi": "φ(x)"}
        left = names.get(str(equation.lhs)) or printing.text(equation.lhs, timed)
        return f"{left} = {printing.text(equation.rhs, timed)}"
    if isinstance(equation, sp.Basic):
        return printing.text(equation, timed)
    if equation is None or isinstance(equation, str):
        return equation or "none in closed form"
    return network_lines.line(equation)


def _kind(e: Explanation) -> list[str]:
    found = [f"{e.kind}: {e.reason}"]
    found.append("forms: " + (", ".join(e.forms) if e.forms else "none yet"))
    return found + ([f"not compiled: {e.missing}"] if e.missing else [])


def _arguments(e: Explanation, timed: dict[str, bool]) -> list[str]:
    lines = []
    for a in e.arguments:
        name = letters.letter(a.name)
        if a.argument is None:
            lines.append(f"{name} = {printing.text(a.value, timed)}")
        else:
            log = " (its logarithm)" if a.argument.startswith("log_") else ""
            lines.append(f"{name} in {a.span}: argument {a.argument}{log} {a.shape}")
    return lines


def _costs(e: Explanation) -> list[str]:
    words = {
        "state": "state, numbers", "train_flops": "training, FLOPs a token",
        "train_bytes": "training, bytes a token", "decode_flops": "decoding, FLOPs a token",
        "decode_bytes": "decoding, bytes a token",
    }  # fmt: skip
    lines = [f"{words[name]:<26}{printing.text(expr)}" for name, expr in e.cost.rows()]
    fixed = [f"D = {printing.text(e.cost.features)}"]
    fixed += [f"{n} = {printing.text(x)}" for n, x in e.cost.fixed if n not in "cn" or x != 1]
    return [*lines, ", ".join(fixed), *e.cost.notes]


def to_json(rule: Rule) -> dict[str, Any]:
    """Return the derivation as plain data; expressions as text and, for people, as LaTeX."""
    e, timed = explain(rule), printing.steps_of(rule)
    return {
        "name": e.name,
        "title": e.title,
        "problem": e.problem,
        "steps": [
            {"title": s.title, "equation": equation_text(s.equation, timed), "reason": s.reason}
            for s in e.steps
        ],
        "equations": [
            {"number": q.number, "name": q.name, "text": q.text, "latex": q.latex}
            for q in e.equations
        ],
        "remarks": list(e.remarks),
        "layer": [
            {"number": q.number, "name": q.name, "text": q.text, "latex": q.latex} for q in e.layer
        ],
        "class": {"kind": e.kind, "reason": e.reason, "forms": list(e.forms)},
        "missing": e.missing,
        "approximations": list(e.approximations),
        "coefficients": [
            {
                "name": a.name,
                "argument": a.argument,
                "shape": a.shape,
                "range": a.span,
                "value": None if a.value is None else str(a.value),
            }
            for a in e.arguments
        ],
        "cost": {
            **{name: str(expr) for name, expr in e.cost.rows()},
            "D": str(e.cost.features),
            **{name: str(value) for name, value in e.cost.fixed},
            "notes": list(e.cost.notes),
        },
        "stability": {
            "kind": e.stability.kind,
            "bound": None if e.stability.bound is None else str(e.stability.bound),
            "sentence": e.stability.sentence,
            "inside": e.stability.inside,
        },
        "warnings": list(e.warnings),
    }
