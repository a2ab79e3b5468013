"""Products under decays by channel, by halves and written out, beside a loop over pairs of rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen.support import chunks


def decay(log_decay: Tensor, t: int, s: int) -> Tensor:
    """The product of decays over s < i ≤ t, [..., K]."""
    return torch.exp(log_decay[..., s + 1 : t + 1, :].sum(-2))


def scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Σ_κ q_tκ k_sκ decay_κ, pair by pair."""
    size = q.shape[-2]
    rows = []
    for t in range(size):
        one = [(q[..., t, :] * k[..., s, :] * decay(log_decay, t, s)).sum(-1) for s in range(t + 1)]
        rows.append(torch.stack([*one, *[torch.zeros_like(one[0])] * (size - t - 1)], -1))
    return torch.stack(rows, -2)


def mixed(weights: Tensor, u: Tensor, log_decay: Tensor) -> Tensor:
    """Σ_s weights_ts u_sυ decay_υ, row by row."""
    rows = [
        sum(
            (
                weights[..., t, s, None] * u[..., s, :] * decay(log_decay, t, s)
                for s in range(t + 1)
            ),
            torch.zeros_like(u[..., 0, :]),
        )
        for t in range(u.shape[-2])
    ]
    return torch.stack(rows, -2)


def agree(found: Tensor, expected: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """Values and gradients, to rounding."""
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found)
    got, wanted = (
        torch.autograd.grad(x, leaves, weights, retain_graph=True, materialize_grads=True)
        for x in (found, expected)
    )
    torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)


def drawn(*shape: int) -> Tensor:
    """Normal numbers that take a gradient."""
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("pairs", [0, chunks.PAIRS])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 16])
def test_products_are_those_of_pairs(
    size: int, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "PAIRS", pairs)
    torch.manual_seed(size)
    q, k, u = drawn(2, size, 3), drawn(2, size, 3), drawn(2, size, 3)
    log_decay = (-torch.rand(2, size, 3, dtype=torch.float64) * 5).requires_grad_()
    agree(chunks.decayed_scores(q, k, log_decay), scores(q, k, log_decay), (q, k, log_decay))
    weights = drawn(2, size, size)
    found = chunks.decayed_mix(weights.tril(), u, log_decay)
    agree(found, mixed(weights, u, log_decay), (weights, u, log_decay))


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_rows_of_a_token_share_its_decay(size: int) -> None:
    torch.manual_seed(size)
    targets, sources = drawn(2, size, 2, 3), drawn(2, size, 4, 3)
    log_decay = (-torch.rand(2, size, 3, dtype=torch.float64) * 5).requires_grad_()
    found = chunks.row_scores(targets, sources, log_decay).reshape(2, size, 2, size, 4)
    for a in range(2):
        for b in range(4):
            expected = scores(targets[..., a, :], sources[..., b, :], log_decay)
            leaves = (targets, sources, log_decay)
            agree(found[:, :, a, :, b], expected, leaves)


@pytest.mark.parametrize("pairs", [0, chunks.PAIRS])
def test_a_decay_of_zero_forgets_and_leaves_no_gradient_that_is_no_number(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "PAIRS", pairs)
    torch.manual_seed(0)
    q, k, log_decay = drawn(8, 3), drawn(8, 3), torch.zeros(8, 3, dtype=torch.float64)
    log_decay[3] = -torch.inf
    found = chunks.decayed_scores(q, k, log_decay)
    assert not found[3:, :3].any()
    torch.testing.assert_close(found[3:, 3:], (q @ k.mT).tril()[3:, 3:])
    assert all(x.isfinite().all() for x in torch.autograd.grad(found.sum(), (q, k)))


MOVED = {
    "mnemic": 1, "name": "momentum-under-decays-of-channels", "bias": "l2",
    "retention": {"decay": "channel", "order": "before"},
    "optimizer": {"method": "momentum", "rate": "token", "momentum": "token"},
}  # fmt: skip
"""Its rows are weighed against rows for each channel: what is left of a step, momentum after
momentum, decay after decay, is no product of a row's and a source's."""


def test_chunks_are_short_where_rows_are_weighed_for_every_channel() -> None:
    """C² weights a channel and chunk: eight rows took a third of the time of 32."""
    rule = pipeline.compile(MOVED).module.rule
    assert rule.signature.chunk == 8
    assert pipeline.compile("gla").module.rule.signature.chunk == 32
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 21, 2, 4, dtype=torch.float64) for _ in range(3))
    shapes = {c.name: rule.signature.shape(c, 2, 4, 4) for c in rule.signature.coefficients}
    others = {n: torch.rand(2, 21, *shape, dtype=torch.float64) for n, shape in shapes.items()}
    both = [rule(q=q, k=k, v=v, **others, form=form)[0] for form in ("chunk", "recurrent")]
    torch.testing.assert_close(*both, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "rows"), [("lru", 4), ("omega-linear", 8), ("swla", 32)])
def test_chunks_are_short_where_a_row_costs_a_matrix(name: str, rows: int) -> None:
    """Channels as heads have states as small as C² weights; windows that erase have c·C rows."""
    assert pipeline.compile(name).module.rule.signature.chunk == rows
