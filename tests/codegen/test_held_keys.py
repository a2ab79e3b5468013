"""Keys of roles beside a memory that is held or moves through O, against a loop by hand."""

from typing import Any

import pytest
import torch
from conformance import agree, compiled, error, inputs, interpreted, run
from torch import Tensor

from mnemic.compiler.oracle.stated import stated
from mnemic.errors import InvalidSpec

HELD = {"rate": "token", "every": 3}
O_EVERY = {"method": "muon", "rate": "token", "every": 2, "ns_steps": 2}
O = {"method": "muon", "rate": "token", "ns_steps": 2}  # noqa: E741


def through_o(step: Tensor, optimizer: dict[str, Any]) -> Tensor:
    """Muon's quintic, or the step itself."""
    if optimizer.get("method") != "muon":
        return step
    x = step / (torch.linalg.matrix_norm(step)[..., None, None] + 1e-7)
    for _ in range(optimizer["ns_steps"]):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def by_hand(x: dict[str, Tensor], optimizer: dict[str, Any], *, before: bool) -> Tensor:
    """W moves at multiples of ``every``; the error at the predict key is written with k."""
    every = optimizer.get("every", 1)
    batch, length, heads, width = x["v"].shape
    held = torch.zeros(batch, heads, width, x["k"].shape[-1], dtype=torch.float64)
    decayed, gathered, rows = held, torch.zeros_like(held), []
    for t in range(length):
        alpha = x["log_alpha"][:, t].exp()[..., None, None]
        seen = alpha * held if before and every == 1 else held
        e = torch.einsum("bhvk,bhk->bhv", seen, x["predict"][:, t]) - x["v"][:, t]
        gradient = e[..., None] * x["k"][:, t, :, None]
        gathered = gathered - x["eta"][:, t, :, None, None] * gradient
        decayed = alpha * decayed
        if (t + 1) % every == 0:
            held = decayed = decayed + through_o(gathered, optimizer)
            gathered = torch.zeros_like(held)
        rows.append(torch.einsum("bhvk,bhk->bhv", held, x["q"][:, t]))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("optimizer", [HELD, O_EVERY, O], ids=["held", "held by O", "O"])
def test_a_gradient_is_written_with_the_write_key(optimizer: dict[str, Any], order: str) -> None:
    spec = {
        "name": "apart", "bias": "l2", "retention": {"decay": "token", "order": order},
        "optimizer": optimizer, "keys": {"predict": "own"},
    }  # fmt: skip
    case = compiled(spec)
    arguments = inputs(case, 10)
    expected = by_hand(arguments, optimizer, before=order == "before")
    found = run(case, arguments, "recurrent")
    assert error(found.out, expected) <= 1e-12
    assert error(interpreted(case, arguments)[0], expected) <= 1e-12
    rest = {n: x for n, x in arguments.items() if n not in "qkv"}
    written = stated(case.rule.problem, *(arguments[n] for n in "qkv"), rest)
    assert error(written, expected) <= 1e-12
    if "chunk" in case.forms:
        agree(run(case, arguments, "chunk", chunk_size=6), found, 1e-10)


def test_erase_and_write_keys_apart_are_refused_by_their_name() -> None:
    spec = {"name": "apart", "bias": "l2", "optimizer": HELD, "keys": {"write": "own"}}
    with pytest.raises(
        InvalidSpec, match="apart keys: an erase key other than the write key, for a memory"
    ):
        compiled(spec)


def test_a_decay_before_the_step_of_a_held_memory_is_told() -> None:
    spec = {"name": "held", "bias": "l2", "optimizer": HELD,
            "retention": {"decay": "token", "order": "before"}}  # fmt: skip
    from mnemic.compiler.explain.explanation import remarks

    assert any("order before is order after" in text for text in remarks(compiled(spec).rule))
