"""Triangles of rows against rows, and their inverses."""

import sympy as sp

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Streaming, Tile
from mnemic.codegen.plan import Call, Map


def lower(at: At) -> None:
    """Differentiate the lower triangle: that of d."""
    (x,) = at.arguments
    at.give_call(x, "lower", at.d)


def strictly_lower(at: At) -> None:
    """Differentiate what is below the diagonal (of blocks): that of d."""
    (x,) = at.arguments
    rows = at.option("rows", 1)
    if _is_strict(at, at.d, rows):
        at.give(x, at.d)
    else:
        at.give_call(x, "strictly_lower", at.d, **({} if rows == 1 else {"rows": rows}))


def _is_strict(at: At, name: str, rows: int) -> bool:
    """Return whether a matrix is a result of ``strictly_lower`` already, or a multiple of one."""
    match at.plan[name].op:
        case Call(function="strictly_lower", options=options):
            return bool(dict(options).get("rows", 1) == rows)
        case Map(expr=expr, reads=reads):
            factors = {f.name for f in sp.Mul.make_args(expr) if f.is_Symbol}
            own = at.axes(name)
            return any(
                _is_strict(at, read.quantity, rows)
                for read in reads
                if read.symbol in factors and read.axes == own
            )
        case _:
            return False


def unit_lower_inverse(at: At) -> None:
    """Differentiate T = (I + L)⁻¹: dL = −Tᵀ d Tᵀ, strictly lower."""
    (strict,) = at.arguments
    if at.wants(strict):
        left = at.product(f"{at.d}_left", ("t", "s"), at.out, at.d, "l")
        both = at.product(f"{at.d}_both", ("t", "s"), left, at.out, "r")
        turned = at.map(f"{at.d}_turned", ("t", "s"), "-x", x=(both, ("t", "s")))
        at.give_call(strict, "strictly_lower", turned)


def level_mask(at: At) -> None:
    """Differentiate M_ts = λ_t at the level of s: Σ of d over every level's sources."""
    (weights,) = at.arguments
    at.give_call(weights, "level_sums", at.d, weights)


# fmt: off
OPERATIONS = (
    Operation("lower", "ts -> ts", adjoint=lower, tile=Tile()),
    Operation("strictly_lower", "ts -> ts", adjoint=strictly_lower, tile=Tile(options=("rows",))),
    Operation(
        "unit_lower_inverse", "tt -> tt", adjoint=unit_lower_inverse,
        tile=Tile(extras=("precision",)), streaming=Streaming(costly=True),
        sample=Sample(kinds=("strictly lower",)),
    ),
    Operation("level_mask", "tl -> tt", adjoint=level_mask, tile=Tile()),
    Operation("level_sums", "ts, ~tl -> tl", tile=Tile()),
)
# fmt: on
