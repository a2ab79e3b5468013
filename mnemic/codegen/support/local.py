"""Local fits over kept pairs: weighted means and weighted linear regressions, block by block.

Weights are a similarity of k·q, ‖k‖² and ‖q‖² (its logarithm where it has one) times what decays
left of a pair. A block of rows holds its own weights only, and is computed again for the backward
pass, so that memory does not grow with T².
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .carried import ROWS, carried
from .descent import Regressions, solve_rows
from .kept import append_rows
from .kept_attention import blocks, squares, visible
from .rows import TINY
from .transforms import transformed

Similarity = Callable[..., Tensor]

LOWEST = -1e6
"""A logarithm of a decay below which nothing is left: −∞ would make differences NaN."""

NEAR = 16
"""Roundings by which equal scores differ."""

MOST = 1 << 20
"""Weights that a block holds at most (a block has 16 rows at least)."""


# -- weights ---------------------------------------------------------------------------------


def exp_shares(logits: Tensor) -> Tensor:
    """Compute exp(L) over its sum: [..., n] → [..., n]."""
    return torch.softmax(logits, -1)


def shares(weights: Tensor) -> Tensor:
    """Compute weights over their sum; zero where all are."""
    total = weights.sum(-1, keepdim=True)
    empty = total.abs() <= TINY
    return torch.where(empty, 0.0, weights / torch.where(empty, 1.0, total))


def exp_relative(logits: Tensor) -> Tensor:
    """Compute exp(L) over its largest entry."""
    if logits.shape[-1] == 0:
        return logits
    return torch.exp(logits - _largest(logits, 1.0))


def relative(weights: Tensor) -> Tensor:
    """Compute weights over their largest; zero where all are."""
    if weights.shape[-1] == 0:
        return weights
    most = _largest(weights, 0.0)
    empty = most <= TINY
    return torch.where(empty, 0.0, weights / torch.where(empty, 1.0, most))


def _largest(x: Tensor, least: float) -> Tensor:
    """Return the largest entry; its gradient is shared by all entries that equal it up to rounding.

    The rounding is that of a number of its size, of ``least`` at least. Without this, which of
    several equal keys' scores is the largest would depend on the order in which a product sums, and
    one of them would get the whole gradient.
    """
    most = x.detach().amax(-1, keepdim=True)
    slack = NEAR * torch.finfo(x.dtype).eps * most.abs().clamp_min(least)
    near = x >= most - slack
    return torch.where(near, x, 0.0).sum(-1, keepdim=True) / near.sum(-1, keepdim=True)


def decays_left(log_kept: Tensor, log_decay: Tensor, *, span: int = 0) -> Tensor:
    """Return the log of what decays leave, up to a number a chunk: [M, n], [M, C] → [M, n + C].

    Row t sees exp(left_i − left_t) of pair i. In float64, since differences of sums cancel.
    """
    past = log_decay.double().clamp_min(LOWEST).cumsum(-1)
    return append_rows(log_kept.double(), -past, span=span)


def ages(log_decay: Tensor) -> Tensor:
    """Compute −Σ log decay by row, in float64: [B, R, H] → [B, R, H]; see ``decays_left``."""
    return -log_decay.double().clamp_min(LOWEST).cumsum(1)


def decays_at_end(left: Tensor, log_decay: Tensor) -> Tensor:
    """Return the log of what decays leave of each pair after the last row."""
    return (left - left[..., -1:]).to(log_decay.dtype)


# -- blocks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """How queries and kept keys are compared.

    ``logs``: whether the similarity is a logarithm; ``decayed``: whether the rest begins with what
    decays left of the pairs; ``moves``: whether w and η stand before that, and keys move by them;
    ``sizes``: whether the similarity sees ‖k‖²; ``keys``: whether the fit sees the keys.
    """

    similarity: Similarity
    logs: bool
    decayed: bool
    moves: bool
    sizes: bool
    keys: bool
    span: int

    def taken(self, rest: tuple[Tensor, ...]) -> tuple[list[Tensor], Tensor | None, list[Tensor]]:
        """Split ``rest`` into w and η, what decays left, and the similarity's coefficients."""
        parts = list(rest)
        steps = [parts.pop(0) for _ in range(2)] if self.moves else []
        return steps, parts.pop(0) if self.decayed else None, parts


def local_means(
    q: Tensor, keys: Tensor, values: Tensor, *rest: Tensor, similarity: Similarity, logs: bool,
    decayed: bool, span: int = 0, moves: bool = False, sizes: bool = True,
) -> Tensor:  # fmt: skip
    """Compute Σ w v / Σ w for every row: [M, C, K], [M, n, K], [M, n, V] → [M, C, V].

    ``rest`` is the step that moves the keys, w [M, C, K] and η [M, C], if ``moves``; what decays
    left of the pairs [M, n] if ``decayed``; then the coefficients of the similarity [M, C].
    """

    def mean(weights: Tensor, q_block: Tensor, seen: Tensor, seen_values: Tensor) -> Tensor:
        return (exp_shares(weights) if logs else shares(weights)) @ seen_values

    how = Comparison(similarity, logs, decayed, moves, sizes, False, span)
    return _by_blocks(mean, q, keys, values, (), rest, how)


def local_linears(
    q: Tensor, keys: Tensor, values: Tensor, ridge: Tensor, *rest: Tensor, similarity: Similarity,
    logs: bool, decayed: bool, iterations: int, tolerance: float, span: int = 0,
    moves: bool = False, sizes: bool = True,
) -> Tensor:  # fmt: skip
    """Return the intercept at q of each row's weighted ridge regression; see ``local_means``.

    ``iterations`` of conjugate gradients at most, until the residual is below ``tolerance``; 0
    solves directly.
    """

    def fit(
        weights: Tensor, q_block: Tensor, seen: Tensor, seen_values: Tensor, ridge_block: Tensor
    ) -> Tensor:
        weights = exp_relative(weights) if logs else relative(weights)
        rows = weights.shape[:-1]
        if seen.ndim > weights.ndim:  # every row has keys of its own
            every = seen_values[:, None].expand(*seen.shape[:-1], -1)
            single = (weights[..., None, :], q_block[..., None, :], ridge_block[..., None])
            weights, q_block, ridge_block, seen, seen_values = (
                x.flatten(0, 1) for x in (*single, seen, every)
            )
        if iterations == 0 or transformed():  # iterations have a backward mode alone
            found = _direct(weights, seen, seen_values, q_block, ridge_block)
        else:
            found = _iterated(
                weights, seen, seen_values, q_block, ridge_block, iterations, tolerance
            )  # fmt: skip
        return found.reshape(*rows, found.shape[-1])

    how = Comparison(similarity, logs, decayed, moves, sizes, True, span)
    return _by_blocks(fit, q, keys, values, (ridge,), rest, how)


def _by_blocks(
    fit: Callable[..., Tensor], q: Tensor, keys: Tensor, values: Tensor, rows: tuple[Tensor, ...],
    rest: tuple[Tensor, ...], how: Comparison,
) -> Tensor:  # fmt: skip
    count, kept = q.shape[-2], keys.shape[-2]
    steps, left, extras = how.taken(rest)
    size = _size(how, q.shape[0] * kept)
    parts = blocks(count, kept, how.span, size)
    moving = carried(keys, steps[0], steps[1], tuple(parts)) if how.moves else None

    def block(number: int) -> Tensor:
        first, end, oldest, newest = parts[number]
        q_block = q[:, first:end]
        seen = keys[:, oldest:newest]
        if moving is None:
            kq, kk = q_block @ seen.mT, squares(seen)[:, None, :]
        else:
            kq, kk, seen = moving.reached(number, q_block, sizes=how.sizes, keys=how.keys)
        mask = visible(
            first, end, oldest, newest, kept - count, span=how.span, device=q.device
        )  # fmt: skip
        own = [x[:, first:end, None] for x in extras]
        weights = how.similarity(kq, kk, squares(q_block)[..., None], *own)
        weights = weights.expand(kq.shape)
        ages = None
        if left is not None:
            behind = left[:, None, oldest:newest]
            ages = behind - left[:, kept - count + first : kept - count + end, None]
            ages = ages.masked_fill(~mask, -torch.inf).to(kq.dtype)
        weights = _masked(weights, mask, ages, how.logs)
        return fit(weights, q_block, seen, values[:, oldest:newest],
                   *(x[:, first:end] for x in rows))  # fmt: skip

    tracked = torch.is_grad_enabled() and len(parts) > 1
    if not tracked:
        return torch.cat([block(number) for number in range(len(parts))], -2)
    found = [checkpoint(block, number, use_reentrant=False) for number in range(len(parts))]
    return torch.cat(found, -2)


def _size(how: Comparison, width: int) -> int:
    """Return a block's rows, by the weights that it may hold, or by what moving keys do best."""
    if how.moves and not how.keys:
        return ROWS
    return min(ROWS if how.moves else 512, max(16, MOST // max(1, width)))


def _masked(weights: Tensor, mask: Tensor, ages: Tensor | None, logs: bool) -> Tensor:
    """Apply decays to weights (or logits), and hide the pairs that a row does not see."""
    if logs:
        weights = weights if ages is None else weights + ages
        return torch.where(mask, weights, -torch.inf)
    weights = torch.where(mask, weights, 0.0)
    return weights if ages is None else weights * torch.exp(ages)


# -- local linear fits -----------------------------------------------------------------------


def local_linear(
    weights: Tensor, keys: Tensor, values: Tensor, query: Tensor, ridge: Tensor
) -> Tensor:
    """Return a of argmin Σ w ½‖v − a − B(k − q)‖² + ½λ‖B‖²: [M, n], [M, n, K], [M, n, V] → [M, V].

    With weighted means k̄ and v̄: a = v̄ + Σ w (v − v̄)(k − k̄)ᵀ (Σ w (k − k̄)(k − k̄)ᵀ + λ I)⁻¹ (q − k̄).
    """
    if keys.shape[-2] == 0:
        return query.new_zeros(*query.shape[:-1], values.shape[-1])
    row = (weights[..., None, :], keys, values, query[..., None, :], ridge[..., None])
    return _direct(*row)[..., 0, :]


def _means(weights: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    share = shares(weights)
    return share @ keys, share @ values


def _direct(
    weights: Tensor, keys: Tensor, values: Tensor, q: Tensor, ridge: Tensor
) -> Tensor:  # fmt: skip
    """Form and solve each row's K × K system: [M, R, n], …, [M, R, K], [M, R] → [M, R, V]."""
    centre, mean = _means(weights, keys, values)
    spread = keys[..., None, :, :] - centre[..., None, :]  # [M, R, n, K]
    moment = spread.mT @ (weights[..., None] * spread)
    eye = torch.eye(keys.shape[-1], dtype=keys.dtype, device=keys.device)
    system = moment + ridge[..., None, None] * eye
    x = torch.linalg.solve(system, (q - centre)[..., None])[..., 0]
    along = weights * (spread @ x[..., None])[..., 0]
    return mean + along @ values - along.sum(-1, keepdim=True) * mean


def _iterated(
    weights: Tensor, keys: Tensor, values: Tensor, q: Tensor, ridge: Tensor, iterations: int,
    tolerance: float,
) -> Tensor:  # fmt: skip
    """Solve each row's K × K system by conjugate gradients, which never form it: → [M, R, V].

    Nothing depends on where the origin of keys and queries lies. It is put on the oldest key, since
    products with keys that lie far from it differ by less than they lose.
    """
    origin = keys[..., :1, :].detach()
    keys, q = keys - origin, q - origin
    centre, mean = _means(weights, keys, values)
    system = Regressions(weights, keys, centre, ridge)
    x = solve_rows(system, q - centre, iterations, tolerance)
    along = system.along(x)
    return mean + along @ values - along.sum(-1, keepdim=True) * mean
