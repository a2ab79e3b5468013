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
    """Count the levels with tokens in them, after ``tokens`` more behind ``position``."""
    return (position + tokens).bit_length()


def aligned_pieces(position: int, tokens: int, size: int, most: int) -> list[tuple[int, int, int]]:
    """List pieces (first token, tokens a chunk, chunks): a power of two that divides the position.

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


def with_tokens(states: dict[str, Tensor], position: int) -> dict[str, Tensor]:
    """Empty the levels without tokens, whatever a caller left there: [M, L, V, K]."""
    found = {}
    for name, x in states.items():
        full = [float(position >> i & 1) for i in range(x.shape[1])] if x.ndim == 4 else []
        found[name] = x * x.new_tensor(full)[:, None, None] if full else x
    return found


def padded(state: Tensor, levels: int) -> Tensor:
    """Pad a state with empty levels: [..., l, V, K] → [..., L, V, K]."""
    missing = levels - state.shape[-3]
    empty = state.new_zeros(*state.shape[:-3], missing, *state.shape[-2:])
    return torch.cat([state, empty], -3)


def every_level(weight: Tensor, *, count: int) -> Tensor:
    """Repeat one weight for all levels: [...] → [..., count]."""
    return weight[..., None].expand(*weight.shape, count)


def level_mask(weights: Tensor) -> Tensor:
    """Return λ_t at the level of s, for rows of one aligned chunk: [..., C, L] → [..., C, C]."""
    return weights.gather(-1, _levels(weights))


def level_sums(grad: Tensor, like: Tensor) -> Tensor:
    """Compute a level mask's gradient, summed by level: [..., C, C], [..., C, L] → [..., C, L]."""
    return torch.zeros_like(like).scatter_add(-1, _levels(like), grad)


def _levels(weights: Tensor) -> Tensor:
    """Return the level of every pair of rows, for every memory: [..., C, L] → [..., C, C].

    Digits are counted by shifts: the C++ that inductor writes of ``frexp`` does not compile.
    """
    row = torch.arange(weights.shape[-2], device=weights.device)
    shifts = torch.arange(weights.shape[-1], device=weights.device)
    level = ((row[:, None] ^ row)[..., None] >> shifts).bool().sum(-1)
    return level.expand(*weights.shape[:-1], level.shape[-1])


def recall_levels(memories: Tensor, x: Tensor) -> Tensor:
    """Compute M_ℓ x for every level: [..., L, V, K], [..., K] → [..., L, V]."""
    return (memories.flatten(-3, -2) @ x[..., None])[..., 0].unflatten(-1, memories.shape[-3:-1])


def weigh_levels(own: Tensor, past: Tensor, weights: Tensor) -> Tensor:
    """Compute λ_0 own + Σ_ℓ λ_ℓ past_ℓ: [..., V], [..., L, V], [..., L] → [..., V]."""
    past = past[..., : weights.shape[-1] - 1, :]
    each = weights[..., 1 : 1 + past.shape[-2], None]
    return weights[..., :1] * own + (each * past).sum(-2)


def read_levels(memories: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Compute Σ_ℓ λ_ℓ M_ℓ x: [..., L, V, K], [..., K], [..., L] → [..., V]."""
    past = recall_levels(memories, x)[..., : weights.shape[-1] - 1, :]
    return (weights[..., 1 : 1 + past.shape[-2], None] * past).sum(-2)


def full_buckets(end: Tensor, rows: int) -> list[int]:
    """Return the buckets with tokens where a chunk of so many rows, that ends there, begins."""
    tokens = int(end) - rows
    return [i for i in range(tokens.bit_length()) if tokens >> i & 1]


def _read(memories: Tensor, end: Tensor, rows: int, most: int) -> list[int]:
    """Return the buckets that a chunk reads; all in a graph, where ``end`` is not read.

    Buckets without tokens are zero, so that they add nothing.
    """
    if torch.compiler.is_compiling():
        return list(range(min(memories.shape[-3], most)))
    return full_buckets(end, rows)


def recall_buckets(x: Tensor, memories: Tensor, weights: Tensor, end: Tensor) -> Tensor:
    """Compute Σ_ℓ λ_ℓ M_ℓ x by row: [..., C, K], [..., L, V, K], [..., C, L] → [..., C, V]."""
    index = _read(memories, end, x.shape[-2], weights.shape[-1] - 1)
    if not index:
        return x.new_zeros(*x.shape[:-1], memories.shape[-2])
    buckets = memories[..., index, :, :]
    each = (x @ buckets.flatten(-3, -2).mT).unflatten(-1, buckets.shape[-3:-1])
    return (weights[..., [i + 1 for i in index]][..., None] * each).sum(-2)


def through_transition(memories: Tensor, erasing: Tensor, keys: Tensor, end: Tensor) -> Tensor:
    """Compute M_ℓ Eᵀ K for every level: [..., L, V, K], twice [..., C, K] → [..., L, V, K].

    Eᵀ K is never written out: with K features it is K² numbers a chunk, for C · K that tell it.
    Empty buckets stay as they are.
    """
    index = _read(memories, end, keys.shape[-2], memories.shape[-3])
    if not index:
        return torch.zeros_like(memories)
    buckets = memories[..., index, :, :]
    moved = (buckets.flatten(-3, -2) @ erasing.mT @ keys).unflatten(-2, buckets.shape[-3:-1])
    place = torch.tensor(index, device=memories.device)
    return torch.zeros_like(memories).index_copy(-3, place, moved)


def merged(memories: Tensor, new: Tensor, end: Tensor) -> Tensor:
    """Return the buckets after a write: [..., L, V, K], [..., V, K] and the tokens by then.

    With r the trailing zeros of their number, what is new and buckets 0 … r − 1 become bucket r.
    """
    if torch.compiler.is_compiling():
        return _merged(memories, new, end)
    tokens = int(end)
    r = (tokens & -tokens).bit_length() - 1
    below, _, above = memories.split([r, 1, memories.shape[-3] - r - 1], -3)
    whole = new + below.sum(-3) if r else new
    return torch.cat([torch.zeros_like(below), whole[..., None, :, :], above], -3)


def _merged(memories: Tensor, new: Tensor, end: Tensor) -> Tensor:
    """Return the buckets after a write where the number of tokens is a tensor, and is not read."""
    digits = (1 << torch.arange(memories.shape[-3], device=memories.device))[:, None, None]
    lowest = (end & -end).to(memories.device)
    whole = new + torch.where(digits < lowest, memories, 0.0).sum(-3)
    kept = torch.where(digits > lowest, memories, 0.0)
    return torch.where(digits == lowest, whole[..., None, :, :], kept)
