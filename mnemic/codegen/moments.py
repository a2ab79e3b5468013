"""Second-order rules: exact least squares and full-batch descent, from running moments.

Recurrent exact: Sherman–Morrison on P = (Σ γ k kᵀ + λ I)⁻¹. Chunk: one Cholesky factor a chunk
(``parallel.md``, identity 3). Batch: W^(j+1) = W^(j) − η (W^(j) H − U), W^(0) = 0, read at q.
"""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.plan import Plan
from mnemic.compiler.rule import Rule


def _symbols(*names: str) -> tuple[Any, ...]:
    return tuple(sp.Symbol(name, real=True) for name in names)


def _forgetting(b: Builder) -> str | None:
    gamma = b.rule.problem.scalar("gamma")
    if gamma is None:
        return None
    return b.log_decay(gamma.expr, "log_forget")


def recurrent(rule: Rule) -> Plan:
    """One token."""
    assert rule.moments is not None
    return _recurrent_batch(rule) if rule.moments.steps else _recurrent_exact(rule)


def chunk(rule: Rule) -> Plan:
    """One chunk."""
    assert rule.moments is not None
    return _chunk_batch(rule) if rule.moments.steps else _chunk_exact(rule)


def _recurrent_exact(rule: Rule) -> Plan:
    b = Builder(rule, ())
    b.declare_vectors()
    w = b.plan.given("W", ("v", "k"), state=True)
    p = b.plan.given("P", ("k", "k"), state=True)
    roles = b.roles()
    key, value = roles["predict"], roles["value"]
    forget = _forgetting(b)
    arguments = (p, key) if forget is None else (p, key, forget)
    gain = b.call("gain", ("k",), "kalman_gain", *arguments, equation="gradient")
    b.plan.following[p] = b.call("P_next", ("k", "k"), "downdated", p, key, gain,
                                 *(() if forget is None else (forget,)))  # fmt: skip
    y_hat = b.call("y_hat", ("v",), "recall", w, key, equation="prediction")
    one, two, three, four = _symbols("w_", "v_", "y_", "g_")
    env = {"w_": w, "v_": value, "y_": y_hat, "g_": gain}
    b.plan.following[w] = b.map("W_next", one + (two - three) * four, env, "dual")
    b.plan.output = b.call("y", ("v",), "recall", b.plan.following[w], b.featured("q"),
                           equation="readout")  # fmt: skip
    return b.plan


def _chunk_exact(rule: Rule) -> Plan:
    b = Builder(rule, ("t",))
    b.declare_vectors()
    w = b.plan.given("W", ("v", "k"), state=True)
    p = b.plan.given("P", ("k", "k"), state=True)
    roles = b.roles()
    key, value = roles["predict"], roles["value"]
    forget = _forgetting(b)
    weights = () if forget is None else (b.call("kept", ("t",), "reach", forget),)
    kp = b.product("kP", ("t", "k"), key, p)
    factor = b.call("factor", ("t", "s"), "innovation_factor", kp, key, *weights)
    x = b.call("X", ("t", "k"), "solved", factor, kp)
    one, two = _symbols("a_", "b_")
    y_hat = b.product("y_hat", ("t", "v"), key, w, flip_right=True, equation="prediction")
    error = b.map("innovation", one - two, {"a_": value, "b_": y_hat}, "error")
    y = b.call("Y", ("t", "v"), "solved", factor, error, equation="error")
    query = b.featured("q")
    raw = b.product("qX", ("t", "s"), query, x, flip_right=True)
    new = b.product("y_new", ("t", "v"), b.call("qX_low", ("t", "s"), "lower", raw), y)
    old = b.product("y_old", ("t", "v"), query, w, flip_right=True)
    b.plan.output = b.map("y", one + two, {"a_": old, "b_": new}, "readout")
    added = b.product("W_new", ("v", "k"), y, x, flip_left=True)
    b.plan.following[w] = b.map("W_next", one + two, {"a_": w, "b_": added}, "dual")
    b.plan.following[p] = b.call("P_next", ("k", "k"), "shrunk", p, x, *weights)
    return b.plan


def _batch_states(b: Builder) -> tuple[str, str]:
    return (
        b.plan.given("H", ("k", "k"), state=True),
        b.plan.given("U", ("v", "k"), state=True),
    )


def _recurrent_batch(rule: Rule) -> Plan:
    assert rule.moments is not None
    b = Builder(rule, ())
    b.declare_vectors()
    h, u = _batch_states(b)
    roles = b.roles()
    forget = _forgetting(b)
    a, x, y = _symbols("a_", "x_", "y_")
    kept: Any = sp.Integer(1) if forget is None else sp.exp(sp.Symbol("f_", real=True))
    env: dict[str, Any] = {} if forget is None else {"f_": forget}
    key = roles["predict"]
    square = b.call("kk", ("k", "k"), "outer", key, key)
    pair = b.call("vk", ("v", "k"), "outer", roles["value"], key)
    h_next = b.map("H_next", kept * a + x, {"a_": h, "x_": square, **env}, "gradient")
    u_next = b.map("U_next", kept * a + x, {"a_": u, "x_": pair, **env}, "gradient")
    b.plan.following[h], b.plan.following[u] = h_next, u_next
    point, total = b.featured("q"), None
    rate_env = b.coefficients(rule.rate)
    for j in range(rule.moments.steps):
        read = b.call(f"U_x{j}", ("v",), "recall", u_next, point)
        total = read if total is None else b.map(f"sum{j}", x + y, {"x_": total, "y_": read})
        if j + 1 < rule.moments.steps:
            curved = b.call(f"H_x{j}", ("k",), "recall", h_next, point)
            env = {"x_": point, "y_": curved, **rate_env}
            point = b.map(f"x{j + 1}", x - rule.rate * y, env, "dual")
    assert total is not None
    b.plan.output = b.map("y", rule.rate * x, {"x_": total, **rate_env}, "readout")
    return b.plan


def _chunk_batch(rule: Rule) -> Plan:
    assert rule.moments is not None
    b = Builder(rule, ("t",))
    b.declare_vectors()
    h, u = _batch_states(b)
    roles = b.roles()
    forget = _forgetting(b)
    mix = None if forget is None else b.call("mix", ("t", "s"), "segments", forget)
    reach = None if forget is None else b.call("reach", ("t",), "reach", forget)
    key = roles["predict"]
    x, y = _symbols("x_", "y_")
    point, total = b.featured("q"), None
    rate_env: dict[str, Any] = b.coefficients(rule.rate)
    for j in range(rule.moments.steps):
        read = _moment_rows(b, point, key, roles["value"], u, mix, reach, f"U_x{j}")
        total = read if total is None else b.map(f"sum{j}", x + y, {"x_": total, "y_": read})
        if j + 1 < rule.moments.steps:
            curved = _moment_rows(b, point, key, key, h, mix, reach, f"H_x{j}")
            env = {"x_": point, "y_": curved, **rate_env}
            point = b.map(f"x{j + 1}", x - rule.rate * y, env, "dual")
    assert total is not None
    b.plan.output = b.map("y", rule.rate * x, {"x_": total, **rate_env}, "readout")
    _carry_moments(b, key, roles["value"], h, u, mix, reach)
    return b.plan


def _moment_rows(
    b: Builder, point: str, key: str, value: str, state: str, mix: str | None, reach: str | None,
    name: str,
) -> str:  # fmt: skip
    """(Σ_{s≤t} mix_ts v_s k_sᵀ) x_t for every row."""
    x, y = _symbols("x_", "y_")
    out = b.plan.axes(value)
    raw = b.product(f"{point}_{key}", ("t", "s"), point, key, flip_right=True)
    if mix is None:
        weights = b.call(f"{raw}_low", ("t", "s"), "lower", raw)
    else:
        weights = b.map(f"{raw}_mixed", x * y, {"x_": raw, "y_": (mix, ("t", "s"))})
    new = b.product(f"{name}_new", out, weights, value)
    old = b.product(f"{name}_old", out, point, state, flip_right=True)
    if reach is not None:
        old = b.map(f"{name}_reach", x * y, {"x_": old, "y_": reach})
    return b.map(name, x + y, {"x_": old, "y_": new})


def _carry_moments(
    b: Builder, key: str, value: str, h: str, u: str, mix: str | None, reach: str | None
) -> None:
    x, y, f = _symbols("x_", "y_", "f_")
    left = key
    if mix is not None:
        remain = b.call("remain", ("s",), "last_row", mix)
        left = b.map("key_left", x * f, {"x_": (key, ("s", "k")), "f_": remain})
    for state, rows, axes in ((h, key, ("k", "k")), (u, value, ("v", "k"))):
        new = b.product(f"{state}_new", axes, rows, left, flip_left=True)
        env: dict[str, Any] = {"x_": state, "y_": new}
        expr = x + y
        if reach is not None:
            env["f_"] = (b.call("reach_end", (), "last", reach), ())
            expr = x * f + y
        b.plan.following[state] = b.map(f"{state}_next", expr, env, "gradient")
