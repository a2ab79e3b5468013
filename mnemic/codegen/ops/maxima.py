"""Weights under a running maximum m of their logarithms."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Tile

SQUARE = ("t", "s")


def stable_mix(at: At) -> None:
    """Differentiate M_ts = exp(Σ_{s<i≤t} l_i + r_s − m_t): sums of d ∘ M for l, r and m."""
    log_decay, log_rate, m = at.arguments
    if not at.wants(*at.arguments):
        return
    kept = at.map(f"{at.d}_kept", SQUARE, "d*p", d=at.d, p=at.out)
    at.give_call(log_decay, "between", kept)
    at.give_call(log_rate, "total_rows", kept)
    if at.wants(m):
        left = at.call(f"{kept}_rows", ("t",), "total", kept)
        at.give_map(m, "-x", x=left)


def stable_reach(at: At) -> None:
    """Differentiate r_t = exp(Σ_{i≤t} l_i + m_0 − m_t): sums of d ∘ r for l, m_0 and m."""
    log_decay, start, m = at.arguments
    kept = at.map(f"{at.d}_kept", ("t",), "d*r", d=at.d, r=at.out)
    at.give_call(log_decay, "later_sums", kept)
    at.give_call(start, "total", kept)
    at.give_map(m, "-x", x=kept)


def running_maximum(at: At) -> None:
    """Differentiate m_t = max(max_s(Σ_{s<i≤t} l_i + r_s), Σ_{i≤t} l_i + m_0) at what attains it."""
    log_decay, log_rate, start = at.arguments
    if not at.wants(*at.arguments):
        return
    share = at.call(f"{at.out}_share", SQUARE, "maximum_share", log_decay, log_rate, at.out)
    at.give_call(log_rate, "vector_matrix", at.d, share)
    taken = at.call(f"{share}_rows", ("t",), "total", share)
    rest = at.map(f"{at.d}_rest", ("t",), "d*(1 - x)", d=at.d, x=taken)
    at.give_call(start, "total", rest)
    if at.wants(log_decay):
        parts = at.map(f"{at.d}_parts", SQUARE, "d*x", d=at.d, x=share)
        one = at.call(f"{parts}_between", ("t",), "between", parts)
        two = at.call(f"{rest}_later", ("t",), "later_sums", rest)
        at.give_map(log_decay, "x + y", x=one, y=two)


# fmt: off
OPERATIONS = (
    Operation(
        "running_maximum", "t, t,  -> t", adjoint=running_maximum, tile=Tile(),
        sample=Sample(kinds=("log decay", "", "positive")),
    ),
    Operation(
        "stable_mix", "t, t, t -> tt", adjoint=stable_mix, tile=Tile(),
        sample=Sample(kinds=("log decay", "", "large")),
    ),
    Operation(
        "stable_reach", "t, , t -> t", adjoint=stable_reach, tile=Tile(),
        sample=Sample(kinds=("log decay", "", "large")),
    ),
    Operation(
        "maximum_share", "t, t, t -> tt", tile=Tile(),
        sample=Sample(kinds=("log decay", "", "running maximum")),
    ),
)
# fmt: on
