"""Scores under a decay by channel, without an exponent above zero.

A pair s < t of a chunk's rows parts company once as the chunk is halved again and again: s in the
first half of some 2H rows, t in the second. There

    Π_{s<i≤t} decay_i = Π_{s<i<m} decay_i · Π_{m≤i≤t} decay_i,   m the first row of the second half,

so that all pairs that part at halves of H rows are one product of matrices, with log₂ C of them
for all.
"""

import triton
import triton.language as tl

from .blocks import order
from .products import dot, turned
from .windows import slot_scores

LEVELS = tl.constexpr(8)
"""Chunks have 2⁸ rows at most."""


@triton.jit
def scores_after(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Compute Σ_κ q_tκ k_sκ Π_{s<i≤t} decay_iκ for s ≤ t: [C, K] each → [C, C]."""
    if ROWS > 1:
        return slot_scores(q, k, log_decay, 0, PRECISION, ROWS)
    else:
        return _scores(q, k, log_decay, 0, PRECISION)


@triton.jit
def scores_before(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Compute Σ_κ q_tκ k_sκ Π_{s<i<t} decay_iκ for s < t: [C, K] each → [C, C]."""
    if ROWS > 1:
        return slot_scores(q, k, log_decay, 1, PRECISION, ROWS)
    else:
        return _scores(q, k, log_decay, 1, PRECISION)


@triton.jit
def _scores(q, k, log_decay, AHEAD: tl.constexpr, PRECISION: tl.constexpr):
    """Score rows against the sources before them; with ``AHEAD`` a row's own decay is not counted,
    nor is it a source of its own."""
    C: tl.constexpr = q.shape[0]
    t, s = order(C)
    until = tl.zeros_like(log_decay)
    if AHEAD:
        since = tl.zeros_like(log_decay)
        found = tl.zeros((C, C), q.dtype)
    else:
        since = log_decay
        found = tl.where(t == s, tl.sum(q * k, 1)[:, None], 0.0)
    for level in tl.static_range(0, LEVELS):
        if 2**level < C:
            part = dot(q * tl.exp(since), turned(k * tl.exp(until), PRECISION), PRECISION)
            found += tl.where(_parting(t, s, 2**level), part, 0.0)
            since, until = _doubled(since, until, log_decay, 2**level)
    return found


@triton.jit
def decayed_mix(scores, u, log_decay, PRECISION: tl.constexpr):
    """Compute Σ_{s≤t} scores_ts u_sυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    return _mixed(scores, u, log_decay, 0, PRECISION)


@triton.jit
def mixed_back(scores, u, log_decay, PRECISION: tl.constexpr):
    """Compute Σ_{t≥s} scores_ts u_tυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    return _mixed(scores, u, log_decay, 1, PRECISION)


@triton.jit
def _mixed(scores, u, log_decay, BACK: tl.constexpr, PRECISION: tl.constexpr):
    """Add decayed rows of u up by their scores over sources s, or with ``BACK`` over targets t."""
    C: tl.constexpr = u.shape[0]
    t, s = order(C)
    since, until = log_decay, tl.zeros_like(log_decay)
    out = tl.sum(tl.where(t == s, scores, 0.0), 1)[:, None] * u
    for level in tl.static_range(0, LEVELS):
        if 2**level < C:
            part = tl.where(_parting(t, s, 2**level), scores, 0.0)
            if BACK:
                out += tl.exp(until) * dot(turned(part, PRECISION), u * tl.exp(since), PRECISION)
            else:
                out += tl.exp(since) * dot(part, u * tl.exp(until), PRECISION)
            since, until = _doubled(since, until, log_decay, 2**level)
    return out


@triton.jit
def _parting(t, s, H: tl.constexpr):
    """Return whether s is in a first half of H rows and t in the second behind it."""
    return (t // H == s // H + 1) & ((s // H) % 2 == 0)


@triton.jit
def _doubled(since, until, log_decay, H: tl.constexpr):
    """Turn sums of logarithms from the start of a row's H rows through it, and from behind it to
    their end, into those of 2H rows: the other half's total is added, nothing is taken away."""
    C: tl.constexpr = log_decay.shape[0]
    K: tl.constexpr = log_decay.shape[1]
    N: tl.constexpr = C // (2 * H)
    half = tl.arange(0, 2)[None, :, None]
    totals = tl.sum(tl.reshape(log_decay, (N, 2, H, K)), 2)
    first = tl.sum(tl.where(half == 0, totals, 0.0), 1)[:, None, :]
    second = tl.sum(tl.where(half == 1, totals, 0.0), 1)[:, None, :]
    before = tl.where(half == 1, first, 0.0)[:, :, None, :]
    behind = tl.where(half == 0, second, 0.0)[:, :, None, :]
    since += tl.reshape(tl.broadcast_to(before, (N, 2, H, K)), (C, K))
    until += tl.reshape(tl.broadcast_to(behind, (N, 2, H, K)), (C, K))
    return since, until
