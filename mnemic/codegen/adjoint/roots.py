"""The rule of roots that normalise a memory: the implicit equation's own derivatives."""

from collections.abc import Callable
from typing import Any

import sympy as sp

from mnemic.codegen.adjoint.at import At
from mnemic.codegen.adjoint.derivative import derivative
from mnemic.codegen.links import VARIABLE
from mnemic.codegen.plan import Read

FACTOR = sp.Symbol("factor_", real=True)


def simplex_root(at: At) -> None:
    """Σ f g(a − ζ) = c: with S = Σ f g′ and x = dζ/S, da = x f g′, df = x g, dc = −x, and what a
    coefficient κ of g takes is Σ x f ∂g/∂κ."""
    curve = at.plan.signals[at.option("entry")]
    dual, scale, *rest = at.arguments
    coefficients = rest[len(rest) - len(curve.parameters) :]
    names = dict(zip(curve.parameters, coefficients, strict=True))
    factor = rest[0] if len(rest) > len(names) else None
    kept, axes = at.quantity.axes, at.axes(dual)
    seen = {"dual_": dual, "zeta_": at.out, "factor_": factor, **names}
    reads = tuple(Read(s, name, at.axes(name)) for s, name in seen.items() if name is not None)
    weight = sp.Integer(1) if factor is None else FACTOR
    shift = {VARIABLE: sp.Symbol("dual_", real=True) - sp.Symbol("zeta_", real=True)}

    def part(name: str, expr: Any, *more: Read) -> str:
        return at.expression(name, axes, expr.xreplace(shift), (*reads, *more))

    steep = part(f"{at.out}_slopes", weight * derivative(curve.expr, VARIABLE))
    whole = at.summed(f"{at.out}_slope", steep, axes, kept)
    taken = "Piecewise((d/w, Ne(w, 0)), (0, True))"
    share = at.map(f"{at.d}_share", kept, taken, d=(at.d, kept), w=(whole, kept))
    at.give_map(dual, "x*s", x=(share, kept), s=steep)
    own = Read("share_", share, kept)
    x = sp.Symbol("share_", real=True)
    if factor is not None and at.wants(factor):
        at.give(factor, part(at.name(factor), x * curve.expr, own))
    if at.wants(scale):
        lost = at.map(f"{share}_of_scale", kept, "-x", x=(share, kept))
        at.give(scale, at.summed(at.name(scale), lost, kept, at.axes(scale)))
    symbols = {s.name: s for s in curve.expr.free_symbols}
    for name, quantity in names.items():
        if at.wants(quantity):
            parts = part(f"{at.name(quantity)}_parts",
                         x * weight * derivative(curve.expr, symbols[name]), own)  # fmt: skip
            at.give(quantity, at.summed(at.name(quantity), parts, axes, at.axes(quantity)))


RULES: dict[str, Callable[[At], None]] = dict.fromkeys(
    ("simplex_root", "simplex_root_of_rows", "simplex_root_of_columns"), simplex_root
)
