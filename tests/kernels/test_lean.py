"""Lean cuts of a gradient: memories and their gradients in the device's memory, loaded where read.

Triton interprets, in float64, against the recurrence; chunks of two rows reach over pieces of
three, and values over two blocks.
"""

import re
from importlib import import_module
from typing import Any

import pytest
from conformance import Sizes, fused, inputs, run
from test_kept_tiles import difference
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen.support.configuration import LEANEST, Configuration

SPECS = (
    "gated-deltanet", "mesa", "titans-linear", "bregman-sigmoid", "rls-geometric", "omega-linear",
    "ttt-linear", "huber-norm",
)  # fmt: skip
"""Chunks of a memory in blocks, of a second one beside it that no block divides, of two that move
each other; tokens; matrices that outlast a part; windows; anchors; a loss that is no square."""


TOKENS = 15


def apart(spec: str, lean: int) -> dict[str, float]:
    """What differs from the recurrence, by name, with all gradients."""
    case = fused(spec)
    package = case.generated.kernels().__name__.removesuffix(".kernels")
    tuned, configuration, launching = (
        import_module(f"{package}.support.{name}") for name in ("tuned", "configuration", "fused")
    )

    def answered(*_: Any) -> Any:
        return tuned.Answer(configuration.Configuration(2, 16, 8, lean=lean))

    values = 20
    given = inputs(
        case, TOKENS, sizes=Sizes(1, TOKENS, 1, values if case.signature.square else 5, values)
    )
    expected = run(case, given, "recurrent")
    before, tuned.answered = tuned.answered, answered
    pieces = dict(launching.PIECE)
    launching.PIECE.update({True: 3, False: 3})
    try:
        parts = dict(run(case, given, "triton").parts())
    finally:
        tuned.answered = before
        launching.PIECE.update(pieces)
    return {name: difference(parts[name], x) for name, x in expected.parts()}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "spec", first_only(SPECS, "gated-deltanet", "titans-linear", "rls-geometric", "huber-norm")
)
def test_the_same_numbers(interpreter, spec: str) -> None:
    found = interpreter(apart, spec=spec, lean=LEANEST)
    assert max(found.values()) <= 1e-12, found


@pytest.mark.parametrize("spec", first_only(["gated-deltanet", "titans-linear"], "gated-deltanet"))
def test_the_same_numbers_where_only_memories_are_loaded_anew(interpreter, spec: str) -> None:
    found = interpreter(apart, spec=spec, lean=1)
    assert max(found.values()) <= 1e-12, found


def test_a_lean_cut_has_one_stage() -> None:
    with pytest.raises(ValueError, match="one stage"):
        Configuration.checked(16, 64, 8, 2, lean=1)
    assert Configuration.checked(16, 64, 8, 1, lean=1).lean == 1
    with pytest.raises(ValueError, match="lean is 0, 1 or 2"):
        Configuration.checked(16, 64, 8, 1, lean=3)


def test_its_text_loads_what_is_read() -> None:
    text = (pipeline.compile("gated-deltanet").folder / "kernels.py").read_text("utf-8")
    body = text[text.index("def chunk_backward") : text.index("def chunk_before")]
    lean = "        if LEAN > 1:\n            "
    assert body.count("            W = tiles.load_matrix_apart(kept_W, ") > 2
    assert body.count("            d_W = tiles.load_matrix_apart(end_d_W, ") > 1
    assert body.count(f"{lean}row, chunk, memory, own = tiles.fresh(") > 4
    stored = re.findall(r"            tiles\.store_rows\(scratch_.*, (\w+)\)\n", body)
    loaded = re.findall(r"            (\w+) = tiles\.load_rows\(scratch_", body)
    assert stored
    assert len(stored) == len(set(stored))
    assert set(stored) == set(loaded)
    assert "        if not LEAN:\n            W = tiles.load_matrix_apart(kept_W, " in body
