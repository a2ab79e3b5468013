"""Windows: rows laid flat, repeated, and bands of weights."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Tile

SLOTS = (
    "a window over kept pairs whose errors differ from step to step, so that every step has rows "
    "of its own for each of its pairs"
)

BLOCKS: dict[str, object] = {"targets": 3, "sources": 3}


def flat(at: At) -> None:
    """Differentiate slots laid flat into rows: d in the shape of the slots."""
    (x,) = at.arguments
    at.give_call(x, "in_shape_of", at.d, x)


def repeat(at: At) -> None:
    """Differentiate numbers that are each repeated several times: Σ of d over the repeats."""
    (x,) = at.arguments
    at.give_call(x, "run_sums", at.d, times=at.option("times"))


def repeat_rows(at: At) -> None:
    """Differentiate rows that are each repeated several times: Σ of d over the repeats."""
    (x,) = at.arguments
    at.give_call(x, "token_sums", at.d, rows=at.option("times"))


def spread_rows(at: At) -> None:
    """Differentiate entries that are each spread over a block: Σ of d over the block."""
    (x,) = at.arguments
    sizes = {name: at.option(name) for name in ("targets", "sources")}
    at.give_call(x, "block_sums", at.d, **sizes)


def band(at: At) -> None:
    """Differentiate weights of windows laid into a matrix: d at the places of each window."""
    (weights,) = at.arguments
    at.give_call(weights, "unbanded", at.d, weights)


def newest(at: At) -> None:
    """Differentiate a window's last slot: the last one gets d, all others zero."""
    (x,) = at.arguments
    at.give_call(x, "at_last_row", at.d, x)


def own_rows(at: At) -> None:
    """Differentiate a chunk's rows without the tail before them: zeros for the tail, then d."""
    x, _ = at.arguments
    at.give_call(x, "after_tail", at.d, x)


def folded(at: At) -> None:
    """Differentiate windows' rows added up by token: every window's rows of d."""
    (rows,) = at.arguments
    at.give_call(rows, "unfolded", at.d, width=at.option("width"))


# fmt: off
OPERATIONS = (
    Operation(
        "flat", "tr -> s", adjoint=flat, tile=Tile(extras=("sources", "window"), loaded=True),
        sample=Sample("tr -> S"),
    ),
    Operation(
        "flat_rows", "trk -> sk", adjoint=flat, tile=Tile(frozenset(), loaded=True),
        sample=Sample("trk -> Sk"),
    ),
    Operation(
        "in_shape_of", "s*, ~tr* -> tr*", tile=Tile(extras=("window",)),
        sample=Sample("S, tr -> tr"),
    ),
    Operation(
        "repeat", "t -> s", adjoint=repeat, tile=Tile(extras=("sources",), options=("times",)),
        sample=Sample("t -> S", options={"times": 3}),
    ),
    Operation(
        "run_sums", "s -> t", tile=Tile(extras=("rows",), options=("times",)),
        sample=Sample("S -> t", options={"times": 3}),
    ),
    Operation(
        "repeat_rows", "tk -> sk", adjoint=repeat_rows,
        tile=Tile(extras=("precision", "sources"), options=("times",)),
        sample=Sample("tk -> Sk", options={"times": 3}),
    ),
    Operation(
        "token_sums", "sk -> tk", tile=Tile(extras=("precision", "rows"), options=("rows",)),
        sample=Sample("Sk -> tk", options={"rows": 3}),
    ),
    Operation(
        "spread_rows", "ts -> uw", adjoint=spread_rows,
        tile=Tile(extras=("precision", "sources"), options=("targets", "sources")),
        sample=Sample("tt -> SS", options=BLOCKS),
    ),
    Operation(
        "block_sums", "uw -> ts",
        tile=Tile(extras=("precision", "rows"), options=("targets", "sources")),
        sample=Sample("SS -> tt", options=BLOCKS),
    ),
    Operation(
        "band", "tr -> ts", adjoint=band, tile=Tile(extras=("sources", "window"), loaded=True),
        sample=Sample("tr -> tU"),
    ),
    Operation(
        "unbanded", "ts, ~tr -> tr", tile=Tile(extras=("window",)), sample=Sample("tU, tr -> tr"),
    ),
    Operation("newest", "rk -> k", of_windows=True, adjoint=newest),
    Operation(
        "own_rows", "sk, ~tk -> tk", of_windows=True, adjoint=own_rows,
        sample=Sample("Uk, tk -> tk"),
    ),
    Operation("after_tail", "tk, ~sk -> sk", sample=Sample("tk, Uk -> Uk")),
    Operation("from_first", "sk -> tk", sample=Sample("Uk -> tk", options={"tail": 2})),
    Operation(
        "folded", "tk -> sk", adjoint=folded, untiled=SLOTS,
        sample=Sample("Sk -> Uk", options={"width": 3}),
    ),
    Operation("unfolded", "sk -> tk", sample=Sample("Uk -> Sk", options={"width": 3})),
)
# fmt: on
