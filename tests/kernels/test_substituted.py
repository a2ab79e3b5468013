"""Pairs that are made of earlier pairs: made part by part, read all at once; against the
recurrence's autograd.

Triton interprets, in float64: outputs, states and all gradients, from a carried state, of documents
packed into a row and of padded batches, in parts of fewer chunks than there are.
"""

from typing import Any

import pytest
from test_shared_out import TOKENS, body, compared, named, text, wrong

OWN = (
    {"mnemic": 1, "name": "an-erasing-kernel-of-ones-own", "bias": "l2",
     "features": {"kernel": "log(2 + exp(2*s))"},
     "optimizer": {"rate": {"from": "input", "activation": "sigmoid(x)/4"}},
     "keys": {"write": "k/eta"}},
    {"mnemic": 1, "name": "an-erasing-cubic-kernel", "bias": "l2", "keys": {"predict": "own"},
     "features": {"kernel": "(1 + s)**3/8"},
     "optimizer": {"rate": {"from": "input", "activation": "sigmoid(x)/8"}}},
)  # fmt: skip
"""Rules that nobody wrote kernels for."""

SUBSTITUTED = [*OWN, "deltaformer", "deltaformer-softmax", "deltaformer-round"]
PARTS = ("earlier", "making")


@pytest.mark.some(2)
@pytest.mark.parametrize("spec", SUBSTITUTED, ids=named)
def test_pairs_are_made_part_by_part_and_read_at_once(interpreter, spec: Any) -> None:
    """45 rows are three chunks of sixteen, in parts of two; behind 21 pairs."""
    found = interpreter(compared, spec=spec, rows=16, block=32, part=2)
    assert wrong(found) == {}
    assert {"gradient of q", "gradient of k", "gradient of v"} <= found["errors"].keys()
    assert any(name.startswith("gradient of initial") for name in found["errors"])


def test_the_launches_of_parts(interpreter) -> None:
    """Forward: sums begun by a program a chunk and pairs made by a program a memory, part by part,
    then all reads. Backward: reads, parts from the last one with the pairs before them, the rest.
    """
    found = interpreter(compared, spec=OWN[0], rows=16, block=32, part=2)
    blocks = -(-(found["before"] + TOKENS) // 32)
    behind = -(-(found["before"] + 32) // 32)
    assert found["grids"] == [
        ["chunk_earlier", [4, 2]], ["chunk_making", [4, 1]],
        ["chunk_earlier", [4, 1]], ["chunk_making", [4, 1]],
        ["chunk_forward", [4, 3]],
        ["chunk_backward", [4, 3]], ["chunk_backward_pairs", [4, blocks]],
        ["chunk_back_making", [4, 1]], ["chunk_back_earlier", [4, behind]],
        ["chunk_back_making", [4, 1]], ["chunk_back_earlier", [4, 1]],
        ["chunk_back_rest", [4, 3]], ["chunk_back_pairs", [4, blocks]],
    ]  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("rows", "block", "part"), [(32, 16, 1), (16, 64, 1), (16, 16, 8), (64, 16, 8)]
)
@pytest.mark.parametrize("spec", [OWN[1], "deltaformer-softmax"], ids=named)
def test_other_chunks_blocks_and_parts(
    interpreter, spec: Any, rows: int, block: int, part: int
) -> None:
    found = interpreter(compared, spec=spec, rows=rows, block=block, part=part)
    assert wrong(found) == {}


@pytest.mark.some(2)
@pytest.mark.parametrize("how", ["packed", "padded"])
@pytest.mark.parametrize("spec", [*OWN, "deltaformer-softmax"], ids=named)
def test_documents_and_padded_rows(interpreter, spec: Any, how: str) -> None:
    found = interpreter(compared, spec=spec, rows=16, block=32, part=1, **{how: True})
    assert wrong(found) == {}


# -- what is generated -----------------------------------------------------------------------------


@pytest.mark.some(2)
@pytest.mark.parametrize("spec", SUBSTITUTED, ids=named)
def test_only_the_making_of_pairs_waits_for_earlier_rows(spec: Any) -> None:
    """A program a memory makes pairs, of a part's own alone; queries are read elsewhere."""
    source = text(spec)
    for kernel in ("chunk_making", "chunk_back_making"):
        making = body(source, kernel)
        assert "tl.range(part_from, part_to" in making
        assert "rows_q" not in making
        assert "tl.cdiv(behind - since, BN)" in making
    for kernel in ("earlier", "forward", "backward", "backward_pairs", "back_earlier", "back_rest"):
        assert "tl.program_id(1)" in body(source, f"chunk_{kernel}")
    assert ("chunk_back_sums" in source) == (spec == "deltaformer-softmax")


def test_rows_that_wait_for_what_later_rows_sum_stay_in_one_kernel() -> None:
    """A window over kept pairs, and a memory beside them."""
    for spec in ("swa", "path"):
        assert "chunk_making" not in text(spec)
