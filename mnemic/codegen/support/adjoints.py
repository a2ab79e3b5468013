"""What gradients need beside the forms' own functions: sums along rows, rows moved back.

Shapes are given by their trailing axes; any batch may stand before them. C is the chunk.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .chunks import decayed_mix, delayed_rows
from .matrices import newton_schulz_vjp as newton_schulz_vjp
from .rows import log_mix

# -- sums ------------------------------------------------------------------------------------


def between(x: Tensor) -> Tensor:
    """Compute Σ_{t ≥ i > s} x_ts: [..., C, C] → [..., C]."""
    return x.tril(-1).flip(-2).cumsum(-2).flip(-2).tril(-1).sum(-1)


def later_rows(x: Tensor) -> Tensor:
    """Compute Σ_{t ≥ i} x_t for every row i: [..., C, K] → [..., C, K]."""
    return x.flip(-2).cumsum(-2).flip(-2)


def later_sums(x: Tensor) -> Tensor:
    """Compute Σ_{t ≥ i} x_t for every number i: [..., C] → [..., C]."""
    return x.flip(-1).cumsum(-1).flip(-1)


def earlier_rows(x: Tensor) -> Tensor:
    """Compute Σ_{s < i} x_s for every row i: [..., C, K] → [..., C, K]."""
    return delayed_rows(x.cumsum(-2), 0.0)


def earlier_sums(x: Tensor) -> Tensor:
    """Compute Σ_{s < i} x_s for every number i: [..., C] → [..., C]."""
    return earlier_rows(x[..., None])[..., 0]


def as_rows(x: Tensor, like: Tensor) -> Tensor:
    """Return the same vector for every row: [..., K] → [..., C, K]."""
    return x[..., None, :].expand(like.shape)


def total_states(x: Tensor) -> Tensor:
    """Compute Σ over rows of matrices: [..., C, V, K] → [..., V, K]."""
    return x.sum(-3)


# -- rows moved back -------------------------------------------------------------------------


def advanced_rows(x: Tensor, *, rows: int = 1) -> Tensor:
    """Return the row so many further on, zero for the last: [..., C, K] → [..., C, K].

    Each row is replaced by the one ``rows`` places later.
    """
    return torch.cat([x[..., rows:, :], torch.zeros_like(x[..., :rows, :])], -2)


def delayed_by(x: Tensor, *, rows: int) -> Tensor:
    """Return the row so many before, zero for the first: [..., C, K] → [..., C, K].

    Each row is replaced by the one ``rows`` places earlier.
    """
    return torch.cat([torch.zeros_like(x[..., :rows, :]), x[..., :-rows, :]], -2)


def advanced(x: Tensor) -> Tensor:
    """Return the next row's number, zero for the last: [..., C] → [..., C]."""
    return torch.cat([x[..., 1:], torch.zeros_like(x[..., :1])], -1)


def at_last_row(x: Tensor, like: Tensor) -> Tensor:
    """Return a vector as the last of so many rows, zero before: [..., K] → [..., C, K]."""
    return torch.cat([torch.zeros_like(like[..., 1:, :]), x[..., None, :]], -2)


def at_last(x: Tensor, like: Tensor) -> Tensor:
    """Return a number as the last of so many rows, zero before: [...] → [..., C]."""
    return torch.cat([torch.zeros_like(like[..., 1:]), x[..., None]], -1)


def advanced_states(x: Tensor) -> Tensor:
    """Return the next row's matrix, zero for the last: [..., C, V, K] → [..., C, V, K]."""
    return torch.cat([x[..., 1:, :, :], torch.zeros_like(x[..., :1, :, :])], -3)


def first_of(x: Tensor) -> Tensor:
    """Return the first row's matrix: [..., C, V, K] → [..., V, K]."""
    return x[..., 0, :, :]


def at_last_of(x: Tensor, like: Tensor) -> Tensor:
    """Return a matrix as that of the last row, zero before: [..., V, K] → [..., C, V, K]."""
    return torch.cat([torch.zeros_like(like[..., 1:, :, :]), x[..., None, :, :]], -3)


def without_last(x: Tensor) -> Tensor:
    """Return the rows with zero for the last: [..., C, V] → [..., C, V]."""
    return torch.cat([x[..., :-1, :], torch.zeros_like(x[..., :1, :])], -2)


# -- decay by channel ------------------------------------------------------------------------


def mixed_back(scores: Tensor, u: Tensor, log_decay: Tensor) -> Tensor:
    """Compute Σ_t scores_ts u_tυ Π_{s<i≤t} decay_iυ: [..., C, C], two [..., C, V] → [..., C, V].

    With time reversed it is ``decayed_mix``, each decay one row later.
    """
    late = delayed_rows(log_decay.flip(-2), 0.0)
    return decayed_mix(scores.mT.flip(-1, -2), u.flip(-2), late).flip(-2)


def row_mix(scores: Tensor, u: Tensor, log_decay: Tensor) -> Tensor:
    """Return decayed mixes, several rows a token: [..., C·r, C·c], [..., C·c, K] → [C·r, K]."""
    return _by_slots(scores, u, log_decay, decayed_mix)


def row_mix_back(scores: Tensor, u: Tensor, log_decay: Tensor) -> Tensor:
    """Return mixes of later rows, several a token: [..., C·r, C·c], [..., C·r, K] → [C·c, K]."""

    def back(swapped: Tensor, rows: Tensor, decay: Tensor) -> Tensor:
        return mixed_back(swapped.mT, rows, decay)

    return _by_slots(scores.mT, u, log_decay, back)


def _by_slots(
    scores: Tensor, u: Tensor, log_decay: Tensor, mix: Callable[..., Tensor]
) -> Tensor:  # fmt: skip
    """Add source slots' mixes for each target slot: [..., C·r, C·c], [..., C·c, K] → [C·r, K]."""
    tokens = log_decay.shape[-2]
    parts = scores.unflatten(-1, (tokens, -1)).unflatten(-3, (tokens, -1))  # [C, r, C, c]
    parts = parts.movedim(-3, -4).movedim(-1, -3)  # [r, c, C, C]
    rows = u.unflatten(-2, (tokens, -1)).movedim(-2, -3)[..., None, :, :, :]  # [1, c, C, K]
    every = mix(*_spread(parts, rows, log_decay[..., None, None, :, :]))
    return every.sum(-3).movedim(-3, -2).flatten(-3, -2)


def _spread(scores: Tensor, rows: Tensor, decay: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    lead = scores.shape[:-2]
    return scores, rows.expand(*lead, *rows.shape[-2:]), decay.expand(*lead, *decay.shape[-2:])


def token_sums(x: Tensor, *, rows: int) -> Tensor:
    """Compute Σ over the rows of each token: [..., C·r, K] → [..., C, K]."""
    return x.unflatten(-2, (-1, rows)).sum(-2)


# -- a running maximum -----------------------------------------------------------------------


def maximum_share(log_decay: Tensor, log_rate: Tensor, m: Tensor) -> Tensor:
    """Return 1 where Σ_{s<i≤t} l_i + r_s = m_t, shared by ties: three [..., C] → [..., C, C]."""
    attains = (log_mix(log_decay, log_rate) == m[..., None]).to(m.dtype)
    return attains / attains.sum(-1, keepdim=True).clamp_min(1.0)


# -- windows ---------------------------------------------------------------------------------


def in_shape_of(x: Tensor, like: Tensor) -> Tensor:
    """Return rows that lie flat, back in their slots."""
    return x.reshape(like.shape)


def run_sums(x: Tensor, *, times: int) -> Tensor:
    """Compute Σ over runs of so many numbers: [..., C·r] → [..., C]."""
    return x.unflatten(-1, (-1, times)).sum(-1)


def block_sums(x: Tensor, *, targets: int, sources: int) -> Tensor:
    """Compute Σ over blocks, ``targets`` by ``sources``: [..., C·r, C·c] → [..., C, C]."""
    return x.unflatten(-1, (-1, sources)).sum(-1).unflatten(-2, (-1, targets)).sum(-2)


def unbanded(x: Tensor, weights: Tensor) -> Tensor:
    """Return a window's entries of each row, x_t,t+j: [..., C, C + c − 1] → [..., C, c]."""
    rows, width = weights.shape[-2:]
    places = torch.arange(rows, device=x.device)[:, None] + torch.arange(width, device=x.device)
    return x.gather(-1, places.expand(weights.shape))


def after_tail(x: Tensor, like: Tensor) -> Tensor:
    """Return a chunk's rows behind a tail of zeros: [..., C, K] → [..., c − 1 + C, K]."""
    return torch.nn.functional.pad(x, (0, 0, like.shape[-2] - x.shape[-2], 0))


def unfolded(x: Tensor, *, width: int) -> Tensor:
    """Return every window's rows: [..., c − 1 + C, V] → [..., C·c, V]."""
    return x.unfold(-2, width, 1).mT.flatten(-3, -2)


def turned_back(x: Tensor, angle: Tensor) -> Tensor:
    """Compute x₁ cos Ω + x₂ sin Ω of the halves of x: [..., 2K], [..., K] → [..., K]."""
    one, two = x.chunk(2, -1)
    return one * torch.cos(angle) + two * torch.sin(angle)


# -- memories --------------------------------------------------------------------------------


def gathered_states(weights: Tensor, states: Tensor) -> Tensor:
    """Compute Σ_t weights_ts X_t: [..., C, S], [..., C, V, K] → [..., S, V, K]."""
    return (weights.mT @ states.flatten(-2)).unflatten(-1, states.shape[-2:])


def state_products(x: Tensor, y: Tensor) -> Tensor:
    """Compute Σ of the entries of X_t ∘ Y_s: [..., C, V, K], [..., S, V, K] → [..., C, S]."""
    return x.flatten(-2) @ y.flatten(-2).mT


def pairings(x: Tensor, u: Tensor, k: Tensor) -> Tensor:
    """Compute u_sᵀ X_t k_s: [..., C, V, K], [..., S, V], [..., S, K] → [..., C, S]."""
    return torch.einsum("...tvk,...sv,...sk->...ts", x, u, k)


# -- factors ---------------------------------------------------------------------------------


def symmetric(x: Tensor) -> Tensor:
    """Compute (X + Xᵀ)/2."""
    return (x + x.mT) / 2


def diagonal_of(x: Tensor) -> Tensor:
    """Return the diagonal: [..., C, C] → [..., C]."""
    return x.diagonal(dim1=-2, dim2=-1)


def solved_back(factor: Tensor, x: Tensor) -> Tensor:
    """Compute L⁻ᵀ x."""
    return torch.linalg.solve_triangular(factor.mT, x, upper=True)


def cholesky_vjp(d: Tensor, factor: Tensor) -> Tensor:
    """Return the symmetric gradient at S = L Lᵀ of L: L⁻ᵀ Φ(Lᵀ d) L⁻¹, Φ halving the diagonal."""
    inner = (factor.mT @ d).tril()
    inner = inner - 0.5 * torch.diag_embed(diagonal_of(inner))
    half = solved_back(factor, inner)
    return symmetric(solved_back(factor, half.mT))


# -- kept pairs ------------------------------------------------------------------------------


def first_rows(x: Tensor, kept: Tensor) -> Tensor:
    """Return the part of the kept pairs: [M, n + C, …], [M, n, …] → [M, n, …].

    These are the entries of the pairs kept before the chunk.
    """
    return x[:, : kept.shape[1]]


def kept_rows(x: Tensor, kept: Tensor, *, rows: int) -> Tensor:
    """Return the part of kept pairs, zeros where a window left the oldest: → [M, n, …].

    These are the entries of the pairs kept before the chunk; those that a window has dropped are
    zero.
    """
    part = x[:, : x.shape[1] - rows]
    left = part.new_zeros(part.shape[0], kept.shape[1] - part.shape[1], *part.shape[2:])
    return torch.cat([left, part], 1)


def rows_before(x: Tensor, kept: Tensor, rows: Tensor) -> Tensor:
    """Return the kept part before new rows: [M, n′ + C, …], [M, n, …], [M, C, …] → [M, n, …].

    These are the entries of the pairs kept before the chunk.
    """
    return kept_rows(x, kept, rows=rows.shape[1])


def rows_behind(x: Tensor, rows: Tensor) -> Tensor:
    """Return the last C rows, behind zeros if there are fewer: [M, n, …], [M, C, …] → [M, C, …]."""
    count = min(rows.shape[1], x.shape[1])
    missing = x.new_zeros(x.shape[0], rows.shape[1] - count, *x.shape[2:])
    return torch.cat([missing, x[:, x.shape[1] - count :]], 1)


def newest_row(x: Tensor) -> Tensor:
    """Return the last pair: [M, n, …] → [M, …]."""
    return x[:, -1]
