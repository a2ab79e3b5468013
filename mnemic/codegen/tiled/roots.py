"""Links that are roots, on tiles: the spec's own function printed into a bracketed search.

x at the highest entry such that Σ factor ∘ g = scale (``ops.simplex_root`` tells how), or
slope(W) = A entry by entry; the gradients of that one are those of the implicit equation, with no
iteration of their own.
"""

from dataclasses import dataclass

from mnemic.codegen.curves import VARIABLE, Curve
from mnemic.codegen.derivative import derivative
from mnemic.codegen.plan import Call, Plan, Quantity
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.printer import UnknownFunction, print_exact, print_function
from mnemic.codegen.words import in_words

CURVE = '''@triton.jit
def curve(entry{parameters}):
    """{doc}"""
    return {value}


@triton.jit
def curve_slope(entry{parameters}):
    """Its derivative."""
    return {slope}
'''

DISTANCES = '''@triton.jit
def curve(entry{parameters}):
    """The link's function of one entry, by its distance."""
    return {value}


@triton.jit
def curve_distance(entry{parameters}):
    """The distance of an entry."""
    return {distance}
'''

PARTIAL = '''@triton.jit
def curve_of_{name}(entry{parameters}):
    """Its derivative by {name}."""
    return {value}
'''


@dataclass(frozen=True)
class _Over:
    """What a simplex is of: how a number of each sum lies beside the memory [V, K], which is held
    as [K, V], how the sums over it are made, how they begin, and which of them are looked for."""

    place: str
    sums: str
    begun: str
    moving: str


OVER = {
    "": _Over("", "tl.sum(tl.sum({x}, 1), 0)", "()", "x == x"),
    "_of_rows": _Over("[None, :]", "tl.sum({x}, 0)", "(dual.shape[1],)", "rows"),
    "_of_columns": _Over("[:, None]", "tl.sum({x}, 1)", "(dual.shape[0],)", "columns"),
}
"""How a simplex's sums lie and are made, by the end of its functions' names."""

SEARCHED = "simplex_root"
ENTRIES = "simplex_entries"

SIMPLEX = '''@triton.jit
def simplex_shares(x, top, dual, {coefficients}rows, columns):
    """g(A − ζ) of every entry, x being that of the highest."""
    distance = curve_distance(x{parameters}){place} + (top{place} - dual)
    return tl.minimum(curve(distance{parameters}), x{place})


@triton.jit
def simplex_sums(x, top, dual, {factor}{coefficients}rows, columns):
    """Σ {shown} over what is there."""
    there = columns[:, None] & rows[None, :]
    shares = simplex_shares(x, top, dual, {coefficients}rows, columns)
    return {sums}


@triton.jit
def simplex_root{ending}(dual, scale, top, {factor}{coefficients}rows, columns):
    """x with Σ {shown} = scale; no number where no x has that sum."""
    x, low, high, left_low, left_high, width, left = tiles.bracket(
        tl.zeros({begun}, dual.dtype), {start}
    )
    moving, count = {moving}, 0
    while (count < 200) & tiles.any_of(moving):
        found = simplex_sums(x, top, dual, {factor}{coefficients}rows, columns)
        x, low, high, left_low, left_high, width, left, moving = tiles.nearer(
            found, scale, x, low, high, left_low, left_high, width, left, moving, count, {end}
        )
        count += 1
    return tl.where(moving, float("nan"), x)


@triton.jit
def simplex_entries{ending}(dual, scale, top, x, {factor}{coefficients}rows, columns):
    """{shown}."""
    there = columns[:, None] & rows[None, :]
    shares = simplex_shares(x, top, dual, {coefficients}rows, columns)
    found = tl.where((x == x){place}, {weight}shares, x{place})
    return tl.where(there, found, 0.0)
'''

SEARCH = (
    """\
{name}, {name}_low, {name}_high, {name}_left_low, {name}_left_high, {name}_width, \
{name}_left = tiles.bracket(
    {begun}, {start}
)
{name}_moving, {name}_turns = {moving}, 0
while ({name}_turns < 200) & tiles.any_of({name}_moving):
    {name}_found = {begun}
""",
    """\
        {name}_found = {name}_found + simplex_sums({arguments})
""",
    """\
    {name}, {name}_low, {name}_high, {name}_left_low, {name}_left_high, {name}_width, \
        {name}_left, {name}_moving = tiles.nearer(
            {name}_found, {scale}, {name}, {name}_low, {name}_high, {name}_left_low,
            {name}_left_high, {name}_width, {name}_left, {name}_moving, {name}_turns, {end}
        )
    {name}_turns += 1
{name} = tl.where({name}_moving, float("nan"), {name})
""",
)
"""The search for a simplex's root where each step goes along the memory block by block: what stands
before the blocks, in each of them, and behind."""

INVERSE = '''@triton.jit
def at_jump(dual{parameters}):
    """Tell where slope(w) jumps over a, in the middle of the stretched line."""
    at = tl.zeros_like(dual)
    before = curve(tiles.stretched(at - 1e-37, {low}, {high}){parameters})
    behind = curve(tiles.stretched(at + 1e-37, {low}, {high}){parameters})
    jump = 8.0 * tiles.near(dual) * tiles.near(dual) * (1.0 + tl.abs(dual))
    return (before <= dual) & (dual <= behind) & (behind - before > jump)


@triton.jit
def inverse_link(dual, {coefficients}rows, columns):
    """The root w of slope(w) = a entry by entry: halvings of a stretched line, Newton's steps."""
    low, high = tl.zeros_like(dual) - 1.0, tl.zeros_like(dual) + 1.0
    for _ in range(64):
        middle = 0.5 * (low + high)
        short = curve(tiles.stretched(middle, {low}, {high}){parameters}) < dual
        low = tl.where(short, middle, low)
        high = tl.where(short, high, middle)
    w = tiles.stretched(0.5 * (low + high), {low}, {high})
    jumps = at_jump(dual{parameters})
    w = tl.where(jumps, tiles.stretched(tl.zeros_like(dual), {low}, {high}), w)
    for _ in range(2):
        left = curve(w{parameters}) - dual
        step = left / tl.maximum(curve_slope(w{parameters}), tiles.TINY)
        near = tl.abs(left) <= tiles.near(dual) * (1.0 + tl.abs(dual))  # a kink stays where it is
        w = w - tl.where(near & (jumps == 0), step, 0.0)
    return tl.where(tiles.there(dual, rows, columns), w, 0.0)
'''

INVERSE_BACK = '''@triton.jit
def inverse_link_back_{place}(d, dual, {coefficients}rows, columns):
    """The gradient at {of} of the root w of slope(w) = a."""
    w = inverse_link(dual, {coefficients}rows, columns)
    steepness = tl.maximum(curve_slope(w{parameters}), tiles.TINY)
    jumps = at_jump(dual{parameters})
    near = tl.abs(curve(w{parameters}) - dual) <= tiles.near(dual) * (1.0 + tl.abs(dual))
    moves = near & (jumps == 0) & tiles.there(dual, rows, columns)  # what is at a kink stays there
    share = tl.where(moves, d / steepness, 0.0)
    return {value}
'''

FUNCTIONS = (*(SEARCHED + ending for ending in OVER), "inverse_link")


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
    """Write the functions behind a plan's root links, forward and backward, or nothing without one.

    Raises ``NoTiles`` where no tile computes them.
    """
    root = _root(plan)
    if root is None:
        return ""
    try:
        searched = root.call.function.startswith(SEARCHED)
        parts = _simplex(root, plan) if searched else [_curve(root), *_inverse(root)]
    except UnknownFunction as reason:
        raise NoTiles(f"the function {reason}") from None
    return "\n\n".join(parts)


def search(quantity: Quantity, sizes: tuple[str, ...], begun: str) -> tuple[list[str], ...]:
    """Write the lines of a search along a memory of these sizes, for a sum that begins so: before
    the blocks, in a block, and behind them."""
    op = quantity.op
    assert isinstance(op, Call)
    dual, scale, top, *more = op.arguments
    rows, columns = (f"in_{size}" for size in sizes)
    own = f"{quantity.name} == {quantity.name}"
    moving = OVER[op.function.removeprefix(SEARCHED)].moving
    texts = {
        "name": quantity.name, "begun": begun, "scale": scale,
        "arguments": ", ".join([quantity.name, top, dual, *more, rows, columns]),
        "moving": {"rows": rows, "columns": columns}.get(moving, own),
        **_ends(op),
    }  # fmt: skip
    return tuple(part.format(**texts).splitlines() for part in SEARCH)


def _ends(op: Call) -> dict[str, str]:
    """Write where the entries end, and where a search for one begins."""
    end = float(dict(op.options).get("end", float("inf")))
    return {"end": _number(end), "start": repr(min(1.0, end / 2))}


def _root(plan: Plan) -> _Root | None:
    found = {}
    for quantity in plan.ordered():
        if isinstance(quantity.op, Call) and quantity.op.function in FUNCTIONS:
            op = quantity.op
            factor = len(op.arguments) > 3 and len(plan.axes(op.arguments[3])) > 1
            if len(plan.axes(op.arguments[0])) != 2:
                count = len(plan.axes(op.arguments[0]))
                raise NoTiles(f"no tiles of {count} axes for {in_words(op.function)}")
            found[op.options] = _Root(plan.signals[_source(op)], op, factor)
    if len(found) > 1:
        raise NoTiles("several links that are roots")
    return next(iter(found.values()), None)


def _source(op: Call) -> str:
    options = dict(op.options)
    return str(options.get("entry", options.get("slope")))


def _curve(root: _Root) -> str:
    expr, of = root.curve.expr, str(VARIABLE)
    return CURVE.format(
        **root.texts, doc="The link's function of one entry.", value=print_function(expr, of),
        slope=print_function(derivative(expr, VARIABLE), of),
    )  # fmt: skip


def _partials(root: _Root) -> list[str]:
    assert root.curve.expr is not None
    symbols = {s.name: s for s in root.curve.expr.free_symbols}
    zero = f"tl.zeros_like({VARIABLE})"
    slopes = {n: derivative(root.curve.expr, symbols[n]) for n in root.names}
    values = {n: print_exact(slope, {}, zero) for n, slope in slopes.items()}
    return [PARTIAL.format(name=n, value=value, **root.texts) for n, value in values.items()]


def _simplex(root: _Root, plan: Plan) -> list[str]:
    of, options = str(VARIABLE), dict(root.call.options)
    if root.curve.expr is None:
        raise NoTiles(
            "a simplex under a retention whose link has no closed form: every step of the search "
            "for its sum would be a search for each entry"
        )
    ending = root.call.function.removeprefix(SEARCHED)
    over, weight = OVER[ending], "factor * " if root.factor else ""
    texts = (
        root.texts
        | _ends(root.call)
        | {
            "ending": ending,
            "factor": "factor, " if root.factor else "",
            "weight": weight,
            "shown": "factor ∘ g(A − ζ)" if root.factor else "g(A − ζ)",
            "place": over.place,
            "begun": over.begun,
            "moving": over.moving,
            "sums": over.sums.format(x=f"tl.where(there, {weight}shares, 0.0)"),
        }
    )
    distance = plan.signals[options["distance"]].expr
    curve = DISTANCES.format(
        **root.texts, value=print_function(root.curve.expr, of),
        distance=print_function(distance, of),
    )  # fmt: skip
    return [curve, SIMPLEX.format(**texts)]


def _inverse(root: _Root) -> list[str]:
    low, high = dict(root.call.options)["domain"]
    shown = {n: _number(x) for n, x in (("low", low), ("high", high))}
    parts = [*_partials(root), INVERSE.format(**root.texts, **shown)]
    values = {"the dual": "share"}
    for name in root.names:
        part = "curve_of_{name}(w{parameters})".format(name=name, **root.texts)
        values[name] = f"-tl.sum(tl.sum(share * {part}, 1), 0)"
    for place, (of, value) in enumerate(values.items()):
        told = {**root.texts, **shown, "place": place, "of": of, "value": value}
        parts.append(INVERSE_BACK.format(**told))
    return parts


def _number(x: float) -> str:
    return f'float("{x}")' if x in (float("inf"), float("-inf")) else repr(x)
