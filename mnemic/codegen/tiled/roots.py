"""Links that are roots, on tiles: the spec's own function printed into a bracketed Newton search.

W = factor ∘ g(A − ζ) with Σ W = scale, or slope(W) = A entry by entry. The gradients are those of
the implicit equation, with no iteration of their own.
"""

from dataclasses import dataclass

from mnemic.codegen.adjoint.derivative import derivative
from mnemic.codegen.links import VARIABLE, Curve
from mnemic.codegen.plan import Call, Plan
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.printer import UnknownFunction, print_tile

CURVE = '''@triton.jit
def curve(entry_{parameters}):
    """{doc}"""
    return {value}


@triton.jit
def curve_slope(entry_{parameters}):
    """Its derivative."""
    return {slope}
'''

PARTIAL = '''@triton.jit
def curve_of_{name}(entry_{parameters}):
    """Its derivative by {name}."""
    return {value}
'''

SUMS = {
    "all": "tl.{f}(tl.{f}({x}, 1, keep_dims=True), 0, keep_dims=True)",
    "rows": "tl.{f}({x}, 0, keep_dims=True)",
    "columns": "tl.{f}({x}, 1, keep_dims=True)",
}
"""Over the whole memory [V, K], its rows or its columns; it is held as [K, V]."""

SIMPLEX = '''@triton.jit
def _excess(zeta, dual, scale, factor, there{parameters}):
    """Σ factor ∘ g(A − ζ) − scale, large where it is infinite or no number."""
    found = tl.where(there, factor * curve(dual - zeta{parameters}), 0.0)
    found = {sum_found} - scale
    return tl.where(found - found == 0.0, found, 1e30)


@triton.jit
def _zeta(dual, scale, factor, there{parameters}):
    """The root ζ: bracketed, then Newton's steps, with a bisection for every third."""
    lines = {max_there} > 0
    high = tl.where(lines, {max_dual}, 0.0)
    low = tl.where(lines, {min_dual}, 0.0)
    width = tl.maximum(high - low, 1.0)
    count = 0
    above = lines & (_excess(high, dual, scale, factor, there{parameters}) > 0)
    while (count < 80) & tiles.any_of(above):
        high = tl.where(above, high + width, high)
        width = 2.0 * width
        above = lines & (_excess(high, dual, scale, factor, there{parameters}) > 0)
        count += 1
    width = tl.maximum(high - low, 1.0)
    count = 0
    above = lines & (_excess(low, dual, scale, factor, there{parameters}) <= 0)
    while (count < 80) & tiles.any_of(above):
        low = tl.where(above, low - width, low)
        width = 2.0 * width
        above = lines & (_excess(low, dual, scale, factor, there{parameters}) <= 0)
        count += 1
    zeta = 0.5 * (low + high)
    moved = high - low
    count = 0
    while (count < 200) & tiles.any_of(tl.abs(moved) > tiles.rounding(dual) * tl.abs(zeta)):
        left = _excess(zeta, dual, scale, factor, there{parameters})
        low = tl.where(left > 0, zeta, low)
        high = tl.where(left > 0, high, zeta)
        slopes = tl.where(there, factor * curve_slope(dual - zeta{parameters}), 0.0)
        step = zeta + left / {sum_slopes}
        inside = (step > low) & (step < high) & (count % 3 != 2)
        following = tl.where(inside, step, 0.5 * (low + high))
        following = tl.where(lines & (left != 0.0), following, zeta)
        moved = following - zeta
        zeta = following
        count += 1
    return zeta


@triton.jit
def on_simplex(dual, scale, {factor}{coefficients}rows, columns):
    """W = factor ∘ g(A − ζ) with Σ W = scale."""
    there = tiles.there(dual, rows, columns)
{ones}    zeta = _zeta(dual, scale, factor, there{parameters})
    return tl.where(there, factor * curve(dual - zeta{parameters}), 0.0)
'''

SIMPLEX_BACK = '''@triton.jit
def on_simplex_back_{place}(d, dual, scale, {factor}{coefficients}rows, columns):
    """The gradient at {of}: λ = Σ d f g′ / Σ f g′ is what the constraint takes."""
    there = tiles.there(dual, rows, columns)
{ones}    zeta = _zeta(dual, scale, factor, there{parameters})
    slopes = tl.where(there, factor * curve_slope(dual - zeta{parameters}), 0.0)
    taken = d * slopes
    whole = {sum_slopes}
    share = {sum_taken} / tl.where(whole == 0.0, 1.0, whole)
    return {value}
'''

INVERSE = '''@triton.jit
def inverse_link(dual, {coefficients}rows, columns):
    """The root w of slope(w) = a entry by entry: halvings of a stretched line, Newton's steps."""
    low, high = tl.zeros_like(dual) - 1.0, tl.zeros_like(dual) + 1.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        short = curve(tiles.stretched(middle, {low}, {high}){parameters}) < dual
        low = tl.where(short, middle, low)
        high = tl.where(short, high, middle)
    w = tiles.stretched(0.5 * (low + high), {low}, {high})
    for _ in range(2):
        left = curve(w{parameters}) - dual
        step = left / tl.maximum(curve_slope(w{parameters}), tiles.TINY)
        near = tl.abs(left) <= tiles.near(dual) * (1.0 + tl.abs(dual))  # a kink stays where it is
        w = w - tl.where(near, step, 0.0)
    return tl.where(tiles.there(dual, rows, columns), w, 0.0)
'''

INVERSE_BACK = '''@triton.jit
def inverse_link_back_{place}(d, dual, {coefficients}rows, columns):
    """The gradient at {of} of the root w of slope(w) = a."""
    w = inverse_link(dual, {coefficients}rows, columns)
    steepness = tl.maximum(curve_slope(w{parameters}), tiles.TINY)
    share = tl.where(tiles.there(dual, rows, columns), d / steepness, 0.0)
    return {value}
'''

FUNCTIONS = ("on_simplex", "inverse_link")


@dataclass(frozen=True)
class _Root:
    """One link: its function, the call, and the names of its coefficients."""

    curve: Curve
    call: Call
    factor: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients."""
        return self.curve.parameters

    @property
    def texts(self) -> dict[str, str]:
        """What all templates share."""
        return {
            "parameters": "".join(f", {name}" for name in self.names),
            "coefficients": "".join(f"{name}, " for name in self.names),
        }


def functions(plan: Plan) -> str:
    """The functions behind a plan's root links, forward and backward; empty where it has none.

    Raises ``NoTiles`` where no tile computes them.
    """
    root = _root(plan)
    if root is None:
        return ""
    try:
        parts = [_curve(root)]
        parts += _simplex(root) if root.call.function == "on_simplex" else _inverse(root)
    except UnknownFunction as reason:
        raise NoTiles(f"the function {reason}") from None
    return "\n\n".join(parts)


def _root(plan: Plan) -> _Root | None:
    found = {}
    for quantity in plan.ordered():
        if isinstance(quantity.op, Call) and quantity.op.function in FUNCTIONS:
            op = quantity.op
            factor = len(op.arguments) > 2 and len(plan.axes(op.arguments[2])) > 1
            if len(quantity.axes) != 2:
                raise NoTiles(f"ops.{op.function} of {len(quantity.axes)} axes")
            found[op.options] = _Root(plan.signals[_source(op)], op, factor)
    if len(found) > 1:
        raise NoTiles("several links that are roots")
    return next(iter(found.values()), None)


def _source(op: Call) -> str:
    options = dict(op.options)
    return str(options.get("entry", options.get("slope")))


def _curve(root: _Root) -> str:
    expr = root.curve.expr
    parts = [CURVE.format(
        **root.texts, doc="The link's function of one entry.", value=print_tile(expr, {}),
        slope=print_tile(derivative(expr, VARIABLE), {}),
    )]  # fmt: skip
    symbols = {s.name: s for s in expr.free_symbols}
    for name in root.names:
        value = print_tile(derivative(expr, symbols[name]), {})
        parts.append(PARTIAL.format(name=name, value=value, **root.texts))
    return "\n\n".join(parts)


def _simplex(root: _Root) -> list[str]:
    over = SUMS[str(dict(root.call.options)["over"])]
    texts = root.texts | {
        "factor": "factor, " if root.factor else "",
        "ones": "" if root.factor else "    factor = tl.zeros_like(dual) + 1.0\n",
        "sum_found": over.format(f="sum", x="found"),
        "sum_slopes": over.format(f="sum", x="slopes"),
        "sum_taken": over.format(f="sum", x="taken"),
        "max_there": over.format(f="max", x="there.to(tl.int32)"),
        "max_dual": over.format(f="max", x='tl.where(there, dual, float("-inf"))'),
        "min_dual": over.format(f="min", x='tl.where(there, dual, float("inf"))'),
    }
    parts = [SIMPLEX.format(**texts)]
    own = "curve(dual - zeta{parameters})".format(**root.texts)
    values = {"the dual": "slopes * (d - share)", "the scale": "tl.sum(tl.sum(share, 1), 0)"}
    if root.factor:
        values["the factor"] = f"tl.where(there, {own} * (d - share), 0.0)"
    for name in root.names:
        part = "curve_of_{name}(dual - zeta{parameters})".format(name=name, **root.texts)
        part = f"tl.where(there, factor * {part} * (d - share), 0.0)"
        values[name] = f"tl.sum(tl.sum({part}, 1), 0)"
    for place, (of, value) in enumerate(values.items()):
        parts.append(SIMPLEX_BACK.format(**texts, place=place, of=of, value=value))
    return parts


def _inverse(root: _Root) -> list[str]:
    low, high = dict(root.call.options)["domain"]
    shown = {n: _number(x) for n, x in (("low", low), ("high", high))}
    parts = [INVERSE.format(**root.texts, **shown)]
    values = {"the dual": "share"}
    for name in root.names:
        part = "curve_of_{name}(w{parameters})".format(name=name, **root.texts)
        values[name] = f"-tl.sum(tl.sum(share * {part}, 1), 0)"
    for place, (of, value) in enumerate(values.items()):
        parts.append(INVERSE_BACK.format(**root.texts, place=place, of=of, value=value))
    return parts


def _number(x: float) -> str:
    return f'float("{x}")' if x in (float("inf"), float("-inf")) else repr(x)
