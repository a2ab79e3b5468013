"""What stands between the memory and the output: head, bonus, normaliser."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder

TINY = sp.Symbol("TINY", positive=True)
"""A guard against 0/0: where all weights are zero the output is zero."""


def headed(
    b: Builder, prediction: str | None, roles: dict[str, str], factor: Any, name: str
) -> str:
    """−η e: for a headed memory through the gradient of M(x) = x + LN(W x)."""
    memory = b.rule.problem.spec.memory
    value, key = roles["value"], roles["predict"]
    if prediction is None or not b.rule.headed:
        return b.error(b.rule.error.signal, prediction, value, key, name, factor)
    whole = with_head(b, prediction, b.raw("k"), "y_head")
    error = b.error(b.rule.error.signal, whole, value, key, "e")
    if getattr(memory, "norm", False):
        axes = b.plan.axes(prediction)
        error = b.call("e_inner", axes, "layer_norm_vjp", error, prediction, equation="error")
    env: dict[str, Any] = {"e_": error, **b.row_coefficients(factor)}
    return b.map(name, factor * sp.Symbol("e_", real=True), env, "gradient")


def with_head(b: Builder, inner: str, raw: str, name: str) -> str:
    """x + LN(z), each part where the memory has it."""
    memory = b.rule.problem.spec.memory
    axes = b.plan.axes(inner)
    if getattr(memory, "norm", False):
        inner = b.call(f"{name}_norm", axes, "layer_norm", inner)
    if not getattr(memory, "residual", False):
        return inner
    one, two = sp.Symbol("z_", real=True), sp.Symbol("x_", real=True)
    return b.map(name, one + two, {"z_": inner, "x_": (raw, axes)})


def with_bonus(b: Builder, read: str, query: str, roles: dict[str, str]) -> str:
    """y + v (u∘k)·q, and the head's norm and residual."""
    if b.rule.headed:
        read = with_head(b, read, b.raw("q"), "out")
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
