"""Least squares under forgetting keeps the digits of float32 at any rows a chunk."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic.codegen.support import compared
from mnemic.codegen.support.cases import Case
from mnemic.pipeline import compile

TOKENS, WIDTH = 128, 8
SPEC = {
    "mnemic": 1, "name": "digits", "bias": "l2", "window": "all", "weights": "geometric",
    "retention": {"global": {"l2": 0.1}}, "optimizer": {"method": "exact"},
}  # fmt: skip


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


DECAYS = {
    "kept": lambda g: torch.full((1, TOKENS, 1), -1e-4, dtype=torch.float64),
    "0.9": lambda g: torch.full((1, TOKENS, 1), 0.9, dtype=torch.float64).log(),
    "0.5": lambda g: torch.full((1, TOKENS, 1), 0.5, dtype=torch.float64).log(),
    "drawn": lambda g: torch.nn.functional.logsigmoid(drawn(g, 1, TOKENS, 1)) / 4,
    "sudden": lambda g: torch.where(drawn(g, 1, TOKENS, 1) > 2, -6.0, -0.01).double(),
}


@pytest.mark.some(5)
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("features", ["normal", "positive", "repeated"])
def test_chunks_are_as_near_as_tokens(decay: str, features: str) -> None:
    rule = compile(SPEC)
    generator = torch.Generator().manual_seed(0)
    q, k, v = drawn(generator, 3, 1, TOKENS, 1, WIDTH)
    if features == "positive":
        k = torch.nn.functional.elu(k) + 1
    if features == "repeated":
        k = 2 * k[:, :WIDTH].repeat(1, TOKENS // WIDTH, 1, 1)
    case = Case("drawn", {"q": q, "k": k, "v": v, "log_gamma": DECAYS[decay](generator)}, {}, {})

    def found(dtype: torch.dtype, form: str = "recurrent", rows: int | None = None) -> Any:
        return compared.everything(rule.operator, case, form, dtype, torch.float32, rows)

    exact, own = compared.known(found, torch.float32)
    for rows in (16, 64):
        parts = found(torch.float32, "chunk", rows)
        for part, expected in exact.items():
            most = compared.allowed("chunk", torch.float32, own[part])
            assert most is not None, part
            assert compared.error(parts[part], expected) <= most, (rows, part)


def test_a_chunk_takes_no_more_rows_than_keep_digits() -> None:
    rule = compile(SPEC)
    generator = torch.Generator().manual_seed(0)
    q, k, v = drawn(generator, 3, 1, 64, 1, WIDTH).float()
    log_gamma = torch.full((1, 64, 1), 0.9).log()
    few, many = (
        rule(q, k, v, log_gamma=log_gamma, form="chunk", chunk_size=n)[0] for n in (16, 64)
    )
    assert torch.equal(few, many)
