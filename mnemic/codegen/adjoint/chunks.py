"""Rules of the functions of a chunk: decays as matrices, triangular systems, shifted rows."""

from collections.abc import Callable

import sympy as sp

from mnemic.codegen.adjoint.at import At
from mnemic.codegen.plan import Call, Map

# -- decays ----------------------------------------------------------------------------------


def segments(at: At) -> None:
    """P_ts = exp Σ_{s<i≤t} l_i: dl_i = Σ_{t≥i>s} d_ts P_ts."""
    (log_decay,) = at.arguments
    if at.wants(log_decay):
        inner = at.map(f"{at.d}_kept", ("t", "s"), "d*p", d=at.d, p=at.out)
        at.give_call(log_decay, "between", inner)


def products(at: At) -> None:
    """P_ts = Π_{s<i≤t} f_i, which may be zero: df_i = Σ_s (Pᵀ d)_is P_{i−1,s}."""
    (factor,) = at.arguments
    if at.wants(factor):
        later = at.product(f"{at.d}_later", ("t", "s"), at.out, at.d, "l")
        before = at.call(f"{at.out}_before", ("t", "s"), "delayed_rows", at.out, fill=0.0)
        at.give_sum(factor, "x*y", ("t", "s"), x=(later, ("t", "s")), y=(before, ("t", "s")))


def running_product(at: At) -> None:
    """p_t = Π_{i≤t} f_i: df_i = p_{i−1} Σ_{t≥i} d_t Π_{i<j≤t} f_j."""
    (factor,) = at.arguments
    if at.wants(factor):
        between = at.call(f"{at.out}_between", ("t", "s"), "products", factor)
        later = at.call(f"{at.d}_later", ("t",), "vector_matrix", at.d, between)
        before = at.call(f"{at.out}_before", ("t",), "delayed", at.out, fill=1.0)
        at.give_map(factor, "x*y", x=later, y=before)


def reach(at: At) -> None:
    """r_t = exp Σ_{i≤t} l_i: dl_i = Σ_{t≥i} d_t r_t."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "later_sums")


def reach_rows(at: At) -> None:
    """The same by channel."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "later_rows")


def remain(at: At) -> None:
    """r_s = exp Σ_{i>s} l_i: dl_i = Σ_{s<i} d_s r_s."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "earlier_sums")


def left_at_end(at: At) -> None:
    """r_s = exp Σ_{i>s} l_i over the rows that are there: as ``remain``."""
    remain(at)


def remain_rows(at: At) -> None:
    """The same by channel."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "earlier_rows")


def _summed(at: At, log_decay: str, function: str) -> None:
    if at.wants(log_decay):
        inner = at.map(f"{at.d}_kept", at.quantity.axes, "d*r", d=at.d, r=at.out)
        at.give_call(log_decay, function, inner)


# -- triangles -------------------------------------------------------------------------------


def lower(at: At) -> None:
    """The lower triangle."""
    (x,) = at.arguments
    at.give_call(x, "lower", at.d)


def strictly_lower(at: At) -> None:
    """What is below the diagonal (of blocks)."""
    (x,) = at.arguments
    rows = at.option("rows", 1)
    if _is_strict(at, at.d, rows):
        at.give(x, at.d)
    else:
        at.give_call(x, "strictly_lower", at.d, **({} if rows == 1 else {"rows": rows}))


def _is_strict(at: At, name: str, rows: int) -> bool:
    """Whether a matrix is zero on and above its diagonal already: a multiple of one that is."""
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


def level_mask(at: At) -> None:
    """λ_t at the level of s: what every level's sources give."""
    (weights,) = at.arguments
    at.give_call(weights, "level_sums", at.d, weights)


def unit_lower_inverse(at: At) -> None:
    """T = (I + L)⁻¹: dL = −Tᵀ d Tᵀ, strictly lower."""
    (strict,) = at.arguments
    if at.wants(strict):
        left = at.product(f"{at.d}_left", ("t", "s"), at.out, at.d, "l")
        both = at.product(f"{at.d}_both", ("t", "s"), left, at.out, "r")
        turned = at.map(f"{at.d}_turned", ("t", "s"), "-x", x=(both, ("t", "s")))
        at.give_call(strict, "strictly_lower", turned)


# -- rows that move --------------------------------------------------------------------------


def delayed(at: At) -> None:
    """The row before: every row's gradient comes from the next one."""
    (x,) = at.arguments
    at.give_call(x, "advanced", at.d)


def delayed_rows(at: At) -> None:
    """The same for vectors."""
    (x,) = at.arguments
    at.give_call(x, "advanced_rows", at.d)


def last(at: At) -> None:
    """The last row."""
    (x,) = at.arguments
    at.give_call(x, "at_last", at.d, x)


def last_row(at: At) -> None:
    """The last row of vectors."""
    (x,) = at.arguments
    at.give_call(x, "at_last_row", at.d, x)


RULES: dict[str, Callable[[At], None]] = {
    "segments": segments,
    "products": products,
    "running_product": running_product,
    "reach": reach,
    "reach_rows": reach_rows,
    "remain": remain,
    "left_at_end": left_at_end,
    "remain_rows": remain_rows,
    "lower": lower,
    "strictly_lower": strictly_lower,
    "level_mask": level_mask,
    "unit_lower_inverse": unit_lower_inverse,
    "delayed": delayed,
    "delayed_rows": delayed_rows,
    "last": last,
    "last_row": last_row,
}
