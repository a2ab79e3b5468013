"""Kernels of trees of levels in Triton's interpreter against the recurrence, in float64.

Outputs, final states and every gradient, from a state that earlier tokens left at an odd position,
in pieces: chunks of 16 rows, what stands before and behind them token by token, single tokens.
"""

from importlib import import_module
from typing import Any

import pytest
import torch
from conformance import Sizes, inputs, run
from test_kept_tiles import difference, fused, missing
from tiers import first_only

from mnemic.codegen.support.levels import level_mask, level_sums

TOLERANCE = 1e-11


def tree(name: str, **more: Any) -> dict[str, Any]:
    """A tree over a rule that nothing names."""
    return {"mnemic": 1, "name": name, "readout": {"levels": "token"}, **more}


OWN = (
    tree(
        "levels-outer-decay", bias="dot", retention={"decay": "outer"}, optimizer={"rate": "token"}
    ),
    tree(
        "levels-affine",
        bias={"expr": "(y - 2*v)**2/2 + y**2/4"},
        retention={
            "decay": {"expr": "1 - b*eta"},
        },
        optimizer={"rate": "token"},
        coefficients={"b": {"from": "input", "activation": "sigmoid"}},
    ),
    tree(
        "levels-by-head",
        bias="l2",
        retention={"decay": "channel"},
        optimizer={"rate": "token"},
        readout={"levels": {"from": "parameter", "per": "head", "init": 1.0}},
    ),
)


PIECES = (("recurrent", 13), ("triton", 21), ("triton", 1))
"""From token 13 on: three tokens, a chunk that reads what stands before it, two, and one."""


LONG = (("recurrent", 13), ("triton", 84))
"""Three tokens, five chunks, of which the third begins a level anew that the fourth reads, one."""


IN_PARTS = (("recurrent", 32), ("triton", 80))
"""Two chunks of 32 rows, of which the second begins a level anew, and half of one that reads it."""


def apart(spec: Any, pieces: Any = PIECES, rows: int = 16) -> dict[str, float]:
    """What differs from the recurrence, by name, with all gradients; levels take 16 of the rows of
    an aligned chunk at a time."""
    case = fused(spec)
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    tuned = import_module(f"{package}.support.tuned")
    cut = import_module(f"{package}.support.configuration").Configuration(16, 16, 8)
    tokens = sum(count for _, count in pieces)
    given = inputs(case, tokens, sizes=Sizes(1, tokens, 1, 3, 5))
    expected = run(case, given, "recurrent")
    with tuned.forcing(tuned.Question("chunk", (), 0, 0, "", gradient=True), cut):
        parts = dict(run(case, given, pieces, chunk_size=rows).parts())
    return {name: difference(parts[name], x) for name, x in expected.parts()}


@pytest.mark.parametrize("name", ["log-linear", "log-linear-gated-deltanet"])
def test_a_tree_has_all_kernels(name: str) -> None:
    assert missing(name) == {}


def test_the_gradient_of_levels_by_autograd() -> None:
    weights = torch.randn(2, 16, 7, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(2, 16, 16, dtype=torch.float64)
    (expected,) = torch.autograd.grad(level_mask(weights), weights, grad)
    assert torch.equal(level_sums(grad, weights), expected)


@pytest.mark.parametrize(
    "name", first_only(["log-linear", "log-linear-gated-deltanet"], "log-linear-gated-deltanet")
)
def test_pieces_of_a_tree(interpreter, name: str) -> None:
    found = interpreter(apart, spec=name)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize(
    "spec",
    first_only(["log-linear", "log-linear-gated-deltanet", *OWN], "log-linear-gated-deltanet"),
    ids=lambda s: s if isinstance(s, str) else s["name"],
)
def test_levels_that_begin_anew_between_chunks_of_one_launch(interpreter, spec: Any) -> None:
    found = interpreter(apart, spec=spec, pieces=LONG)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize(
    "spec", first_only(["log-linear-gated-deltanet", *OWN], "log-linear-gated-deltanet"),
    ids=lambda s: s if isinstance(s, str) else s["name"],
)  # fmt: skip
def test_levels_that_take_an_aligned_chunk_in_parts(interpreter, spec: Any) -> None:
    found = interpreter(apart, spec=spec, pieces=IN_PARTS, rows=32)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.full
@pytest.mark.parametrize("spec", first_only(OWN, OWN[1]), ids=lambda s: s["name"])
def test_pieces_of_a_tree_of_ones_own(interpreter, spec: Any) -> None:
    found = interpreter(apart, spec=spec)
    assert max(found.values()) <= TOLERANCE, found
