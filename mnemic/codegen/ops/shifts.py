"""Rows that move: the one before, the next, the last."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import TOKEN, Operation, Sample, Tile


def delayed(at: At) -> None:
    """Differentiate numbers moved a row on: every row's gradient comes from the next one."""
    (x,) = at.arguments
    at.give_call(x, "advanced", at.d)


def delayed_rows(at: At) -> None:
    """Differentiate vectors moved a row on: every row's gradient comes from the next one."""
    (x,) = at.arguments
    at.give_call(x, "advanced_rows", at.d)


def last(at: At) -> None:
    """Differentiate the last number of rows: the last row gets d, all others zero."""
    (x,) = at.arguments
    at.give_call(x, "at_last", at.d, x)


def last_row(at: At) -> None:
    """Differentiate the last vector of rows: the last row gets d, all others zero."""
    (x,) = at.arguments
    at.give_call(x, "at_last_row", at.d, x)


def replaced_last(at: At) -> None:
    """Differentiate rows whose last one is replaced: that row of d is for what stands there."""
    y, last = at.arguments
    at.give_call(y, "without_last", at.d)
    at.give_call(last, "last_row", at.d)


# fmt: off
OPERATIONS = (
    Operation(
        "delayed", "t -> t", adjoint=delayed, tile=Tile(options=("fill",)),
        sample=Sample(options={"fill": 1.0}),
    ),
    Operation(
        "delayed_rows", "tk -> tk", adjoint=delayed_rows,
        tile=Tile(extras=("precision",), options=("fill",), square="delayed_square"),
        sample=Sample(options={"fill": 0.0}),
    ),
    Operation(
        "delayed_by", "tk -> tk", tile=Tile(extras=("precision",), options=("rows",)),
        sample=Sample(options={"rows": 2}),
    ),
    Operation("advanced", "t -> t", tile=Tile()),
    Operation(
        "advanced_rows", "tk -> tk",
        tile=Tile(extras=("precision",), options=("rows",), square="advanced_square"),
    ),
    Operation("last", "t -> ", adjoint=last, tile=Tile(extras=("live",))),
    Operation("last_row", "tk -> k", adjoint=last_row, tile=Tile(extras=("live",))),
    Operation("at_last", ", ~t -> t", tile=Tile(extras=("live",))),
    Operation("at_last_row", "k, ~tk -> tk", tile=Tile(extras=("live",))),
    Operation("replaced_last", "tv, v -> tv", adjoint=replaced_last, tile=Tile(extras=("live",))),
    Operation("without_last", "tk -> tk", tile=Tile(extras=("live",))),
    Operation(
        "appended", "r,  -> r", tile=Tile(frozenset({TOKEN}), extras=("width:r",)),
        in_pytorch=False, sample=None,
    ),
    Operation(
        "appended_row", "rk, k -> rk", tile=Tile(frozenset({TOKEN}), extras=("width:r",)),
        in_pytorch=False, sample=None,
    ),
)
# fmt: on
