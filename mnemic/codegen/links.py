"""Links and mirrors as quantities of a plan."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.curves import VARIABLE, Curve
from mnemic.codegen.derivative import derivative
from mnemic.codegen.plan import Call
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.distances import Distances
from mnemic.compiler.distances import u as apart_u
from mnemic.compiler.inverse import invert
from mnemic.compiler.retention import Link

MATRIX = ("v", "k")


def linked(b: Builder, dual: str, link: Link, name: str = "W", *, end: bool = False) -> str:
    """Plan W = link(A); with ``end`` the coefficients are those of a chunk's last row."""
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
        env = values_of(b, link.slope, end)
        slope, steep = (
            _declared(b, expr.subs(sym.w, VARIABLE), tuple(env))
            for expr in (link.slope, derivative(link.slope, sym.w))
        )
        options = (("domain", (low, high)), ("slope", slope), ("steep", steep))
        op = Call("inverse_link", (dual, *env.values()), options)
        return b.plan.add(name, axes, op, "link")
    scale = scale_of(b, link, dual, end)
    if link.normaliser == "ball":
        if link.expr != sym.a:
            dual = b.map(f"{name}_free", expr, {"dual_": dual, **values_of(b, expr, end)}, "link")
        return b.call(name, axes, "ball", dual, *scale, equation="link")
    exponent = b.map("exponent", expr, {"dual_": dual, **values_of(b, expr, end)})
    return b.call(name, axes, "simplex", exponent, *scale, equation="link", over=link.over)


def decayed_in_the_dual(b: Builder, memory: str, decay: Any, link: Link, tag: str = "") -> str:
    """Return (∇R)⁻¹(α ∇R(W)), the memory whose ∇R has decayed, inside the link's constraint."""
    retained = b.rule.retained
    env = {**b.coefficients(decay * retained.mirror), "w": memory}
    dual = b.map(f"B{tag}_seen", decay * retained.mirror, env, "prediction")
    if link.normaliser != "none":
        return linked(b, dual, link, f"W{tag}_seen")
    entry = invert(retained.mirror, retained.link.domain)
    back = Link(entry, slope=retained.mirror, domain=retained.link.domain)
    return linked(b, dual, back, f"W{tag}_seen")


def _of_norm(b: Builder, dual: str, expr: Any, name: str, power: float, *, end: bool) -> str:
    """Plan link(A) = ν^d link(A/ν) of degree d, so that no power of a small entry underflows."""
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
    """Return d, where scaling the dual by c scales its link by c^d; None where no d does.

    >>> dual = sp.Symbol("dual", real=True)
    >>> degree_of(dual / sym.nu**2, dual), degree_of(dual / (1 + sym.nu), dual)
    (-1, None)
    """
    c = sp.Symbol("c", positive=True)
    scaled = expr.subs({entry: c * entry, sym.nu: c * sym.nu}, simultaneous=True)
    degree = sp.simplify(sp.diff(scaled, c) / scaled * c)
    return degree if degree.is_number else None


def mirrored(b: Builder, memory: str, name: str, *, end: bool = False) -> str:
    """Plan ∇R(W), R the local generator."""
    mirror = b.rule.retained.mirror
    return b.map(name, mirror, {"w": memory, **values_of(b, mirror, end)}, "dual")


OVER = {
    "all": ("", ()),
    "rows": ("_of_rows", ("v",)),
    "columns": ("_of_columns", ("k",)),
}
"""What a simplex is of: how its functions' names end, and the axes that ζ has."""


def rooted(
    b: Builder, link: Link, dual: str, factor: str | None, name: str, *, end: bool = False
) -> str:
    """Plan W = factor ∘ link(A − ζ) with ζ such that Σ W = scale, found from the highest entry."""
    assert link.apart is not None
    ending, left = OVER[link.over]
    scale = scale_of(b, link, dual, end)
    factors: tuple[str, ...] = ()
    if factor is not None:
        dual, held = _alive(b, link, dual, factor, scale[0])
        factors = (held,)
    functions, args = _split_link(b, link, end)
    own, axes = dict(functions), b.plan.axes(dual)
    kept = (*axes[:-2], *(a for a in axes[-2:] if a in left))
    top = b.plan.add("top", kept, Call(f"highest{ending}", (dual,)), "link")
    search = tuple((n, own[n]) for n in ("distance", "end", "entry") if n in own)
    given = (dual, *scale, top)
    call = Call(f"simplex_root{ending}", (*given, *factors, *args), search)
    root = b.plan.add("x", kept, call, "link")
    options = tuple(option for option in functions if option[0] != "end")
    call = Call(f"simplex_entries{ending}", (*given, root, *factors, *args), options)
    return b.plan.add(name, axes, call, "link")


FLOOR = sp.Float(1e-30)
"""The least factor, as a share of the scale: what a smaller one would do is below float32."""

FAR = sp.Float(-1e30)
"""The dual of an entry that is to stay zero."""


def _alive(b: Builder, link: Link, dual: str, factor: str, scale: str) -> tuple[str, str]:
    """Return dual and factor, changed where the factor is zero, or too small to tell from it.

    Where f′ has a limit an entry of w′ = 0 costs w f′(∞), as in the limit of small ones: it may
    come back. Else it costs ∞, and stays.
    """
    assert link.apart is not None
    w, a, c = sp.symbols("kept_ dual_ scale_", real=True)
    env = {"kept_": factor, "dual_": dual, "scale_": scale}
    held = sp.Max(w, FLOOR * c)
    if link.apart.pole:
        return dual, b.map("held", held, env, "link")
    stays = b.map("step_held", sp.Piecewise((a, w > 0), (FAR, True)), env, "link")
    return stays, b.map("held", sp.Piecewise((held, w > 0), (0, True)), env, "link")


def _split_link(
    b: Builder, link: Link, end: bool
) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    """Return a link's functions of one entry as options of a call, and their coefficients."""
    apart = link.apart
    assert apart is not None
    closed = () if apart.entry is None else (apart.entry,)
    whole = (apart.distance, apart.flow, link.slope, *closed)
    env: dict[str, str] = {}
    for expr in whole:
        env |= values_of(b, expr, end)
    names = tuple(sorted(env))
    symbols = {s.name: s for expr in whole for s in expr.free_symbols}

    def function(expr: Any, of: Any = sym.w) -> str:
        return _declared(b, expr.subs(of, VARIABLE), names)

    found: dict[str, Any] = {"distance": function(apart.distance), "flow": function(apart.flow)}
    if apart.entry is None:
        found["entry"] = _searched(b, apart, names)
    else:
        found["entry"] = function(apart.entry, apart_u)
    if apart.end != sp.oo:
        found["end"] = float(apart.end)
    if names:
        found["partials"] = _together(b, link.slope, [symbols[n] for n in names])
    return tuple(sorted(found.items())), tuple(env[n] for n in names)


def _searched(b: Builder, apart: Distances, names: tuple[str, ...]) -> str:
    """Return a lambda's source for the inverse of a distance that has none in closed form."""
    own = ", ".join([VARIABLE.name, *names])
    parts = {"distance": apart.distance, "flow": apart.flow}
    shown = {n: print_torch(x.subs(sym.w, VARIABLE), {}) for n, x in parts.items()}
    options = ", ".join(f"{n}=lambda {own}: {text}" for n, text in shown.items())
    if apart.end != sp.oo:
        options += f", end={float(apart.end)}"
    source = f"lambda {own}: ops.falling_entry({own}, {options})"
    b.plan.signals[source] = Curve(None, names)
    return source


def _together(b: Builder, slope: Any, symbols: list[Any]) -> str:
    """Return a lambda's source for the derivatives of a slope by its coefficients."""
    names = tuple(s.name for s in symbols)
    parts = tuple(derivative(slope.subs(sym.w, VARIABLE), s) for s in symbols)
    shown = "".join(f"{print_torch(part, {})}, " for part in parts)
    source = f"lambda {', '.join([VARIABLE.name, *names])}: ({shown})"
    b.plan.signals[source] = Curve(parts, names)
    return source


def _declared(b: Builder, expr: Any, names: tuple[str, ...]) -> str:
    """Declare a function of one entry and of coefficients; return it as a lambda's source."""
    source = f"lambda {', '.join([VARIABLE.name, *names])}: {print_torch(expr, {})}"
    b.plan.signals[source] = Curve(expr, names)
    return source


def values_of(b: Builder, expr: Any, end: bool) -> dict[str, str]:
    """Return the coefficients of an expression; with ``end`` those of a chunk's last row."""
    found = b.coefficients(expr)
    if not end:
        return found
    return {
        name: b.call(f"{quantity}_end", (), "last", quantity) for name, quantity in found.items()
    }


def scale_of(b: Builder, link: Link, like: str, end: bool = False) -> tuple[str, ...]:
    """Return the scale or radius as a quantity; ``like`` gives a constant its dtype."""
    expr = b.rule.problem.value(str(link.scale), link.scale)
    if not expr.free_symbols:
        return (b.call("scale", (), "constant", like, value=float(expr)),)
    return (b.map("scale", expr, values_of(b, expr, end)),)
