"""The pages of the layer and of serving: examples run, every argument is told."""

import doctest
import inspect
from pathlib import Path

import pytest
import torch

from mnemic.codegen.support.layer import MemoryLayer
from mnemic.codegen.support.sequence import SequenceLayer

PAGE = Path(__file__).parents[2] / "docs" / "layer.md"


@pytest.mark.parametrize("page", ["layer.md", "serving.md"])
def test_its_examples_run(page: str) -> None:
    before = torch.is_grad_enabled()
    try:
        found = doctest.testfile(
            str(PAGE.with_name(page)), module_relative=False, optionflags=doctest.ELLIPSIS
        )
    finally:
        torch.set_grad_enabled(before)
    assert found.attempted > 30
    assert found.failed == 0


CALLS = {
    "layer": (MemoryLayer.__init__, SequenceLayer.forward),
    "layer.step": (SequenceLayer.step,),
    "layer.advance": (SequenceLayer.advance,),
}


@pytest.mark.parametrize("call", CALLS)
def test_it_tells_every_argument(call: str) -> None:
    heads = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if f"`{call}(" in line]
    for function in CALLS[call]:
        taken = list(inspect.signature(function).parameters.values())[1:]
        refused = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names = [one.name for one in taken if one.kind not in refused]
        assert any(all(name in head for name in names) for head in heads), names


def test_it_tells_every_public_part() -> None:
    text = PAGE.read_text(encoding="utf-8")
    inside = {"forward", "rows", "packed"}  # the call itself, and its two ways
    public = {n for n in vars(SequenceLayer) if not n.startswith("_")} - inside
    assert {n for n in public if f"layer.{n}" not in text and f"`{n}" not in text} == set()
