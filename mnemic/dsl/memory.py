"""Function classes M(W, ·): what the memory is."""

from typing import Annotated, Literal

from pydantic import Field

from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import ONE, Scalar


class Memory(Family):
    """M(W, x), with parameters W."""


class Linear(Memory):
    """M(W, x) = W x, W of shape [d_v, D].

    With ``slots: m`` the query is first read from a companion memory of the keys, written with
    the same gates: q' = softmax(K_t q), K_t [m, d_k], and the write keys live in the m slots.
    """

    kind: Literal["linear"] = "linear"
    slots: int | None = Field(default=None, ge=1)


class Diagonal(Memory):
    """M(W, x) = W ∘ x, a vector state (needs d_k = d_v); each channel is a memory by itself."""

    kind: Literal["diagonal"] = "diagonal"


class Mlp(Memory):
    """depth layers with an activation between; depth 1 is W x. ``residual`` adds the raw input,
    ``norm`` is a LayerNorm without affine (ε = 1e-5) before the residual."""

    kind: Literal["mlp"] = "mlp"
    depth: int = Field(default=2, ge=1, le=8)
    expansion: float = Field(default=4.0, gt=0)
    activation: str = "gelu"
    residual: bool = True
    norm: bool = False


class Glu(Memory):
    """M(x) = W1(σ(W2 x) ∘ W3 x), with optional residual and norm."""

    kind: Literal["glu"] = "glu"
    expansion: float = Field(default=4.0, gt=0)
    activation: str = "silu"
    residual: bool = True
    norm: bool = False


class Nonparametric(Memory):
    """Local polynomial regression over the kept pairs: degree 0 is attention, 1 local linear.

    ``similarity`` w(k, q) ≥ 0 is an expression in ``s`` = scale·k·q (1/√d_k unless told), in
    ``d2`` = ‖k − q‖² and in coefficients (of the query's token). Degree 0: y = Σ w_i v_i / Σ w_i.
    Degree 1: the constant a of argmin Σ w_i/max w ½‖v_i − a − B(k_i − q)‖² + ½ ridge ‖B‖².
    """

    kind: Literal["nonparametric"] = "nonparametric"
    similarity: str = "exp(s)"
    degree: int = Field(default=0, ge=0, le=1)
    scale: float | None = None
    ridge: Scalar = ONE


class Interpolation(Memory):
    """Exact kernel regression: y = Vᵀ (κ(K, K) + ridge·I)⁻¹ κ(K, q).

    ``kernel`` is an expression in ``s`` = k·q and in ``d2`` = ‖k − q‖².
    """

    kind: Literal["interpolation"] = "interpolation"
    kernel: str = "exp(s)"
    ridge: float = Field(default=0.0, ge=0)


class Chain(Memory):
    """Memories one after another, the i-th updated every C_i tokens."""

    kind: Literal["chain"] = "chain"
    shorthand = "chain"
    chain: Annotated[tuple[Memory, ...], Field(min_length=1, strict=False)]
    every: Annotated[tuple[int, ...], Field(min_length=1, strict=False)]
