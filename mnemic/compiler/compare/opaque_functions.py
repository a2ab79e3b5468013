"""Functions that a canonical form keeps whole: error signals and links, in one spelling."""

from collections.abc import Callable
from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import Coordinates
from mnemic.compiler.compare.entry_form import HOLDERS
from mnemic.compiler.retention import Link

OWN, VALUE, SQUARE, KAPPA = HOLDERS[0], HOLDERS[1], HOLDERS[2], HOLDERS[3]
GROUP = HOLDERS[1:5]
PAST = HOLDERS[5:9]


@cache
def one_spelling(expr: Any) -> Any:
    """Simplify, fold cases to the top, and write their conditions in one way."""
    return hiding_kinks(_one_spelling, expr)


def hiding_kinks(change: Callable[[Any], Any], expr: Any) -> Any:
    """Apply ``change`` with |x| and sign(x) as symbols: SymPy would write sign(x) as x/|x|."""
    kinks = sorted(expr.atoms(sp.sign, sp.Abs), key=str)
    hidden = {z: sp.Symbol(f"kink{i}", real=True) for i, z in enumerate(kinks)}
    changed = change(expr.subs(hidden, simultaneous=True))
    return changed.xreplace({symbol: z for z, symbol in hidden.items()})


def _one_spelling(expr: Any) -> Any:
    expr = sp.piecewise_fold(sp.simplify(expr))
    if not isinstance(expr, sp.Piecewise):
        return sp.factor_terms(sp.simplify(expr)) if expr.has(sp.Piecewise) else _polished(expr)
    if len(expr.args) == 2 and isinstance(expr.args[0][1], sp.core.relational.Relational):
        return _two_cases(*expr.args)
    return expr


def _two_cases(first: Any, second: Any) -> Any:
    """Return two cases by the sign of one expression, written with its first term positive."""
    condition = first[1]
    if not isinstance(condition, sp.Lt | sp.Le | sp.Gt | sp.Ge):
        return sp.Piecewise(first, second)
    below, above = _polished(first[0]), _polished(second[0])
    edge = sp.simplify(condition.lhs - condition.rhs)
    if isinstance(condition, sp.Gt | sp.Ge):
        below, above = above, below
    if str(-edge) < str(edge):
        edge, below, above = -edge, above, below
    return sp.Piecewise((below, sp.Lt(edge, 0, evaluate=False)), (above, True), evaluate=False)


def _polished(expr: Any) -> Any:
    if expr.is_rational_function():
        return sp.cancel(expr)
    return sp.simplify(expr)


@cache
def error_function(signal: Any) -> tuple[Any, Any]:
    """Return the signal as a constant times a function of the place holders."""
    moved = hiding_kinks(sp.simplify, sp.expand(signal.subs(sym.y, sym.e + sym.v)))
    body = moved if not moved.has(sym.v) else signal
    factor, rest = sp.factor_terms(one_spelling(body)).as_independent(
        sym.y, sym.v, sym.n, sym.e, sym.kappa, as_Add=False
    )
    if isinstance(one_spelling(body), sp.Piecewise):
        factor, rest = sp.Integer(1), one_spelling(body)
    table = {
        sym.e: OWN - VALUE, sym.y: OWN, sym.v: VALUE, sym.n: sp.sqrt(SQUARE), sym.kappa: KAPPA,
    }  # fmt: skip
    return factor, rest.subs(table, simultaneous=True)


def link_function(link: Link, at: Coordinates) -> Any:
    """Return an entry of W as a function of its own dual entry and of the entries coupled to it."""
    scale = at.resolved(link.scale)
    if link.expr is None:
        inverse = sp.Function("inverse", real=True)
        return inverse(OWN, at.resolved(link.slope).subs(sym.w, HOLDERS[8]))
    body = at.resolved(link.expr)
    match link.normaliser:
        case "softmax":
            every = [sp.exp(body.subs(sym.a, g)) for g in GROUP]
            return scale * sp.exp(body.subs(sym.a, OWN)) / sum(every, sp.Integer(0))
        case "root":
            return one_spelling(body).subs({sym.a: OWN, sym.zeta: _root(scale)})
        case "norm":
            power = link.power
            size = sum((sp.Abs(g) ** power for g in GROUP), sp.Integer(0)) ** (1 / power)
            return body.subs({sym.a: OWN, sym.nu: size})
        case "ball":
            every = [body.subs(sym.a, g) for g in GROUP]
            size = sp.sqrt(sum((entry**2 for entry in every), sp.Integer(0)))
            return body.subs(sym.a, OWN) * sp.Min(1, scale / size)
    return one_spelling(body).subs({sym.a: OWN, sym.zeta: 0})


def _root(scale: Any) -> Any:
    """Return an expression that stands in for ζ, which is settled by the link and the scale."""
    seen = enumerate((*GROUP, *PAST))
    return scale * sum((sp.sin((i + 1) * g) for i, g in seen), sp.Integer(0)) / 7


@cache
def layer_norm(index: int) -> Any:
    """Return LN(z)_i of two channels, ε = 1e-5; z stands in the first two of the group."""
    z = GROUP[:2]
    mean = (z[0] + z[1]) / 2
    spread = ((z[0] - mean) ** 2 + (z[1] - mean) ** 2) / 2
    return sp.simplify((z[index] - mean) / sp.sqrt(spread + sp.Rational(1, 100000)))


@cache
def norm_slope(of: int, along: int) -> Any:
    """Return ∂LN(z)_of/∂z_along."""
    return sp.simplify(sp.diff(layer_norm(of), GROUP[along]))
