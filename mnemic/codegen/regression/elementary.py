"""Weighted means and linear fits over kept pairs in elementary quantities, for fused kernels.

The rows of a chunk meet the pairs kept before them and their own, as rows behind a kernel do
(``keyed_rows.py``), with logarithms of weights held under each row's largest:

    y_t = Σ_i w_ti v_i / Σ_i w_ti,   w_ti = exp(score(k_i, q_t) + log of what decays left of i)
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import BuilderOf
from mnemic.codegen.guards import TINY
from mnemic.codegen.plan import Plan
from mnemic.codegen.regression import linear_fit
from mnemic.codegen.regression.linear_fit import Side, Weights
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Fit, KeyValuePairs

ONE, TWO = sp.symbols("x_ y_", real=True)


def elementary(rule: KeyValuePairs) -> Plan | None:
    """Plan the chunk of a mean or a line over pairs; ``None`` for an interpolation, and for what is
    softmax attention to the letter."""
    fit = rule.fit
    if fit.kind == "interpolation":
        return None
    if fit.kind == "linear":
        return regressed(rule, fit)
    moves, linear = fit.carry is not None, fit.similarity.linear
    if moves and (fit.similarity.score.has(sym.kk) or rule.window > 1):
        return None
    plain = not moves and rule.window == 1 and rule.decay == 1
    if plain and linear is not None and not linear.terms:
        return None
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    b.plan.output = Mean(b, fit).read()
    return b.plan


def regressed(rule: KeyValuePairs, fit: Fit) -> Plan | None:
    """Plan the chunk of a local linear fit; ``None`` for keys that move, and for a direct solve."""
    solver = rule.problem.spec.optimizer.solver
    if fit.carry is not None or not solver.most:
        return None
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    mean = Mean(b, fit)
    b.plan.output = linear_fit.read(b, mean.past, mean.own, mean.weights(relative=True),
                                (solver.tolerance, solver.iterations))  # fmt: skip
    return b.plan


@dataclass(frozen=True)
class Steps:
    """The steps k̃ ← (I − η w wᵀ) k̃ of a chunk's rows, which move the pairs before each.

    With U_si = w_s·k̃_i as the key stands before row s, U = (I + stril(W Wᵀ) diag(η))⁻¹ W Kᵀ: of
    pairs from before the chunk all rows, of its own the later ones.
    """

    query: str
    """q_t with the steps up to row t taken to it instead of to the pairs from before the chunk."""
    asked: str
    along: str
    turned: str
    rated: str

    @classmethod
    def of(cls, b: BuilderOf[KeyValuePairs], w: str, query: str, key: str) -> "Steps":
        """Plan what the steps along w do to a chunk's queries and keys."""
        rate = b.row_map("rate", b.rule.rate)
        f, x, y = sp.symbols("f_ x_ y_", real=True)
        gram = b.product("w_w", ("t", "s"), w, w, flip_right=True)
        before = b.call("w_w_before", ("t", "s"), "strictly_lower", gram)
        system = b.map("system", f * x, {"f_": (rate, ("s",)), "x_": before})
        inverse = b.call("inverse", ("t", "s"), "unit_lower_inverse", system, equation="keys")
        rated = b.map("w_rated", f * x, {"f_": rate, "x_": w})
        asked = b.call("q_w_low", ("t", "s"), "lower",
                       b.product("q_w", ("t", "s"), query, w, flip_right=True))  # fmt: skip
        turned = b.product("turned", ("t", "k"), inverse, w)
        moved = b.product("q_moved", ("t", "k"), asked,
                          b.map("turned_rated", f * x, {"f_": rate, "x_": turned}))  # fmt: skip
        carried = b.map("q_carried", x - y, {"x_": query, "y_": moved}, "keys")
        own = b.call("w_k_later", ("t", "s"), "strictly_lower",
                     b.product("w_k", ("t", "s"), w, key, flip_right=True))  # fmt: skip
        along = b.product("along", ("t", "s"), inverse, own, equation="keys")
        moves = b.map("moves", f * x, {"f_": rate, "x_": along})
        taken = b.product("taken", ("t", "s"), asked, moves)
        return cls(carried, taken, along, turned, rated)

    def reached(self, b: BuilderOf[KeyValuePairs], product: str) -> str:
        """Plan q·k̃ of a chunk's own pairs, from ``product``, the q·k of the keys as given."""
        return b.map(f"{product}_moved", ONE - TWO, {"x_": product, "y_": self.asked}, "keys")

    def ended(self, b: BuilderOf[KeyValuePairs], keys: str, own: str) -> tuple[str, str]:
        """Plan the keys from before the chunk, and its own, as they are after its last row."""
        reach = b.product("keys_turned", ("n", "s"), keys, self.turned, flip_right=True)
        moved = b.product("keys_moved", ("n", "k"), reach, self.rated)
        old = b.map("keys_left", ONE - TWO, {"x_": keys, "y_": moved}, "keys")
        moved = b.product("k_moved", ("t", "k"), self.along, self.rated, flip_left=True)
        return old, b.map("k_left", ONE - TWO, {"x_": own, "y_": moved}, "keys")


class Mean:
    """The quantities of a chunk's weights over pairs."""

    def __init__(self, b: BuilderOf[KeyValuePairs], fit: Fit) -> None:
        self.b, self.fit = b, fit
        self.span = b.rule.window if b.rule.window > 1 else 0
        self.logs = fit.similarity.logit is not None
        self.query = b.featured("q")
        self.steps: Steps | None = None
        self.past, self.own = self._sides()

    def _sides(self) -> tuple[Side, Side]:
        """Plan the pairs from before the chunk, and its own; and what follows the states."""
        b = self.b
        options: dict[str, Any] = {"span": self.span} if self.span else {}
        keys = b.plan.given("keys", ("n", "k"), state=True)
        values = b.plan.given("values", ("n", "v"), state=True)
        ages = log_kept = None
        if b.rule.decay != 1:
            log_kept = b.plan.given("log_kept", ("n",), state=True)
            decay = b.needed_log_decay(b.rule.decay)
            ages = b.call("aged", ("t",), "ages", decay, equation="weights")
            b.plan.following[log_kept] = b.call("log_kept_next", ("n",), "append_rows", log_kept,
                                                ages, **options)  # fmt: skip
        roles = b.roles()
        key, value = roles["write"], roles["value"]
        old, new = keys, key
        if self.fit.carry is not None:
            self.steps = Steps.of(b, roles["carry"], self.query, key)
            old, new = self.steps.ended(b, keys, key)
        pairs = ((keys, old, new, "k"), (values, values, value, "v"))
        for kept, before, rows, axis in pairs:
            b.plan.following[kept] = b.call(f"{kept}_next", ("n", axis), "append_rows", before,
                                            rows, equation="dual", **options)  # fmt: skip
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
        """Plan the logit (or the weight) of pairs at every row, with what decays left of them."""
        b, expr = self.b, self.fit.similarity.score
        axes = ("t", side.axis)
        env: dict[str, Any] = dict(b.coefficients(expr))
        if expr.has(sym.d_k):
            env["d_k"] = b.call("d_k", ("t",), "key_size", self.query)
        query = self.query
        if self.steps is not None and side.axis == "n":
            query = self.steps.query
        product = b.product(f"kq{name}", axes, query, side.keys, flip_right=True)
        if self.steps is not None and side.axis == "s":
            product = self.steps.reached(b, product)
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

    def weights(self, *, relative: bool = False) -> Weights:
        """Plan the weights up to a number a row: relative to their largest where they are
        logarithms, or where that is told."""
        b, past, own = self.b, self.past, self.own
        old, new = self._score(past, "_past"), self._score(own, "_own")
        seen = () if past.seen is None else (past.seen,)
        weights, fresh = old, new
        assert own.seen is not None
        if self.logs or relative:
            top = b.call("top", ("t",), "row_tops", old, new, own.seen, *seen)
        if self.logs:
            weights = b.call("w", ("t", "n"), "exp_over", old, top, *seen, equation="weights")
            fresh = b.call("w_own", ("t", "s"), "exp_over", new, top, own.seen,
                           equation="weights")  # fmt: skip
        elif relative:
            share = sp.Piecewise((ONE / TWO, TWO > TINY), (0, True))
            weights = b.map("w", share, {"x_": old, "y_": top}, "weights")
            fresh = b.map("w_own", share, {"x_": new, "y_": top}, "weights")
        mixed = b.map("w_mixed", ONE * TWO, {"x_": fresh, "y_": own.seen})
        total = b.call("whole", ("t",), "row_totals", weights, mixed, *seen)
        if seen and not self.logs:
            weights = b.map("w_seen", ONE * TWO, {"x_": weights, "y_": seen[0]})
        return Weights(weights, mixed, total)

    def read(self) -> str:
        """Plan the mean at every row, Σ w v / Σ w."""
        b, past, own, w = self.b, self.past, self.own, self.weights()
        values = b.product("y_past", ("t", "v"), w.past, past.values)
        both = b.product("y_own", ("t", "v"), w.own, own.values)
        y = b.map("y_whole", ONE + TWO, {"x_": values, "y_": both})
        return b.call("y", ("t", "v"), "over_total", y, w.total, equation="readout")
