"""Weights that forget all of the past at once: numbers, or an error that says what to write."""

from typing import Any

import pytest
import torch
from conformance import compiled, inputs, run

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.pipeline import compile

EXACT: dict[str, Any] = {
    "name": "forgets", "bias": "l2", "window": "all", "retention": {"global": {"l2": 1}},
    "optimizer": {"method": "exact"},
}  # fmt: skip
CG = {"method": "exact", "solver": {"kind": "conjugate-gradients"}}


def forgetting(spec: dict[str, Any]) -> tuple[Any, Any]:
    case = compiled(spec)
    arguments = inputs(case, 12)
    every = torch.arange(12)[None, :, None] % 5 == 3
    log_gamma = torch.where(every, -88.0, arguments["log_gamma"])
    return case, {**arguments, "log_gamma": log_gamma}


@pytest.mark.parametrize("optimizer", [EXACT["optimizer"], CG], ids=["factor", "gradients"])
def test_a_ridge_that_stays(optimizer: Any) -> None:
    spec = {**EXACT, "weights": {"kind": "geometric", "ridge": "constant"}, "optimizer": optimizer}
    case, arguments = forgetting(spec)
    for form in ("recurrent", "chunk"):
        found = run(case, arguments, form)
        assert all(part.isfinite().all() for _, part in found.parts())


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_a_ridge_that_is_forgotten_is_said(form: str) -> None:
    case, arguments = forgetting({**EXACT, "weights": "geometric"})
    with pytest.raises(ValueError, match=r"write weights: \{kind: geometric, ridge: constant\}"):
        run(case, arguments, form)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_forgets_for_long_is_said_before_it_is_wrong(form: str, dtype: torch.dtype) -> None:
    rule = compile({**EXACT, "mnemic": 1, "weights": "geometric"})
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 200, 1, 8, generator=generator, dtype=dtype)
    log_gamma = torch.full((1, 200, 1), 0.01, dtype=dtype).log()
    with pytest.raises(ValueError, match="forget the ridge"):
        rule(q, k, v, log_gamma=log_gamma, form=form)


@pytest.mark.parametrize("method", ["exact", "batch"])
def test_keys_of_several_roles_follow_no_loss(method: str) -> None:
    spec = {**EXACT, "mnemic": 1, "keys": {"predict": "own"},
            "optimizer": {"method": method, "from": "origin"}}  # fmt: skip
    with pytest.raises(InvalidSpec, match="keys of several roles have none"):
        load(spec)
