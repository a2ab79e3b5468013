"""Kernels written by hand, in Triton's interpreter, against their rules token by token."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
Call = Callable[..., Any]


def error(found: Any, wanted: Any) -> float:
    """The largest difference, against the largest entry."""
    return float((found - wanted).abs().max() / (wanted.abs().max() + 1e-30))


# -- the gated delta rule --------------------------------------------------------------------


def delta_rule(q: Any, k: Any, v: Any, log_alpha: Any, eta: Any, S: Any) -> Any:
    """S ← α S, S ← S + k (η (v − Sᵀ k))ᵀ, y = Sᵀ q; S [B, H, K, V]."""
    import torch

    found = []
    for t in range(q.shape[1]):
        S = log_alpha[:, t].exp()[..., None, None] * S
        seen = torch.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + torch.einsum("bhk,bhv->bhkv", k[:, t], eta[:, t, :, None] * (v[:, t] - seen))
        found.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(found, 1), S


def gated_delta_errors(length: int, rows: int) -> list[float]:
    """Of outputs, the last state and all gradients."""
    import torch

    sys.path.insert(0, BENCHMARKS)
    from by_hand import gated_delta

    gated_delta.PIECE = 2
    torch.manual_seed(0)
    B, H, K, V = 1, 2, 16, 32
    given = [torch.randn(B, length, H, n, dtype=torch.float64) for n in (K, K, V)]
    given[1] = torch.nn.functional.normalize(given[1], dim=-1)
    given += [-torch.rand(B, length, H, dtype=torch.float64), torch.rand(B, length, H).double()]
    given[3][:, 7], given[4][:, 5] = -40.0, 0.0  # nearly all forgotten, and nothing written
    start = torch.randn(B, H, K, V, dtype=torch.float64)
    leaves = [x.clone().requires_grad_() for x in (*given, start)]
    ends = delta_rule(*leaves)
    d_ends = [torch.randn_like(x) for x in ends]
    wanted = torch.autograd.grad(ends, leaves, d_ends)
    y, end, kept = gated_delta.forward(*given, start, rows=rows, block=16, keep=True)
    found = gated_delta.backward(*given, kept, *d_ends, rows=rows, block=16)
    pairs = zip((y, end, *found), (*ends, *wanted), strict=True)
    return [error(one, other) for one, other in pairs]


@pytest.mark.some(1)
@pytest.mark.parametrize(("length", "rows"), [(70, 32), (70, 64), (16, 16)])
def test_gated_delta_is_the_recurrence(interpreter: Call, length: int, rows: int) -> None:
    assert max(interpreter(gated_delta_errors, length=length, rows=rows)) < 1e-12


# -- titans ----------------------------------------------------------------------------------


def titans_rule(given: list[Any], matrices: list[Any], interval: int) -> tuple[list[Any], Any]:
    """Token by token, the gradient by autograd of the loss at the interval's start."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    q, k, v, log_alpha, log_theta, eta = given
    W1, W2, S1, S2 = matrices

    def read(W1: Any, W2: Any, x: Any) -> Any:
        return x + layer_norm(gelu(x @ W2) @ W1, W1.shape[-1:])

    found = []
    for t in range(q.shape[0]):
        if t % interval == 0:
            anchor = [W1.clone().requires_grad_(), W2.clone().requires_grad_()]
        loss = 0.5 * (read(*anchor, k[t]) - v[t]).square().sum()
        G1, G2 = torch.autograd.grad(loss, anchor)
        alpha, theta = log_alpha[t].exp(), log_theta[t].exp()
        S1, S2 = theta * S1 - eta[t] * G1, theta * S2 - eta[t] * G2
        W1, W2 = alpha * W1 + S1, alpha * W2 + S2
        found.append(read(W1, W2, q[t]))
    return found, (W1, W2, S1, S2)


def titans_errors(length: int, rows: int) -> list[float]:
    """Of outputs and the matrices at the end, over two memories."""
    import torch

    sys.path.insert(0, BENCHMARKS)
    from by_hand import titans

    torch.manual_seed(0)
    H, d, m = 2, 16, 32
    real = {"dtype": torch.float64}
    given = [torch.randn(1, length, H, d, **real) for _ in range(3)]
    given += [-0.2 * torch.rand(1, length, H, **real) for _ in range(2)]
    given.append(torch.rand(1, length, H, **real) / 4)
    shapes = ((m, d), (d, m), (m, d), (d, m))
    matrices = [torch.randn(1, H, *shape, **real) / 4 for shape in shapes]
    y, moved = titans.forward(*given, tuple(matrices), rows=rows, block=16)
    errors = []
    for h in range(H):
        own = [x[0, :, h] for x in given]
        outputs, ends = titans_rule(own, [x[0, h] for x in matrices], rows)
        errors.append(error(y[0, :, h], torch.stack(outputs)))
        errors += [error(one[0, h], other) for one, other in zip(moved, ends, strict=True)]
    return errors


def test_titans_is_the_recurrence(interpreter: Call) -> None:
    assert max(interpreter(titans_errors, length=39, rows=16)) < 1e-12
