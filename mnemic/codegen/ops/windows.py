"""Windows: rows laid flat, repeated, and bands of weights."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Tile

WIDTH = 3
BLOCKS = Sample(options={"targets": WIDTH, "sources": WIDTH})


def flat(at: At) -> None:
    """Slots laid flat into rows."""
    (x,) = at.arguments
    at.give_call(x, "in_shape_of", at.d, x)


def repeat(at: At) -> None:
    """Every number several times."""
    (x,) = at.arguments
    at.give_call(x, "run_sums", at.d, times=at.option("times"))


def repeat_rows(at: At) -> None:
    """Every row several times."""
    (x,) = at.arguments
    at.give_call(x, "token_sums", at.d, rows=at.option("times"))


def spread_rows(at: At) -> None:
    """Every entry as a block."""
    (x,) = at.arguments
    sizes = {name: at.option(name) for name in ("targets", "sources")}
    at.give_call(x, "block_sums", at.d, **sizes)


def band(at: At) -> None:
    """Weights of windows as a matrix."""
    (weights,) = at.arguments
    at.give_call(weights, "unbanded", at.d, weights)


def newest(at: At) -> None:
    """A window's last slot."""
    (x,) = at.arguments
    at.give_call(x, "at_last_row", at.d, x)


def own_rows(at: At) -> None:
    """A chunk's rows without the tail before them."""
    x, _ = at.arguments
    at.give_call(x, "after_tail", at.d, x)


def folded(at: At) -> None:
    """Windows' rows added up by token."""
    (rows,) = at.arguments
    at.give_call(rows, "unfolded", at.d, width=at.option("width"))


# fmt: off
OPERATIONS = (
    Operation(
        "flat", "tr -> s", adjoint=flat, tile=Tile(extras=("sources", "window"), loaded=True)
    ),
    Operation("flat_rows", "trk -> sk", adjoint=flat, tile=Tile(frozenset(), loaded=True)),
    Operation("in_shape_of", "s*, ~tr* -> tr*", tile=Tile(extras=("window",))),
    Operation(
        "repeat", "t -> s", adjoint=repeat, sample=Sample(options={"times": WIDTH}),
        tile=Tile(extras=("sources",), options=("times",)),
    ),
    Operation(
        "run_sums", "s -> t", tile=Tile(extras=("rows",), options=("times",)),
        sample=Sample(options={"times": WIDTH}),
    ),
    Operation(
        "repeat_rows", "tk -> sk", adjoint=repeat_rows, sample=Sample(options={"times": WIDTH}),
        tile=Tile(extras=("precision", "sources"), options=("times",)),
    ),
    Operation(
        "token_sums", "sk -> tk", tile=Tile(extras=("precision", "rows"), options=("rows",)),
        sample=Sample(options={"rows": WIDTH}),
    ),
    Operation(
        "spread_rows", "ts -> uw", adjoint=spread_rows, sample=BLOCKS,
        tile=Tile(extras=("precision", "sources"), options=("targets", "sources")),
    ),
    Operation(
        "block_sums", "uw -> ts", sample=BLOCKS,
        tile=Tile(extras=("precision", "rows"), options=("targets", "sources")),
    ),
    Operation(
        "band", "tr -> ts", adjoint=band, tile=Tile(extras=("sources", "window"), loaded=True)
    ),
    Operation("unbanded", "ts, ~tr -> tr", tile=Tile(extras=("window",))),
    Operation("newest", "rk -> k", adjoint=newest, of_windows=True),
    Operation("own_rows", "sk, ~tk -> tk", adjoint=own_rows, of_windows=True),
    Operation("after_tail", "tk, ~sk -> sk"),
    Operation("from_first", "sk -> tk"),
    Operation("folded", "tk -> sk", adjoint=folded),
    Operation("unfolded", "sk -> tk"),
)
# fmt: on
