"""Weighted means over kept pairs in elementary quantities: what a fused kernel is made of.

The rows of a chunk meet the pairs kept before them and their own, as rows behind a kernel do
(``kept.py``), with logarithms of weights held under each row's largest:

    y_t = Σ_i w_ti v_i / Σ_i w_ti,   w_ti = exp(score(k_i, q_t) + log of what decays left of i)
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.plan import Plan
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Fit, Rule

ONE, TWO = sp.symbols("x_ y_", real=True)


def elementary(rule: Rule) -> Plan | None:
    """The chunk of a weighted mean over pairs that stand still; ``None`` for any other fit, and
    for what is softmax attention to the letter."""
    fit = rule.fit
    if fit is None or fit.kind != "mean" or fit.carry is not None:
        return None
    linear = fit.similarity.linear
    if linear is not None and not linear.terms and rule.window == 1 and rule.decay == 1:
        return None
    b = Builder(rule, ("t",))
    b.declare_vectors()
    b.plan.output = _Mean(b, fit).read()
    return b.plan


@dataclass(frozen=True)
class Side:
    """How rows meet some pairs: their keys and values, and the axes of weights."""

    keys: str
    values: str
    axis: str
    seen: str | None
    left: str | None


class _Mean:
    def __init__(self, b: Builder, fit: Fit) -> None:
        self.b, self.fit = b, fit
        self.span = b.rule.window if b.rule.window > 1 else 0
        self.logs = fit.similarity.logit is not None
        self.query = b.featured("q")
        self.past, self.own = self._sides()

    def _sides(self) -> tuple[Side, Side]:
        """The pairs from before the chunk, and its own; what follows the states."""
        b = self.b
        options: dict[str, Any] = {"span": self.span} if self.span else {}
        keys = b.plan.given("keys", ("n", "k"), state=True)
        values = b.plan.given("values", ("n", "v"), state=True)
        ages = log_kept = None
        if b.rule.decay != 1:
            log_kept = b.plan.given("log_kept", ("n",), state=True)
            decay = b.log_decay(b.rule.decay)
            assert decay is not None
            ages = b.call("aged", ("t",), "ages", decay, equation="weights")
            b.plan.following[log_kept] = b.call("log_kept_next", ("n",), "append_rows", log_kept,
                                                ages, **options)  # fmt: skip
        roles = b.roles()
        key, value = roles["write"], roles["value"]
        for name, kept, new, axis in (("keys", keys, key, "k"), ("values", values, value, "v")):
            b.plan.following[kept] = b.call(f"{name}_next", ("n", axis), "append_rows", kept, new,
                                            equation="dual", **options)  # fmt: skip
        seen = None
        if self.span:
            seen = b.call("seen", ("t", "n"), "recent_past", self.query, keys, span=self.span)
            own = b.call("seen_own", ("t", "s"), "recent_of", self.query, span=self.span)
        else:
            own = b.call("seen_own", ("t", "s"), "lower_ones_of", self.query)
        left = fresh = None
        if ages is not None and log_kept is not None:
            left = b.call("left", ("t", "n"), "elapsed", ages, log_kept, equation="weights")
            fresh = b.call("left_own", ("t", "s"), "elapsed", ages, ages, equation="weights")
        return Side(keys, values, "n", seen, left), Side(key, value, "s", own, fresh)

    def _score(self, side: Side, name: str) -> str:
        """The logit (or the weight) of pairs at every row, with what decays left of them."""
        b, expr = self.b, self.fit.similarity.score
        axes = ("t", side.axis)
        env: dict[str, Any] = dict(b.coefficients(expr))
        if expr.has(sym.d_k):
            env["d_k"] = b.call("d_k", ("t",), "key_size", self.query)
        product = b.product(f"kq{name}", axes, self.query, side.keys, flip_right=True)
        env["kq"] = (product, axes)
        if expr.has(sym.kk):
            rows = b.plan.axes(side.keys)[:1]
            env["kk"] = (b.call(f"kk{name}", rows, "squared_norm", side.keys), (side.axis,))
        if expr.has(sym.qq):
            env["qq"] = b.call("qq", ("t",), "squared_norm", self.query)
        if side.left is not None:
            env["left"] = (side.left, axes)
            left = sp.Symbol("left", real=True)
            expr = expr + left if self.logs else expr * sp.exp(left)
        return b.map(f"logit{name}" if self.logs else f"similar{name}", expr, env, "weights")

    def read(self) -> str:
        """Σ w v / Σ w."""
        b, past, own = self.b, self.past, self.own
        old, new = self._score(past, "_past"), self._score(own, "_own")
        seen = () if past.seen is None else (past.seen,)
        weights, fresh = old, new
        assert own.seen is not None
        if self.logs:
            top = b.call("top", ("t",), "row_tops", old, new, own.seen, *seen)
            weights = b.call("w", ("t", "n"), "exp_over", old, top, *seen, equation="weights")
            fresh = b.call("w_own", ("t", "s"), "exp_over", new, top, own.seen,
                           equation="weights")  # fmt: skip
        mixed = b.map("w_mixed", ONE * TWO, {"x_": fresh, "y_": own.seen})
        total = b.call("whole", ("t",), "row_totals", weights, mixed, *seen)
        if seen and not self.logs:
            weights = b.map("w_seen", ONE * TWO, {"x_": weights, "y_": seen[0]})
        values = b.product("y_past", ("t", "v"), weights, past.values)
        both = b.product("y_own", ("t", "v"), mixed, own.values)
        y = b.map("y_whole", ONE + TWO, {"x_": values, "y_": both})
        return b.call("y", ("t", "v"), "over_total", y, total, equation="readout")
