"""Links that are roots: the implicit equation's own derivatives."""

import sympy as sp

from mnemic.codegen.curves import VARIABLE
from mnemic.codegen.ops.at import At, Axes
from mnemic.codegen.ops.operation import EVERYWHERE, Operation, Tile
from mnemic.codegen.ops.pulled import whole
from mnemic.codegen.plan import Read

FLOOR, FLAT = sp.Float(1e-30), sp.Float(1e-20)
"""The least share of its factor and the least slope of an entry, as in ``ops.simplex_entries``."""

CENTRED = 3
"""Means that are taken out of a gradient: each leaves a rounding of what is left."""

INSIDE = ("inside:v", "inside:k")
ROOT = Tile(EVERYWHERE, extras=INSIDE, in_module=True)


def nothing(at: At) -> None:
    """Give no gradient: the rule of the entries that are made of a root has all of it."""


def simplex_entries(at: At) -> None:
    """Differentiate W = f x, slope(x) = a − ζ, Σ W = c: with P = W/(x s′(x)), d̄ = Σ P d / Σ P and
    e = d − d̄, da = P e, df = x e, dc = d̄, and what a coefficient κ of s takes is −Σ ∂s/∂κ P e."""
    dual, scale, top, root, *rest = at.arguments
    partials = at.option("partials")
    curve = at.plan.signals[partials] if partials else None
    names = curve.parameters if curve else ()
    coefficients = rest[len(rest) - len(names) :]
    factor = rest[0] if len(rest) > len(names) else None
    kept, axes = at.axes(top), at.quantity.axes
    x = _entry(at, root, factor)
    reads = tuple(Read(n, q, at.axes(q)) for n, q in zip(names, coefficients, strict=True))
    flow = at.plan.signals[at.option("flow")].expr.subs(VARIABLE, sp.Symbol("x_", real=True))
    steep = at.expression(f"{at.out}_flow", axes, flow, (Read("x_", x, axes), *reads))
    moved = at.map(f"{at.out}_moved", axes,
                   f"Piecewise((w/Max(f, {float(FLAT)}), w > 0), (0, True))",
                   w=at.out, f=steep)  # fmt: skip
    mean, left = _centred(at, moved, axes, kept)
    at.give_map(dual, "p*e", p=moved, e=left)
    if factor is not None:
        at.give_map(factor, "x*e", x=x, e=left)
    if at.wants(scale):
        at.give(scale, at.summed(at.name(scale), mean, kept, at.axes(scale)))
    for number, quantity in enumerate(coefficients):
        if at.wants(quantity):
            assert curve is not None
            part = -curve.expr[number].subs(VARIABLE, sp.Symbol("x_", real=True))
            whole = part * sp.Symbol("p_", real=True) * sp.Symbol("e_", real=True)
            own = (Read("x_", x, axes), Read("p_", moved, axes), Read("e_", left, axes), *reads)
            parts = at.expression(f"{at.name(quantity)}_parts", axes, whole, own)
            at.give(quantity, at.summed(at.name(quantity), parts, axes, at.axes(quantity)))


def _entry(at: At, root: str, factor: str | None) -> str:
    """Add x = W/f of every entry, where f is zero the root, and return its name."""
    axes = at.quantity.axes
    if factor is None:
        return at.map(f"{at.out}_x", axes, f"Max(w, {float(FLOOR)})", w=at.out)
    text = f"Max(Piecewise((w/f, f > 0), (r, True)), {float(FLOOR)})"
    return at.map(f"{at.out}_x", axes, text, w=at.out, f=factor, r=root)


def _centred(at: At, moved: str, axes: Axes, kept: Axes) -> tuple[str, str]:
    """Return d̄ and d − d̄, the mean taken out again and again: one weight may be nearly all."""
    whole = at.summed(f"{moved}_sum", moved, axes, kept)
    left, mean = at.d, ""
    for number in range(CENTRED):
        name = f"{at.d}_mean{number}"
        parts = at.map(f"{name}_parts", axes, "p*d", p=moved, d=left)
        total = at.summed(f"{name}_sum", parts, axes, kept)
        part = at.map(name, kept, f"t/Max(w, {float(FLOOR)})", t=(total, kept), w=(whole, kept))
        left = at.map(f"{at.d}_left{number}", axes, "d - m", d=left, m=(part, kept))
        mean = (
            at.map(f"{name}_all", kept, "a + b", a=(mean, kept), b=(part, kept)) if mean else part
        )
    return mean, left


def _over(ending: str, given: str, over: str) -> tuple[Operation, ...]:
    """Return the operations of a simplex by the end of their names: ``given`` are the axes of its
    sums' numbers, ``over`` those that are summed over."""
    tops = Tile(EVERYWHERE, extras=INSIDE)
    return (
        Operation(f"highest{ending}", f"~vk -> {given}", tops=over, adjoint=nothing, tile=tops),
        Operation(
            f"simplex_root{ending}",
            f"~vk, ~, ~*... -> {given}",
            searches=over,
            adjoint=nothing,
            tile=ROOT,
            sample=None,
        ),
        Operation(
            f"simplex_entries{ending}",
            "vk, , ~*, ~*, *... -> vk",
            adjoint=simplex_entries,
            tile=ROOT,
            sample=None,
        ),
    )


# fmt: off
OPERATIONS = (
    *_over("", "", "vk"),
    *_over("_of_rows", "v", "k"),
    *_over("_of_columns", "k", "v"),
    Operation(
        "inverse_link", "vk, *... -> vk", adjoint=whole,
        tile=Tile(EVERYWHERE, extras=("width:v", "width:k"), in_module=True), sample=None,
    ),
)
# fmt: on
