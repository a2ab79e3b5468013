"""Second-order memories: factors, solves, rank-one updates."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import EVERYWHERE, TOKEN, Operation, Sample, Tile

SQUARE = ("t", "s")
MATRIX = ("k", "k")

SOLVER: dict[str, object] = {"tolerance": 1e-13, "iterations": 64}
SYSTEM = ("", "", "decays", "definite", "positive", "positive")


def sustained(at: At) -> None:
    """Differentiate factor M + new: dM = factor d, dnew = d, dfactor = Σ d ∘ M."""
    state, factor, new = at.arguments
    axes = at.axes(state)
    at.give_map(state, "d*f", d=at.d, f=factor)
    at.give(new, at.d)
    if at.wants(factor):
        parts = at.map(f"d_{factor}_parts", axes, "d*m", d=at.d, m=state)
        rows = at.call(f"d_{factor}_rows", axes[:1], "total", parts)
        at.give_call(factor, "total", rows)


def cast(at: At) -> None:
    """Differentiate a cast: what was cast gets d in its own dtype."""
    x = at.arguments[0]
    at.give_call(x, "narrowed", at.d, x)


# -- one chunk by a Cholesky factor ----------------------------------------------------------


def innovation_factor(at: At) -> None:
    """Differentiate L, L Lᵀ = diag(β) + K P Kᵀ: by dS, symmetric, dK = dS K P and dβ = diag dS."""
    kp, k, *kept = at.arguments
    d_s = at.call(f"{at.d}_squared", SQUARE, "cholesky_vjp", at.d, at.out)
    at.give_product(kp, d_s, k)
    at.give_product(k, d_s, kp)
    if kept:
        at.give_call(kept[0], "diagonal_of", d_s)


def solved(at: At) -> None:
    """Differentiate x = L⁻¹ b: db = L⁻ᵀ d, dL = −db xᵀ, lower triangular."""
    factor, x = at.arguments
    d_x = at.call(at.name(x), at.axes(x), "solved_back", factor, at.d)
    at.give(x, d_x)
    if at.wants(factor):
        pairs = at.product(f"{d_x}_pairs", SQUARE, d_x, at.out, "r")
        below = at.call(f"{pairs}_low", SQUARE, "lower", pairs)
        at.give_map(factor, "-x", x=(below, SQUARE))


def shrunk(at: At) -> None:
    """Differentiate (P − XᵀX)/β, β at the chunk's end: dP = d/β, d symmetric, and dX = −2 X d/β."""
    p, x, *kept = at.arguments
    d = at.call(f"{at.d}_even", MATRIX, "symmetric", at.d)
    if kept:
        end = at.call(f"last_{kept[0]}", (), "last", kept[0])
        if at.wants(kept[0]):
            whole = _trace(at, f"d_{end}_whole", at.d, at.out)
            d_end = at.map(f"d_{end}", (), "-w/b", w=whole, b=end)
            at.give_call(kept[0], "at_last", d_end, kept[0])
        d = at.map(f"{d}_over", MATRIX, "d/b", d=d, b=end)
    at.give(p, d)
    if at.wants(x):
        half = at.product(f"{x}_d", at.axes(x), x, d)
        at.give_map(x, "-2*z", z=half)


def _trace(at: At, name: str, one: str, other: str) -> str:
    """Add up all products of two matrices' entries; return the sum's name."""
    axes = at.axes(one)
    parts = at.map(f"{name}_parts", axes, "x*y", x=one, y=other)
    return at.call(name, (), "total", at.call(f"{name}_rows", axes[:1], "total", parts))


def solved_rows(at: At) -> None:
    """Differentiate x_t, (H_t + Λ_t) x_t = q_t: dq = g solves the same system for d; dH = −g xᵀ."""
    q, key, weights, h, ridge, reach = at.arguments
    function = at.quantity.op.function  # type: ignore[union-attr]
    options = {n: at.option(n) for n in ("tolerance", "iterations") if at.option(n) is not None}
    g = at.call(f"{at.d}_solved", at.axes(q), function, at.d, *at.arguments[1:], **options)
    at.give(q, g)
    at.give_map(ridge, "-x*g", x=at.out, g=g)
    _weighed(at, g)
    left = at.map(f"{g}_reach", at.axes(q), "-r*g", r=reach, g=g)
    if at.wants(h):
        pulled = at.product(f"d_{h}_half", MATRIX, left, at.out, "l")
        at.give_call(h, "symmetric", pulled)
    if at.wants(reach):
        met = at.product(f"{at.out}_{h}", at.axes(q), at.out, h)
        at.give_sum(reach, "-x*g", at.axes(q), x=met, g=g)
    del key, weights


def _weighed(at: At, g: str) -> None:
    """Give keys and their weights w the gradients of −Σ_ts w_ts (g_t·k_s)(k_s·x_t)."""
    key, weights = at.arguments[1:3]
    if not at.wants(key, weights):
        return
    seen = at.product(f"{at.out}_{key}", SQUARE, at.out, key, "r")
    answer = at.product(f"{g}_{key}", SQUARE, g, key, "r")
    env = {"w": (weights, SQUARE), "a": (answer, SQUARE), "s": (seen, SQUARE)}
    if at.wants(weights):
        pairs = at.map(f"{g}_pairs", SQUARE, "-a*s", a=env["a"], s=env["s"])
        at.give_call(weights, "lower", pairs)
    if at.wants(key):
        one = at.map(f"{answer}_weighed", SQUARE, "-w*a", w=env["w"], a=env["a"])
        two = at.map(f"{seen}_weighed", SQUARE, "-w*s", w=env["w"], s=env["s"])
        axes = at.axes(key)
        parts = {
            "x": at.product(f"d_{key}_seen", axes, one, at.out, "l"),
            "y": at.product(f"d_{key}_answer", axes, two, g, "l"),
        }
        at.give_map(key, "x + y", **parts)


# -- token by token --------------------------------------------------------------------------


def ridge_solved(at: At) -> None:
    """Differentiate x, (H + Λ) x = q: dq = g solves the system for d; dΛ = −x ∘ g, dH = −g xᵀ."""
    h, ridge, q = at.arguments
    g = at.call(f"{at.d}_solved", at.axes(q), "ridge_solved", h, ridge, at.d)
    at.give(q, g)
    at.give_map(ridge, "-x*g", x=at.out, g=g)
    if at.wants(h):
        pairs = at.call(f"d_{h}_pairs", MATRIX, "outer", g, at.out)
        even = at.call(f"d_{h}_even", MATRIX, "symmetric", pairs)
        at.give_map(h, "-x", x=even)


def kalman_gain(at: At) -> None:
    """Differentiate g = P w/s, s = γ + k·P w, w the weighed key: d(P w) = (d − k (d·g))/s."""
    p, k, weighed, *forget = at.arguments
    pk = at.call(f"{p}_{weighed}", ("k",), "recall", p, weighed)
    met = at.call(f"{k}_met", (), "total", at.map(f"{k}_{pk}", ("k",), "k*p", k=k, p=pk))
    gamma = f"exp({'f' if forget else 0})"
    env = {"m": met, **({"f": forget[0]} if forget else {})}
    size = at.map(f"{at.out}_size", (), f"m + {gamma}", **env)
    along = at.call(f"{at.d}_along", (), "total",
                    at.map(f"{at.d}_{at.out}", ("k",), "d*g", d=at.d, g=at.out))  # fmt: skip
    d_pk = at.map(f"d_{pk}", ("k",), "(d - k*a)/s", d=at.d, k=k, a=along, s=size)
    at.give_map(k, "-g*a", g=at.out, a=along)
    at.give_call(p, "outer", d_pk, weighed)
    at.give_call(weighed, "pull", p, d_pk)
    if forget:
        at.give_map(forget[0], "-a*exp(f)/s", a=along, f=forget[0], s=size)


def downdated(at: At) -> None:
    """Differentiate (P − g (P k)ᵀ) / γ, made symmetric, at P, k, g and log γ."""
    p, k, gain, *forget = at.arguments
    d = at.call(f"{at.d}_even", MATRIX, "symmetric", at.d)
    if forget:
        at.give_map(forget[0], "-w", w=_trace(at, f"{at.d}_whole", at.d, at.out))
        d = at.map(f"{d}_over", MATRIX, "d*exp(-f)", d=d, f=forget[0])
    pk = at.call(f"{p}_{k}", ("k",), "recall", p, k)
    if at.wants(gain):
        met = at.call(f"{d}_{pk}", ("k",), "recall", d, pk)
        at.give_map(gain, "-x", x=met)
    d_pk = at.map(f"d_{pk}", ("k",), "-x", x=at.call(f"{d}_{gain}", ("k",), "recall", d, gain))
    at.give_call(k, "pull", p, d_pk)
    if at.wants(p):
        moved = at.call(f"{d_pk}_{k}", MATRIX, "outer", d_pk, k)
        at.give_map(p, "x + y", x=d, y=moved)


# fmt: off
OPERATIONS = (
    Operation("widened", "* -> *", casts=True, adjoint=cast, sample=Sample("tk -> tk")),
    Operation("narrowed", "*, ~* -> *", casts=True, adjoint=cast, sample=Sample("tk, tk -> tk")),
    Operation("sustained", "vk, , vk -> vk", adjoint=sustained, tile=Tile(EVERYWHERE)),
    Operation("symmetric", "kk -> kk", mixes="k", tile=Tile(EVERYWHERE)),
    Operation(
        "innovation_factor", "tk, tk, t? -> tt", adjoint=innovation_factor,
        tile=Tile(extras=("precision",), longer="_kept"),
        sample=Sample(kinds=("", "those of before", "positive")),
    ),
    Operation(
        "solved", "tt, tk -> tk", adjoint=solved, tile=Tile(extras=("precision",)),
        sample=Sample(kinds=("factor",)),
    ),
    Operation(
        "solved_back", "tt, tk -> tk", tile=Tile(extras=("precision",)),
        sample=Sample(kinds=("factor",)),
    ),
    Operation(
        "cholesky_vjp", "tt, tt -> tt", tile=Tile(extras=("precision",)),
        sample=Sample(kinds=("", "factor")),
    ),
    Operation("diagonal_of", "tt -> t", tile=Tile()),
    Operation(
        "shrunk", "kk, tk, t? -> kk", mixes="k", adjoint=shrunk,
        tile=Tile(extras=("live", "precision"), longer="_kept"),
        sample=Sample(kinds=("definite", "", "positive")),
    ),
    Operation(
        "conjugated", "tk, tk, tt, kk, tk, t -> tk", mixes="k", adjoint=solved_rows,
        tile=Tile(extras=("precision",), options=("tolerance", "iterations")),
        sample=Sample(kinds=SYSTEM, options=SOLVER, tolerance=1e-09),
    ),
    Operation(
        "cholesky_rows", "tk, tk, tt, kk, tk, t -> tk", adjoint=solved_rows,
        sample=Sample(kinds=SYSTEM),
    ),
    Operation(
        "kalman_gain", "kk, k, k, ? -> k", mixes="k", adjoint=kalman_gain,
        tile=Tile(frozenset({TOKEN}), longer="_kept"),
        sample=Sample(kinds=("definite", "", "", "log decay")),
    ),
    Operation(
        "downdated", "kk, k, k, ? -> kk", mixes="k", adjoint=downdated,
        tile=Tile(frozenset({TOKEN}), longer="_kept"),
        sample=Sample(kinds=("definite", "", "", "log decay")),
    ),
    Operation(
        "ridge_solved", "kk, k, k -> k", mixes="k", adjoint=ridge_solved,
        tile=Tile(frozenset({TOKEN})), sample=Sample(kinds=("definite", "positive")),
    ),
)
# fmt: on
