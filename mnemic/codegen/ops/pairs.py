"""Kept pairs: states that grow, and a chunk's own part of them."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import PAIRS, Operation, Sample, Streaming, Tile
from mnemic.codegen.ops.pulled import whole

RECENT = "tl.where(in_N[None, :] & (t[:, None] + behind - at_N[None, :] < {span}), 1.0, 0.0)"

HELD = Tile(frozenset({PAIRS}), woven=True)
BLOCK = Tile(frozenset({PAIRS}))
SAME = Tile(BLOCK.forms, text="{0}", woven=True)


def append(at: At) -> None:
    """Differentiate kept pairs with a new one behind: it gets the last row of d, they the rest."""
    kept, x = at.arguments
    at.give_call(kept, "kept_rows", at.d, kept, rows=1)
    at.give_call(x, "newest_row", at.d)


def append_rows(at: At) -> None:
    """Differentiate kept pairs with a chunk's behind: it gets the last rows of d, they the rest."""
    kept, x = at.arguments
    at.give_call(kept, "rows_before", at.d, kept, x)
    at.give_call(x, "rows_behind", at.d, x)


def constants(at: At) -> None:
    """Differentiate kept pairs with constants behind: the first rows of d are theirs."""
    kept, _ = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)


def grown(at: At) -> None:
    """Differentiate kept pairs and the rows added to the last of them or behind: parts of d."""
    kept, rows = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)
    at.give_call(rows, "rows_behind", at.d, rows)


def elapsed(at: At) -> None:
    """Differentiate l_i − a_t, of pairs i at rows t: dl_i = Σ_t d_ti, da_t = −Σ_i d_ti."""
    rows, pairs = at.arguments
    at.give_call(pairs, "total_rows", at.d)
    if at.wants(rows):
        whole = at.call(f"{at.d}_rows", at.axes(rows), "total", at.d)
        at.give_map(rows, "-x", x=whole)


# fmt: off
OPERATIONS = (
    Operation("append", "n*, * -> n*", adjoint=append, sample=Sample("nk, k -> Mk")),
    Operation(
        "append_rows", "n*, t* -> n*", adjoint=append_rows, tile=HELD,
        streaming=Streaming(grows="rows"), sample=Sample("nk, tk -> Nk"),
    ),
    Operation(
        "with_zeros", "n*, ~* -> n*", adjoint=constants, tile=HELD,
        streaming=Streaming(grows=0.0, reads=(0,)), sample=Sample("nv, tv -> Nv"),
    ),
    Operation(
        "with_ones", "n*, ~* -> n*", adjoint=constants, tile=HELD,
        streaming=Streaming(grows=1.0, reads=(0,)), sample=Sample("n, tk -> N"),
    ),
    Operation(
        "grown", "n*, s* -> n*", adjoint=grown, tile=HELD,
        sample=Sample("nv, Uv -> Nv", options={"tail": 2}),
    ),
    Operation("kept_rows", "n*, ~n* -> n*", sample=Sample("Mk, nk -> nk", options={"rows": 1})),
    Operation("newest_row", "n* -> *", sample=Sample("nk -> k")),
    Operation(
        "rows_before", "n*, ~n*, ~t* -> n*", tile=SAME,
        streaming=Streaming(reads=(0,), same=True), sample=Sample("Nk, nk, tk -> nk"),
    ),
    Operation(
        "first_rows", "n*, ~n* -> n*", tile=SAME, streaming=Streaming(reads=(0,), same=True),
        sample=Sample("Nk, nk -> nk"),
    ),
    Operation(
        "rows_behind", "n*, ~t* -> t*", tile=HELD, streaming=Streaming(reads=(), behind=True),
        sample=Sample("Nk, tk -> tk"),
    ),
    Operation(
        "elapsed", "t, n -> tn", adjoint=elapsed, tile=BLOCK, streaming=Streaming(wide=True),
        in_pytorch=False, sample=None,
    ),
    Operation(
        "recent_of", "~tk -> tt", tile=Tile(BLOCK.forms, options=("span",)), in_pytorch=False,
        sample=None,
    ),
    Operation(
        "recent_past", "~tk, ~nk -> tn", tile=Tile(BLOCK.forms, text=RECENT), in_pytorch=False,
        sample=None,
    ),
    Operation("ages", "t -> t", by_token=True),
    Operation(
        "carried_keys", "nk, tk, tk, t -> nk", adjoint=whole,
        untiled="keys that are carried on and compared by more than their products with queries",
        sample=Sample("nk, tk, tk, t -> Nk"),
    ),
)
# fmt: on
