"""The read-out y_t = M(W, φ(q_t))."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Scalar


class Readout(Entry):
    """Which memory is read, the normaliser, and the bonus of the current token.

    ``normalizer: sum`` divides by Σ of the weights that the values carry; ``max1`` by the larger
    of its absolute value and 1 (mLSTM). ``bonus`` u adds v (u∘φ(k))·φ(q) (RWKV-6), and where
    there is a normaliser (u∘φ(k))·φ(q) to that sum.

    ``levels`` λ weighs what each bucket of a Fenwick tree of past tokens wrote, in place of
    reading their sum: y_t = Σ_ℓ λ_t^(ℓ) W_t^(ℓ) φ(q_t), W^(0) being what token t itself wrote and
    W^(ℓ) what 2^(ℓ−1) tokens before it did, the nearest first. ``max_levels`` L levels hold
    2^(L−1) tokens.
    """

    memory: Literal["after", "before", "anchor"] = Field(
        default="after",
        description="the memory that is read: after the token's write, before it, or a chunk's end",
    )
    normalizer: Literal["none", "sum", "max1"] = Field(
        default="none",
        description="the read-out's divisor: none, the sum of weights, or its size if above 1",
    )
    bonus: Scalar | None = Field(
        default=None, description="extra weight u of the current pair, v (u∘φ(k))·φ(q)"
    )
    levels: Scalar | None = Field(
        default=None, description="weights of the levels of a Fenwick tree of past tokens"
    )
    max_levels: int = Field(default=20, ge=2, le=40, description="L levels hold 2**(L - 1) tokens")
