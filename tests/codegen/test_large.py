"""What holds a matrix for every row of a chunk: some memories at a time, kept as there is room."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo
from conformance import agree, beginning, compiled, inputs, run
from torch import Tensor
from torch._dynamo.backends.debugging import aot_eager
from torch.utils.checkpoint import checkpoint

from mnemic.codegen.large import Part, parts
from mnemic.codegen.module import plans
from mnemic.codegen.support import by_memory, chunks, kept_graphs, links, row_states
from mnemic.compiler.derive import derive
from mnemic.compiler.problem import state
from mnemic.dsl.load import load

MUON = {"method": "muon", "rate": "token", "momentum": "token", "anchor": {"chunk": 8}}
SPECS: dict[str, Any] = {
    "moneta": "moneta",
    "memora": "memora",
    "muon": {"mnemic": 1, "name": "muon", "bias": "l2", "memory": {"kind": "mlp"},
             "retention": {"decay": "token"}, "optimizer": MUON},
    "a simplex": {"mnemic": 1, "name": "simplex", "bias": "dot",
                  "retention": {"local": "kl", "decay": "token",
                                "constraint": {"kind": "simplex", "scale": 4}},
                  "optimizer": {"rate": "token", "anchor": {"chunk": 8}}},
}  # fmt: skip


def found_parts(name: str) -> list[Part]:
    plan = plans(derive(state(load(name)))).chunk
    return [part for part in parts(plan, plan.phases().scan) if isinstance(part, Part)]


def test_a_norm_or_a_softmax_of_every_rows_matrix_is_a_part() -> None:
    assert [part.outputs for part in found_parts("moneta")] == [("nu",), ("nu_of_A2_rows",)]
    assert sorted(part.outputs for part in found_parts("memora")) == [("z1_q",), ("z2_q",)]


@pytest.mark.parametrize("name", ["gated-deltanet", "titans", "kda"])
def test_where_no_row_has_a_matrix_there_is_none(name: str) -> None:
    assert not found_parts(name)


@pytest.mark.parametrize("title", SPECS)
def test_memory_by_memory_a_form_is_the_same(monkeypatch: Any, title: str) -> None:
    case = compiled(SPECS[title])
    arguments = inputs(case, 29)
    options = {"params": beginning(case, arguments["k"], arguments["v"])}
    options = options if case.signature.params else {}
    expected = run(case, arguments, "recurrent", **options)
    module = case.generated.chunk.__globals__["ops"].by_memory.__globals__
    slices: list[int] = []
    plain = module["_sliced"]

    def sliced(tensors: Any, size: int) -> Any:
        found = plain(tensors, size)
        slices.append(len(found))
        return found

    monkeypatch.setitem(module, "_sliced", sliced)
    monkeypatch.setitem(module, "ENTRIES", 1)
    agree(run(case, arguments, "chunk", **options), expected, 1e-8)
    assert max(slices) == 4, "memories are taken apart"


@pytest.fixture
def traced(monkeypatch: Any) -> Iterator[list[int]]:
    """Compile without a C++ compiler; the list has the sizes of what graphs were given."""
    sizes: list[int] = []

    def backend(graph: Any, examples: Any) -> Any:
        sizes.append(next(x.shape[0] for x in examples if x.ndim))
        return aot_eager(graph, examples)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    by_memory._graph.cache_clear()
    yield sizes
    torch._dynamo.reset()
    by_memory._graph.cache_clear()


class _Left(Exception):
    """What leaves a context in a test, and nothing else raises."""


@pytest.mark.filterwarnings("ignore")  # torch's own, of its own code
def test_compiled_parts_are_the_same(traced: list[int], monkeypatch: Any) -> None:
    case = compiled("moneta")
    rule, arguments = case.generated, inputs(case, 29)
    options = {"params": beginning(case, arguments["k"], arguments["v"])}
    expected = run(case, arguments, "recurrent", **options)
    module = rule.parts[0].__globals__["ops"].by_memory.__globals__
    monkeypatch.setitem(module, "ENTRIES", 1)
    module["_graph"].cache_clear()
    with suppress(_Left), rule.compiled_parts():
        agree(run(case, arguments, "chunk", **options), expected, 1e-8)
        raise _Left
    module["_graph"].cache_clear()
    assert traced, "graphs were made"
    before = len(traced)
    agree(run(case, arguments, "chunk", **options), expected, 1e-8)
    assert len(traced) == before, "and none after it was left"


@pytest.mark.filterwarnings("ignore")  # torch's own, of its own code
def test_slices_of_a_graph_are_alike(traced: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr(by_memory, "ENTRIES", 1)

    def function(x: Tensor) -> Tensor:
        return torch.exp(torch.sin(x)).sum(-1)

    x = torch.randn(6, 7, requires_grad=True)
    with by_memory.compiled_parts([function]):
        y = by_memory.by_memory(function, 1, x)  # 4 fit, 3 and 3 are alike
        (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (again,) = torch.autograd.grad(found.sum(), x)
    assert set(traced) == {3}
    (expected,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(again, torch.autograd.grad(expected.sum(), x)[0])


@pytest.mark.filterwarnings("ignore")  # torch's own, of its own code
@pytest.mark.parametrize(("many", "sizes"), [(0, set()), (7, {4, 3}), (3, {3})])
def test_any_number_of_memories_runs_in_graphs(
    traced: list[int], monkeypatch: Any, many: int, sizes: set[int]
) -> None:
    monkeypatch.setattr(by_memory, "ENTRIES", 1)

    def function(x: Tensor) -> Tensor:
        return torch.exp(torch.sin(x)).sum(-1)

    x = torch.randn(many, 5)
    with by_memory.compiled_parts([function]), by_memory.compiled_parts([function]):
        torch.testing.assert_close(by_memory.by_memory(function, 1, x), function(x))
    assert set(traced) == sizes


def test_slots_have_the_parts_of_both_memories() -> None:
    """No packaged slot rule has parts, so each memory is given one here."""
    entered: list[Any] = []

    @contextmanager
    def noted(functions: Any) -> Iterator[None]:
        entered.extend(functions)
        yield

    rule = compiled("gsa").generated
    keys = replace(rule.keys, parts=(abs,), compiling=noted)
    values = replace(rule.values, parts=(max,), compiling=noted)
    rule = replace(rule, keys=keys, values=values)
    assert rule.parts == (abs, max)
    with rule.compiled_parts():
        assert entered == [abs, max]


# -- what is kept for gradients -------------------------------------------------------------------

ROW = 7 * 4
"""Bytes of a row of seven numbers."""


def waves(x: Tensor) -> Tensor:
    """Keep x and exp(sin x) for the gradient."""
    return torch.exp(torch.sin(x)).sum(-1)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Run each memory by itself, with as much room as a test gives; at last all is given back."""
    monkeypatch.setattr(by_memory, "ENTRIES", 1)
    monkeypatch.setattr(kept_graphs, "_room", kept_graphs._Room())
    yield kept_graphs._room
    assert kept_graphs._room.held == 0


@pytest.mark.parametrize(("room", "rows"), [(0, 0), (2 * ROW - 1, 0), (5 * ROW, 2), (2**30, 5)])
def test_no_more_is_kept_than_there_is_room_for(one_by_one: Any, room: int, rows: int) -> None:
    kept_graphs.keep_up_to(room)
    x = torch.randn(5, 7, requires_grad=True)
    calls: list[int] = []

    def counted(x: Tensor) -> Tensor:
        calls.append(len(x))
        return waves(x)

    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = by_memory.by_memory(counted, 1, x)
    assert [tensor.data_ptr() for tensor in saved] == [x.data_ptr()], "beside the graphs"
    assert calls == [1] * 5
    assert one_by_one.held == rows * 2 * ROW
    (expected,) = torch.autograd.grad(waves(x).sum(), x)
    for again in range(1, 3):
        (found,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        assert torch.equal(found, expected)
        assert len(calls) == 5 + (5 - rows) * (again == 1) + (again == 2) * (10 - rows)
        assert one_by_one.held == 0, "the gradient needs them once"


def test_what_is_kept_goes_with_its_graph(one_by_one: Any) -> None:
    x = torch.randn(5, 7, requires_grad=True)
    y = by_memory.by_memory(waves, 1, x)
    assert one_by_one.held == 5 * 2 * ROW
    with torch.no_grad():
        by_memory.by_memory(waves, 1, x)
    assert one_by_one.held == 5 * 2 * ROW, "nothing for what has no gradient"
    del y
    assert one_by_one.held == 0


def test_the_garbage_collector_may_give_back_at_any_time(one_by_one: Any) -> None:
    """A graph in a cycle goes when Python likes, be it while another one is counted."""
    assert one_by_one.take(3)
    with one_by_one._lock:
        assert one_by_one._lock.acquire(blocking=False), "the same thread would wait for itself"
        one_by_one._lock.release()
        one_by_one.give_back(3)


def test_calls_share_the_room(one_by_one: Any) -> None:
    kept_graphs.keep_up_to(8 * 2 * ROW)
    x = torch.randn(5, 7, requires_grad=True)
    y = by_memory.by_memory(lambda x: waves(x)[:, None] * x, 1, x)
    held = one_by_one.held
    z = by_memory.by_memory(waves, 1, y)
    assert held < one_by_one.held <= 8 * 2 * ROW
    (found,) = torch.autograd.grad(z.sum(), x)
    (expected,) = torch.autograd.grad(waves(waves(x)[:, None] * x).sum(), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_checkpointing_gradients_are_the_same(one_by_one: Any, reentrant: bool) -> None:
    x = torch.randn(5, 7, requires_grad=True)
    y = checkpoint(lambda x: by_memory.by_memory(waves, 1, x), x, use_reentrant=reentrant)
    (found,) = torch.autograd.grad(y.sum(), x) if not reentrant else (None,)
    if reentrant:
        y.sum().backward()
        found = x.grad
    (expected,) = torch.autograd.grad(waves(x).sum(), x)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("most", [-1, 1.5, True, "1"])
def test_a_bound_that_is_no_number_of_bytes_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"moneta: keep_up_to: read {most!r}")):
        compiled("moneta").generated.keep_up_to(most)


def test_a_rule_is_told_how_much_to_keep() -> None:
    """Of Atlas nothing, then all that a chunk makes; gradients are the same to the bit."""
    case = compiled("atlas")
    rule, arguments = case.generated, inputs(case, 32)
    room = rule.parts[0].__globals__["ops"].keep_up_to.__globals__["_room"]
    options = {"params": beginning(case, arguments["k"], arguments["v"])}
    gradients, held = [], []
    for most in (0, 2**30):
        rule.keep_up_to(most)
        module = rule.parts[0].__globals__["ops"].by_memory.__globals__
        module["ENTRIES"], entries = 1, module["ENTRIES"]
        leaves = {name: x.clone().requires_grad_() for name, x in arguments.items()}
        y, _ = rule(**leaves, form="chunk", **options)
        held.append(room.held)
        gradients.append(torch.autograd.grad(y.square().sum(), list(leaves.values())))
        module["ENTRIES"] = entries
    assert held[0] == 0 < held[1]
    assert room.held == 0
    assert all(map(torch.equal, *gradients))


# -- functions with few passes, against the formulas -------------------------------------------


def scores_as_written(x: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """Σ_κ x_taκ y_sbκ Π_{s<i≤t} exp(a_iκ), token by token."""
    rows = []
    for t in range(x.shape[1]):
        left = [
            torch.einsum("mak,mbk,mk->mab", x[:, t], y[:, s], a[:, s + 1 : t + 1].sum(1).exp())
            if s <= t
            else x.new_zeros(x.shape[0], x.shape[2], y.shape[2])
            for s in range(y.shape[1])
        ]
        rows.append(torch.cat(left, -1))
    return torch.cat(rows, -2)


FORMULAS = {
    "accumulate": (
        row_states.accumulate,
        lambda w, u, k: torch.einsum("mts,msv,msk->mtvk", w, u, k),
        ((2, 5, 4), (2, 4, 3), (2, 4, 6)),
    ),
    "decayed_onto": (
        row_states.decayed_onto,
        lambda a, f, x: f[..., None, None] * a[:, None] + x,
        ((2, 3, 4), (2, 5), (2, 5, 3, 4)),
    ),
    "simplex": (
        partial(links.simplex, over="all"),
        lambda a, c: c[:, None, None] * a.flatten(1).softmax(-1).view_as(a),
        ((2, 3, 4), (2,)),
    ),
    "simplex of rows": (
        partial(links.simplex, over="rows"),
        lambda a, c: c[:, None, None] * a.softmax(-1),
        ((2, 3, 4), (2,)),
    ),
    **{
        f"entry_norm {power}": (
            partial(links.entry_norm, power=power),
            lambda x, power=power: x.abs().pow(power).sum((-2, -1)) ** (1 / power),
            ((2, 3, 4),),
        )
        for power in (1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
    },
    "row_scores": (
        chunks.row_scores,
        scores_as_written,
        ((2, 11, 3, 4), (2, 11, 2, 4), (2, 11, 4)),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_function_is_its_formula(name: str) -> None:
    function, formula, shapes = FORMULAS[name]
    generator = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]
    found, expected = function(*leaves), formula(*leaves)
    torch.testing.assert_close(found, expected)
    pull = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    pulled = [torch.autograd.grad(z, leaves, pull) for z in (found, expected)]
    for x, y in zip(*pulled, strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_a_norm_of_a_power_neither_overflows_nor_vanishes(size: float) -> None:
    x = torch.full((1, 3, 4), size, requires_grad=True)
    norm = links.entry_norm(x, power=4.0)
    torch.testing.assert_close(norm, torch.tensor([size * 12**0.25]), rtol=1e-5, atol=0)
    (found,) = torch.autograd.grad(norm.sum(), x)
    torch.testing.assert_close(found, torch.full_like(x, 12**-0.75))
