"""What is read of a solution over all pairs: with a bonus, and what its forms do not compute."""

from typing import Any

import pytest
import torch
from conformance import compiled

from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated
from mnemic.errors import InvalidSpec

EXACT = {"method": "exact"}
CONJUGATE = {
    "method": "exact",
    "solver": {"kind": "conjugate-gradients", "iterations": 30, "tolerance": 1e-12},
}
BATCH = {"method": "batch", "inner_steps": 2, "from": "origin", "rate": 0.1}
CARRIED: dict[str, Any] = {"bias": "l2", "window": "all", "retention": {"global": {"l2": 0.5}}}
BESIDE: dict[str, Any] = {**CARRIED, "weights": {"kind": "geometric", "ridge": "constant"}}


@pytest.mark.few
@pytest.mark.parametrize("base", [CARRIED, BESIDE], ids=["carried", "beside"])
@pytest.mark.parametrize("optimizer", [EXACT, CONJUGATE, BATCH], ids=["exact", "cg", "batch"])
def test_a_bonus_is_read_beside_the_solution(base: Any, optimizer: Any) -> None:
    bonus = {"readout": {"bonus": "channel"}, "optimizer": optimizer}
    case = compiled({"mnemic": 1, "name": "solved", **base, **bonus})
    x = draw(case.rule, Sizes(1, 7, 2, 3, 2), seed=5)
    expected = stated(case.rule.problem, x.q, x.k, x.v, x.coefficients)
    for form in ("recurrent", "chunk"):
        y, _ = case.operator(x.q, x.k, x.v, **x.coefficients, form=form)
        torch.testing.assert_close(y, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("readout", [{"normalizer": "sum"}, {"memory": "before"}], ids=str)
def test_what_no_form_computes_is_refused(readout: dict[str, str]) -> None:
    with pytest.raises(InvalidSpec, match="is derived but not compiled yet"):
        compiled({"mnemic": 1, "name": "solved", **CARRIED, "optimizer": EXACT, "readout": readout})
