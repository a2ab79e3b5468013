"""Memories of layers whose gradient would keep too much: chunks computed again, in parts."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from conformance import Case, Sizes, agree, compiled, inputs, run

LAYERS = {
    "name": "layers",
    "memory": {"kind": "mlp", "residual": True, "norm": False},
    "bias": "l2",
    "window": 3,
    "weights": "window",
    "retention": {"decay": "token"},
    "optimizer": {"method": "muon", "rate": "token", "momentum": "token", "anchor": {"chunk": 4}},
}
SIZES = Sizes(3, 10, 2, 4, 4)


@pytest.fixture
def case() -> Case:
    return compiled(LAYERS, kernels=False)


def support(case: Case, name: str) -> ModuleType:
    package = type(case.generated).__module__.rpartition(".")[0]
    return __import__(f"{package}.{name}", fromlist=["x"])


def counted(case: Case, monkeypatch: pytest.MonkeyPatch, limit: int) -> list[int]:
    """Let a gradient keep so much; the sequences of each chunk that is computed again."""
    module, seen = support(case, "run"), list[int]()
    again = module.checkpoint
    monkeypatch.setattr(support(case, "room"), "LIMIT", limit)

    def noted(function, form, rows, *others, **options):
        seen.append(rows["k"].shape[1] // SIZES.heads)
        return again(function, form, rows, *others, **options)

    monkeypatch.setattr(module, "checkpoint", noted)
    return seen


@pytest.mark.parametrize("limit", [1, 40_000, 120_000])
def test_outputs_states_and_gradients_are_those_of_one_pass(
    case: Case, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    arguments = inputs(case, 10, sizes=SIZES)
    whole = run(case, arguments, "chunk")
    seen = counted(case, monkeypatch, limit)
    agree(run(case, arguments, "chunk"), whole, 1e-12)
    assert seen, "chunks were computed again"
    assert sum(seen) == 3 * 3, "each chunk of each sequence once"
    agree(run(case, arguments, "chunk"), run(case, arguments, "recurrent"))


@pytest.mark.parametrize(
    ("limit", "parts"),
    [(15_999, [1] * 6), (16_000, [1] * 6), (47_999, [2] * 3), (65_000, [4, 2]), (191_999, [6])],
)
def test_parts_are_as_large_as_fits(
    case: Case, monkeypatch: pytest.MonkeyPatch, limit: int, parts: list[int]
) -> None:
    """Two factors of 1000 numbers, and little else, are kept of a chunk of one sequence."""
    module, seen = support(case, "room"), list[tuple[int, int]]()
    monkeypatch.setattr(module, "LIMIT", limit)
    x, y = (torch.ones(1000, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def through(rows, states, pieces, again=False):
        if again:
            seen.append((len(rows["k"]), len(pieces)))
        return rows["k"] * (x * y).sum(), states

    rows, states = {"k": torch.ones(6, 8, 1, 1).requires_grad_()}, {"W": torch.ones(12, 500, 50)}
    out, after = module.in_parts(through, rows, states, [(0, 4, 2)], 6)
    assert seen == [(part, 2) for part in parts]
    assert (out.shape, after["W"].shape) == (rows["k"].shape, states["W"].shape)


def test_nothing_is_computed_again_without_a_gradient_or_where_all_fits(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = inputs(case, 10, sizes=SIZES)
    seen = counted(case, monkeypatch, 1)
    with torch.no_grad():
        case.operator(**arguments, form="chunk")
    assert seen == []
    seen = counted(case, monkeypatch, 2**30)
    run(case, arguments, "chunk")
    assert seen == []


def test_a_gradient_keeps_less_where_chunks_are_computed_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = inputs(case, 40, sizes=Sizes(3, 40, 2, 4, 4))
    leaves = {name: x.requires_grad_() for name, x in arguments.items()}
    kept = {}
    for limit in (2**30, 1):
        monkeypatch.setattr(support(case, "room"), "LIMIT", limit)
        seen: dict[int, torch.Tensor] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, seen=seen: seen.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
        ):
            case.operator(**leaves, form="chunk")
        kept[limit] = sum(x.untyped_storage().nbytes() for x in seen.values())
    assert kept[1] < kept[2**30] / 3
