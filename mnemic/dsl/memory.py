"""Function classes M(W, ·): what the memory is."""

from typing import Annotated, Literal

from pydantic import Field

from mnemic.dsl.axis import Family
from mnemic.dsl.coefficients import ONE, Scalar


class Memory(Family):
    """M(W, x), with parameters W."""


class Linear(Memory):
    """M(W, x) = W x, W of shape [d_v, D].

    With ``slots: m`` a companion memory K_t, [m, d_k], stores the keys, written with the same
    gates. The query reads it first, q' = softmax(K_t q), and write keys lie in its m slots.
    """

    kind: Literal["linear"] = "linear"
    example = (
        "memory: {kind: linear, slots: 32}\nretention: {decay: channel}\nkeys: {write: 1 - alpha}"
    )
    slots: int | None = Field(
        default=None, ge=1, description="rows of the companion memory of keys; unset, there is none"
    )


class Diagonal(Memory):
    """M(W, x) = W ∘ x, a vector state (needs d_k = d_v); each channel is a memory by itself.

    With a phase the state is complex, W_t = α e^{iω} ∘ W_{t−1} + …, one number per key channel,
    and so are value and read-out: d_v = 2·d_k, real parts before imaginary ones.
    """

    kind: Literal["diagonal"] = "diagonal"
    example = "memory: diagonal\nretention: {decay: channel, phase: {from: input, per: key}}"


class Mlp(Memory):
    """depth layers with an activation between; depth 1 is W x. ``residual`` adds the raw input,
    ``norm`` is a LayerNorm without affine (ε = 1e-5) before the residual."""

    kind: Literal["mlp"] = "mlp"
    example = (
        "memory: {kind: mlp, depth: 2, expansion: 2, activation: silu, residual: false, "
        "norm: true}\n"
        "bias: l2\n"
        "optimizer: {rate: token, anchor: {chunk: 16}}"
    )
    depth: int = Field(default=2, ge=1, le=8, description="number of matrices")
    expansion: float = Field(default=4.0, gt=0, description="hidden channels, as a multiple of d_v")
    activation: str = Field(default="gelu", description="σ, a function or an expression in x")
    residual: bool = Field(
        default=True, description="whether the raw key or query is added, which needs d_k = d_v"
    )
    norm: bool = Field(default=False, description="whether a LayerNorm stands before the residual")


class Glu(Memory):
    """M(x) = W1(σ(W2 x) ∘ W3 x), with optional residual and norm."""

    kind: Literal["glu"] = "glu"
    example = (
        "memory: {kind: glu, expansion: 2, activation: silu, residual: true, norm: false}\n"
        "optimizer: {rate: 0.1, anchor: {chunk: 64}}"
    )
    expansion: float = Field(default=4.0, gt=0, description="hidden channels, as a multiple of d_v")
    activation: str = Field(default="silu", description="σ, a function or an expression in x")
    residual: bool = Field(
        default=True, description="whether the raw key or query is added, which needs d_k = d_v"
    )
    norm: bool = Field(default=False, description="whether a LayerNorm stands before the residual")


class LowRank(Memory):
    """M(x) = U Vᵀ φ(x) + d ∘ x: a low-rank matrix and a diagonal one (needs d_k = d_v).

    The states are U = W1 [d_v, r], Vᵀ = W2 [r, D] and d = W3 [d_v, 1], with r = rank·d_v, rounded
    and at least 1. M is linear in x and in each of the three, but not in all together.
    """

    kind: Literal["low-rank"] = "low-rank"
    example = (
        "memory: {kind: low-rank, rank: 0.5}\nbias: l2\noptimizer: {rate: 0.1, anchor: {chunk: 16}}"
    )
    rank: float = Field(
        default=0.25, gt=0, le=1, description="r/d_v; r is rounded to a whole number, at least 1"
    )


class Nonparametric(Memory):
    """Local polynomial regression over the kept pairs: degree 0 is attention, 1 local linear.

    ``similarity`` w(k, q) ≥ 0 is an expression in ``s`` = scale·k·q (scale is 1/√d_k by default),
    ``d2`` = ‖k − q‖² and coefficients (of the query's token). Degree 0: y = Σ w_i v_i / Σ w_i.
    Degree 1: the constant a of argmin Σ w_i/max w ½‖v_i − a − B(k_i − q)‖² + ½ ridge ‖B‖².
    """

    kind: Literal["nonparametric"] = "nonparametric"
    example = (
        'memory: {kind: nonparametric, similarity: "exp(s - d2)", degree: 1, scale: 0.2, '
        "ridge: 0.5}\n"
        "bias: l2\n"
        "window: all\n"
        "weights: similarity\n"
        "optimizer: nonparametric"
    )
    similarity: str = Field(default="exp(s)", description="w(k, q) ≥ 0 in s, d2 and coefficients")
    degree: int = Field(
        default=0, ge=0, le=1, description="0 for a weighted mean, 1 for a local linear fit"
    )
    scale: float | None = Field(
        default=None,
        description="factor of k·q in s, 1/√d_k by default; for unit vectors √d_k is advised",
    )
    ridge: Scalar = Field(default=ONE, description="ridge on a local fit's slope, at least 0")


class Interpolation(Memory):
    """Exact kernel regression: y = Vᵀ (κ(K, K) + ridge·I)⁻¹ κ(K, q).

    ``kernel`` is an expression in ``s`` = k·q and in ``d2`` = ‖k − q‖².
    """

    kind: Literal["interpolation"] = "interpolation"
    example = (
        'memory: {kind: interpolation, kernel: "exp(-d2/2)", ridge: 0.1}\n'
        "bias: l2\n"
        "window: all\n"
        "optimizer: nonparametric"
    )
    kernel: str = Field(default="exp(s)", description="κ(k, q) in s and d2")
    ridge: float = Field(
        default=0.0, ge=0, description="what is added to the kernel matrix's diagonal"
    )


class Chain(Memory):
    """Memories one after another, the i-th updated every C_i tokens."""

    kind: Literal["chain"] = "chain"
    shorthand = "chain"
    example = (
        "memory: {chain: [linear, {kind: mlp}], every: [1, 4]}\n"
        "bias: l2\n"
        "optimizer: {rate: 0.1, anchor: {chunk: 4}}"
    )
    chain: Annotated[tuple[Memory, ...], Field(min_length=1, strict=False)] = Field(
        description="the memories; the first takes the key"
    )
    every: Annotated[tuple[int, ...], Field(min_length=1, strict=False)] = Field(
        description="tokens between updates of each, multiples of one another"
    )
