"""Packed documents and padded rows run in batches: as many runs as lengths have digits.

What is expected is each document by itself, in float64.
"""

import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen.support import packing

LENGTHS = (0, 1, 17, 1, 9, 17, 0, 40, 5)
BOUNDS = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]

FEW = ("gated-deltanet", "titans", "deltaformer", "log-linear")
OTHERS = (
    "softmax-attention", "gated-softmax", "kernel-regression", "swla", "swdt", "path", "mesa",
    "retnet", "cosformer", "deltaproduct", "gsa", "mlstm", "lru", "lact", "atlas-mag",
    "titans-mac", "kl-simplex", "huber-coordinate", "ttt-linear", "omega-linear",
)  # fmt: skip
SPECS = [*FEW, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]


def layer_of(name: str) -> Any:
    torch.manual_seed(0)
    return pipeline.compile(name).layer(16, heads=2).double()


def off(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    apart = (found - expected).detach().double().abs().max()
    return float(apart / (1 + expected.detach().double().abs().max()))


def weighed(x: Tensor) -> Tensor:
    return (x * torch.cos(torch.arange(x.numel(), dtype=x.dtype)).view(x.shape)).sum()


@pytest.mark.parametrize("name", SPECS)
def test_documents_are_those_by_themselves(name: str) -> None:
    layer = layer_of(name)
    x = torch.randn(1, BOUNDS[-1], 16, dtype=torch.float64, requires_grad=True)
    ends = torch.tensor(BOUNDS)
    y, states = layer(x, cu_seqlens=ends, output_state=True)
    alone = layer(x, cu_seqlens=ends)
    parts = [layer(x[:, low:high], output_state=True) for low, high in pairwise(BOUNDS)]
    expected = torch.cat([part for part, _ in parts], 1)
    assert off(y, expected) < 1e-9
    assert off(alone, expected) < 1e-9
    for name_, whole in states.items():
        for number, (_, own) in enumerate(parts):
            part = whole[number : number + 1]
            part = part[tuple(slice(0, n) for n in own[name_].shape)]
            assert off(part, own[name_]) < 1e-9, name_
    slopes = [
        torch.autograd.grad(weighed(z), x, retain_graph=True)[0] for z in (expected, y, alone)
    ]
    assert off(slopes[1], slopes[0]) < 1e-8
    assert off(slopes[2], slopes[0]) < 1e-8


@pytest.mark.parametrize("name", SPECS)
def test_documents_go_on_from_states_of_their_own(name: str) -> None:
    layer = layer_of(name)
    with torch.no_grad():
        x = torch.randn(1, BOUNDS[-1], 16, dtype=torch.float64)
        before = torch.randn(1, 3 * len(LENGTHS), 16, dtype=torch.float64)
        cuts = torch.tensor([0, *(2 * i + i % 3 for i in range(1, len(LENGTHS))), 3 * len(LENGTHS)])
        _, states = layer(before, cu_seqlens=cuts, output_state=True)
        y = layer(x, cu_seqlens=torch.tensor(BOUNDS), state=states)
        firsts = pairwise(cuts.tolist())
        for (low, high), (first, last) in zip(pairwise(BOUNDS), firsts, strict=True):
            text = torch.cat([before[:, first:last], x[:, low:high]], 1)
            assert off(y[:, low:high], layer(text)[:, last - first :]) < 1e-9


def runs(layer: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    """How often a form is run for forty documents, or rows of a batch."""
    home = type(layer).__module__.rpartition(".")[0]
    run = sys.modules[f"{home}.support.run"].Run  # type: ignore[attr-defined]
    seen, result = [], run.result
    with monkeypatch.context() as inside, torch.no_grad():
        inside.setattr(run, "result", lambda self: (seen.append(self.tokens), result(self))[1])
        layer(**options)
    return sum(n > 0 for n in seen)


@pytest.mark.parametrize(("name", "states", "most"), [
    ("gated-deltanet", True, 6), ("gated-deltanet", False, 6), ("titans", False, 6),
    ("softmax-attention", False, 6), ("log-linear", False, 6), ("deltaformer", False, 6),
    ("titans", True, 20), ("softmax-attention", True, 20),
])  # fmt: skip
def test_few_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, states: bool, most: int
) -> None:  # fmt: skip
    """Forty documents of 1 to 60 tokens: six digits; states that tell where they stand are asked of
    documents of one length together, of which there are twenty here."""
    layer = layer_of(name)
    lengths = [3 * (n % 20) + 3 for n in range(40)]
    ends = torch.tensor([0, *lengths]).cumsum(0)
    x = torch.randn(1, int(ends[-1]), 16, dtype=torch.float64)
    assert runs(layer, monkeypatch, x=x, cu_seqlens=ends, output_state=states) <= most


def test_padded_rows_take_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of("gated-deltanet")
    mask = torch.arange(40)[None] < torch.arange(1, 41)[:, None]
    x = torch.randn(40, 40, 16, dtype=torch.float64)
    assert runs(layer, monkeypatch, x=x, mask=mask, output_state=True) <= 6


@pytest.mark.parametrize("way", [packing.by_digits, packing.by_length, packing.by_size])
def test_batches_hold_every_token_once_in_order(way: Any) -> None:
    batches = list(way(BOUNDS))
    device = torch.device("cpu")
    found: dict[int, list[int]] = {}
    for batch in batches:
        own, places = batch.own(device), batch.places(device)
        for number, seen, row in zip(batch.documents, own, places, strict=True):
            found.setdefault(number, []).extend(row[seen].tolist())
    for number, (low, high) in enumerate(pairwise(BOUNDS)):
        assert found.get(number, []) == list(range(low, high))
    outs = [batch.places(device)[..., None].double() for batch in batches]
    assert packing.unpacked(outs, batches)[0, :, 0].tolist() == list(range(BOUNDS[-1]))
