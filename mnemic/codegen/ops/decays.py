"""Decays between the rows of a chunk, and sums over rows before or behind."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Tile

DECAY = Sample(kinds=("log decay",))


def segments(at: At) -> None:
    """Differentiate P_ts = exp Σ_{s<i≤t} l_i: dl_i = Σ_{t≥i>s} d_ts P_ts."""
    (log_decay,) = at.arguments
    if at.wants(log_decay):
        inner = at.map(f"{at.d}_kept", ("t", "s"), "d*p", d=at.d, p=at.out)
        at.give_call(log_decay, "between", inner)


def products(at: At) -> None:
    """Differentiate P_ts = Π_{s<i≤t} f_i, which may be zero: df_i = Σ_s (Pᵀ d)_is P_{i−1,s}."""
    (factor,) = at.arguments
    if at.wants(factor):
        later = at.product(f"{at.d}_later", ("t", "s"), at.out, at.d, "l")
        before = at.call(f"{at.out}_before", ("t", "s"), "delayed_rows", at.out, fill=0.0)
        at.give_sum(factor, "x*y", ("t", "s"), x=(later, ("t", "s")), y=(before, ("t", "s")))


def running_product(at: At) -> None:
    """Differentiate p_t = Π_{i≤t} f_i: df_i = p_{i−1} Σ_{t≥i} d_t Π_{i<j≤t} f_j."""
    (factor,) = at.arguments
    if at.wants(factor):
        between = at.call(f"{at.out}_between", ("t", "s"), "products", factor)
        later = at.call(f"{at.d}_later", ("t",), "vector_matrix", at.d, between)
        before = at.call(f"{at.out}_before", ("t",), "delayed", at.out, fill=1.0)
        at.give_map(factor, "x*y", x=later, y=before)


def reach(at: At) -> None:
    """Differentiate r_t = exp Σ_{i≤t} l_i: dl_i = Σ_{t≥i} d_t r_t."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "later_sums")


def reach_rows(at: At) -> None:
    """Differentiate r_tκ = exp Σ_{i≤t} l_iκ, by channel: dl_iκ = Σ_{t≥i} d_tκ r_tκ."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "later_rows")


def left_at_end(at: At) -> None:
    """Differentiate r_s = exp Σ_{i>s} l_i: dl_i = Σ_{s<i} d_s r_s."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "earlier_sums")


def remain_rows(at: At) -> None:
    """Differentiate r_sκ = exp Σ_{i>s} l_iκ, by channel: dl_iκ = Σ_{s<i} d_sκ r_sκ."""
    (log_decay,) = at.arguments
    _summed(at, log_decay, "earlier_rows")


def _summed(at: At, log_decay: str, function: str) -> None:
    if at.wants(log_decay):
        inner = at.map(f"{at.d}_kept", at.quantity.axes, "d*r", d=at.d, r=at.out)
        at.give_call(log_decay, function, inner)


# fmt: off
OPERATIONS = (
    Operation("segments", "t -> tt", adjoint=segments, tile=Tile(), sample=DECAY),
    Operation("products", "t -> tt", adjoint=products, tile=Tile()),
    Operation("running_product", "t -> t", adjoint=running_product, tile=Tile()),
    Operation("reach", "t -> t", adjoint=reach, tile=Tile(), sample=DECAY),
    Operation("reach_rows", "tk -> tk", adjoint=reach_rows, tile=Tile(), sample=DECAY),
    Operation(
        "left_at_end", "t -> t", adjoint=left_at_end, tile=Tile(extras=("live",)), sample=DECAY,
    ),
    Operation("remain_rows", "tk -> tk", adjoint=remain_rows, tile=Tile(), sample=DECAY),
    Operation("between", "tt -> t", tile=Tile()),
    Operation("later_sums", "t -> t", tile=Tile()),
    Operation("earlier_sums", "t -> t", tile=Tile()),
    Operation("later_rows", "tk -> tk", tile=Tile()),
    Operation("earlier_rows", "tk -> tk", tile=Tile()),
)
# fmt: on
