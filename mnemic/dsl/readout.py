"""The read-out y_t = M(W, φ(q_t))."""

from typing import Literal

from mnemic.dsl.axis import Entry
from mnemic.dsl.coefficients import Scalar


class Readout(Entry):
    """Which memory is read, the normaliser, and the bonus of the current token.

    ``normalizer: sum`` divides by Σ of the weights that the values carry; ``max1`` by the larger
    of its absolute value and 1 (mLSTM). ``bonus`` u adds v (u∘φ(k))·φ(q) (RWKV-6).
    """

    memory: Literal["after", "before", "anchor"] = "after"
    normalizer: Literal["none", "sum", "max1"] = "none"
    bonus: Scalar | None = None
