"""Cholesky factors of what sums up the past, and what is said where there is none."""

import torch
from torch import Tensor

from .pickled import Pickled


class Forgotten(Pickled, ValueError):
    """Σ γ k kᵀ, with the ridge that is forgotten beside it, has no inverse in this dtype."""

    def __init__(self) -> None:
        super().__init__(
            "the matrix of past keys with its ridge is not positive definite to within rounding: "
            "the weights forget the ridge with the past (log_gamma far below 0), or arguments are "
            "too large or no numbers; keep the sum of log_gamma over d_k tokens above about -10 in "
            "float32 and -27 in float64 (over 16 tokens above -16 in the chunk form), or write "
            "weights: {kind: geometric, ridge: constant}"
        )


def cholesky(matrix: Tensor) -> Tensor:
    """Return L with L Lᵀ = matrix, [..., K, K]; raise ``Forgotten`` where there is none."""
    try:
        factor: Tensor = torch.linalg.cholesky(matrix)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise Forgotten from None
    return factor
