"""Attention over kept pairs in blocks of rows: numbers, gradients, and what a gradient takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mnemic.codegen.support.kept_attention import attention


def test_a_window_s_gradient_is_put_together_once() -> None:
    """A slice of all pairs for each block has a gradient as long as they are: T²/64 numbers."""

    def slices(tokens: int) -> int:
        q, keys, values = (torch.randn(1, tokens, 4, requires_grad=True) for _ in range(3))
        seen, left = set(), [attention(q, keys, values, span=16).grad_fn]
        while left:
            node = left.pop()
            if node is not None and node not in seen:
                seen.add(node)
                left += [after for after, _ in node.next_functions]
        return sum(node.name().startswith("Slice") for node in seen)

    assert slices(2048) == slices(256)


@pytest.mark.parametrize(("rows", "kept", "span"), [(300, 300, 16), (150, 165, 16), (700, 900, 0)])
def test_blocks_of_rows_see_their_pairs(rows: int, kept: int, span: int) -> None:
    source = torch.Generator().manual_seed(0)

    def drawn(count: int, size: int) -> Tensor:
        return torch.randn(2, count, size, generator=source, dtype=torch.float64)

    given = [x.requires_grad_() for x in (drawn(rows, 4), drawn(kept, 4), drawn(kept, 3))]
    q, keys, values = given
    at = torch.arange(kept - rows, kept)[:, None] - torch.arange(kept)
    hidden = (at < 0) | (at >= span if span else at < 0)
    wanted = (q @ keys.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ values
    found = attention(q, keys, values, span=span)
    torch.testing.assert_close(found, wanted)
    ones = torch.randn_like(wanted)
    for a, b in zip(*(torch.autograd.grad(y, given, ones) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b)
