"""Kept pairs: states that grow, and a chunk's own part of them."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import PAIRS, Operation, Streaming, Tile
from mnemic.codegen.ops.pulled import whole

RECENT = "tl.where(in_N[None, :] & (t[:, None] + behind - at_N[None, :] < {span}), 1.0, 0.0)"

HELD = Tile(frozenset({PAIRS}))
SAME = Tile(HELD.forms, text="{0}")


def append(at: At) -> None:
    """One more pair."""
    kept, x = at.arguments
    at.give_call(kept, "kept_rows", at.d, kept, rows=1)
    at.give_call(x, "newest_row", at.d)


def append_rows(at: At) -> None:
    """A chunk's pairs."""
    kept, x = at.arguments
    at.give_call(kept, "rows_before", at.d, kept, x)
    at.give_call(x, "rows_behind", at.d, x)


def constants(at: At) -> None:
    """Constants for the new pairs."""
    kept, _ = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)


def grown(at: At) -> None:
    """Rows of which the first belong to the last kept pairs."""
    kept, rows = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)
    at.give_call(rows, "rows_behind", at.d, rows)


def elapsed(at: At) -> None:
    """l_i − a_t, of pairs i at rows t."""
    rows, pairs = at.arguments
    at.give_call(pairs, "total_rows", at.d)
    if at.wants(rows):
        whole = at.call(f"{at.d}_rows", at.axes(rows), "total", at.d)
        at.give_map(rows, "-x", x=whole)


# fmt: off
OPERATIONS = (
    Operation("append", "n*, * -> n*", adjoint=append),
    Operation(
        "append_rows", "n*, t* -> n*", adjoint=append_rows, tile=HELD,
        streaming=Streaming(grows="rows"),
    ),
    Operation(
        "with_zeros", "n*, ~* -> n*", adjoint=constants, tile=HELD,
        streaming=Streaming(grows=0.0, reads=(0,)),
    ),
    Operation(
        "with_ones", "n*, ~* -> n*", adjoint=constants, tile=HELD,
        streaming=Streaming(grows=1.0, reads=(0,)),
    ),
    Operation("grown", "n*, s* -> n*", adjoint=grown, tile=HELD),
    Operation("kept_rows", "n*, ~n* -> n*"),
    Operation("newest_row", "n* -> *"),
    Operation(
        "rows_before", "n*, ~n*, ~t* -> n*", tile=SAME, streaming=Streaming(reads=(0,), same=True)
    ),
    Operation(
        "first_rows", "n*, ~n* -> n*", tile=SAME, streaming=Streaming(reads=(0,), same=True)
    ),
    Operation(
        "rows_behind", "n*, ~t* -> t*", tile=HELD, streaming=Streaming(reads=(), behind=True)
    ),
    Operation(
        "elapsed", "t, n -> tn", adjoint=elapsed, tile=HELD, streaming=Streaming(wide=True),
        in_pytorch=False,
    ),
    Operation("recent_of", "~tk -> tt", tile=Tile(HELD.forms, options=("span",)), in_pytorch=False),
    Operation(
        "recent_past", "~tk, ~nk -> tn", in_pytorch=False,
        tile=Tile(HELD.forms, text=RECENT),
    ),
    Operation("ages", "t -> t", by_token=True),
    Operation(
        "carried_keys", "nk, tk, tk, t -> nk", adjoint=whole,
        untiled="keys that are carried on and compared by more than their products with queries",
    ),
)
# fmt: on
