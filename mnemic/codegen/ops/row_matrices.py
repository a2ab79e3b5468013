"""A matrix for each row of a chunk: PyTorch's own, since no tile holds them."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import A_MATRIX_A_TOKEN, Operation, Sample
from mnemic.codegen.ops.pulled import whole


def accumulate(at: At) -> None:
    """Differentiate M_t = Σ_s w_ts u_s k_sᵀ: du = X k and dk = Xᵀ u, with X_s = Σ_t w_ts dM_t."""
    weights, u, k = at.arguments
    if at.wants(u, k):
        name = f"{at.d}_gathered"
        x = at.call(name, (at.axes(u)[0], "v", "k"), "gathered_states", weights, at.d)
        at.give_call(u, "recall", x, k)
        at.give_call(k, "pull", x, u)
    at.give_call(weights, "pairings", at.d, u, k)


def decayed_onto(at: At) -> None:
    """Differentiate M_t = f_t A + X_t: dA = Σ_t f_t dM_t, df_t = dM_t·A, dX = dM."""
    state, factor, sums = at.arguments
    at.give(sums, at.d)
    if at.wants(state, factor):
        name = f"{at.d}_met"
        lead = at.axes(at.d)
        along = at.map(f"{name}_entries", lead, "d*a", d=at.d, a=state)
        at.give(factor, at.summed(at.name(factor), along, lead, at.axes(factor)))
        faded = at.map(f"{name}_faded", lead, "d*f", d=at.d, f=factor)
        at.give_call(state, "total_states", faded)


def accumulate_states(at: At) -> None:
    """Differentiate M_t = Σ_s w_ts X_s: dX_s = Σ_t w_ts dM_t, dw_ts = dM_t·X_s."""
    weights, states = at.arguments
    at.give_call(states, "gathered_states", weights, at.d)
    at.give_call(weights, "state_products", at.d, states)


def last_of(at: At) -> None:
    """Differentiate the last row's matrix: that row gets d, all others zero."""
    (x,) = at.arguments
    at.give_call(x, "at_last_of", at.d, x)


def delayed_states(at: At) -> None:
    """Differentiate M_t = X_{t−1}, M_0 the first state: dX_t = d_{t+1}, and d_0 for that state."""
    x, first = at.arguments
    at.give_call(x, "advanced_states", at.d)
    at.give_call(first, "first_of", at.d)


# fmt: off
OPERATIONS = (
    Operation(
        "accumulate", "ts, sv, sk -> tvk", sums="s", adjoint=accumulate, untiled=A_MATRIX_A_TOKEN,
        sample=Sample("tt, tv, tk -> tvk"),
    ),
    Operation(
        "decayed_onto", "vk, t, tvk -> tvk", adjoint=decayed_onto, untiled=A_MATRIX_A_TOKEN,
    ),
    Operation(
        "accumulate_states", "ts, svk -> tvk", sums="s", adjoint=accumulate_states,
        untiled=A_MATRIX_A_TOKEN,
    ),
    Operation(
        "faded_states", "tk, tvk -> tvk", adjoint=whole, untiled=A_MATRIX_A_TOKEN,
        sample=Sample(kinds=("log decay",)),
    ),
    Operation(
        "accumulate_rows", "tk, tv, tk -> tvk", adjoint=whole,
        sample=Sample(kinds=("log decay",), options={"rows": 1}),
    ),
    Operation(
        "accumulate_blended", "kts, tv, tk -> tvk", adjoint=whole,
        sample=Sample(options={"rows": 1}),
    ),
    Operation("gathered_states", "ts, tvk -> svk", sums="t"),
    Operation("pairings", "tvk, sv, sk -> ts", sums="vk"),
    Operation("state_products", "tvk, svk -> ts", sums="vk"),
    Operation("last_of", "tvk -> vk", adjoint=last_of),
    Operation("at_last_of", "vk, ~tvk -> tvk"),
    Operation("delayed_states", "tvk, vk -> tvk", adjoint=delayed_states),
    Operation("advanced_states", "tvk -> tvk"),
    Operation("first_of", "tvk -> vk"),
)
# fmt: on
