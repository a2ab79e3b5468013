"""Sums over axes, and numbers that are spread along them."""

import sympy as sp

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.entries import Entries
from mnemic.codegen.ops.operation import A_MATRIX_A_TOKEN, EVERYWHERE, Operation, Sample, Tile


def total(at: At) -> None:
    """Differentiate Σ over the last axis: d along all of it."""
    (x,) = at.arguments
    at.give_call(x, "as_vector", at.d, x)


def total_rows(at: At) -> None:
    """Differentiate Σ over rows: d at every row."""
    (x,) = at.arguments
    at.give_call(x, "as_rows", at.d, x)


def weigh(at: At) -> None:
    """Differentiate Σ_s w_ts r_s: dw = d rᵀ, dr = wᵀ d; without rates r, dw_ts = d_t."""
    weights, *rate = at.arguments
    if rate:
        at.give_call(weights, "outer", at.d, rate[0])
        at.give_call(rate[0], "vector_matrix", at.d, weights)
    else:
        at.give_call(weights, "as_vector", at.d, weights)


def as_row(at: At) -> None:
    """Differentiate coefficients that every row has alike: their gradient is Σ_t d_t."""
    (x,) = at.arguments
    at.give_call(x, "total_rows", at.d)


def column(at: At) -> None:
    """Differentiate a scalar a row that enters every channel of vectors: Σ of d over channels."""
    (x,) = at.arguments
    at.give_call(x, "total", at.d)


def as_vector(at: At) -> None:
    """Differentiate a scalar a row laid out as a vector: Σ of d over its channels."""
    x, _ = at.arguments
    at.give_call(x, "total", at.d)


def number(at: Entries) -> None:
    """Make the quantity the number that its option ``value`` holds."""
    at.done(sp.Float(at.options["value"]))


# fmt: off
OPERATIONS = (
    Operation(
        "total", "*z -> *", sums="z", adjoint=total, tile=Tile(EVERYWHERE, reduces=-1),
        lane="{0}", sample=Sample("tk -> t", token="vk -> v"),
    ),
    Operation(
        "total_rows", "*yz -> *z", sums="y", adjoint=total_rows,
        tile=Tile(EVERYWHERE, reduces=-2),
        lane="{0}", sample=Sample("tk -> k", token="vk -> k"),
    ),
    Operation("total_states", "tvk -> vk", sums="t"),
    Operation("weigh", "ts, s? -> t", sums="s", adjoint=weigh, tile=Tile(longer="_rated")),
    Operation("column", "t -> t1", adjoint=column, tile=Tile(text="{0}[:, None]")),
    Operation(
        "as_vector", "t, ~tk -> tk", token=", ~k -> k", adjoint=as_vector, tile=Tile(padded=True),
        lane="{0}",
    ),
    Operation("as_rows", "k, ~tk -> tk", tile=Tile()),
    Operation("as_row", "n -> 1n", adjoint=as_row),
    Operation(
        "filled", "~* -> *", tile=Tile(EVERYWHERE, options=("value",), padded=True),
        lane="tl.zeros_like({0}) + {value!r}", sample=Sample("tk -> tk", options={"value": 2.5}),
    ),
    Operation(
        "constant", "~vk -> ", by_entries=number, tile=Tile(EVERYWHERE, options=("value",)),
        lane="tl.zeros_like({0}) + {value!r}", sample=Sample(options={"value": 2.5}),
    ),
    Operation("unit_of", "~tk -> ts", untiled=A_MATRIX_A_TOKEN),
    Operation("ones_of", "~n* -> n", sample=Sample("nk -> n")),
    Operation("lower_ones", "~t -> tt", tile=Tile()),
    Operation("lower_ones_of", "~tk -> tt", tile=Tile()),
)
# fmt: on
