"""Layers under torch.compile: gradients that are right, one graph for all lengths."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from torch import Tensor

from mnemic import pipeline

sys.path.insert(0, str(Path(__file__).parents[1]))
from inductor import ALLOWED, apart, errors

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of its own code


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No graph of another test, and torch's own settings: its caches do not tell them apart."""
    torch._dynamo.reset()
    caches = torch._inductor.config.patch(force_disable_caches=True)
    with caches, torch._functorch.config.patch(donated_buffer=True):
        yield
    torch._dynamo.reset()


def unbound(x: Tensor, c: Tensor, w: Tensor) -> Tensor:
    """A product, a slice of which ``unbind`` takes: both are saved, in the same memory."""
    y = x @ x
    (first,) = y.unbind()
    return ((c @ w) * first).sin().sum() + (y.square().sum(-1) @ w).square().sum()


@pytest.mark.xfail(strict=True, reason="torch 2.13 writes into a saved slice, and reads the whole "
                   "later. Where this passes torch is mended: slices.py may go.")  # fmt: skip
def test_inductor_minds_slices() -> None:
    """The smallest program whose gradients inductor gets wrong."""
    assert worst(unbound) < ALLOWED


def worst(program: Callable[..., Tensor]) -> float:
    """The largest error of its gradients under inductor."""
    torch.manual_seed(0)
    given = [torch.randn(1, 8, 8) / 3, torch.randn(8, 8), torch.randn(8, 8)]

    def grads(call: Callable[..., Tensor]) -> Sequence[Tensor]:
        leaves = [x.clone().requires_grad_() for x in given]
        return torch.autograd.grad(call(*leaves), leaves)

    found = grads(torch.compile(program, dynamic=False))
    return max(apart(x, y) for x, y in zip(found, grads(program), strict=True))


def test_a_rule_keeps_what_is_saved() -> None:
    """In a graph with a rule in it the same program is right, whatever else is in the graph."""
    rule = pipeline.compile("linear-attention")
    q, k, v = torch.randn(3, 1, 16, 1, 4).unbind()

    def both(*leaves: Tensor) -> Tensor:
        out, _ = rule(q, k, v)
        found: Tensor = unbound(*leaves) + out.sum()
        return found

    assert worst(both) < ALLOWED


def test_inductor_is_right() -> None:
    """A memory of two layers with decay and momentum, whose gradients were wrong by their size."""
    found = errors("titans", 16, fullgraph=True)
    assert max(found.values()) < ALLOWED, found
