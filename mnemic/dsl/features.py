"""Feature maps φ: what a key or query is turned into before the memory sees it."""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from mnemic.dsl.axis import Entry, Family
from mnemic.dsl.coefficients import Coefficient, Scalar


class Features(Family):
    """φ. ``text`` is an elementwise expression in ``x`` where the map is one, else ``None``."""

    @property
    def text(self) -> str | None:
        """The map as an elementwise expression, where it is one."""
        return None

    @property
    def formula(self) -> str | None:
        """The map in plain text, for a map of finitely many features without ``text``."""
        return None

    @property
    def longest(self) -> int | None:
        """Tokens of the longest text that φ is made for; None where it sees no position."""
        return None

    @property
    def finite(self) -> bool:
        """Whether φ has finitely many features (a kernel-only map has not)."""
        return True

    @property
    def largest(self) -> str | None:
        """The largest ‖φ(x)‖² as an expression in s = ‖x‖², for a map without ``text``.

        It may name the map's own coefficients, in which it grows.
        """
        return None

    def coefficients(self) -> Iterator[tuple[str, str, Coefficient]]:
        """Return the coefficients of the map: the name, the place within its entry, the
        coefficient."""
        return iter(())


class Identity(Features):
    """φ(x) = x."""

    kind: Literal["identity"] = "identity"
    example = "features: identity"

    @property
    def text(self) -> str:
        """x"""
        return "x"


class Elu(Features):
    """φ(x) = 1 + ELU(x), positive (the first linear transformer)."""

    kind: Literal["elu"] = "elu"
    example = "features: elu"

    @property
    def text(self) -> str:
        """1 + ELU(x)."""
        return "where(x > 0, x + 1, exp(min(x, 0)))"


class Relu(Features):
    """φ(x) = max(x, 0)."""

    kind: Literal["relu"] = "relu"
    example = "features: relu"

    @property
    def text(self) -> str:
        """max(x, 0)."""
        return "relu(x)"


class Softmax(Features):
    """φ(x) = softmax(x) over the coordinates."""

    kind: Literal["softmax"] = "softmax"
    example = "features: softmax"

    @property
    def formula(self) -> str:
        """softmax(x)."""
        return "φ(x) = softmax(x)"

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: 1, as the weights are positive and sum to one."""
        return "1"


class Polynomial(Features):
    """Monomials of degree ≤ p with φ(x)·φ(y) = Σ_i a_i (x·y)^i (Atlas (5)).

    ``graded``: one feature per monomial, ordered by degree, then lexicographically; those of
    degree i are scaled by √a_i, so a_i ≥ 0. Unless given, a_i = 2σ(x_i)/i! with one learned x_i
    per head: a_i starts at 1/i! (as in the series of exp, x_i = 0) and stays between 0 and 2/i!.
    ``power``: the p-fold tensor power, φ(x)·φ(y) = (x·y)^p, which has no coefficients.
    """

    kind: Literal["polynomial"] = "polynomial"
    example = "features: {kind: polynomial, degree: 2, mode: graded, a: [0, learned, 1/2]}"
    degree: int = Field(default=2, ge=1, le=8, description="p, the highest degree")
    mode: Literal["graded", "power"] = Field(
        default="graded", description="all degrees up to p, or the p-fold tensor power"
    )
    a: Annotated[tuple[Scalar, ...], Field(strict=False)] | None = Field(
        default=None,
        description="a_0 … a_p of graded features; unless given, each is learned, from 1/i!",
    )

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: the kernel at s = x·x."""
        if self.mode == "power":
            return f"s**{self.degree}"
        return " + ".join(f"a{i}*s**{i}" for i in range(self.degree + 1))

    def coefficients(self) -> Iterator[tuple[str, str, Coefficient]]:
        """Yield name, place and coefficient of each a_i of graded features."""
        if self.mode == "graded":
            given = (LEARNED,) * (self.degree + 1) if self.a is None else self.a
            for i, coefficient in enumerate(given):
                yield f"a{i}", f"a[{i}]", _started(coefficient, i)


LEARNED = Coefficient.model_validate({"from": "parameter"})
"""A parameter a head."""


def _started(coefficient: Coefficient, order: int) -> Coefficient:
    """Give a learned a_i the activation 2σ(x)/i! and the start 1/i!, where it tells none itself."""
    if coefficient.origin is None:
        return coefficient
    told = {
        "activation": f"2*sigmoid(x)/{math.factorial(order)}",
        "init": 1 / math.factorial(order),
    }
    given = {name: getattr(coefficient, name) for name in told}
    return coefficient.model_copy(update={n: x for n, x in told.items() if given[n] is None})


class Taylor(Features):
    """The Taylor features of exp: φ(x)·φ(y) = Σ_{i ≤ order} (x·y)^i / i! (Based)."""

    kind: Literal["taylor"] = "taylor"
    example = "features: {kind: taylor, order: 2}"
    order: int = Field(default=2, ge=1, le=8, description="the highest degree")

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: the kernel at s = x·x."""
        return _series(self.order)


def _series(order: int) -> str:
    """Return the text of Σ_i s^i / i!, i from 0 up to an order."""
    return " + ".join(f"s**{i}/{math.factorial(i)}" for i in range(order + 1))


class Cosine(Features):
    """cosFormer: relu(x) cos(πt/2M) and relu(x) sin(πt/2M), t the position, M ``length``."""

    kind: Literal["cosine"] = "cosine"
    example = "features: {kind: cosine, length: 2048}"
    length: int = Field(default=4096, ge=1, description="M, the longest text in tokens")

    @property
    def formula(self) -> str:
        """The two halves, by the position of the token from 0."""
        angle = f"π (t − 1)/{2 * self.length}"
        return f"φ(x) = [max(x, 0) cos({angle}), max(x, 0) sin({angle})] for x of token t"

    @property
    def longest(self) -> int:
        """The longest text: M tokens, as weights are negative for tokens farther apart."""
        return self.length

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: that of relu(x), which the two halves share out."""
        return "s"


class Dpfp(Features):
    """Deterministic parameter-free projection: products of rectified ±x with its nu rotations."""

    kind: Literal["dpfp"] = "dpfp"
    example = "features: {kind: dpfp, nu: 2}"
    nu: int = Field(default=1, ge=1, le=16, description="number of rotations")

    @property
    def formula(self) -> str:
        """The products of the rectified ±x, one block a rotation."""
        blocks = "ρ ∘ roll(ρ, 1)" + (f", …, ρ ∘ roll(ρ, {self.nu})" if self.nu > 1 else "")
        return f"φ(x) = [{blocks}],  ρ = max([x, −x], 0),  roll(ρ, j) = ρ moved by j places"

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: each rotation pairs shares of ‖x‖², at most twice s²/4."""
        return f"{self.nu}*s**2/2"


class Random(Features):
    """Positive random features of exp (Performer): exp(ω·x − ‖x‖²/2)/√m, ω orthogonal Gaussian."""

    kind: Literal["random"] = "random"
    example = "features: {kind: random, features: 128, seed: 1}"
    features: int = Field(default=64, ge=1, le=65536, description="number of features")
    seed: int = Field(default=0, ge=0, description="seed of the draw of ω")

    @property
    def formula(self) -> str:
        """One exponential a random direction."""
        m = self.features
        return f"φ(x) = exp(Ω x − ‖x‖²/2)/√{m},  Ω = {m} random rows, orthogonal in blocks"


class Expression(Features):
    """An elementwise expression in ``x``."""

    kind: Literal["expr"] = "expr"
    shorthand = "expr"
    example = 'features: {expr: "x*sigmoid(x)"}'
    expr: str = Field(description="an expression in x, the same for every coordinate")

    @property
    def text(self) -> str:
        """The user's own expression."""
        return self.expr


class Exponential(Features):
    """φ(k)·φ(q) = exp(scale · k·q): it has no finite map, so the keys are kept."""

    kind: Literal["exponential"] = "exponential"
    example = "features: {kind: exponential, scale: 0.5}"
    scale: float = Field(default=1.0, description="what k·q is multiplied by")

    @property
    def finite(self) -> bool:
        """An exponential kernel has infinitely many features."""
        return False

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: the kernel at s = x·x."""
        return f"exp({self.scale}*s)"


class ReadKernel(Entry):
    """κ2, the kernel of the read-out."""

    kernel: str = Field(description="an expression in s = k·q")
    normalise: Literal["none", "row"] = Field(
        default="none", description="whether a query's weights are divided by their sum"
    )


class Kernel(Features):
    """A kernel with no finite map: an expression in ``s`` = k·q (κ1 writes, κ2 reads)."""

    kind: Literal["kernel"] = "kernel"
    shorthand = "kernel"
    example = (
        'features: {kernel: "exp(s)", normalise: row, '
        'readout: {kernel: "(1 + s)**2", normalise: none}}'
    )
    kernel: str = Field(
        description="κ1, an expression in s = k·q; it also reads unless readout gives another"
    )
    normalise: Literal["none", "row"] = Field(
        default="none", description="whether a key's weights are divided by their sum"
    )
    readout: ReadKernel | None = Field(default=None, description="the kernel that reads")

    @property
    def finite(self) -> bool:
        """A bare kernel has no finite map."""
        return False

    @property
    def largest(self) -> str:
        """The largest ‖φ(x)‖²: the kernel at s = x·x; 1 where a row's weights sum to one."""
        return "1" if self.normalise == "row" else self.kernel
