"""A sequence cut across processes, against the same in one: outputs, states and gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from in_processes import in_processes
from packaged import available
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

import mnemic
from mnemic.distributed import along_sequence, part, shifted
from mnemic.distributed.rows import as_wide

DIM = 16
Found = dict[str, Tensor]


def made(spec: str) -> nn.Module:
    torch.manual_seed(0)
    layer: nn.Module = mnemic.compile(spec).layer(DIM, heads=2).double()
    return layer


def drawn(length: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, length, DIM, dtype=torch.float64, generator=generator)


def loss_of(y: Tensor, state: Found, weights: Tensor, *, ends: bool) -> Tensor:
    """A number that every output and, where the sequence ends, every state moves."""
    found = (weights * y).sin().sum()
    for s in state.values() if ends else ():
        if s.is_floating_point():
            found = found + s.cos().sum() / 8
    return found


def differentiated(
    layer: nn.Module, x: Tensor, y: Tensor, state: Found, loss: Tensor
) -> dict[str, Any]:
    named = dict(layer.named_parameters())
    grads = torch.autograd.grad(loss, [x, *named.values()])
    return {
        "y": y.detach(), "x": grads[0], "state": {n: s.detach() for n, s in state.items()},
        "parameters": dict(zip(named, grads[1:], strict=True)),
    }  # fmt: skip


def whole(layer: nn.Module, length: int, told: dict[str, Tensor]) -> dict[str, Any]:
    """The same in this process alone: documents one after another, in rows."""
    x = drawn(length).requires_grad_()
    begins = told.get("begins")
    if begins is None:
        y, state = layer(x, output_state=True, **told)
    else:
        begins = begins.clone()
        begins[:, 0] = True
        ends = torch.cat([begins.flatten().nonzero()[:, 0], torch.tensor([begins.numel()])])
        y, state = layer(x.flatten(0, 1)[None], cu_seqlens=ends, output_state=True)
        last = begins.sum(1).cumsum(0) - 1
        y, state = y.view_as(x), {name: s[last] for name, s in state.items()}
    weights = drawn(length).flip(0)
    return differentiated(layer, x, y, state, loss_of(y, state, weights, ends=True))


def cut(layer: nn.Module, length: int, told: dict[str, Tensor]) -> dict[str, Any]:
    """This process's part."""
    along = along_sequence(layer)
    x = part(drawn(length)).requires_grad_()
    y, state = along(x, output_state=True, **{name: part(z) for name, z in told.items()})
    last = distributed.get_rank() == distributed.get_world_size() - 1
    loss = loss_of(y, state, part(drawn(length).flip(0)), ends=last)
    return differentiated(layer, x, y, state, loss)


def check(spec: str, place: Path, count: int, length: int = 12, **told: Tensor) -> None:
    layer = made(spec)
    parts = in_processes(count, place, lambda: cut(layer, length, told))
    expected = whole(layer, length, told)
    found = {
        "y": torch.cat([p["y"] for p in parts], 1),
        "x": torch.cat([p["x"] for p in parts], 1),
        "state": parts[-1]["state"],
        "parameters": {
            name: sum(p["parameters"][name] for p in parts) for name in parts[0]["parameters"]
        },
    }
    for name, s in expected["state"].items():  # rows with fewer kept pairs have zeros behind them
        wide = tuple(map(max, zip(s.shape, found["state"][name].shape, strict=True)))
        for states in (found["state"], expected["state"]):
            states[name] = as_wide(states[name], wide)
    near = max(1e-10, 10 * rule_of(layer).signature.tolerance)  # a solver stops at a residual
    torch.testing.assert_close(found, expected, rtol=near, atol=near)


def rule_of(layer: nn.Module) -> Any:
    """Return the rule of a layer, or of the memory in a hybrid one."""
    return next(part.rule for part in layer.modules() if hasattr(part, "rule"))


def begun(length: int = 12) -> Tensor:
    """Where documents begin: in one row in each part and at a border, in the other in one alone."""
    found = torch.zeros(2, length, dtype=torch.bool)
    found[0, [0, 2, 4, 9]] = True
    found[1, 7] = True
    return found


def masked(length: int = 12) -> Tensor:
    found = torch.ones(2, length, dtype=torch.bool)
    found[0, :5] = found[0, 9] = found[1, 10:] = False
    return found


@pytest.mark.full
@pytest.mark.parametrize("spec", available())
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("how", ["rows", "documents", "padded"])
def test_several_processes_give_what_one_does(
    tmp_path: Path, spec: str, count: int, how: str
) -> None:
    told = {"rows": {}, "documents": {"begins": begun()}, "padded": {"mask": masked()}}[how]
    check(spec, tmp_path, count, **told)


@pytest.mark.parametrize("how", ["rows", "documents"])
def test_two_processes_give_what_one_does(tmp_path: Path, how: str) -> None:
    told = {} if how == "rows" else {"begins": begun()}
    check("gated-deltanet", tmp_path, 2, **told)


def refused(words: dict[str, Tensor]) -> str:
    layer = made("deltanet")
    try:
        along_sequence(layer)(part(drawn(12)), **words)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.full
def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    begins = begun()[:, :6]
    cases = [
        ({"begins": begins, "mask": begins}, "begins and mask: one of them is allowed"),
        ({"begins": begins[:, :3]}, r"begins: read torch.bool [2, 3], torch.bool [2, 6] is needed"),
    ]
    for number, (words, told) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        for found in in_processes(1, tmp_path / str(number), lambda w=words: refused(w)):
            assert told.replace("[2, 6]", "[2, 12]") in found


def recomputed() -> str:
    along, x = along_sequence(made("deltanet")), part(drawn(12)).requires_grad_()
    y = checkpoint(along, x, use_reentrant=False)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.full
def test_a_name_is_no_layer() -> None:
    with pytest.raises(ValueError, match="layer: read str 'gated-deltanet', a layer of a compiled"):
        along_sequence("gated-deltanet")  # type: ignore[arg-type]


def test_a_call_on_the_way_back_is_refused(tmp_path: Path) -> None:
    for told in in_processes(1, tmp_path, recomputed):
        assert "leave the layer out of torch.utils.checkpoint" in told


def test_a_part_is_one_of_equal_parts(tmp_path: Path) -> None:
    x = torch.arange(6).view(1, 6)
    parts = in_processes(2, tmp_path, lambda: (part(x), part(shifted(x))))
    assert [p.tolist() for p, _ in parts] == [[[0, 1, 2]], [[3, 4, 5]]]
    assert [p.tolist() for _, p in parts] == [[[1, 2, 3]], [[4, 5, -100]]]


def uneven() -> str:
    try:
        part(drawn(9))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.full
def test_parts_that_are_not_equal_are_refused(tmp_path: Path) -> None:
    told = "part: read 9 tokens, a multiple of the 2 processes needed"
    assert in_processes(2, tmp_path, uneven) == [told, told]
