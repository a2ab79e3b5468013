"""What stands between the memory and the output: bonus, normaliser."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder

TINY = sp.Symbol("TINY", positive=True)
"""A guard against 0/0: where all weights are zero the output is zero."""

READ, WEIGHT, MAXIMUM, OWN, VALUE = (
    sp.Symbol(name, real=True) for name in ("y_", "w_", "m_", "u_", "v_")
)
"""What a query reads, the weights' sum, their running maximum, the bonus' weight, the value."""


def with_bonus(b: Builder, read: str, query: str, roles: dict[str, str]) -> str:
    """Return y + v (u∘k)·q."""
    weight = own_weight(b, b.plan.axes(read)[:-1], query, roles)
    if weight is None:
        return read
    env = {"y_": read, "v_": roles["value"], "u_": weight}
    return b.map("y_bonus", READ + OWN * VALUE, env, "readout")


def own_weight(b: Builder, rows: tuple[str, ...], query: str, roles: dict[str, str]) -> str | None:
    """Return (u∘k)·q, what the bonus gives the current pair; None without a bonus."""
    bonus = b.rule.problem.scalar("bonus")
    if bonus is None:
        return None
    key, q = (sp.Symbol(s, real=True) for s in ("k_", "q_"))
    env: dict[str, Any] = {"k_": roles["write"], "q_": query, **b.coefficients(bonus.expr)}
    return b.call("bonus_weight", rows, "total", b.map("bonus_key", bonus.expr * key * q, env))


def normalised(b: Builder, read: str, query: str, roles: dict[str, str]) -> str:
    """Return the output of the recurrent form, over its normaliser n·φ(q) where it has one."""
    if b.rule.problem.spec.readout.normalizer == "none":
        return with_bonus(b, read, query, roles)
    state = b.plan.given("n", ("k",), state=True)
    expr = b.decay * sp.Symbol("n_", real=True) + b.rate * sp.Symbol("k_", real=True)
    env: dict[str, Any] = {"n_": state, "k_": roles["write"], **b.coefficients(expr)}
    following = b.map("n_next", expr, env, "readout")
    b.plan.following[state] = following
    product = sp.Symbol("n_", real=True) * sp.Symbol("q_", real=True)
    weighted = b.map("n_q", product, {"n_": following, "q_": query})
    weight = b.call("weight", b.plan.axes(read)[:-1], "total", weighted)
    return divided(b, read, weight, b.plan.following.get("m"), query, roles)


def divided(
    b: Builder, read: str, weight: str, m: str | None, query: str, roles: dict[str, str]
) -> str:  # fmt: skip
    """Return y over its weight w, or over max(|w|, 1), both with what the bonus adds to them.

    The bonus adds v u to y and u to w, as a pair of the memory with that weight would. Where m is
    carried, y and w are kept divided by exp(m); with a bonus they are brought to exp(max(m, 0)),
    under which neither a large m nor a small one overflows.
    """
    own = own_weight(b, b.plan.axes(read)[:-1], query, roles)
    env: dict[str, Any] = {"y_": read, "w_": weight}
    if m is not None:
        env["m_"] = m
    y, w, unit = READ, WEIGHT, sp.exp(-MAXIMUM) if m is not None else sp.Integer(1)
    if own is not None:
        env |= {"v_": roles["value"], "u_": own}
        unit = sp.exp(-sp.Max(MAXIMUM, 0)) if m is not None else unit
        scale = sp.exp(sp.Min(MAXIMUM, 0)) if m is not None else unit
        y, w = scale * y + unit * OWN * VALUE, scale * w + unit * OWN
    if b.rule.problem.spec.readout.normalizer == "max1":
        return b.map("y_normalised", y / sp.Max(sp.Abs(w), unit), env, "readout")
    return b.map("y_normalised", y / (w + TINY), env, "readout")
