"""The functions of kept pairs that a kernel computes block by block, beside those of a chunk."""

from mnemic.codegen.tiled.functions import CHUNK, LIKE, TileFunction

ALIKE = TileFunction((LIKE, LIKE, LIKE, LIKE), LIKE)
"""Axes of one letter are one axis, in the arguments and in the result."""

PAIRS = {
    name: ALIKE
    for name in (
        "append_rows", "grown", "with_zeros", "with_ones",
        "rows_before", "rows_behind", "first_rows",
        "exp_over", "row_top", "row_tops", "row_total", "row_totals", "over_total",
    )
}  # fmt: skip

STREAMED = (
    CHUNK
    | PAIRS
    | {
        "key_size": TileFunction(("tk",), "t", extras=("width:k",)),
        "recent_of": TileFunction((LIKE,), LIKE, options=("span",)),
        "recent_past": TileFunction((LIKE, LIKE), LIKE, options=("span",)),
        "elapsed": ALIKE,
        "row_peak": ALIKE,
        "unknown": ALIKE,
        "solution": ALIKE,
        "solution_with": TileFunction((LIKE,) * 5, LIKE),
    }
)
"""Functions of a chunk's rows and of kept pairs."""

GROWS = {"append_rows": None, "with_zeros": 0.0, "with_ones": 1.0}
"""How a state grows by a chunk's pairs: by rows, or by a number."""

SAME = ("rows_before", "first_rows")
"""The entries of pairs that were there before the chunk: of a block they are all."""

WIDE = ("elapsed",)
"""Functions whose arguments are float64, because their difference is what counts."""

LARGEST = ("row_tops", "row_top")
"""Reductions that take the largest."""

ONLINE = ("row_totals", "row_total")
"""Sums of weights, beside products with rows."""
