"""The feed-forward is an unnormalised kernel attention over its own rows, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mnemic.models.feed_forward import KERNELS, KernelFeedForward, SwiGLU, make_feed_forward

DIM = 6

Kernel = Callable[[float], float]

WRITTEN: dict[str, Kernel] = {
    "relu": lambda s: max(s, 0.0),
    "silu": lambda s: s / (1 + math.exp(-s)),
    "exp": math.exp,
    "solu": lambda s: s * math.exp(s),
}
"""Each kernel by hand."""


def attention(keys: list[Tensor], values: list[Tensor], kernel: Callable[[int], float]) -> Tensor:
    """Σ_i v_i κ_i over kept pairs, without a normaliser."""
    found = torch.zeros_like(values[0])
    for i in range(len(keys)):
        found = found + kernel(i) * values[i]
    return found


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_it_reads_kept_pairs_by_its_kernel(name: str) -> None:
    torch.manual_seed(0)
    half, x = KernelFeedForward(DIM, name).double(), torch.randn(3, DIM).double()
    keys, values = list(half.w_in.weight), list(half.w_out.weight.T)
    for row, y in zip(x, half(x), strict=True):
        scores = [float(k @ row) for k in keys]
        expected = attention(keys, values, lambda i, s=scores: WRITTEN[name](s[i]))  # type: ignore[misc]
        torch.testing.assert_close(y, expected)


@torch.no_grad()
def test_swiglu_reads_pairs_by_a_gated_kernel() -> None:
    torch.manual_seed(0)
    half, x = SwiGLU(DIM).double(), torch.randn(DIM).double()
    keys, gates = list(half.w_in.weight), list(half.w_gate.weight)

    def kernel(i: int) -> float:
        return WRITTEN["silu"](float(gates[i] @ x)) * float(keys[i] @ x)

    torch.testing.assert_close(half(x), attention(keys, list(half.w_out.weight.T), kernel))


def test_pairs_may_come_in_any_order() -> None:
    half, x = KernelFeedForward(DIM, "solu"), torch.randn(DIM)
    before = half(x)
    order = torch.randperm(half.w_in.weight.shape[0])
    half.w_in.weight.data = half.w_in.weight[order].detach()
    half.w_out.weight.data = half.w_out.weight[:, order].detach()
    torch.testing.assert_close(half(x), before)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("relu", 1.0), ("silu", 1.0), ("exp", math.e), ("solu", math.e * 5**0.5), ("swiglu", 1.0)],
)
def test_how_loud_a_kernel_is(name: str, expected: float) -> None:
    half = make_feed_forward(name, DIM)
    assert half is not None
    assert half.loudness == pytest.approx(expected, rel=1e-6)
