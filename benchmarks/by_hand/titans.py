"""Titans by hand: a two-layer perceptron as memory, with momentum, gradients at chunk starts.

    M(x) = x + LN(W1 σ(W2 x)),   loss ½‖M(k) − v‖²,   S ← θ S − η ∇,   W ← α W + S

One program a memory; C rows a chunk, which is the anchor's interval. The four matrices (W1, W2 and
their momenta: 256 KiB at d = 64 and four times as many hidden units, as much as a multiprocessor
has registers) lie in the device's memory, where the L2 cache holds them, and go through registers
by blocks of hidden units, twice a chunk. With g, f the running sums of log α and log θ,

    D_ts = e^{g_t − g_s},   F_ts = e^{f_t − f_s}   (s ≤ t),   M = D F,   c_t = Σ_s D_ts e^{f_s}

what a token reads is W_t = e^{g_t} W₀ + c_t S₀ + Σ_{s≤t} M_ts u_s, so neither a scan over matrices
nor one matrix a token is needed. With a = W2 k, h = σ(a), z = W1 h, dz the loss's gradient at z:

    u1 = −η dz,                da = (W1ᵀ dz) σ′(a),   u2 = −η da
    a′ = e^g ∘ (W2 q) + c ∘ (S2 q) + (Q Kᵀ ∘ M) u2,        h′ = σ(a′)
    z′ = e^g ∘ (W1 h′) + c ∘ (S1 h′) + (h′ hᵀ ∘ M) u1,     y = q + LN(z′)

Sums over hidden units (z, z′, h′hᵀ) grow block by block. Forward only: the gradient has not been
written by hand. Source: Behrouz et al. (2024), "Titans"; the dual form of Sun et al. (2024),
"Learning to (Learn at Test Time)", with decay and momentum as one coefficient matrix.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from by_hand.gated_delta import ratios
from by_hand.parts import fine, numbers, product, put_rows, rows


@triton.jit
def normal(a):
    """Φ(a) and the density."""
    return 0.5 + 0.5 * tl.erf(a * 0.7071067811865476), tl.exp(-0.5 * a * a) * 0.3989422804014327


@triton.jit
def standardised(z, V: tl.constexpr):
    """LN(z) and 1/σ."""
    centred = z - (tl.sum(z, 1) / V)[:, None]
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / V + 1e-5)
    return centred * scale[:, None], scale


@triton.jit
def errors(z, k, v, V: tl.constexpr):
    """The gradient of ½‖k + LN(z) − v‖² at z."""
    unit, scale = standardised(z, V)
    e = k + unit - v
    along = (tl.sum(e * unit, 1) / V)[:, None]
    return (e - (tl.sum(e, 1) / V)[:, None] - unit * along) * scale[:, None]


@triton.jit
def titans_forward(  # noqa: PLR0915  # a kernel is one function
    q_, k_, v_, log_alpha_, log_theta_, eta_, y_, W1_, W2_, S1_, S2_, length, heads, chunks,
    K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, BN: tl.constexpr, C: tl.constexpr,
    SHORT: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """y; the matrices are moved on in place."""
    TYPE: tl.constexpr = k_.dtype.element_ty
    memory = tl.program_id(0).to(tl.int64)
    origin = memory // heads * length * heads + memory % heads
    t, at_K, at_V, at_N = tl.arange(0, C), tl.arange(0, K), tl.arange(0, V), tl.arange(0, BN)
    one = memory * N * V + at_N[:, None] * V + at_V[None, :]  # [BN, V]
    two = memory * K * N + at_K[:, None] * N + at_N[None, :]  # [K, BN]
    for chunk in tl.range(0, chunks, disable_licm=True):
        live = tl.minimum(length - chunk * C, C)
        row = origin + tl.cast(chunk, tl.int64) * C * heads
        k = rows(k_, row, heads, t, live, at_K, K)
        v = rows(v_, row, heads, t, live, at_V, V)
        # predictions at the chunk's start
        z = tl.zeros((C, V), REAL)
        for block in tl.range(0, N // BN, disable_licm=True):
            w1 = tl.load(W1_ + one + block * BN * V)
            w2 = tl.load(W2_ + two + block * BN)
            a = product(k, w2, TYPE, REAL)
            Phi, _ = normal(a)
            z += product(a * Phi, w1, TYPE, REAL)
        dz = errors(z, k.to(REAL), v.to(REAL), V)
        u1 = -numbers(eta_, row, heads, t, live, REAL)[:, None] * dz
        # decay and momentum as one matrix
        g = tl.cumsum(numbers(log_alpha_, row, heads, t, live, REAL), 0)
        f = tl.cumsum(numbers(log_theta_, row, heads, t, live, REAL), 0)
        D, F = ratios(g, t), ratios(f, t)
        M = fine(D, F, SHORT, REAL)
        since, fade = tl.exp(g), tl.exp(f)
        carry = tl.sum(D * fade[None, :], 1)
        end = t == live - 1
        since_end = tl.sum(tl.where(end, since, 0.0), 0)
        carry_end = tl.sum(tl.where(end, carry, 0.0), 0)
        fade_end = tl.sum(tl.where(end, fade, 0.0), 0)
        M_end = tl.sum(tl.where(end[:, None], M, 0.0), 0)[:, None]
        F_end = tl.sum(tl.where(end[:, None], F, 0.0), 0)[:, None]
        eta = numbers(eta_, row, heads, t, live, REAL)[:, None]
        q = rows(q_, row, heads, t, live, at_K, K)
        qk = (product(q, tl.trans(k), TYPE, REAL) * M).to(TYPE)
        z = tl.zeros((C, V), REAL)
        hh = tl.zeros((C, C), REAL)
        for block in tl.range(0, N // BN, disable_licm=True):
            at_one, at_two = one + block * BN * V, two + block * BN
            w1, w2 = tl.load(W1_ + at_one), tl.load(W2_ + at_two)
            s1, s2 = tl.load(S1_ + at_one), tl.load(S2_ + at_two)
            a = product(k, w2, TYPE, REAL)
            Phi, phi = normal(a)
            h = (a * Phi).to(TYPE)
            u2 = -eta * product(dz, tl.trans(w1), TYPE, REAL) * (Phi + a * phi)
            a = since[:, None] * product(q, w2, TYPE, REAL) + product(qk, u2, TYPE, REAL)
            a += carry[:, None] * product(q, s2, TYPE, REAL)
            Phi, _ = normal(a)
            read = (a * Phi).to(TYPE)
            z += since[:, None] * product(read, w1, TYPE, REAL)
            z += carry[:, None] * product(read, s1, TYPE, REAL)
            hh += product(read, tl.trans(h), TYPE, REAL)
            w1 = since_end * w1 + carry_end * s1 + product(tl.trans(h), M_end * u1, TYPE, REAL)
            s1 = fade_end * s1 + product(tl.trans(h), F_end * u1, TYPE, REAL)
            w2 = since_end * w2 + carry_end * s2 + product(tl.trans(k), M_end * u2, TYPE, REAL)
            s2 = fade_end * s2 + product(tl.trans(k), F_end * u2, TYPE, REAL)
            tl.debug_barrier()
            tl.store(W1_ + at_one, w1)
            tl.store(W2_ + at_two, w2)
            tl.store(S1_ + at_one, s1)
            tl.store(S2_ + at_two, s2)
        z += product(hh * M, u1, TYPE, REAL)
        unit, _ = standardised(z, V)
        put_rows(y_, row, heads, t, live, at_V, V, q.to(REAL) + unit)
        tl.debug_barrier()


def forward(
    q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, log_theta: Tensor, eta: Tensor,
    matrices: tuple[Tensor, Tensor, Tensor, Tensor], *, rows: int = 64, block: int = 64,
    warps: int = 8,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """y, and W1, W2, S1, S2 after the last token.

    q, k, v [B, T, H, d], the coefficients [B, T, H], contiguous; W1 and S1 [B, H, m, d], W2 and S2
    [B, H, d, m] in float32 (float64); d and m are powers of two from 16, ``rows`` the anchor's
    interval.
    """
    B, T, H, K = k.shape
    y, moved = torch.empty_like(v), tuple(x.clone() for x in matrices)
    real = tl.float64 if k.dtype == torch.float64 else tl.float32
    titans_forward[(B * H,)](
        q, k, v, log_alpha, log_theta, eta, y, *moved, T, H, -(-T // rows), K=K, V=v.shape[-1],
        N=moved[0].shape[-2], BN=block, C=rows, SHORT=k.dtype.itemsize == 2, REAL=real,
        num_warps=warps, num_stages=1,
    )  # fmt: skip
    return y, moved
