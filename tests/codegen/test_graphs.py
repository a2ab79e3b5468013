"""Graphs of torch.compile: none is broken, or once, for a reason that is told."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_compiled import ALLOWED, apart, layer_of
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen.support.roots import falling_root
from mnemic.codegen.support.simplices import rising_root

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, of its own code

TOKENS = 18
"""More than a chunk of those with an anchor."""

CLASSES = ("linear-attention", "gated-deltanet", "huber-coordinate", "kl-simplex", "ttt-linear",
           "mesa", "softmax-attention", "titans-mag")  # fmt: skip
"""Additive, linear, residual, behind a link, under an anchor, a solver, kept pairs, a hybrid."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """No graph of another test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def traced(layer: Any, x: Tensor, **options: Any) -> tuple[Any, set[str]]:
    """What the layer gives through graphs, and the reasons why they break."""
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        found = torch.compile(layer, backend="eager", dynamic=False)(x, **options)
    return found, set(torch._dynamo.utils.counters["graph_break"])


def padded(layer: Any) -> tuple[Tensor, Tensor]:
    """Rows with padding before, among and behind the tokens, which is no number."""
    mask = torch.ones(2, TOKENS, dtype=torch.bool)
    mask[0, :2], mask[1, 7], mask[1, -1] = False, False, False
    x = torch.randn(2, TOKENS, layer.dim)
    return x.masked_fill(~mask[..., None], torch.nan), mask


@pytest.mark.some(2)
@pytest.mark.parametrize("name", CLASSES)
def test_padding_breaks_no_graph(name: str) -> None:
    layer = layer_of(name)
    x, mask = padded(layer)
    found, reasons = traced(layer, x, mask=mask)
    assert not reasons
    assert apart(found, layer(x, mask=mask)) < ALLOWED


@pytest.mark.full
def test_padding_of_an_operator_breaks_no_graph() -> None:
    """What stands at padding reaches neither the output nor a gradient."""
    rule = pipeline.compile("gated-deltanet")
    layer = layer_of("gated-deltanet")
    x, mask = padded(layer)
    given = layer.arguments(x.nan_to_num())
    holed = {n: y.masked_fill(~mask.reshape(2, -1, *[1] * (y.ndim - 2)), torch.nan).detach()
             for n, y in given.items()}  # fmt: skip

    def grads(call: Any) -> list[Tensor]:
        leaves = {n: y.clone().requires_grad_() for n, y in holed.items()}
        y = call(**leaves, mask=mask)[0]
        return [y, *torch.autograd.grad(y.sin().sum(), list(leaves.values()))]

    compiled = torch.compile(rule, backend="aot_eager", fullgraph=True, dynamic=False)
    wanted_ones = grads(rule)  # which loads the rule
    for found, wanted in zip(grads(compiled), wanted_ones, strict=True):
        assert apart(found, wanted) < ALLOWED


@pytest.mark.some(1)
@pytest.mark.few
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mask": torch.ones(1, TOKENS, dtype=torch.bool), "output_state": True},
         "the mask is read, since each row's state ends at a token of its own"),
        ({"cu_seqlens": torch.tensor([0, 5, TOKENS])},
         "cu_seqlens is read, since documents run in batches"),
    ],
    ids=["mask", "cu_seqlens"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["gated-deltanet", "softmax-attention"])
def test_numbers_that_are_read_break_a_graph_once(
    name: str, options: dict[str, Any], reason: str
) -> None:
    layer = layer_of(name)
    x = torch.randn(1, TOKENS, layer.dim)
    found, reasons = traced(layer, x, **options)
    wanted = layer(x, **options)
    (told,) = reasons
    assert reason in told
    if isinstance(wanted, tuple):
        wanted, found = wanted[0], found[0]
    assert apart(found, wanted) < ALLOWED


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["ttt-linear", "log-linear", "softmax-attention", "titans-mac"])
def test_carried_positions(name: str) -> None:
    """A token breaks no graph where chunks, not levels or segments, end at a position."""
    layer = layer_of(name)
    _, state = layer(torch.randn(2, 15, layer.dim), output_state=True)
    for tokens in (1, TOKENS):
        x = torch.randn(2, tokens, layer.dim)
        found, reasons = traced(layer, x, state=state, output_state=True)
        wanted = layer(x, state=state, output_state=True)
        free = name == "softmax-attention" or (name == "ttt-linear" and tokens == 1)
        assert len(reasons) == (0 if free else 1)
        assert all("position" in told and "read, since" in told for told in reasons)
        assert apart(found[0], wanted[0]) < ALLOWED
        assert all(apart(found[1][n].float(), s.float()) < ALLOWED for n, s in wanted[1].items())


@pytest.mark.parametrize("name", ["log-linear"])
def test_levels_of_a_tree_break_no_graph(name: str) -> None:
    layer = layer_of(name)
    x = torch.randn(1, TOKENS, layer.dim)
    found, reasons = traced(layer, x)
    assert not reasons
    assert apart(found, layer(x)) < ALLOWED


def test_a_program_reads_no_numbers() -> None:
    """torch.export has no second graph: the reason is the error."""
    layer = layer_of("gated-deltanet")
    x, options = torch.randn(1, 8, layer.dim), {"cu_seqlens": torch.tensor([0, 5, 8])}
    with pytest.raises(ValueError, match=r"torch\.export: cu_seqlens is read, since documents run"):
        torch.export.export(layer, (x,), options)


def test_roots_are_searched_inside_a_graph() -> None:
    """The search goes on until all entries are found, without a look at the numbers by the host."""

    def roots(y: Tensor) -> Tensor:
        end = torch.full_like(y, 10.0)
        falling = falling_root(lambda x: y - x**3, -end, end)
        return torch.stack([falling, rising_root(lambda x: torch.log(x / y), torch.ones_like(y))])

    y = torch.tensor([1.0, 8.0, 0.5])
    wanted = torch.stack([y ** (1 / 3), y])
    for call in (roots, torch.compile(roots, backend="eager", fullgraph=True)):
        torch.testing.assert_close(call(y), wanted, rtol=1e-5, atol=0)


@pytest.mark.some(1)
@pytest.mark.parametrize("carried", [False, True])
def test_windows_of_any_length_export(carried: bool) -> None:
    """A hybrid's attention, with what it carries or with a prefix, at lengths around blocks."""
    layer = layer_of("titans-mag")
    attention, first = layer.attention, torch.zeros(2, dtype=torch.long)
    prefix: Any = torch.randn(2, 3, layer.dim)
    state: Any = {}
    if carried:
        _, state = attention(torch.randn(2, 10, layer.dim), {}, None, first, prefix)
        first, prefix = first + 10, None
    length = torch.export.Dim("T", min=2, max=4096)
    sizes = ({1: length}, dict.fromkeys(state), None, None, None)
    given = (torch.randn(2, 40, layer.dim), state, None, first, prefix)
    program: Any = torch.export.export(attention, given, dynamic_shapes=sizes).module()
    for tokens in (2, 64, 65, 200):
        x = torch.randn(2, tokens, layer.dim)
        found = program(x, state, None, first, prefix)
        wanted = attention(x, state, None, first, prefix)
        assert apart(found[0], wanted[0]) < ALLOWED
        assert all(apart(found[1][n], s) < ALLOWED for n, s in wanted[1].items())


class Carrying(torch.nn.Module):
    """A layer as a function of a sequence and a state."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: dict[str, Tensor]) -> Any:
        return self.layer(x, state=state, output_state=True)


def test_a_carried_state_exports() -> None:
    layer = layer_of("gated-deltanet")
    _, state = layer(torch.randn(1, 7, layer.dim), output_state=True)
    x = torch.randn(1, TOKENS, layer.dim)
    state = {n: s.detach() for n, s in state.items()}
    program: Any = torch.export.export(Carrying(layer), (x, state)).module()
    found, wanted = program(2 * x, state), Carrying(layer)(2 * x, state)
    assert apart(found[0], wanted[0]) < ALLOWED
    assert all(apart(found[1][n], s) < ALLOWED for n, s in wanted[1].items())
