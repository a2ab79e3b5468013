"""Kernels written by hand, to try on them what surrounds the generated ones."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mnemic.codegen.support import tiles


@triton.jit
def scaled_kernel(x, y, n, factor: tl.constexpr, BLOCK: tl.constexpr):
    """y = factor · x."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y + at, factor * tl.load(x + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def short_kernel(x, y, n, BLOCK: tl.constexpr):
    """y = x without the last entry: a fault that poisoned outputs show."""
    at = tl.arange(0, BLOCK)
    inside = at < n - 1
    tl.store(y + at, tl.load(x + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def long_kernel(x, y, n, BLOCK: tl.constexpr):
    """y = x and an entry more: a fault that guards show."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n + 1)


@triton.jit
def linear_kernel(q, k, v, o, T, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    """o = (Q Kᵀ ∘ causal) V + Q S, S = Σ Kᵀ V over the chunks before; one program a memory."""
    memory = tl.program_id(0).to(tl.int64)
    rows, keys, values = tl.arange(0, C), tl.arange(0, K), tl.arange(0, V)
    S = tl.zeros((K, V), tl.float32)
    causal = rows[:, None] >= rows[None, :]
    for chunk in range(0, tl.cdiv(T, C)):
        at = memory * T + tl.cast(chunk, tl.int64) * C + rows
        live = (chunk * C + rows < T)[:, None]
        K_c = tl.load(k + at[:, None] * K + keys, mask=live, other=0.0)
        V_c = tl.load(v + at[:, None] * V + values, mask=live, other=0.0)
        Q_c = tl.load(q + at[:, None] * K + keys, mask=live, other=0.0)
        mixed = tl.where(causal, tl.dot(Q_c, tl.trans(K_c), input_precision="tf32"), 0.0)
        y = tl.dot(mixed.to(V_c.dtype), V_c, input_precision="tf32")
        y += tl.dot(Q_c, S.to(Q_c.dtype), input_precision="tf32")
        tl.store(o + at[:, None] * V + values, y.to(o.dtype.element_ty), mask=live)
        S += tl.dot(tl.trans(K_c), V_c, input_precision="tf32")


@triton.jit
def turned_kernel(x, y, TURNED: tl.constexpr):
    """y = (x x)ᵀ x, or x (x x)ᵀ: an accumulator transposed on the left, or on the right."""
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)
    X = tl.load(x + at)
    square = tl.trans(tl.dot(X, X, input_precision="ieee").to(X.dtype))
    if TURNED:
        found = tl.dot(square, X, input_precision="ieee")
    else:
        found = tl.dot(X, square, input_precision="ieee")
    tl.store(y + at, found)


@triton.jit
def long_product_kernel(x, y, z, LONGEST: tl.constexpr):
    """z = x y, [16, 32] by [32, 32], in sums of at most ``LONGEST``."""
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 32)
    X = tl.load(x + rows * 32 + columns[None, :])
    Y = tl.load(y + columns[:, None] * 32 + columns[None, :])
    tl.store(z + rows * 32 + columns[None, :], tiles.full(X, Y, "ieee", LONGEST))


def scaled(x: Tensor, y: Tensor) -> Tensor:
    """y = 3 x in y."""
    scaled_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 3.0, 64)
    return y


def linear(q: Tensor, k: Tensor, v: Tensor, out: Tensor, *, warps: int = 4) -> Tensor:
    """Linear attention of [M, T, d] in chunks of 64."""
    memories, tokens, width = q.shape
    linear_kernel[(memories,)](
        q, k, v, out, tokens, 64, width, v.shape[-1], num_warps=warps, num_stages=2
    )
    return out


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in PyTorch."""
    return torch.tril(q @ k.mT) @ v


class Linear(torch.autograd.Function):
    """Linear attention with a backward pass of its own, as generated operators have."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return linear(q, k, v, torch.empty_like(v))

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        given = grad.contiguous()
        flipped = (x.flip(1).contiguous() for x in (k, q, given))
        return None, None, linear(*flipped, torch.empty_like(v)).flip(1)


@triton.jit
def schulz_kernel(d, matrix, found, A: tl.constexpr, B: tl.constexpr):
    """The gradient of Newton–Schulz of one matrix [A, B]."""
    at = tl.arange(0, A)[:, None] * B + tl.arange(0, B)
    before = tiles.newton_schulz_vjp(tl.load(d + at), tl.load(matrix + at), "fp64", 5)
    tl.store(found + at, before)
