"""Scores under a decay by channel: q_t·k_s Π_{s<i≤t} decay_i."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Tile
from mnemic.codegen.ops.pulled import whole

LAST_DECAYS = ("", "", "log decay")
DECAYED = Sample(kinds=LAST_DECAYS)

MOMENTUM = (
    "momentum under a decay of each channel, which takes a matrix of a chunk's rows a channel; "
    "token by token there is one"
)


def scores_after(at: At) -> None:
    """Differentiate P_ts = Σ_κ q_tκ k_sκ D_tsκ: dq mixes keys, dk mixes queries backwards.

    Since log decay i stands in all of D with t ≥ i > s, its gradient is what rows from i on gave
    (q ∘ dq) less what they were read for (k ∘ dk).
    """
    targets, keys, log_decay = at.arguments
    _scores(at, at.d, (targets, targets), keys, log_decay)


def scores_before(at: At) -> None:
    """Differentiate P_ts = Σ_κ q_tκ k_sκ D_{t−1,sκ}: scores of row t − 1 for its next target."""
    targets, keys, log_decay = at.arguments
    if not at.wants(*at.arguments):
        return
    rows = int(at.option("rows", 1)) if at.axes(targets)[0] == "s" else 1
    by = {} if rows == 1 else {"rows": rows}
    d = at.call(f"{at.d}_ahead", at.quantity.axes, "advanced_rows", at.d, **by)
    ahead = at.call(f"{targets}_ahead", at.axes(targets), "advanced_rows", targets, **by)
    d_ahead = _scores(at, d, (targets, ahead), keys, log_decay)
    if rows == 1:
        at.give_call(targets, "delayed_rows", d_ahead, fill=0.0)
    else:
        at.give_call(targets, "delayed_by", d_ahead, rows=rows)


def _scores(at: At, d: str, targets: tuple[str, str], keys: str, log_decay: str) -> str:
    """Give keys, decay and targets that did not move their gradients; return the targets'."""
    given, moved = targets
    rows = int(at.option("rows", 1))
    name = at.name(given) if given == moved else f"d_{moved}"
    d_targets = _mixed(at, name, moved, ("decayed_mix", "row_mix"), (d, keys, log_decay))
    if given == moved:
        at.give(given, d_targets)
    if not at.wants(keys, log_decay):
        return d_targets
    d_keys = _mixed(at, at.name(keys), keys, ("mixed_back", "row_mix_back"), (d, moved, log_decay))
    at.give(keys, d_keys)
    if at.wants(log_decay):
        pairs = (moved, d_targets), (keys, d_keys)
        one, two = (_by_token(at, *pair, log_decay, rows) for pair in pairs)
        rest = at.map(f"{d}_passed", at.axes(log_decay), "x - y", x=one, y=two)
        at.give_call(log_decay, "later_rows", rest)
    return d_targets


def _mixed(
    at: At, name: str, like: str, functions: tuple[str, str], arguments: tuple[str, str, str]
) -> str:  # fmt: skip
    """Mix rows by scores, where a token has one row or several; return the name of the result."""
    function = functions[int(at.option("rows", 1)) > 1]
    return at.call(name, at.axes(like), function, *arguments)


def _by_token(at: At, x: str, d: str, log_decay: str, rows: int) -> str:
    axes = at.axes(x)
    whole = at.map(f"{d}_{x}", axes, "x*d", x=x, d=d)
    if rows == 1 or axes[0] == "t":
        return whole
    return at.call(f"{whole}_tokens", at.axes(log_decay), "token_sums", whole, rows=rows)


def decayed_mix(at: At) -> None:
    """Differentiate y_tυ = Σ_s P_ts u_sυ D_tsυ: dP are scores of d and u, du mixes d backwards."""
    scores, u, log_decay = at.arguments
    at.give_call(scores, "scores_after", at.d, u, log_decay, rows=1)
    if not at.wants(u, log_decay):
        return
    d_u = at.call(at.name(u), at.axes(u), "mixed_back", scores, at.d, log_decay)
    at.give(u, d_u)
    if at.wants(log_decay):
        rest = at.map(
            f"{at.d}_passed", at.axes(log_decay), "d*y - u*b", d=at.d, y=at.out, u=u, b=d_u
        )
        at.give_call(log_decay, "later_rows", rest)


# fmt: off
OPERATIONS = (
    Operation(
        "scores_after", "tk, sk, ck -> ts", sums="k", adjoint=scores_after,
        tile=Tile(extras=("precision",), options=("rows",)),
        sample=Sample("tk, Sk, tk -> tS", kinds=LAST_DECAYS, options={"rows": 3}),
    ),
    Operation(
        "scores_before", "tk, sk, ck -> ts", sums="k", adjoint=scores_before,
        tile=Tile(extras=("precision",), options=("rows",)),
        sample=Sample("Sk, Sk, tk -> SS", kinds=LAST_DECAYS, options={"rows": 3}),
    ),
    Operation(
        "decayed_mix", "tt, tk, tk -> tk", adjoint=decayed_mix, tile=Tile(extras=("precision",)),
        sample=DECAYED,
    ),
    Operation("mixed_back", "tt, tk, tk -> tk", tile=Tile(extras=("precision",)), sample=DECAYED),
    Operation(
        "row_mix", "ts, sk, ck -> tk", tile=Tile(extras=("precision", "window")),
        sample=Sample("tS, Sk, tk -> tk", kinds=LAST_DECAYS),
    ),
    Operation(
        "row_mix_back", "ts, tk, ck -> sk", tile=Tile(extras=("precision", "window")),
        sample=Sample("SS, Sk, tk -> Sk", kinds=LAST_DECAYS),
    ),
    Operation(
        "blended_after", "tk, sk, ~tk, kts -> ts", adjoint=whole,
        sample=Sample("tk, tk, tk, kts -> ts", kinds=("", "", "log decay"), options={"rows": 1}),
    ),
    Operation(
        "blended_before", "tk, sk, ~tk, kts -> ts", adjoint=whole,
        sample=Sample("tk, tk, tk, kts -> ts", kinds=("", "", "log decay"), options={"rows": 1}),
    ),
    Operation("blended_carry", "tk, t -> tk", adjoint=whole, sample=Sample(kinds=("log decay",))),
    Operation("blended_remain", "kts -> tk", adjoint=whole),
    Operation(
        "decayed_products", "tk, t -> kts", adjoint=whole, untiled=MOMENTUM,
        sample=Sample(kinds=("log decay",)),
    ),
)
# fmt: on
