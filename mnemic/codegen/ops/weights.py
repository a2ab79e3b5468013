"""Rows of weights over kept pairs, relative to their largest, and their sums."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import PAIRS, Operation, Sample, Streaming, Tile
from mnemic.codegen.ops.pulled import whole

BLOCK = Tile(frozenset({PAIRS}))
WEIGHTS = Tile(BLOCK.forms, longer="_left")
SUMMED = Tile(frozenset({PAIRS}), woven=True)


def exp_over(at: At) -> None:
    """Differentiate w = exp(logit − top), the top being a constant: dlogit = d w."""
    logits = at.arguments[0]
    at.give_map(logits, "d*w", d=at.d, w=at.out)


def exp_shares(at: At) -> None:
    """Differentiate w = softmax(l): dl = w (d − Σ d w)."""
    (logits,) = at.arguments
    if at.wants(logits):
        axes = at.quantity.axes
        parts = at.map(f"{at.d}_shared", axes, "d*w", d=at.d, w=at.out)
        inner = at.call(f"{parts}_sum", axes[:-1], "total", parts)
        at.give_map(logits, "w*(d - x)", w=at.out, d=at.d, x=inner)


def row_total(at: At) -> None:
    """Differentiate Σ_i c_i w_i of each row: dw = d c, dc = d w."""
    weights, *coefficients = at.arguments
    if not coefficients:
        at.give_call(weights, "as_vector", at.d, weights)
        return
    at.give_map(weights, "d*c", d=at.d, c=coefficients[0])
    at.give_map(coefficients[0], "d*w", d=at.d, w=weights)


def row_totals(at: At) -> None:
    """Differentiate Σ_i c_i w_i over kept pairs + Σ of a chunk's own: dw = d c, dc = d w, own d."""
    past, mixed, *coefficients = at.arguments
    at.give_call(mixed, "as_vector", at.d, mixed)
    if not coefficients:
        at.give_call(past, "as_vector", at.d, past)
        return
    at.give_map(past, "d*c", d=at.d, c=coefficients[0])
    at.give_map(coefficients[0], "d*w", d=at.d, w=past)


def over_total(at: At) -> None:
    """Differentiate y = x / s, 0 where the row is empty: dx = d / s, ds = −Σ d y / s."""
    x, whole = at.arguments
    at.give_call(x, "over_total", at.d, whole)
    if at.wants(whole):
        axes = at.quantity.axes
        parts = at.map(f"{at.d}_parts", axes, "d*y", d=at.d, y=at.out)
        inner = at.call(f"{parts}_sum", axes[:-1], "total", parts)
        at.give_map(whole, "Piecewise((-x/s, Ne(s, 0)), (0, True))", x=inner, s=whole)


def row_peak(at: At) -> None:
    """Differentiate the largest of each row's weights, which is 1: those that attain it share d."""
    past, own = at.arguments
    share = "Piecewise((1, x > 0.999999), (0, True))"
    old = at.map(f"{past}_largest", at.axes(past), share, x=past)
    new = at.map(f"{own}_largest", at.axes(own), share, x=own)
    count = at.call(f"{at.out}_count", at.quantity.axes, "row_totals", old, new)
    for argument, largest in ((past, old), (own, new)):
        at.give_map(argument, "d*x/Max(n, 1)", d=at.d, x=largest, n=count)


# fmt: off
OPERATIONS = (
    Operation(
        "exp_over", "*n, ~*, ~*n? -> *n", adjoint=exp_over, tile=WEIGHTS,
        sample=Sample("tn, t, tn? -> tn", kinds=("", "", "positive")),
    ),
    Operation("exp_shares", "n -> n", adjoint=exp_shares),
    Operation("exp_relative", "n -> n", adjoint=whole),
    Operation("shares", "n -> n", adjoint=whole, sample=Sample(kinds=("positive",))),
    Operation("relative", "n -> n", adjoint=whole, sample=Sample(kinds=("positive",))),
    Operation(
        "row_top", "~*n, ~*n? -> *", tops="n", tile=SUMMED,
        sample=Sample("tn, tn? -> t", kinds=("", "positive")),
    ),
    Operation(
        "row_tops", "~*n, ~*s, ~*s, ~*n? -> *", tops="n", tile=SUMMED,
        streaming=Streaming(own=2),
        sample=Sample("tn, tt, tt, tn? -> t", kinds=("", "", "positive", "positive")),
    ),
    Operation(
        "row_total", "*n, *n? -> *", sums="n", adjoint=row_total, tile=SUMMED,
        streaming=Streaming(online=True), sample=Sample("tn, tn? -> t"),
    ),
    Operation(
        "row_totals", "*n, *s, *n? -> *", sums="n", adjoint=row_totals, tile=SUMMED,
        streaming=Streaming(online=True, own=1), sample=Sample("tn, tt, tn? -> t"),
    ),
    Operation(
        "row_peak", "tn, ts -> t", adjoint=row_peak,
        tile=Tile(BLOCK.forms, text="tl.full((C,), 1.0, REAL)"), streaming=Streaming(reads=()),
        in_pytorch=False, sample=None,
    ),
    Operation(
        "over_total", "*v, * -> *v", adjoint=over_total, tile=BLOCK,
        sample=Sample("tv, t -> tv", kinds=("", "large")),
    ),
    Operation(
        "decays_left", "n, t -> n", adjoint=whole,
        sample=Sample("n, t -> N", kinds=("", "log decay")),
    ),
    Operation("decays_at_end", "n, ~t -> n", adjoint=whole, sample=Sample(kinds=("", "log decay"))),
)
# fmt: on
