"""Gated DeltaNet by hand: the delta rule with a decay a token, chunk by chunk, states on chip.

One program a memory and block of value channels. With S the memory [K, V] at a chunk's start,
g_t = Σ_{i≤t} log α_i from there, D_ts = e^{g_t − g_s} (s ≤ t) and A = strict(K Kᵀ ∘ D):

    r = v − e^g ∘ (K S)                      what the chunk's start leaves of the values
    (I + A diag η) x = r,    u = η ∘ x       x: the error of each step, u: what it writes
    y = e^g ∘ (Q S) + lower(Q Kᵀ ∘ D) u
    S ← e^{g_C} S + Kᵀ (e^{g_C − g} ∘ u)

Factors of rows stand beside what was computed, never beside what was loaded: so queries and keys
are operands as they lie in shared memory. Only the inverse is not in the arguments' type.

The gradient (dy, dS → dq, dk, dv, dg, dη, dS) goes by pieces of chunks, from the last to the first:
states and inverses of a piece are made anew and kept in scratch, then taken back chunk by chunk:

    du = lower(Q Kᵀ ∘ D)ᵀ dy + e^{g_C − g} ∘ (K dS)
    dr = (I + A diag η)⁻ᵀ (η ∘ du),          dv = dr,   dz = −e^g ∘ dr   (z = K S)
    G = dr xᵀ,   dη = Σ_v x ∘ du − Σ_t A ∘ G,   dA = −G ∘ η_s
    dP = dy uᵀ                                (P = lower(Q Kᵀ ∘ D))
    dq = e^g ∘ (dy Sᵀ) + (dP ∘ D) K
    dk = dz Sᵀ + (e^{g_C − g} ∘ u) dSᵀ + (dA ∘ D) K + (dA ∘ D)ᵀ K + (dP ∘ D)ᵀ Q
    dS ← e^{g_C} dS + Qᵀ (e^g ∘ dy) + Kᵀ dz

Source: the WY form of Yang et al. (2024), "Parallelizing Linear Transformers with the Delta Rule
over Sequence Length", with the decay of "Gated Delta Networks"; the gradient is derived here.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from by_hand.parts import (
    inverse,
    numbers,
    places,
    product,
    put_numbers,
    put_rows,
    rows,
)

PIECE = 16
"""Chunks between states that are kept for the gradient."""


@triton.jit
def ratios(g, t):
    """D_ts = e^{g_t − g_s} for s ≤ t, else 0."""
    lower = t[:, None] >= t[None, :]
    return tl.exp(tl.where(lower, g[:, None] - g[None, :], float("-inf")))


@triton.jit
def erasing(k, g, eta, t, D, SHORT: tl.constexpr, TYPE: tl.constexpr, REAL: tl.constexpr):
    """(I + A diag η)⁻¹ and A."""
    A = tl.where(t[:, None] > t[None, :], product(k, tl.trans(k), TYPE, REAL) * D, 0.0)
    return inverse(A * eta[None, :], SHORT, REAL), A


@triton.jit
def gated_delta_forward(
    q_, k_, v_, log_, eta_, y_, start_, end_, kept_, length, heads, chunks,
    K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, PIECE: tl.constexpr,
    KEEP: tl.constexpr, SHORT: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """y and the state at the end; with KEEP the state at the start of every piece."""
    TYPE: tl.constexpr = k_.dtype.element_ty
    memory = tl.program_id(0).to(tl.int64)
    origin = memory // heads * length * heads + memory % heads
    t, at_K = tl.arange(0, C), tl.arange(0, K)
    at_V = tl.program_id(1) * BV + tl.arange(0, BV)
    place = places(at_K, at_V, V)
    S = tl.load(start_ + memory * K * V + place).to(REAL)
    for chunk in tl.range(0, chunks, disable_licm=True):
        if KEEP and chunk % PIECE == 0:
            piece = memory * ((chunks + PIECE - 1) // PIECE) + chunk // PIECE
            tl.store(kept_ + piece * K * V + place, S)
        live = tl.minimum(length - chunk * C, C)
        row = origin + tl.cast(chunk, tl.int64) * C * heads
        k = rows(k_, row, heads, t, live, at_K, K)
        g = tl.cumsum(numbers(log_, row, heads, t, live, REAL), 0)
        eta = numbers(eta_, row, heads, t, live, REAL)
        D = ratios(g, t)
        T, _ = erasing(k, g, eta, t, D, SHORT, TYPE, REAL)
        since = tl.exp(g)[:, None]
        v = rows(v_, row, heads, t, live, at_V, V)
        left = v.to(REAL) - since * product(k, S, TYPE, REAL)
        u = eta[:, None] * product(T, left, TYPE, REAL)
        q = rows(q_, row, heads, t, live, at_K, K)
        P = product(q, tl.trans(k), TYPE, REAL) * D
        y = since * product(q, S, TYPE, REAL) + product(P, u, TYPE, REAL)
        put_rows(y_, row, heads, t, live, at_V, V, y)
        whole = tl.sum(tl.where(t == C - 1, g, 0.0), 0)
        until = tl.exp(whole - g)[:, None]
        S = tl.exp(whole) * S + product(tl.trans(k), until * u, TYPE, REAL)
    tl.store(end_ + memory * K * V + place, S)


@triton.jit
def gated_delta_backward(  # noqa: PLR0915  # a kernel is one function
    q_, k_, v_, log_, eta_, dy_, kept_, states_, inverses_, end_, dq_, dk_, dv_, dlog_, deta_,
    start_, length, heads, chunks,
    K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, C: tl.constexpr, PIECE: tl.constexpr,
    SHORT: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """The gradient, one launch: pieces from the last to the first, each made anew before."""
    TYPE: tl.constexpr = k_.dtype.element_ty
    memory = tl.program_id(0).to(tl.int64)
    own = memory * tl.num_programs(1) + tl.program_id(1)
    origin = memory // heads * length * heads + memory % heads
    behind = origin + tl.program_id(1).to(tl.int64) * tl.num_programs(0) * length
    t, at_K, at_B = tl.arange(0, C), tl.arange(0, K), tl.arange(0, BV)
    at_V = tl.program_id(1) * BV + at_B
    place, scratch, square = places(at_K, at_V, V), places(at_K, at_B, BV), places(t, t, C)
    pieces = (chunks + PIECE - 1) // PIECE
    dS = tl.load(end_ + memory * K * V + place).to(REAL)
    for done in tl.range(0, pieces, disable_licm=True):
        piece = pieces - 1 - done
        first, last = piece * PIECE, tl.minimum(piece * PIECE + PIECE, chunks)
        S = tl.load(kept_ + (memory * pieces + piece) * K * V + place).to(REAL)
        for chunk in tl.range(first, last, disable_licm=True):
            slot = own * PIECE + chunk - first
            tl.store(states_ + slot * K * BV + scratch, S.to(TYPE))
            live = tl.minimum(length - chunk * C, C)
            row = origin + tl.cast(chunk, tl.int64) * C * heads
            k = rows(k_, row, heads, t, live, at_K, K)
            g = tl.cumsum(numbers(log_, row, heads, t, live, REAL), 0)
            eta = numbers(eta_, row, heads, t, live, REAL)
            T, _ = erasing(k, g, eta, t, ratios(g, t), SHORT, TYPE, REAL)
            tl.store(inverses_ + slot * C * C + square, T.to(TYPE))
            v = rows(v_, row, heads, t, live, at_V, V)
            left = v.to(REAL) - tl.exp(g)[:, None] * product(k, S, TYPE, REAL)
            u = eta[:, None] * product(T, left, TYPE, REAL)
            whole = tl.sum(tl.where(t == C - 1, g, 0.0), 0)
            until = tl.exp(whole - g)[:, None]
            S = tl.exp(whole) * S + product(tl.trans(k), until * u, TYPE, REAL)
        tl.debug_barrier()
        for back in tl.range(0, last - first, disable_licm=True):
            chunk = last - 1 - back
            slot = own * PIECE + chunk - first
            live = tl.minimum(length - chunk * C, C)
            row = origin + tl.cast(chunk, tl.int64) * C * heads
            part = behind + tl.cast(chunk, tl.int64) * C * heads
            S_ = tl.load(states_ + slot * K * BV + scratch)
            T_ = tl.load(inverses_ + slot * C * C + square)
            k = rows(k_, row, heads, t, live, at_K, K)
            g = tl.cumsum(numbers(log_, row, heads, t, live, REAL), 0)
            eta = numbers(eta_, row, heads, t, live, REAL)
            since = tl.exp(g)[:, None]
            v = rows(v_, row, heads, t, live, at_V, V)
            z = product(k, S_, TYPE, REAL)
            x = product(T_, v.to(REAL) - since * z, TYPE, REAL)
            u = eta[:, None] * x
            D = ratios(g, t)
            whole = tl.sum(tl.where(t == C - 1, g, 0.0), 0)
            until = tl.exp(whole - g)
            # what was written: through the chunk's own read-outs, and through the next state
            dy = rows(dy_, row, heads, t, live, at_V, V)
            q = rows(q_, row, heads, t, live, at_K, K)
            P = product(q, tl.trans(k), TYPE, REAL) * D
            later = until[:, None] * product(k, dS, TYPE, REAL)
            du = product(tl.trans(P), dy, TYPE, REAL) + later
            end = tl.sum(later * u, 1)
            dr = product(tl.trans(T_), eta[:, None] * du, TYPE, REAL)
            put_rows(dv_, row, heads, t, live, at_V, V, dr)
            # the system
            G = product(dr, tl.trans(x), TYPE, REAL)
            A = tl.where(t[:, None] > t[None, :], product(k, tl.trans(k), TYPE, REAL) * D, 0.0)
            AG = A * G
            put_numbers(deta_, part, heads, t, live, tl.sum(x * du, 1) - tl.sum(AG, 0))
            dP = product(dy, tl.trans(u), TYPE, REAL)
            through = dP * P - AG * eta[None, :]
            dkk = tl.where(t[:, None] > t[None, :], -G * eta[None, :] * D, 0.0).to(TYPE)
            dqk = (dP * D).to(TYPE)
            # queries and keys
            dq = since * product(dy, tl.trans(S_), TYPE, REAL)
            dg = tl.sum(dq * q.to(REAL), 1)
            dq += product(dqk, k, TYPE, REAL)
            put_rows(dq_, part, heads, t, live, at_K, K, dq)
            dz = -since * dr
            dk = product(dz, tl.trans(S_), TYPE, REAL)
            dk += product(until[:, None] * u, tl.trans(dS), TYPE, REAL)
            dk += product(dkk, k, TYPE, REAL)
            dk += product(tl.trans(dkk), k, TYPE, REAL)
            dk += product(tl.trans(dqk), q, TYPE, REAL)
            put_rows(dk_, part, heads, t, live, at_K, K, dk)
            # decays, and the state before
            dg += tl.sum(through, 1) - tl.sum(through, 0) + tl.sum(dz * z, 1) - end
            held = tl.sum(tl.sum(dS * S_.to(REAL), 1), 0) * tl.exp(whole) + tl.sum(end, 0)
            put_numbers(dlog_, part, heads, t, live, tl.cumsum(dg, 0, reverse=True) + held)
            dS = tl.exp(whole) * dS + product(tl.trans(q), since * dy.to(REAL), TYPE, REAL)
            dS += product(tl.trans(k), dz, TYPE, REAL)
        tl.debug_barrier()
    tl.store(start_ + memory * K * V + place, dS)


def forward(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor, start: Tensor, *,
    rows: int = 64, block: int = 64, warps: int = 8, stages: int = 1, keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the state at the end, and with ``keep`` the states at the start of every piece.

    q, k [B, T, H, K], v [B, T, H, V], log_alpha and eta [B, T, H], contiguous; start [B, H, K, V]
    in float32 (float64). K and V are powers of two from 16, V a multiple of ``block``.
    """
    B, T, H, K, V, chunks = _sizes(k, v, rows)
    y, end = torch.empty_like(v), torch.empty_like(start)
    kept = start.new_empty(B * H * -(-chunks // PIECE) if keep else 0, K, V)
    gated_delta_forward[(B * H, V // block)](
        q, k, v, log_alpha, eta, y, start, end, kept, T, H, chunks, K=K, V=V, BV=block, C=rows,
        PIECE=PIECE, KEEP=keep, num_warps=warps, num_stages=stages, **_types(k),
    )  # fmt: skip
    return y, end, kept


def backward(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, eta: Tensor, kept: Tensor, dy: Tensor,
    d_end: Tensor, *, rows: int = 64, block: int = 64, warps: int = 8, stages: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of q, k, v, log_alpha, eta and start."""
    B, T, H, K, V, chunks = _sizes(k, v, rows)
    blocks, real = V // block, d_end.dtype
    states = k.new_empty(B * H * blocks * PIECE, K, block)
    inverses = k.new_empty(B * H * blocks * PIECE, rows, rows)
    dq, dk = (q.new_empty(blocks, *q.shape, dtype=real) for _ in range(2))
    dlog, deta = (q.new_empty(blocks, *eta.shape, dtype=real) for _ in range(2))
    dv, d_start = torch.empty_like(v), torch.empty_like(d_end)
    gated_delta_backward[(B * H, blocks)](
        q, k, v, log_alpha, eta, dy, kept, states, inverses, d_end, dq, dk, dv, dlog, deta,
        d_start, T, H, chunks, K=K, V=V, BV=block, C=rows, PIECE=PIECE, num_warps=warps,
        num_stages=stages, **_types(k),
    )  # fmt: skip
    return (dq.sum(0).to(q), dk.sum(0).to(k), dv, dlog.sum(0), deta.sum(0), d_start)


def _sizes(k: Tensor, v: Tensor, rows: int) -> tuple[int, int, int, int, int, int]:
    B, T, H, K = k.shape
    return B, T, H, K, v.shape[-1], -(-T // rows)


def _types(k: Tensor) -> dict[str, object]:
    real = tl.float64 if k.dtype == torch.float64 else tl.float32
    return {"SHORT": k.dtype.itemsize == 2, "REAL": real}
