"""The block around a memory: projections, convolution, norms, gates, feed-forward, hybrids."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Entry


class Block(Entry):
    """Llama's macro design around a memory layer: short convolution, norms, gates, feed-forward."""

    heads: int | None = Field(
        default=None, ge=1, description="heads; otherwise dim / value_dim, or dim / 64"
    )
    key_dim: int | None = Field(default=None, ge=1, le=256, description="d_k of one head")
    value_dim: int | None = Field(default=None, ge=1, le=256, description="d_v of one head")
    groups: int = Field(default=1, ge=1, description="query heads for each key head")
    convolution: int = Field(default=4, ge=0, le=64, description="taps; 0 leaves it out")
    activation: str = Field(default="silu", description="after the convolution; an expression in x")
    query: str | None = Field(default=None, description="activation of q, instead")
    key: str | None = Field(default=None, description="activation of k, instead")
    value: str | None = Field(default=None, description="activation of v, instead")
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
        default="swiglu", description="kernel of the feed-forward, a memory of learned pairs"
    )
    rotary: Literal[True, False, "memory", "attention"] = Field(
        default=False, description="whether positions turn q and k: of all, or of one part"
    )
    hybrid: Literal["none", "context", "gate", "layer"] = Field(
        default="none",
        description="attention over the memory's read-out, beside the memory, or after it",
    )
    attention_window: int | None = Field(
        default=None, ge=1, description="tokens that the attention of gate and layer sees"
    )
    segment: int | None = Field(
        default=None, ge=1, description="tokens of a segment of the memory as context"
    )
    persistent: int = Field(
        default=0, ge=0, description="learned tokens that a hybrid's attention always sees"
    )
