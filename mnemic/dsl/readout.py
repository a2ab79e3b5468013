"""The read-out y_t = M(W, φ(q_t))."""

from typing import Literal

from pydantic import Field

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Scalar


class Readout(Entry):
    """Which memory is read, the normaliser, and the bonus of the current token.

    ``normalizer: sum`` divides by the sum of the weights with which values are read; ``max1`` by
    the larger of that sum's absolute value and 1 (mLSTM). ``bonus`` u adds v (u∘φ(k))·φ(q) to the
    read-out (RWKV-6) and, where there is a normaliser, (u∘φ(k))·φ(q) to the sum.

    ``levels`` λ weighs the buckets of a Fenwick tree of past tokens one by one, instead of reading
    their sum: y_t = Σ_ℓ λ_t^(ℓ) W_t^(ℓ) φ(q_t), where W^(0) is what token t itself wrote and W^(ℓ)
    what a bucket of 2^(ℓ−1) earlier tokens wrote, the nearest tokens in the lowest level. L levels
    (``max_levels``) hold 2^(L−1) tokens.
    """

    memory: Literal["after", "before", "anchor"] = Field(
        default="after",
        description="the memory that is read: after the token's write, before it, or at the last "
        "chunk's end",
    )
    normalizer: Literal["none", "sum", "max1"] = Field(
        default="none",
        description="the read-out's divisor: none, the sum of weights, or its size but at least 1",
    )
    bonus: Scalar | None = Field(
        default=None, description="extra weight u of the current pair, v (u∘φ(k))·φ(q)"
    )
    levels: Scalar | None = Field(
        default=None, description="weights of the levels of a Fenwick tree of past tokens"
    )
    max_levels: int = Field(default=20, ge=2, le=40, description="L levels hold 2**(L - 1) tokens")
