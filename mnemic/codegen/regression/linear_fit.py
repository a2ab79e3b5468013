"""Local linear fits over kept pairs in elementary quantities: what a fused kernel is made of.

With weights w relative to each row's largest, k̄ and v̄ their means and λ the ridge,

    y_t = v̄ + Σ_i a_ti (v_i − v̄),   a_ti = w_ti (k_i − k̄)·x_t,   A_t x_t = q_t − k̄_t
    A_t x = Σ_i w_ti (k_i − k̄)(k_i − k̄)·x + λ x

A is never formed: conjugate gradients ask for A_t times a direction, whose statements stand in the
plan behind a quantity ``unknown``. What is divided by the largest weight would be the ridge alone,
were everything multiplied by it; so the gradient at the largest weight goes through ``peak`` = 1.
"""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import BuilderOf
from mnemic.compiler.rule import KeyValuePairs

ONE, TWO, THREE, FOUR = sp.symbols("x_ y_ f_ g_", real=True)


@dataclass(frozen=True)
class Side:
    """How rows meet some pairs: their keys and values, and the axes of weights."""

    keys: str
    values: str
    axis: str
    seen: str | None
    left: str | None


@dataclass(frozen=True)
class Weights:
    """Weights of the pairs from before the chunk (0 where a row does not see them) and of its own,
    and their sum."""

    past: str
    own: str
    total: str


def read(
    b: BuilderOf[KeyValuePairs], past: Side, own: Side, w: Weights, limits: tuple[float, int]
) -> str:  # fmt: skip
    """Plan the fit's height at every row; ``limits`` are the solver's tolerance and iterations."""
    fit = _Fit(b, past, own, w, *limits)
    x = fit.solved()
    along = fit.along(x, "")
    total = fit.summed(along, "along_sum")
    moved = fit.over(along, (past.values, own.values), "v", "along_v")
    expr = ONE + TWO - THREE * ONE
    env: dict[str, Any] = {"x_": fit.values, "y_": moved, "f_": total}
    return b.map("y", expr, env, "readout")


class _Fit:
    def __init__(
        self, b: BuilderOf[KeyValuePairs], past: Side, own: Side, w: Weights, tolerance: float,
        iterations: int,
    ) -> None:  # fmt: skip
        self.b, self.past, self.own, self.w = b, past, own, w
        self.tolerance, self.iterations = tolerance, iterations
        pair = (w.past, w.own)
        keys = self.over(pair, (past.keys, own.keys), "k", "k_whole")
        values = self.over(pair, (past.values, own.values), "v", "v_whole")
        self.centre = b.call("k_mean", ("t", "k"), "over_total", keys, w.total)
        self.values = b.call("v_mean", ("t", "v"), "over_total", values, w.total)
        peak = b.call("peak", ("t",), "row_peak", w.past, w.own)
        ridge = b.row_map("ridge_now", b.rule.fit.ridge)
        self.ridge = b.map("ridge_over", ONE * TWO, {"x_": ridge, "y_": peak})

    def over(
        self, weights: tuple[str, str], rows: tuple[str, str], axis: str, name: str
    ) -> str:  # fmt: skip
        """Plan Σ w x over the pairs from before the chunk and its own."""
        b, (old, new), (past, own) = self.b, weights, rows
        one = b.product(f"{name}_past", ("t", axis), old, past)
        two = b.product(f"{name}_own", ("t", axis), new, own)
        return b.map(name, ONE + TWO, {"x_": one, "y_": two})

    def summed(self, weights: tuple[str, str], name: str) -> str:
        """Plan Σ w of every row."""
        return self.b.call(name, ("t",), "row_totals", *weights)

    def along(self, x: str, tag: str) -> tuple[str, str]:
        """Plan w (k − k̄)·x of the pairs from before the chunk, and of its own."""
        b = self.b
        parts = b.map(f"centre_x{tag}", ONE * TWO, {"x_": self.centre, "y_": x})
        centre = b.call(f"centre_along{tag}", ("t",), "total", parts)
        found = []
        for side, w, name in ((self.past, self.w.past, "past"), (self.own, self.w.own, "own")):
            axes = ("t", side.axis)
            seen = b.product(f"{name}_along{tag}", axes, x, side.keys, flip_right=True)
            env: dict[str, Any] = {"x_": w, "y_": seen, "f_": centre}
            found.append(b.map(f"{name}_weighed{tag}", ONE * (TWO - THREE), env))
        return found[0], found[1]

    def times(self, x: str, tag: str) -> str:
        """Plan A x for every row."""
        along = self.along(x, tag)
        keys = self.over(along, (self.past.keys, self.own.keys), "k", f"image_keys{tag}")
        total = self.summed(along, f"image_sum{tag}")
        env: dict[str, Any] = {
            "x_": keys, "y_": self.centre, "f_": total, "g_": self.ridge, "z_": x,
        }  # fmt: skip
        expr = ONE - TWO * THREE + FOUR * sp.Symbol("z_", real=True)
        return self.b.map(f"image{tag}", expr, env, "dual")

    def diagonal(self) -> str:
        """Plan Σ w (k − k̄)² + λ, what the iteration is conditioned by."""
        b = self.b
        squares = [
            b.map(f"{x}_squared", ONE**2, {"x_": x}) for x in (self.past.keys, self.own.keys)
        ]
        whole = self.over((self.w.past, self.w.own), (squares[0], squares[1]), "k", "k_squares")
        env: dict[str, Any] = {
            "x_": whole, "y_": self.centre, "f_": self.w.total, "g_": self.ridge,
        }  # fmt: skip
        return b.map("diagonal", sp.Max(ONE - THREE * TWO**2, 0) + FOUR, env, "dual")

    def solved(self) -> str:
        """Plan x = A⁻¹ (q − k̄), by conjugate gradients."""
        b = self.b
        target = b.map("target", ONE - TWO, {"x_": b.featured("q"), "y_": self.centre})
        unknown = b.call("direction", ("t", "k"), "unknown", target)
        return b.call("slope_x", ("t", "k"), "solution", target, self.diagonal(), unknown,
                      self.times(unknown, "_of_direction"), equation="dual",
                      tolerance=self.tolerance, iterations=self.iterations)  # fmt: skip
