"""Chunkwise algebra: decays as matrices, triangular systems, windows.

Shapes are given by their trailing axes; any batch may stand before them. C is the chunk.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .transforms import transformed

BASE = 16
"""Rows below which a triangular matrix is inverted directly."""

PAIRS = 8192
"""Pairs of rows, times channels, up to which decays by channel are written out for each of them."""


class _Segments(torch.autograd.Function):
    """exp of sums over s < i ≤ t; the gradient of log decay i is Σ over t ≥ i > s of g ∘ out."""

    @staticmethod
    def forward(ctx: Any, log_decay: Tensor) -> Tensor:
        size = log_decay.shape[-1]
        ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
        steps = log_decay[..., :, None].expand(*log_decay.shape, size)
        sums = steps.masked_fill(~ones.tril(-1), 0.0).cumsum(-2)
        out = sums.masked_fill_(~ones.tril(), -torch.inf).exp_()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        moved = (grads[0] * out).tril_(-1)
        later = moved.flip(-2).cumsum_(-2).flip(-2)
        return later.tril_(-1).sum(-1)


def segments(log_decay: Tensor) -> Tensor:
    """Compute Π of decays over s < i ≤ t, zero for s > t: [..., C] → [..., C, C], of logarithms.

    Each segment is summed by itself: differences of prefix sums would cancel at strong decay.
    """
    if not transformed():
        found: Tensor = _Segments.apply(log_decay)
        return found
    size = log_decay.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=log_decay.device)
    steps = log_decay[..., :, None].expand(*log_decay.shape, size)
    sums = steps.masked_fill(~ones.tril(-1), 0.0).cumsum(-2)
    return sums.masked_fill(~ones.tril(), -torch.inf).exp()


def products(factor: Tensor) -> Tensor:
    """Compute Π of factors, or zeros, over s < i ≤ t, zero for s > t: [..., C] → [..., C, C]."""
    size = factor.shape[-1]
    ones = torch.ones(size, size, dtype=torch.bool, device=factor.device)
    steps = factor[..., :, None].expand(*factor.shape, size)
    return steps.masked_fill(~ones.tril(-1), 1.0).cumprod(-2).tril()


def reach(log_decay: Tensor) -> Tensor:
    """Compute the decay from the chunk's start to each row: [..., C] → [..., C]."""
    return torch.exp(log_decay.cumsum(-1))


def reach_rows(log_decay: Tensor) -> Tensor:
    """Compute the decay by channel from the chunk's start to a row: [..., C, K] → [..., C, K]."""
    return torch.exp(log_decay.cumsum(-2))


def remain_rows(log_decay: Tensor) -> Tensor:
    """Compute the decay by channel from each row to the chunk's end: [..., C, K] → [..., C, K]."""
    later = torch.cat([log_decay[..., 1:, :], torch.zeros_like(log_decay[..., :1, :])], -2)
    return torch.exp(later.flip(-2).cumsum(-2).flip(-2))


def left_at_end(log_decay: Tensor) -> Tensor:
    """Compute the decay from each row to the last that is there: [..., C] → [..., C]."""
    return remain_rows(log_decay[..., None])[..., 0]


def delayed(x: Tensor, fill: float) -> Tensor:
    """Return the number of the row before, ``fill`` for the first: [..., C] → [..., C]."""
    return torch.cat([torch.full_like(x[..., :1], fill), x[..., :-1]], -1)


def delayed_rows(x: Tensor, fill: float) -> Tensor:
    """Return the row before each, ``fill`` for the first: [..., C, K] → [..., C, K]."""
    return torch.cat([torch.full_like(x[..., :1, :], fill), x[..., :-1, :]], -2)


def delayed_states(x: Tensor, first: Tensor) -> Tensor:
    """Return the state before each row: [..., C, V, K], [..., V, K] → [..., C, V, K]."""
    return torch.cat([first[..., None, :, :], x[..., :-1, :, :]], -3)


def last(x: Tensor) -> Tensor:
    """Return the last row's number: [..., C] → [...]."""
    return x[..., -1]


def last_row(x: Tensor) -> Tensor:
    """Return the last row: [..., C, K] → [..., K]."""
    return x[..., -1, :]


def decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Compute Σ_κ q_tκ k_sκ Π_{s<i≤t} decay_iκ for s ≤ t, [..., C, K] each → [..., C, C].

    Halves are joined at an anchor between them, so no exponent is ever positive.
    """
    size = q.shape[-2]
    if size <= 1:  # a token with itself: nothing decays
        return (q * k).sum(-1, keepdim=True)
    if _small(q):
        return torch.einsum("...tk,...sk,...kts->...ts", q, k, segments(log_decay.mT))
    half = size // 2
    if size % 2 == 0:
        top, bottom = _halves(decayed_scores(_fold(q), _fold(k), _fold(log_decay)))
    else:
        top = decayed_scores(q[..., :half, :], k[..., :half, :], log_decay[..., :half, :])
        bottom = decayed_scores(q[..., half:, :], k[..., half:, :], log_decay[..., half:, :])
    late = q[..., half:, :] * reach_rows(log_decay[..., half:, :])
    early = k[..., :half, :] * remain_rows(log_decay[..., :half, :])
    return _lower_blocks(top, _products(late, early), bottom)


def _small(x: Tensor) -> bool:
    """Return whether an array of pairs and channels costs less than a few more operations."""
    return not torch.compiler.is_compiling() and x.numel() * x.shape[-2] <= PAIRS


def _products(q: Tensor, k: Tensor) -> Tensor:
    """Compute q kᵀ; of single rows entry by entry, faster than many 1 × 1 matrix products."""
    return (q * k).sum(-1, keepdim=True) if q.shape[-2] == k.shape[-2] == 1 else q @ k.mT


def decayed_mix(scores: Tensor, u: Tensor, log_decay: Tensor) -> Tensor:
    """Compute Σ_s scores_ts u_sυ Π_{s<i≤t} decay_iυ: [..., C, C], two [..., C, V] → [..., C, V]."""
    size = u.shape[-2]
    if size <= 1:
        return scores * u
    if _small(u):
        return torch.einsum("...ts,...sv,...vts->...tv", scores, u, segments(log_decay.mT))
    half = size // 2
    early, late = slice(None, half), slice(half, None)
    corners = scores[..., early, early], scores[..., late, late]
    if size % 2 == 0:
        top, bottom = _halves(decayed_mix(torch.stack(corners, -3), _fold(u), _fold(log_decay)))
    else:
        top = decayed_mix(corners[0], u[..., early, :], log_decay[..., early, :])
        bottom = decayed_mix(corners[1], u[..., late, :], log_decay[..., late, :])
    carried = scores[..., late, early] @ (u[..., early, :] * remain_rows(log_decay[..., early, :]))
    return torch.cat([top, bottom + carried * reach_rows(log_decay[..., late, :])], -2)


def _fold(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-2], 2, x.shape[-2] // 2, x.shape[-1])


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0, :, :], x[..., 1, :, :]


def _lower_blocks(top: Tensor, corner: Tensor, bottom: Tensor) -> Tensor:
    above = torch.cat([top, top.new_zeros(*top.shape[:-1], bottom.shape[-1])], -1)
    return torch.cat([above, torch.cat([corner, bottom], -1)], -2)


class _UnitLowerInverse(torch.autograd.Function):
    """T = (I + L)⁻¹; dL = −Tᵀ dT Tᵀ, strictly lower."""

    @staticmethod
    def forward(ctx: Any, strict: Tensor) -> Tensor:
        inverse = _invert(strict)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ (grads[0] @ inverse.mT)).tril(-1)


def unit_lower_inverse(strict: Tensor) -> Tensor:
    """Compute (I + L)⁻¹ for strictly lower triangular L, [..., C, C], by halves down to 16 rows."""
    if transformed():
        return _invert(strict)
    found: Tensor = _UnitLowerInverse.apply(strict)
    return found


def _invert(strict: Tensor) -> Tensor:
    size = strict.shape[-1]
    if size <= BASE or size % 2:
        eye = torch.eye(size, dtype=strict.dtype, device=strict.device)
        return torch.linalg.solve_triangular(
            strict + eye, eye.expand_as(strict), upper=False, unitriangular=True
        )
    half = size // 2
    blocks = torch.stack([strict[..., :half, :half], strict[..., half:, half:]], -3)
    top, bottom = _halves(_invert(blocks))
    return _lower_blocks(top, -(bottom @ (strict[..., half:, :half] @ top)), bottom)


Error = Callable[[Tensor], Tensor]


def substitution(mixing: Tensor, start: Tensor, error: Error) -> Tensor:
    """Solve y = start + L error(y) for y, L strictly lower triangular, row after row.

    Within blocks of 16 rows each row's error is added to the rows after it; between blocks this is
    a matrix product. A row depends on earlier rows only, whatever they hold, and the host reads
    nothing. Where no derivative is taken, a block's rows are updated in place.
    """
    size = mixing.shape[-1]
    in_place = not (torch.is_grad_enabled() or torch.compiler.is_compiling() or transformed())
    found: list[Tensor] = []
    errors: list[Tensor] = []
    for low in range(0, size, BASE):
        high = min(low + BASE, size)
        left = start[..., low:high, :].clone()
        if low:
            left = left + mixing[..., low:high, :low] @ torch.cat(errors, -2)
        columns = mixing[..., low:high, low:high].split(1, -1)
        for row, column in enumerate(columns):
            found.append(left[..., :1, :])
            errors.append(error_of_row(error, found[-1], low + row))
            rest, below = left[..., 1:, :], column[..., row + 1 :, :]
            add = rest.addcmul_ if in_place else rest.addcmul
            left = add(below, errors[-1])
    return torch.cat(found, -2)


def error_of_row(error: Error, y: Tensor, row: int) -> Tensor:
    """Return the error of one row, by ``error.row`` if ``error`` can treat rows one by one."""
    of_row = getattr(error, "row", None)
    return error(y) if of_row is None else of_row(y, row)


def decayed_products(log_decay: Tensor, factor: Tensor) -> Tensor:
    """Compute decay by channel and momentum together: [..., C, K], [..., C] → [..., K, C, C]."""
    return segments(log_decay.mT) @ products(factor)[..., None, :, :]


def band(weights: Tensor) -> Tensor:
    """Lay out window weights as a matrix: [..., C, c] → [..., C, C + c − 1], row t from t on."""
    size, width = weights.shape[-2:]
    wide = torch.nn.functional.pad(
        weights, (0, size)
    )  # each row of length C + c, so rows shift by 1
    flat = wide.reshape(*weights.shape[:-2], size * (width + size))
    return flat[..., : size * (width + size - 1)].reshape(
        *weights.shape[:-2], size, width + size - 1
    )


def spread_rows(matrix: Tensor, targets: int, sources: int) -> Tensor:
    """Return each entry repeated as a block: [..., C, C] → [..., C·targets, C·sources]."""
    return matrix.repeat_interleave(targets, -2).repeat_interleave(sources, -1)


def flat_rows(x: Tensor) -> Tensor:
    """Return the rows of slots laid flat: [..., C, r, K] → [..., C·r, K]."""
    return x.flatten(-3, -2)


def flat(x: Tensor) -> Tensor:
    """Return the numbers of slots laid flat: [..., C, r] → [..., C·r]."""
    return x.flatten(-2, -1)


def repeat(x: Tensor, times: int) -> Tensor:
    """Return each number so many times: [..., C] → [..., C·times]."""
    return x.repeat_interleave(times, -1)


def repeat_rows(x: Tensor, times: int) -> Tensor:
    """Return each row so many times: [..., C, K] → [..., C·times, K]."""
    return x.repeat_interleave(times, -2)


def row_scores(targets: Tensor, sources: Tensor, log_decay: Tensor) -> Tensor:
    """Compute decayed scores between rows that share their token's decay.

    ``targets`` [..., C, r, K], ``sources`` [..., C, c, K], ``log_decay`` [..., C, K]
    → [..., C·r, C·c], zero where the source's token comes later. As `decayed_scores`, whose
    halves are one product here for all rows of their tokens.
    """
    size = log_decay.shape[-2]
    if size <= 1:  # a token with itself: nothing decays
        return flat_rows(targets) @ flat_rows(sources).mT
    half = size // 2
    if size % 2 == 0:
        left, right = (x.unflatten(-3, (2, half)) for x in (targets, sources))
        top, bottom = _halves(row_scores(left, right, log_decay.unflatten(-2, (2, half))))
    else:
        top, bottom = (
            row_scores(targets[..., at, :, :], sources[..., at, :, :], log_decay[..., at, :])
            for at in (slice(None, half), slice(half, None))
        )
    after = targets[..., half:, :, :] * reach_rows(log_decay[..., half:, :])[..., None, :]
    before = sources[..., :half, :, :] * remain_rows(log_decay[..., :half, :])[..., None, :]
    return _lower_blocks(top, flat_rows(after) @ flat_rows(before).mT, bottom)


def strictly_lower(matrix: Tensor, rows: int = 1) -> Tensor:
    """Return what is below the diagonal of a matrix of blocks of so many rows, else zeros."""
    if rows == 1:
        return matrix.tril(-1)
    index = torch.arange(matrix.shape[-1], device=matrix.device) // rows
    return matrix.masked_fill(index[:, None] <= index[None, :], 0.0)


def accumulate_rows(log_decay: Tensor, u: Tensor, k: Tensor, *, rows: int) -> Tensor:
    """Compute Σ_{s≤t} u_s (k_s ∘ Π_{s<i≤t} decay_i)ᵀ by token, ``rows`` each: → [..., C, V, K]."""
    return accumulate_blended(segments(log_decay.mT), u, k, rows=rows)


def accumulate_blended(mix: Tensor, u: Tensor, k: Tensor, *, rows: int) -> Tensor:
    """Add up u_s (mix_ts ∘ k_s)ᵀ over s, ``rows`` a token, mix [..., K, C, C]: → [..., C, V, K]."""
    spread = mix.repeat_interleave(rows, -1) if rows > 1 else mix
    return torch.einsum("...kts,...sv,...sk->...tvk", spread, u, k)
