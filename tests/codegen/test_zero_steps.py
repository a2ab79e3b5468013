"""Rules whose step or decay is zero, and links that jump: they compile, and their forms agree."""

from typing import Any

import pytest
from test_own_expressions import conforms

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.stability import stability
from mnemic.dsl.load import load

ROWS = {"from": "input", "per": "value"}
SPECS: dict[str, dict[str, Any]] = {
    "a loss of products at rate 0": {
        "bias": {"expr": "0.5*y**2/2*sigmoid(v) - y*v"}, "optimizer": {"rate": 0},
        "retention": {"decay": {"from": "input", "activation": "sigmoid(x)**0.25"}},
    },
    "an implicit step of 1 - alpha, without a decay": {
        "bias": {"kind": "lp", "p": 1, "smooth": 4}, "retention": {"order": "after"},
        "optimizer": {"method": "implicit", "rate": {"expr": "1-alpha"}},
    },
    "a root at rate 0": {
        "bias": {"expr": "log(cosh(e))"}, "retention": {"decay": "channel"},
        "optimizer": {"method": "implicit", "rate": 0},
    },
    "momentum under a phase at rate 0": {
        "bias": "l2", "retention": {"decay": "channel", "view": "ftrl",
                                    "phase": {"from": "input", "per": "key"}},
        "optimizer": {"method": "momentum", "momentum": "token", "rate": 0},
    },
    "a band of a window at rate 0": {
        "bias": "l2", "window": 3, "weights": "window",
        "optimizer": {"rate": 0, "anchor": {"chunk": 4}},
    },
    "erased rows at rate 0": {
        "bias": "l2", "keys": {"erase": "own"}, "optimizer": {"rate": 0},
    },
    "rows and channels of a diagonal memory decay as one": {
        "bias": {"expr": "log(cosh(e))"}, "memory": "diagonal", "optimizer": {"rate": "token"},
        "retention": {"decay": "outer", "row_decay": ROWS, "order": "before"},
    },
}  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize("title", SPECS)
def test_forms_agree(title: str) -> None:
    conforms({"name": "zero", **SPECS[title]})


def test_no_bound_is_derived_behind_a_link_that_jumps() -> None:
    spec = {
        "mnemic": 1, "name": "jump", "window": 3, "optimizer": {"rate": "token"},
        "bias": {"expr": "1.3*max(abs(e)-1,0)**2/2 + 0.1*(sqrt(1+(0.3*e)**2)-1)"},
        "retention": {"decay": {"expr": "1 - 1/(t+2)"}, "view": "ftrl",
                      "link": "sign(a)*sqrt(abs(a)+0.01)"},
    }  # fmt: skip
    assert "no bounded slope" in stability(derive_spec(load(spec))).sentence
