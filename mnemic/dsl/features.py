"""Feature maps φ: what a key or query is turned into before the memory sees it."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Entry, Family


class Features(Family):
    """φ. ``text`` is an elementwise expression in ``x`` where the map is one, else ``None``."""

    @property
    def text(self) -> str | None:
        """The map as an elementwise expression, where it is one."""
        return None

    @property
    def finite(self) -> bool:
        """Whether φ has finitely many features (a kernel-only map has not)."""
        return True


class Identity(Features):
    """φ(x) = x."""

    kind: Literal["identity"] = "identity"

    @property
    def text(self) -> str:
        """x"""
        return "x"


class Elu(Features):
    """φ(x) = 1 + ELU(x), positive (the first linear transformer)."""

    kind: Literal["elu"] = "elu"

    @property
    def text(self) -> str:
        """1 + ELU(x)."""
        return "where(x > 0, x + 1, exp(min(x, 0)))"


class Relu(Features):
    """φ(x) = max(x, 0)."""

    kind: Literal["relu"] = "relu"

    @property
    def text(self) -> str:
        """max(x, 0)."""
        return "relu(x)"


class Softmax(Features):
    """φ(x) = softmax(x) over the coordinates."""

    kind: Literal["softmax"] = "softmax"


class Polynomial(Features):
    """Monomials of degree ≤ p with φ(x)·φ(y) = Σ_i a_i (x·y)^i (Atlas (5)).

    ``graded``: a_i = 1/i! at the start, learnable; features graded, then lexicographic, one a
    monomial. ``power``: the p-fold self-tensor, φ(x)·φ(y) = (x·y)^p.
    """

    kind: Literal["polynomial"] = "polynomial"
    degree: int = Field(default=2, ge=1, le=8)
    mode: Literal["graded", "power"] = "graded"


class Taylor(Features):
    """The Taylor features of exp: φ(x)·φ(y) = Σ_{i ≤ order} (x·y)^i / i! (Based)."""

    kind: Literal["taylor"] = "taylor"
    order: int = Field(default=2, ge=1, le=8)


class Cosine(Features):
    """cosFormer: relu(x) cos(πt/2M) and relu(x) sin(πt/2M), t the position, M ``length``."""

    kind: Literal["cosine"] = "cosine"
    length: int = Field(default=4096, ge=1)


class Dpfp(Features):
    """Deterministic parameter-free projection: products of rectified ±x with its nu rotations."""

    kind: Literal["dpfp"] = "dpfp"
    nu: int = Field(default=1, ge=1, le=16)


class Random(Features):
    """Positive random features of exp (Performer): exp(ω·x − ‖x‖²/2)/√m, ω orthogonal Gaussian."""

    kind: Literal["random"] = "random"
    features: int = Field(default=64, ge=1, le=65536)
    seed: int = Field(default=0, ge=0)


class Expression(Features):
    """An elementwise expression in ``x``."""

    kind: Literal["expr"] = "expr"
    shorthand = "expr"
    expr: str

    @property
    def text(self) -> str:
        """The user's own expression."""
        return self.expr


class Exponential(Features):
    """φ(k)·φ(q) = exp(scale · k·q): no finite map, the keys are kept."""

    kind: Literal["exponential"] = "exponential"
    scale: float = 1.0

    @property
    def finite(self) -> bool:
        """An exponential kernel has infinitely many features."""
        return False


class ReadKernel(Entry):
    """κ2, the kernel of the read-out."""

    kernel: str
    normalise: Literal["none", "row"] = "none"


class Kernel(Features):
    """A kernel with no finite map: an expression in ``s`` = k·q (κ1 writes, κ2 reads)."""

    kind: Literal["kernel"] = "kernel"
    shorthand = "kernel"
    kernel: str
    normalise: Literal["none", "row"] = "none"
    readout: ReadKernel | None = None

    @property
    def finite(self) -> bool:
        """A bare kernel has no finite map."""
        return False
