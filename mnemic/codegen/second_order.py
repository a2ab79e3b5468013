"""Second-order rules: exact least squares and full-batch descent, from running moments.

Where P = (Σ w k kᵀ)⁻¹ can be carried: Sherman–Morrison token by token, one Cholesky factor a chunk.
Else H = Σ w k kᵀ and U = Σ w v kᵀ are carried, and solved at every
query: y = U (H + Λ)⁻¹ q by a Cholesky factor, in a chunk by conjugate gradients where the spec
says so. Batch: W^(j+1) = W^(j) − η (W^(j) (H + Λ) − U), W^(0) = 0, read at q.
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import BuilderOf
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import with_bonus
from mnemic.compiler.rule import Moments


def _symbols(*names: str) -> tuple[Any, ...]:
    return tuple(sp.Symbol(name, real=True) for name in names)


def _forgetting(b: BuilderOf[Moments]) -> str | None:
    if not b.rule.solution.fades:
        return None
    return b.needed_log_decay(b.rule.problem.value("gamma"), "log_forget")


def _weighed(b: BuilderOf[Moments], name: str, power: Any = 1) -> str:
    """Multiply a row by a power of its pair's weight."""
    weight = b.rule.solution.weight
    if weight == 1:
        return name
    x = sp.Symbol("x_", real=True)
    env = {"x_": name, **b.coefficients(weight)}
    return b.map(f"{name}_weighed", x * weight**power, env)


def recurrent(rule: Moments) -> Plan:
    """Plan one token of a second-order rule."""
    return _with_bonus(
        _recurrent_inverse(rule) if rule.solution.inverted else _recurrent_moments(rule)
    )


def chunk(rule: Moments) -> Plan:
    """Plan one chunk of a second-order rule."""
    return _with_bonus(_chunk_inverse(rule) if rule.solution.inverted else _chunk_moments(rule))


def _with_bonus(b: BuilderOf[Moments]) -> Plan:
    """Return the plan of a solution whose read-out has the bonus of the token's own pair."""
    b.plan.output = with_bonus(b, b.plan.output, b.featured("q"), b.roles())
    return b.plan


# -- the inverse, carried --------------------------------------------------------------------


def _recurrent_inverse(rule: Moments) -> BuilderOf[Moments]:
    b = BuilderOf(rule, ())
    b.declare_vectors()
    w = b.plan.given("W", ("v", "k"), state=True)
    p = b.plan.given("P", ("k", "k"), state=True)
    roles = b.roles()
    key, value = roles["predict"], roles["value"]
    forget = _forgetting(b)
    late = () if forget is None else (forget,)
    gain = b.call("gain", ("k",), "kalman_gain", p, key, _weighed(b, key), *late,
                  equation="dual")  # fmt: skip
    b.plan.following[p] = b.call("P_next", ("k", "k"), "downdated", p, key, gain, *late,
                                 equation="moment H")  # fmt: skip
    y_hat = b.call("y_hat", ("v",), "recall", w, key, equation="prediction")
    one, two, three, four = _symbols("w_", "v_", "y_", "g_")
    env = {"w_": w, "v_": value, "y_": y_hat, "g_": gain}
    b.plan.following[w] = b.map("W_next", one + (two - three) * four, env, "dual")
    b.plan.output = b.call("y", ("v",), "recall", b.plan.following[w], b.featured("q"),
                           equation="readout")  # fmt: skip
    return b


def _chunk_inverse(rule: Moments) -> BuilderOf[Moments]:
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    w = b.plan.given("W", ("v", "k"), state=True)
    p = b.plan.given("P", ("k", "k"), state=True)
    roles = b.roles()
    half = sp.Rational(1, 2)
    key, value = (_weighed(b, roles[role], half) for role in ("predict", "value"))
    forget = _forgetting(b)
    weights = () if forget is None else (b.call("kept", ("t",), "reach", forget),)
    wide_key, wide_p = (_widened(b, name) for name in (key, p))
    kp = b.product("kP", ("t", "k"), wide_key, wide_p)
    factor = b.call("factor", ("t", "s"), "innovation_factor", kp, wide_key, *weights)
    wide_x = b.call("X", ("t", "k"), "solved", factor, kp)
    x = _narrowed(b, wide_x, key)
    one, two = _symbols("a_", "b_")
    y_hat = b.product("y_hat", ("t", "v"), key, w, flip_right=True, equation="prediction")
    error = b.map("innovation", one - two, {"a_": value, "b_": y_hat}, "error")
    wide_y = b.call("Y", ("t", "v"), "solved", factor, _widened(b, error), equation="error")
    y = _narrowed(b, wide_y, value)
    query = b.featured("q")
    raw = b.product("qX", ("t", "s"), query, x, flip_right=True)
    new = b.product("y_new", ("t", "v"), b.call("qX_low", ("t", "s"), "lower", raw), y)
    old = b.product("y_old", ("t", "v"), query, w, flip_right=True)
    b.plan.output = b.map("y", one + two, {"a_": old, "b_": new}, "readout")
    added = b.product("W_new", ("v", "k"), y, x, flip_left=True)
    b.plan.following[w] = b.map("W_next", one + two, {"a_": w, "b_": added}, "dual")
    following = b.call("P_next", ("k", "k"), "shrunk", wide_p, wide_x, *weights)
    b.plan.following[p] = _narrowed(b, following, p)
    return b


def _widened(b: BuilderOf[Moments], name: str) -> str:
    """Widen numbers by the digits that a difference may lose: see ``ops.widened``."""
    return b.call(f"{name}_wide", b.plan.axes(name), "widened", name)


def _narrowed(b: BuilderOf[Moments], name: str, like: str) -> str:
    """Narrow numbers to the dtype of ``like``."""
    return b.call(f"{name}_narrow", b.plan.axes(name), "narrowed", name, like)


# -- the moments, carried --------------------------------------------------------------------


def _states(b: BuilderOf[Moments]) -> tuple[str, str]:
    return (
        b.plan.given("H", ("k", "k"), state=True),
        b.plan.given("U", ("v", "k"), state=True),
    )


def _sustained(b: BuilderOf[Moments], state: str, kept: str | None, new: str) -> str:
    """Plan a moment after the token or chunk: what is ``kept`` of it, and what is ``new``."""
    name, axes = f"{state}_next", b.plan.axes(state)
    if kept is not None:
        return b.call(name, axes, "sustained", state, kept, new, equation=f"moment {state}")
    x, y = _symbols("x_", "y_")
    return b.map(name, x + y, {"x_": state, "y_": new}, f"moment {state}")


def _ridge(b: BuilderOf[Moments], like: str) -> str | None:
    """Return Λ beside H, as a vector a row; ``None`` where it is 0, or H starts at it."""
    moments = b.rule.solution
    if not moments.constant or moments.ridge == 0:
        return None
    ridge = b.row_map("ridge", moments.ridge)
    if "k" in b.plan.axes(ridge):
        return ridge
    return b.call("ridge_row", b.plan.axes(like), "as_vector", ridge, like)


def _recurrent_moments(rule: Moments) -> BuilderOf[Moments]:
    b = BuilderOf(rule, ())
    b.declare_vectors()
    h, u = _states(b)
    roles = b.roles()
    forget = _forgetting(b)
    f = sp.Symbol("f_", real=True)
    kept = None if forget is None else b.map("kept", sp.exp(f), {"f_": forget})
    key = roles["predict"]
    weighed = _weighed(b, key)
    square = b.call("kk", ("k", "k"), "outer", key, weighed)
    pair = b.call("vk", ("v", "k"), "outer", roles["value"], weighed)
    h_next = _sustained(b, h, kept, square)
    u_next = _sustained(b, u, kept, pair)
    b.plan.following[h], b.plan.following[u] = h_next, u_next
    query = b.featured("q")
    if b.rule.solution.steps:
        b.plan.output = _descended(b, _Token(b, h_next, u_next), query)
        return b
    ridge = _ridge(b, query) or b.call("no_ridge", ("k",), "filled", query, value=0.0)
    x_q = b.call("x", ("k",), "ridge_solved", h_next, ridge, query, equation="dual")
    b.plan.output = b.call("y", ("v",), "recall", u_next, x_q, equation="readout")
    return b


def _chunk_moments(rule: Moments) -> BuilderOf[Moments]:
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    h, u = _states(b)
    roles = b.roles()
    key, value = roles["predict"], roles["value"]
    rows = _Chunk(b, h, u, key, value, *_mixing(b, key))
    query = b.featured("q")
    moments = b.rule.solution
    if moments.steps:
        b.plan.output = _descended(b, rows, query)
    else:
        ridge = _ridge(b, query) or b.call("no_ridge", ("t", "k"), "filled", query, value=0.0)
        reach = rows.reach or b.row_map("reach", sp.Integer(1))
        parts = (query, key, rows.weights, h, ridge, reach)
        name, options = "cholesky_rows", {}
        if moments.iterations:
            name = "conjugated"
            options = {"tolerance": moments.tolerance, "iterations": moments.iterations}
        x = b.call("x", ("t", "k"), name, *parts, equation="dual", **options)
        b.plan.output = rows.cross(x, "y", "readout")
    rows.carry()
    return b


def _mixing(b: BuilderOf[Moments], key: str) -> tuple[str, str | None]:
    """Return what pair s weighs at row t, and what is left at row t of the chunk's start."""
    forget = _forgetting(b)
    if forget is None:
        mix, reach = b.call("mix", ("t", "s"), "lower_ones_of", key), None
    else:
        mix = b.call("mix", ("t", "s"), "segments", forget)
        reach = b.call("reach", ("t",), "reach", forget)
    weight = b.rule.solution.weight
    if weight == 1:
        return mix, reach
    m, w = _symbols("m_", "w_")
    own = b.row_map("weight", weight)
    weights = b.map("weights", m * w, {"m_": (mix, ("t", "s")), "w_": (own, ("s",))})
    return weights, reach


def _descended(b: BuilderOf[Moments], rows: "_Token | _Chunk", query: str) -> str:
    """Plan W q after full-batch steps from the origin: η U Σ_j (I − η(H + Λ))ʲ q."""
    moments, rate = b.rule.solution, b.rule.rate
    rate_env: dict[str, Any] = b.coefficients(rate)
    ridge = _ridge(b, query)
    x, y, r = _symbols("x_", "y_", "r_")
    point, total = query, None
    for j in range(moments.steps):
        read = rows.cross(point, f"U_x{j}")
        total = read if total is None else b.map(f"sum{j}", x + y, {"x_": total, "y_": read})
        if j + 1 < moments.steps:
            env: dict[str, Any] = {"x_": point, "y_": rows.second(point, f"H_x{j}"), **rate_env}
            curved = y
            if ridge is not None:
                env["r_"] = ridge
                curved = y + r * x
            point = b.map(f"x{j + 1}", x - rate * curved, env, "dual")
    assert total is not None
    return b.map("y", rate * x, {"x_": total, **rate_env}, "readout")


@dataclass(frozen=True)
class _Token:
    """The moments after one token."""

    b: BuilderOf[Moments]
    h: str
    u: str

    def second(self, point: str, name: str) -> str:
        """Plan H x, with H the second moment of the keys."""
        return self.b.call(name, ("k",), "recall", self.h, point)

    def cross(self, point: str, name: str, equation: str = "") -> str:
        """Plan U x, with U the moment of values and keys."""
        return self.b.call(name, ("v",), "recall", self.u, point, equation=equation)


@dataclass(frozen=True)
class _Chunk:
    """The moments after every row of a chunk, never made: what they are sums of."""

    b: BuilderOf[Moments]
    h: str
    u: str
    key: str
    value: str
    weights: str
    reach: str | None

    def second(self, point: str, name: str) -> str:
        """Plan H_t x_t for every row, with H_t the second moment of the keys."""
        return self._times(point, self.key, self.h, name, "")

    def cross(self, point: str, name: str, equation: str = "") -> str:
        """Plan U_t x_t for every row, with U_t the moment of values and keys."""
        return self._times(point, self.value, self.u, name, equation)

    def _times(self, point: str, rows: str, state: str, name: str, equation: str) -> str:
        """Plan reach_t M_0 x_t + Σ_{s≤t} weights_ts r_s (k_s·x_t)."""
        b, (x, y) = self.b, _symbols("x_", "y_")
        out = b.plan.axes(rows)
        raw = b.product(f"{point}_{self.key}", ("t", "s"), point, self.key, flip_right=True)
        env: dict[str, Any] = {"x_": raw, "y_": (self.weights, ("t", "s"))}
        new = b.product(f"{name}_new", out, b.map(f"{raw}_mixed", x * y, env), rows)
        old = b.product(f"{name}_old", out, point, state, flip_right=True)
        if self.reach is not None:
            old = b.map(f"{name}_reach", x * y, {"x_": old, "y_": self.reach})
        return b.map(name, x + y, {"x_": old, "y_": new}, equation)

    def carry(self) -> None:
        """Plan H and U at the chunk's end."""
        b, (x, f) = self.b, _symbols("x_", "f_")
        left = self.key
        if self.reach is not None or b.rule.solution.weight != 1:
            remain = b.call("remain", ("s",), "last_row", self.weights)
            left = b.map("key_left", x * f, {"x_": (self.key, ("s", "k")), "f_": remain})
        for state, rows, axes in ((self.h, self.key, ("k", "k")), (self.u, self.value, ("v", "k"))):
            new = b.product(f"{state}_new", axes, rows, left, flip_left=True)
            kept = None if self.reach is None else b.call("reach_end", (), "last", self.reach)
            b.plan.following[state] = _sustained(b, state, kept, new)
