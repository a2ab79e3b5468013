"""Levels of a Fenwick tree: buckets of past tokens, each a memory, read under weights of its own.

Positions count from zero. Token t sees token s at the level of the highest binary digit in which
t and s differ, counted from one; at level 0 it sees itself. So level ℓ ≥ 1 is there where digit
ℓ − 1 of t is set, and holds 2^(ℓ−1) tokens; after token t the buckets below the lowest set digit
of t + 1 become one. States hold levels 1 to L, the last of which no token of the tree reads:
[M, L, V, K] (or as many as there are tokens for).
"""

import torch
from torch import Tensor


def needed(position: int, tokens: int) -> int:
    """Levels with tokens in them, after so many more."""
    return (position + tokens).bit_length()


def aligned_pieces(position: int, tokens: int, size: int, most: int) -> list[tuple[int, int, int]]:
    """(first token, tokens a chunk, chunks): chunks of a power of two that their position divides.

    Each is one bucket of the tree when it ends. ``size`` bounds a chunk, ``most`` their number in
    a piece.
    """
    largest = 1 << (size.bit_length() - 1)
    pieces, at = [], 0
    while at < tokens:
        here = position + at
        chunk = min(largest, here & -here or largest, 1 << ((tokens - at).bit_length() - 1))
        count = min(most, (tokens - at) // chunk) if chunk == largest else 1
        pieces.append((at, chunk, count))
        at += chunk * count
    return pieces


def trimmed(state: Tensor, levels: int) -> Tensor:
    """The levels that are needed: [..., L, V, K] → [..., levels, V, K]."""
    return state[..., :levels, :, :]


def padded(state: Tensor, levels: int) -> Tensor:
    """The inverse of ``trimmed``, with empty levels."""
    missing = levels - state.shape[-3]
    empty = state.new_zeros(*state.shape[:-3], missing, *state.shape[-2:])
    return torch.cat([state, empty], -3)


def every_level(weight: Tensor, *, count: int) -> Tensor:
    """One weight for all levels: [...] → [..., count]."""
    return weight[..., None].expand(*weight.shape, count)


def level_mask(weights: Tensor) -> Tensor:
    """λ_t at the level of s, for rows of one aligned chunk: [..., C, L] → [..., C, C]."""
    row = torch.arange(weights.shape[-2], device=weights.device)
    differ = (row[:, None] ^ row[None, :]).double()
    level = torch.frexp(differ).exponent.long()  # the number of binary digits
    index = level.expand(*weights.shape[:-1], level.shape[-1])
    return weights.gather(-1, index)


def recall_levels(memories: Tensor, x: Tensor) -> Tensor:
    """M_ℓ x for every level: [..., L, V, K], [..., K] → [..., L, V]."""
    return (memories.flatten(-3, -2) @ x[..., None])[..., 0].unflatten(-1, memories.shape[-3:-1])


def weigh_levels(own: Tensor, past: Tensor, weights: Tensor) -> Tensor:
    """λ_0 own + Σ_ℓ λ_ℓ past_ℓ: [..., V], [..., L, V], [..., L] → [..., V]."""
    past = past[..., : weights.shape[-1] - 1, :]
    each = weights[..., 1 : 1 + past.shape[-2], None]
    return weights[..., :1] * own + (each * past).sum(-2)


def read_levels(memories: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Σ_ℓ λ_ℓ M_ℓ x: [..., L, V, K], [..., K], [..., L] → [..., V]."""
    return recall_buckets(x[..., None, :], memories, weights[..., None, :])[..., 0, :]


def recall_buckets(x: Tensor, memories: Tensor, weights: Tensor) -> Tensor:
    """Σ_ℓ λ_ℓ M_ℓ x for every row: [..., C, K], [..., L, V, K], [..., C, L] → [..., C, V]."""
    memories = memories[..., : weights.shape[-1] - 1, :, :]
    levels, values = memories.shape[-3:-1]
    each = (x @ memories.flatten(-3, -2).mT).unflatten(-1, (levels, values))
    return (weights[..., 1 : 1 + levels, None] * each).sum(-2)


def carried(memories: Tensor, transition: Tensor) -> Tensor:
    """M_ℓ F for every level: [..., L, V, K], [..., K, K] → [..., L, V, K]."""
    levels, values = memories.shape[-3:-1]
    return (memories.flatten(-3, -2) @ transition).unflatten(-2, (levels, values))


def merged(memories: Tensor, new: Tensor, end: Tensor) -> Tensor:
    """The buckets after a write: [..., L, V, K], [..., V, K] and the tokens by then.

    With r the trailing zeros of their number, what is new and buckets 0 … r − 1 become bucket r.
    """
    tokens = int(end)
    r = (tokens & -tokens).bit_length() - 1
    if r == 0:
        return torch.cat([new[..., None, :, :], memories[..., 1:, :, :]], -3)
    whole = new + memories[..., :r, :, :].sum(-3)
    empty = torch.zeros_like(memories[..., :r, :, :])
    return torch.cat([empty, whole[..., None, :, :], memories[..., r + 1 :, :, :]], -3)
