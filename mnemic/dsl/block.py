"""The block around a memory: projections, convolution, norms, gates, feed-forward, hybrids."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Entry


class Block(Entry):
    """Llama's macro design around a memory layer: short convolution, norms, gates, feed-forward."""

    heads: int | None = Field(
        default=None, ge=1, description="number of heads; by default dim / value_dim, or dim / 64"
    )
    key_dim: int | None = Field(default=None, ge=1, le=256, description="d_k of one head")
    value_dim: int | None = Field(default=None, ge=1, le=256, description="d_v of one head")
    groups: int = Field(default=1, ge=1, description="query heads for each key head")
    convolution: int = Field(
        default=4, ge=0, le=64, description="taps of the short convolution; 0 for none"
    )
    activation: str = Field(
        default="silu", description="activation after the convolution; an expression in x"
    )
    query: str | None = Field(default=None, description="activation of q in its place")
    key: str | None = Field(default=None, description="activation of k in its place")
    value: str | None = Field(default=None, description="activation of v in its place")
    qk_norm: Literal["l2", "none"] = Field(
        default="l2", description="whether q and k are made unit vectors"
    )
    scale: float | None = Field(default=None, description="factor on q")
    output_norm: Literal["rms", "none"] = Field(
        default="rms", description="whether a head's read-out is divided by its root mean square"
    )
    gate: str = Field(default="silu", description="output gate: none, or an activation")
    skip: bool = Field(
        default=False, description="whether y also has a learned multiple of x, by channel"
    )
    feed_forward: Literal["swiglu", "relu", "silu", "solu", "exp", "none"] = Field(
        default="swiglu", description="kernel of the feed-forward: a memory of learned pairs"
    )
    rotary: Literal[True, False, "memory", "attention"] = Field(
        default=False,
        description="whether rotary positions turn q and k: in both parts, or in one alone",
    )
    hybrid: Literal["none", "context", "gate", "layer"] = Field(
        default="none",
        description="where attention stands: over the memory's read-out, beside it, or after it",
    )
    attention_window: int | None = Field(
        default=None, ge=1, description="tokens that attention sees, for hybrids gate and layer"
    )
    segment: int | None = Field(
        default=None, ge=1, description="tokens per segment, for the hybrid context"
    )
    persistent: int = Field(
        default=0, ge=0, description="learned tokens that a hybrid's attention always sees"
    )
