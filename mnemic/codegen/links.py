"""Links and mirrors as quantities of a plan."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.plan import Call
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.retention import Link

MATRIX = ("v", "k")
VARIABLE = sp.Symbol("entry_", real=True)


@dataclass(frozen=True)
class Curve:
    """What stands behind a function that is an option of a call: f of ``VARIABLE``, then these."""

    expr: Any
    parameters: tuple[str, ...]


def linked(b: Builder, dual: str, link: Link, name: str = "W", *, end: bool = False) -> str:
    """W = link(A); with ``end`` the coefficients are those of a chunk's last row."""
    axes = b.plan.axes(dual)
    entry = sp.Symbol("dual_", real=True)
    expr = None if link.expr is None else link.expr.subs(sym.a, entry)
    if link.normaliser == "none" and expr is not None:
        return b.map(name, expr, {"dual_": dual, **values_of(b, expr, end)}, "link")
    if link.normaliser == "norm":
        return _of_norm(b, dual, expr, name, float(link.power), end=end)
    if link.normaliser == "root":
        return rooted(b, link, dual, None, name, end=end)
    if link.normaliser == "none":
        low, high = (float(end) for end in link.domain)
        slope, args = _function(b, link.slope.subs(sym.w, VARIABLE), end)
        op = Call("inverse_link", (dual, *args), (("domain", (low, high)), ("slope", slope)))
        return b.plan.add(name, axes, op, "link")
    scale = scale_of(b, link, dual, end)
    if link.normaliser == "ball":
        return b.call(name, axes, "ball", dual, *scale, equation="link")
    exponent = b.map("exponent", expr, {"dual_": dual, **values_of(b, expr, end)})
    return b.call(name, axes, "simplex", exponent, *scale, equation="link", over=link.over)


def _of_norm(b: Builder, dual: str, expr: Any, name: str, power: float, *, end: bool) -> str:
    """link(A) = ν^d link(A/ν) of degree d, so that no power of a small entry underflows."""
    axes = b.plan.axes(dual)
    nu = b.call("nu", axes[:-2], "entry_norm", dual, power=power)
    entry, unit, size = sp.symbols("dual_ unit_ nu_", real=True)
    env: dict[str, Any] = {"dual_": dual, "nu_": (nu, axes[:-2])}
    degree = degree_of(expr, entry)
    if degree is None:
        expr = expr.subs(sym.nu, size)
        return b.map(name, expr, {**env, **values_of(b, expr, end)}, "link")
    ratio = b.map(f"{dual}_unit", entry / size, env)
    expr = size**degree * expr.subs({sym.nu: 1, entry: unit})
    return b.map(name, expr, {**env, "unit_": ratio, **values_of(b, expr, end)}, "link")


def degree_of(expr: Any, entry: Any) -> Any | None:
    """d, where scaling the dual by c scales its link by c^d; None where no d does.

    >>> dual = sp.Symbol("dual", real=True)
    >>> degree_of(dual / sym.nu**2, dual), degree_of(dual / (1 + sym.nu), dual)
    (-1, None)
    """
    c = sp.Symbol("c", positive=True)
    scaled = expr.subs({entry: c * entry, sym.nu: c * sym.nu}, simultaneous=True)
    degree = sp.simplify(sp.diff(scaled, c) / scaled * c)
    return degree if degree.is_number else None


def rooted(
    b: Builder, link: Link, dual: str, factor: str | None, name: str, *, end: bool = False
) -> str:
    """W = factor ∘ link(A − ζ) with ζ the root of Σ W = scale."""
    assert link.expr is not None
    curve = link.expr.subs(sym.zeta, 0).subs(sym.a, VARIABLE)
    entry, args = _function(b, curve, end)
    scale = scale_of(b, link, dual, end)
    factors = () if factor is None else (factor,)
    *lead, rows, columns = b.plan.axes(dual)
    function, left = {
        "all": ("simplex_root", ()),
        "rows": ("simplex_root_of_rows", (rows,)),
        "columns": ("simplex_root_of_columns", (columns,)),
    }[link.over]
    op = Call(function, (dual, *scale, *factors, *args), (("entry", entry),))
    zeta = b.plan.add("zeta", (*lead, *left), op, "link")
    place = sp.Symbol("dual_", real=True) - sp.Symbol("zeta_", real=True)
    expr = curve.xreplace({VARIABLE: place})
    env: dict[str, Any] = {"dual_": dual, "zeta_": zeta, **values_of(b, curve, end)}
    if factor is not None:
        expr, env = sp.Symbol("factor_", real=True) * expr, {**env, "factor_": factor}
    return b.map(name, expr, env, "link")


def values_of(b: Builder, expr: Any, end: bool) -> dict[str, str]:
    """The coefficients of an expression; with ``end`` those of a chunk's last row."""
    found = b.coefficients(expr)
    if not end:
        return found
    return {
        name: b.call(f"{quantity}_end", (), "last", quantity) for name, quantity in found.items()
    }


def scale_of(b: Builder, link: Link, like: str, end: bool = False) -> tuple[str, ...]:
    """The scale or radius as a quantity; ``like`` gives a constant its dtype."""
    expr = b.rule.problem.value(str(link.scale), link.scale)
    if not expr.free_symbols:
        return (b.call("scale", (), "constant", like, value=float(expr)),)
    return (b.map("scale", expr, values_of(b, expr, end)),)


def _function(b: Builder, expr: Any, end: bool) -> tuple[str, tuple[str, ...]]:
    """A one-argument function of coefficients as a lambda's source, and the coefficients."""
    env = values_of(b, expr, end)
    names = list(env)
    matrix = {n: n for n in names}
    body = print_torch(expr, matrix)
    source = f"lambda {', '.join([VARIABLE.name, *names])}: {body}"
    b.plan.signals[source] = Curve(expr, tuple(names))
    return source, tuple(env[n] for n in names)
