"""What acts on whole memories: links, projections, norms of rows and columns."""

import sympy as sp

from mnemic.codegen.guards import TINY
from mnemic.codegen.ops.at import At, Axes, Env
from mnemic.codegen.ops.entries import Entries
from mnemic.codegen.ops.operation import EVERYWHERE, Operation, Sample, Tile
from mnemic.codegen.readouts import TINY as LEAST

x, y, z, w = sp.symbols("x y z w", real=True)


def _inner(at: At, name: str, text: str, axes: Axes, kept: Axes, **env: Env) -> str:
    """Add up an expression over the axes that are not kept; return its name."""
    return at.summed(name, at.map(f"{name}_parts", axes, text, **env), axes, kept)


def simplex(at: At) -> None:
    """Differentiate w = c softmax(a): da = w (d − Σ d w / c), dc = Σ d w / c."""
    exponent, scale = at.arguments
    axes = at.quantity.axes
    over = {"all": axes[-2:], "rows": axes[-1:], "columns": axes[-2:-1]}[at.option("over")]
    kept = tuple(a for a in axes if a not in over)
    inner = _inner(at, f"{at.d}_inner", "d*w", axes, kept, d=at.d, w=at.out)
    at.give_map(exponent, "w*(d - x/c)", w=at.out, d=at.d, x=(inner, kept), c=scale)
    if at.wants(scale):
        ratio = at.map(f"{inner}_ratio", kept, "x/c", x=(inner, kept), c=scale)
        at.give(scale, at.summed(at.name(scale), ratio, kept, at.axes(scale)))


def entry_norm(at: At) -> None:
    """Differentiate ν = ‖x‖_p: dx = d sign(x) (|x|/ν)^{p−1}."""
    (x,) = at.arguments
    power = float(at.option("power")) - 1
    shown = int(power) if power == int(power) else power
    at.give_map(x, f"d*sign(x)*(Abs(x)/n)**{shown}", d=at.d, x=x, n=at.out)


def ball(at: At) -> None:
    """Differentiate w = x min(r/‖x‖, 1): inside dx = d; outside r/‖x‖ d less its part along x."""
    x, radius = at.arguments
    axes = at.axes(x)
    lead = axes[:-2]
    size = at.call(f"{x}_size", lead, "entry_norm", x, power=2.0)
    along = _inner(at, f"{at.d}_along", "d*x", axes, lead, d=at.d, x=x)
    env: dict[str, Env] = {"d": at.d, "x": x, "r": radius, "n": (size, lead), "a": (along, lead)}
    at.give_map(x, "Piecewise((r/n*(d - x*a/n**2), n > r), (d, True))", **env)
    if at.wants(radius):
        del env["d"], env["x"]
        share = at.map(f"{along}_outside", lead, "Piecewise((a/n, n > r), (0, True))", **env)
        at.give(radius, at.summed(at.name(radius), share, lead, at.axes(radius)))


def scaled_to_norms(at: At) -> None:
    """Differentiate w = x ν/‖x‖ by row or column: dx = ν (d − x (x·d)/‖x‖²)/‖x‖, dν = x·d/‖x‖."""
    x, norms = at.arguments
    axis = str(at.option("axis"))
    axes = at.axes(x)
    kept = tuple(a for a in axes if a != (set(axes[-2:]) - {axis}).pop())
    raw = at.call(f"{x}_sizes", kept, "norms_of", x, axis=axis)
    size = at.map(f"{raw}_safe", kept, f"Piecewise((s, s > {TINY}), (1, True))", s=raw)
    along = _inner(at, f"{at.d}_along", "d*(x/s)", axes, kept, d=at.d, x=x, s=(size, kept))
    at.give_map(x, "c/s*(d - x/s*a)", c=norms, d=at.d, x=x, a=along, s=size)
    at.give_map(norms, "a", a=along)


def centred(at: At) -> None:
    """Differentiate w = x − mean x by row or column, a projection: dx = d − mean d."""
    (x,) = at.arguments
    at.give_call(x, "centred", at.d, axis=at.option("axis"))


def norms_of(at: At) -> None:
    """Differentiate n = ‖x‖ by row or column: dx = d x/n, zero where x is."""
    (x,) = at.arguments
    at.give_map(x, f"Piecewise((d*x/n, n > {TINY}), (0, True))", d=at.d, x=x, n=at.out)


def newton_schulz(at: At) -> None:
    """Differentiate Newton-Schulz's iteration: back through every step."""
    (x,) = at.arguments
    at.give_call(x, "newton_schulz_vjp", at.d, x, steps=at.option("steps"))


# -- the same entry by entry -----------------------------------------------------------------


def _take_out_largest(at: Entries, power: sp.Expr, of: str) -> tuple[sp.Expr, dict[str, str]]:
    """Return ‖A‖_p, at least ``TINY``, with the largest entry taken out, and what it reads."""
    axes = at.plan.axes(of)
    largest = at.function("largest", (), "largest", of)
    powers = at.map("powers", axes, (sp.Abs(x) / y) ** power, x=of, y=largest)
    return sp.Max(y * z ** (1 / power), LEAST), {"y": largest, "z": at.sum("powers", powers)}


def norm_of_entries(at: Entries) -> None:
    """Make ‖A‖_p from the largest entry and a sum of powers."""
    power = sp.nsimplify(at.options["power"])
    expr, reads = _take_out_largest(at, power, at.arguments[0])
    at.done(expr, **reads)


def ball_entries(at: Entries) -> None:
    """Multiply each entry by min(r/‖A‖, 1)."""
    matrix, radius = at.arguments
    norm, reads = _take_out_largest(at, sp.Integer(2), matrix)
    at.done(x * sp.Min(w / norm, 1), x=matrix, w=radius, **reads)


def simplex_entries(at: Entries) -> None:
    """Make c softmax from the highest exponent and a sum of exponentials."""
    exponent, scale = at.arguments
    over = str(at.options["over"])
    rows, columns = at.plan.axes(exponent)
    axes, name = {
        "rows": ((rows,), "highest_of_rows"), "columns": ((columns,), "highest_of_columns"),
    }.get(over, ((), "highest"))  # fmt: skip
    highest = at.function("highest", axes, name, exponent)
    weights = at.map("weights", (rows, columns), sp.exp(x - y), x=exponent, y=highest)
    at.done(w * x / z, x=weights, z=at.sum("weights", weights, over), w=scale)


def norms_of_entries(at: Entries) -> None:
    """Make the norms of rows or columns from sums of squares."""
    (matrix,) = at.arguments
    at.done(sp.sqrt(x), x=_squares(at, matrix))


def scaled_entries(at: Entries) -> None:
    """Multiply each entry by the norm that its row or column is to have, over the one it has."""
    matrix, norms = at.arguments
    size = _squares(at, matrix)
    at.done(x * w / sp.Max(sp.sqrt(y), LEAST), x=matrix, w=norms, y=size)


def centred_entries(at: Entries) -> None:
    """Subtract its row's or column's mean from each entry."""
    (matrix,) = at.arguments
    ones = at.filled("ones", matrix, 1.0)
    over = _over(at)
    at.done(x - y / z, x=matrix, y=at.sum("entries", matrix, over), z=at.sum("ones", ones, over))


def _squares(at: Entries, matrix: str) -> str:
    """Add up squares over each row (axis ``v``) or column (``k``); return the sums' name."""
    squares = at.map("squares", at.plan.axes(matrix), x**2, x=matrix)
    return at.sum("squares", squares, _over(at))


def _over(at: Entries) -> str:
    return "rows" if at.options["axis"] == "v" else "columns"


# fmt: off
OPERATIONS = (
    Operation(
        "simplex", "vk,  -> vk", mixes="vk", adjoint=simplex, by_entries=simplex_entries,
        tile=Tile(EVERYWHERE, extras=("width:v", "width:k"), options=("over",)),
        sample=Sample(options={"over": "all"}),
    ),
    Operation(
        "entry_norm", "vk -> ", adjoint=entry_norm, by_entries=norm_of_entries,
        tile=Tile(EVERYWHERE, options=("power",)), sample=Sample(options={"power": 3.0}),
    ),
    Operation(
        "largest", "vk -> ", tops="vk", tile=Tile(EVERYWHERE), in_pytorch=False, sample=None,
    ),
    Operation(
        "ball", "vk,  -> vk", mixes="vk", adjoint=ball, by_entries=ball_entries,
        tile=Tile(EVERYWHERE), sample=Sample(kinds=("", "positive")),
    ),
    Operation(
        "scaled_to_norms", "vk, * -> vk", mixes="vk", adjoint=scaled_to_norms,
        by_entries=scaled_entries, tile=Tile(EVERYWHERE, options=("axis",)),
        sample=Sample("vk, v -> vk", kinds=("", "positive"), options={"axis": "v"}),
    ),
    Operation(
        "centred", "vk -> vk", mixes="vk", adjoint=centred, by_entries=centred_entries,
        tile=Tile(EVERYWHERE, extras=("width:v", "width:k"), options=("axis",)),
        sample=Sample(options={"axis": "v"}),
    ),
    Operation(
        "norms_of", "vk -> *", adjoint=norms_of, by_entries=norms_of_entries,
        tile=Tile(EVERYWHERE, options=("axis",)), sample=Sample("vk -> v", options={"axis": "v"}),
    ),
    Operation(
        "newton_schulz", "vk -> vk", mixes="vk", adjoint=newton_schulz,
        tile=Tile(EVERYWHERE, extras=("precision",), options=("steps",), holds=(0, 2)),
        sample=Sample(options={"steps": 2}),
    ),
    Operation(
        "newton_schulz_vjp", "vk, vk -> vk", mixes="vk",
        tile=Tile(EVERYWHERE, extras=("precision",), options=("steps",), holds=(2, 3)),
        sample=Sample(options={"steps": 2}),
    ),
)
# fmt: on
