"""Rules of kept pairs: states that grow, and rows of weights over their sums."""

from collections.abc import Callable

from mnemic.codegen.adjoint.at import At

# -- states that grow ------------------------------------------------------------------------


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


def widened(at: At) -> None:
    """Constants for the new pairs."""
    kept, _ = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)


def grown(at: At) -> None:
    """Rows of which the first belong to the last kept pairs."""
    kept, rows = at.arguments
    at.give_call(kept, "first_rows", at.d, kept)
    at.give_call(rows, "rows_behind", at.d, rows)


def as_row(at: At) -> None:
    """The same coefficients for every row."""
    (x,) = at.arguments
    at.give_call(x, "total_rows", at.d)


def elapsed(at: At) -> None:
    """l_i − a_t, of pairs i at rows t."""
    rows, pairs = at.arguments
    at.give_call(pairs, "total_rows", at.d)
    if at.wants(rows):
        whole = at.call(f"{at.d}_rows", at.axes(rows), "total", at.d)
        at.give_map(rows, "-x", x=whole)


# -- rows of weights over their sums ---------------------------------------------------------


def exp_over(at: At) -> None:
    """exp(logit − top), the top being a constant."""
    logits = at.arguments[0]
    at.give_map(logits, "d*w", d=at.d, w=at.out)


def exp_shares(at: At) -> None:
    """softmax: dl = w (d − Σ d w)."""
    (logits,) = at.arguments
    if at.wants(logits):
        axes = at.quantity.axes
        parts = at.map(f"{at.d}_shared", axes, "d*w", d=at.d, w=at.out)
        inner = at.call(f"{parts}_sum", axes[:-1], "total", parts)
        at.give_map(logits, "w*(d - x)", w=at.out, d=at.d, x=inner)


def row_total(at: At) -> None:
    """Σ_i c_i w_i of each row."""
    weights, *coefficients = at.arguments
    if not coefficients:
        at.give_call(weights, "as_vector", at.d, weights)
        return
    at.give_map(weights, "d*c", d=at.d, c=coefficients[0])
    at.give_map(coefficients[0], "d*w", d=at.d, w=weights)


def row_totals(at: At) -> None:
    """Σ over kept pairs and a chunk's own."""
    past, mixed, *coefficients = at.arguments
    at.give_call(mixed, "as_vector", at.d, mixed)
    if not coefficients:
        at.give_call(past, "as_vector", at.d, past)
        return
    at.give_map(past, "d*c", d=at.d, c=coefficients[0])
    at.give_map(coefficients[0], "d*w", d=at.d, w=past)


def over_total(at: At) -> None:
    """y = x / Σ, 0 where the row is empty."""
    x, whole = at.arguments
    at.give_call(x, "over_total", at.d, whole)
    if at.wants(whole):
        axes = at.quantity.axes
        parts = at.map(f"{at.d}_parts", axes, "d*y", d=at.d, y=at.out)
        inner = at.call(f"{parts}_sum", axes[:-1], "total", parts)
        at.give_map(whole, "Piecewise((-x/s, Ne(s, 0)), (0, True))", x=inner, s=whole)


RULES: dict[str, Callable[[At], None]] = {
    "append": append,
    "append_rows": append_rows,
    "with_zeros": widened,
    "with_ones": widened,
    "grown": grown,
    "as_row": as_row,
    "elapsed": elapsed,
    "exp_over": exp_over,
    "exp_shares": exp_shares,
    "row_total": row_total,
    "row_totals": row_totals,
    "over_total": over_total,
}
