"""Scores under a decay by channel, without an exponent above zero."""

import triton
import triton.language as tl

from .constants import BASE
from .products import dot, turned
from .windows import slot_scores


@triton.jit
def scores_after(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Σ_κ q_tκ k_sκ Π_{s<i≤t} decay_iκ for s ≤ t: [C, K] each → [C, C].

    Between blocks of 16 rows by products at the later block's start, inside them source by source;
    no exponent is ever positive, and none is a difference of sums over more than a block.
    """
    if ROWS > 1:
        return slot_scores(q, k, log_decay, 0, PRECISION, ROWS)
    else:
        return _between(q, k, log_decay, 0, PRECISION) + _within(q, k, log_decay, 0)


@triton.jit
def scores_before(q, k, log_decay, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Σ_κ q_tκ k_sκ Π_{s<i<t} decay_iκ for s < t."""
    if ROWS > 1:
        return slot_scores(q, k, log_decay, 1, PRECISION, ROWS)
    else:
        return _between(q, k, log_decay, 1, PRECISION) + _within(q, k, log_decay, 1)


@triton.jit
def _between(q, k, log_decay, AHEAD: tl.constexpr, PRECISION: tl.constexpr):
    """Scores of rows against sources of earlier blocks."""
    C: tl.constexpr = q.shape[0]
    B: tl.constexpr = min(BASE, C)
    t = tl.arange(0, C)[:, None]
    scores = tl.zeros((C, C), q.dtype)
    for block in range(1, C // B):
        inside, early = t // B == block, t < block * B
        own = tl.where(inside, log_decay, 0.0)
        since = tl.cumsum(own, 0) - AHEAD * own
        past = tl.where(early, log_decay, 0.0)
        until = tl.cumsum(past, 0, reverse=True) - past
        left = tl.where(inside, q * tl.exp(since), 0.0)
        right = tl.where(early, k * tl.exp(until), 0.0)
        scores += dot(left, turned(right, PRECISION), PRECISION)
    return scores


@triton.jit
def _within(q, k, log_decay, AHEAD: tl.constexpr):
    """Scores of rows against sources of their own block of 16, from its last source on."""
    C: tl.constexpr = q.shape[0]
    K: tl.constexpr = q.shape[1]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    row = tl.arange(0, B)[None, :, None]
    column = tl.arange(0, B)[None, None, :]
    q3, k3 = tl.reshape(q, (N, B, K)), tl.reshape(k, (N, B, K))
    log3 = tl.reshape(log_decay, (N, B, K))
    exponent = tl.zeros((N, B, K), q.dtype)
    after = tl.zeros((N, K), q.dtype)
    found = tl.zeros((N, B, B), q.dtype)
    for back in range(0, B):
        j = B - 1 - back
        exponent += tl.where(row > j + AHEAD, after[:, None, :], 0.0)
        key = tl.sum(tl.where(row == j, k3, 0.0), 1)
        there = row >= j + AHEAD
        weighed = tl.where(there, q3 * key[:, None, :] * tl.exp(exponent), 0.0)
        found = tl.where(column == j, tl.sum(weighed, 2)[:, :, None], found)
        after = tl.sum(tl.where(row == j, log3, 0.0), 1)
    block = tl.arange(0, N)
    same = block[:, None, None, None] == block[None, None, :, None]
    return tl.reshape(tl.where(same, found[:, :, None, :], 0.0), (C, C))


@triton.jit
def decayed_mix(scores, u, log_decay, PRECISION: tl.constexpr):
    """Σ_{s≤t} scores_ts u_sυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    return _mixed(scores, u, log_decay, 0, PRECISION)


@triton.jit
def mixed_back(scores, u, log_decay, PRECISION: tl.constexpr):
    """Σ_{t≥s} scores_ts u_tυ Π_{s<i≤t} decay_iυ: [C, C], [C, V] twice → [C, V]."""
    return _mixed(scores, u, log_decay, 1, PRECISION)


@triton.jit
def _mixed(scores, u, log_decay, BACK: tl.constexpr, PRECISION: tl.constexpr):
    """The sum over sources s, or with ``BACK`` over targets t: blocks by products, then inside."""
    C: tl.constexpr = u.shape[0]
    B: tl.constexpr = min(BASE, C)
    t = tl.arange(0, C)[:, None]
    out = _mixed_within(scores, u, log_decay, BACK)
    for block in range(1, C // B):
        inside, early = t // B == block, t < block * B
        since = tl.exp(tl.cumsum(tl.where(inside, log_decay, 0.0), 0))
        past = tl.where(early, log_decay, 0.0)
        until = tl.exp(tl.cumsum(past, 0, reverse=True) - past)
        if BACK:
            left = tl.where(inside, u * since, 0.0)
            out += tl.where(early, until * dot(turned(scores, PRECISION), left, PRECISION), 0.0)
        else:
            right = tl.where(early, u * until, 0.0)
            out += tl.where(inside, since * dot(scores, right, PRECISION), 0.0)
    return out


@triton.jit
def _mixed_within(scores, u, log_decay, BACK: tl.constexpr):
    """The same inside blocks of 16, from the last source on."""
    C: tl.constexpr = u.shape[0]
    V: tl.constexpr = u.shape[1]
    B: tl.constexpr = min(BASE, C)
    N: tl.constexpr = C // B
    row = tl.arange(0, B)[None, :, None]
    column = tl.arange(0, B)[None, None, :]
    block = tl.arange(0, N)
    same = block[:, None, None, None] == block[None, None, :, None]
    own = tl.sum(tl.where(same, tl.reshape(scores, (N, B, N, B)), 0.0), 2)
    u3, log3 = tl.reshape(u, (N, B, V)), tl.reshape(log_decay, (N, B, V))
    exponent = tl.zeros((N, B, V), u.dtype)
    after = tl.zeros((N, V), u.dtype)
    out = tl.zeros((N, B, V), u.dtype)
    for back in range(0, B):
        j = B - 1 - back
        exponent += tl.where(row > j, after[:, None, :], 0.0)
        weights = tl.sum(tl.where(column == j, own, 0.0), 2)[:, :, None]
        factor = tl.where(row >= j, weights * tl.exp(exponent), 0.0)
        if BACK:
            sums = tl.sum(factor * u3, 1)
            out += tl.where(row == j, sums[:, None, :], 0.0)
        else:
            source = tl.sum(tl.where(row == j, u3, 0.0), 1)
            out += factor * source[:, None, :]
        after = tl.sum(tl.where(row == j, log3, 0.0), 1)
    return tl.reshape(out, (C, V))
