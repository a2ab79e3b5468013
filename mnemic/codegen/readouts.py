"""What stands between the memory and the output: bonus, normaliser."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder

TINY = sp.Symbol("TINY", positive=True)
"""A guard against 0/0: where all weights are zero the output is zero."""


def with_bonus(b: Builder, read: str, query: str, roles: dict[str, str]) -> str:
    """Return y + v (u∘k)·q."""
    bonus = b.rule.problem.scalar("bonus")
    if bonus is None:
        return read
    key, value, q, u = (sp.Symbol(s, real=True) for s in ("k_", "v_", "q_", "u_"))
    env: dict[str, Any] = {"k_": roles["write"], "q_": query, **b.coefficients(bonus.expr)}
    weighted = b.map("bonus_key", bonus.expr * key * q, env)
    rows = b.plan.axes(read)[:-1]
    weight = b.call("bonus_weight", rows, "total", weighted)
    env = {"y_": read, "v_": roles["value"], "u_": weight}
    return b.map("y_bonus", sp.Symbol("y_", real=True) + u * value, env, "readout")


def normalised(b: Builder, read: str, query: str, roles: dict[str, str]) -> str:
    """The output of the recurrent form over its normaliser n·φ(q)."""
    if b.rule.problem.spec.readout.normalizer == "none":
        return unscaled(b, read, b.plan.following.get("m"))
    state = b.plan.given("n", ("k",), state=True)
    expr = b.decay * sp.Symbol("n_", real=True) + b.rate * sp.Symbol("k_", real=True)
    env: dict[str, Any] = {"n_": state, "k_": roles["write"], **b.coefficients(expr)}
    following = b.map("n_next", expr, env, "readout")
    b.plan.following[state] = following
    product = sp.Symbol("n_", real=True) * sp.Symbol("q_", real=True)
    weighted = b.map("n_q", product, {"n_": following, "q_": query})
    weight = b.call("weight", b.plan.axes(read)[:-1], "total", weighted)
    return divided(b, read, weight, b.plan.following.get("m"))


def unscaled(b: Builder, read: str, m: str | None) -> str:
    """y in true units where the state is kept divided by exp(m)."""
    if m is None:
        return read
    expr = sp.exp(sp.Symbol("m_", real=True)) * sp.Symbol("y_", real=True)
    return b.map("y_unscaled", expr, {"m_": m, "y_": read}, "readout")


def divided(b: Builder, read: str, weight: str, m: str | None) -> str:
    """y over its weight, or over max(|weight|, 1), both divided by exp(m) where m is carried."""
    kind = b.rule.problem.spec.readout.normalizer
    denominator = sp.Symbol("w_", real=True) + TINY
    env: dict[str, Any] = {"y_": read, "w_": weight}
    if kind == "max1":
        lowest = sp.Integer(1)
        if m is not None:
            lowest = sp.exp(-sp.Symbol("m_", real=True))
            env["m_"] = m
        denominator = sp.Max(sp.Abs(sp.Symbol("w_", real=True)), lowest)
    return b.map("y_normalised", sp.Symbol("y_", real=True) / denominator, env, "readout")
