"""Attentional biases ℓ(ŷ, v): the inner loss.

Every named loss is a name for an expression of the grammar, so that it takes the same path as a
user's own. Symbols: ``e`` = ŷ − v and ``y``, ``v`` of one coordinate (the loss is the sum over
coordinates), or ``n`` = ‖ŷ − v‖ (a radial loss). ``n`` beside ``e`` may stand in conditions only.
"""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import ONE, Scalar


class Bias(Family):
    """ℓ. ``text`` is the loss as an expression."""

    @property
    def text(self) -> str:
        """The loss as an expression of the grammar."""
        raise NotImplementedError

    def coefficients(self) -> dict[str, Scalar]:
        """Return the coefficients that the expression names."""
        return {}


class Dot(Bias):
    """ℓ = −⟨ŷ, v⟩."""

    kind: Literal["dot"] = "dot"
    example = "bias: dot"

    @property
    def text(self) -> str:
        """−y v."""
        return "-y*v"


class L2(Bias):
    """ℓ = ½‖ŷ − v‖²."""

    kind: Literal["l2"] = "l2"
    example = "bias: l2\noptimizer: {rate: token}"

    @property
    def text(self) -> str:
        """e²/2."""
        return "e**2/2"


class Lp(Bias):
    """ℓ = ‖ŷ − v‖_p^p. ``smooth: a`` replaces sign(e) by tanh(a e) (Miras, Remark 1)."""

    kind: Literal["lp"] = "lp"
    example = "bias: {kind: lp, p: 3, smooth: 10}\noptimizer: {rate: token}"
    p: float = Field(ge=1, le=16, description="the power of |e|")
    smooth: float | None = Field(
        default=None,
        gt=0,
        description="a of tanh(a e), which stands for sign(e); sign itself without",
    )

    @property
    def text(self) -> str:
        """|e|^p."""
        return f"abs(e)**{self.p:g}" if self.p != 1 else "abs(e)"


class Huber(Bias):
    """Huber's loss: over each coordinate, over the norm, or a mixture in which the norm decides
    between ½‖e‖² and δ‖e‖₁ (Miras (23)-(25))."""

    kind: Literal["huber"] = "huber"
    example = "bias: {kind: huber, delta: token, over: norm}\noptimizer: {rate: token}"
    delta: Scalar = Field(
        default=ONE, description="δ, where the square ends and the line begins, above 0"
    )
    over: Literal["coordinates", "norm", "mixture"] = Field(
        default="coordinates", description="what δ is compared with"
    )

    @property
    def text(self) -> str:
        """½e² up to δ, linear beyond."""
        return {
            "coordinates": "where(abs(e) <= delta, e**2/2, delta*(abs(e) - delta/2))",
            "norm": "where(n <= delta, n**2/2, delta*(n - delta/2))",
            "mixture": "where(n <= delta, e**2/2, delta*abs(e))",
        }[self.over]

    def coefficients(self) -> dict[str, Scalar]:
        """Return the threshold δ by its name, ``delta``."""
        return {"delta": self.delta}


class Robust(Bias):
    """The worst case over value shifts of norm ≤ Δ: ½(‖ŷ − v‖ + Δ)² (Miras (26))."""

    kind: Literal["robust"] = "robust"
    example = "bias: {kind: robust, Delta: token}\noptimizer: {rate: token}"
    Delta: Scalar = Field(default=ONE, description="Δ, the size of the worst shift, at least 0")

    @property
    def text(self) -> str:
        """½(n + Δ)²."""
        return "(n + Delta)**2/2"

    def coefficients(self) -> dict[str, Scalar]:
        """Return the largest norm Δ of a value shift by its name, ``Delta``."""
        return {"Delta": self.Delta}


class Quantile(Bias):
    """The pinball loss ℓ = max(τe', (τ − 1)e') of e' = v − ŷ, whose minimiser is the τ-quantile of
    the values. ``smooth: a`` replaces sign(e) by tanh(a e) (Koenker and Bassett, 1978)."""

    kind: Literal["quantile"] = "quantile"
    example = "bias: {kind: quantile, tau: 0.9, smooth: 10}\noptimizer: {rate: token}"
    tau: float = Field(default=0.5, gt=0, lt=1, description="τ, the share of values below ŷ")
    smooth: float | None = Field(
        default=None,
        gt=0,
        description="a of tanh(a e), which stands for sign(e); sign itself without",
    )

    @property
    def text(self) -> str:
        """|e|/2 + (1/2 − τ)e, which is the same with one kink to smooth."""
        return f"abs(e)/2 + (1/2 - {self.tau!r})*e"


class Expression(Bias):
    """The user's own loss."""

    kind: Literal["expr"] = "expr"
    shorthand = "expr"
    example = 'bias: {expr: "abs(e) + e**2/2", smooth: 20}\noptimizer: {rate: token}'
    expr: str = Field(
        description="the loss, in e = ŷ − v, y = ŷ (the prediction, not the read-out) and v of a "
        "coordinate or in n = ‖ŷ − v‖, and in coefficients"
    )
    smooth: float | None = Field(
        default=None,
        gt=0,
        description="a of tanh(a e), which stands for sign(e); sign itself without",
    )

    @property
    def text(self) -> str:
        """The user's own expression."""
        return self.expr
