"""Quadratic losses whose weight differs by value channel: each has a triangular system of its own,
which the residual form solves side by side."""

from typing import Any

import pytest
from conformance import compiled
from test_own_expressions import conforms

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

Spec = dict[str, Any]

OWN: Spec = {"c": {"from": "input", "per": "value", "activation": "softplus"}}
WEIGHED: Spec = {"name": "weighed", "bias": {"expr": "c*e**2/8"}, "coefficients": OWN}
TOKENS: Spec = {"rate": "token"}

CASES: dict[str, Spec] = {
    "plain": {"optimizer": TOKENS},
    "by channel": {"retention": {"decay": "channel", "order": "before"}, "optimizer": TOKENS},
    "implicit": {"optimizer": {"method": "implicit", **TOKENS}},
    "behind a kernel": {"features": "exponential", "optimizer": TOKENS},
    "window": {"window": 3, "optimizer": TOKENS},
    "two keys": {"keys": {"predict": "own"}, "optimizer": TOKENS},
    "erase": {"keys": {"erase": "own"}, "optimizer": TOKENS},
    "levels": {"readout": {"levels": "token", "max_levels": 8}, "optimizer": TOKENS},
    "diagonal": {"memory": "diagonal", "optimizer": TOKENS},
}


@pytest.mark.some(4)
@pytest.mark.parametrize("case", CASES)
def test_forms_agree(case: str) -> None:
    conforms({**WEIGHED, **CASES[case]})


def test_the_class_says_why() -> None:
    found = compiled({**WEIGHED, "optimizer": TOKENS}).rule.structure
    assert found.kind == "residual"
    assert "differs by value channel" in found.reason


@pytest.mark.parametrize(
    ("bias", "decay", "per", "told"),
    [
        ({"expr": "c*e**2"}, 1, "key", "c has one value per key"),
        ({"expr": "c*n"}, 1, "value", "of the norm of all value channels, and c has one"),
        ({"expr": "(1 - alpha)*e**2"}, "channel", None, "alpha has one value per key"),
    ],
    ids=str,
)
def test_a_coefficient_of_channels_that_the_loss_has_not_is_refused(
    bias: Spec, decay: Any, per: str | None, told: str
) -> None:
    own = {} if per is None else {"coefficients": {"c": {"from": "input", "per": per}}}
    with pytest.raises(InvalidSpec, match=told):
        load({"name": "wrong", "bias": bias, "retention": {"decay": decay}, **own})
