"""Constants of expressions: their values against Python's own, and what is no finite number."""

import math

import pytest

from mnemic.dsl.constants import Undefined, constant
from mnemic.dsl.expressions import parse
from mnemic.dsl.functions import CONSTANTS, FUNCTIONS

VALUES = {
    "2*pi - 1/4": 2 * math.pi - 0.25,
    "-2**2": -4,
    "(-2)**3": -8,
    "sqrt(2)**2": 2,
    "exp(1) + expm1(1)": 2 * math.e - 1,
    "logit(0.9)": math.log(9),
    "softplus(2) + logsigmoid(-2)": 0,
    "sigmoid(1) + sigmoid(-1)": 1,
    "silu(2) - 2*sigmoid(2)": 0,
    "sinh(asinh(3)) + asinh(-2) + asinh(2)": 3,
    "tanh(atanh(1/3)) - atanh(0)": 1 / 3,
    "gelu(1)": (1 + math.erf(2**-0.5)) / 2,
    "heaviside(0) + heaviside(2) + heaviside(-2)": 1.5,
    "round(2.5) + round(3.5)": 6,
    "sign(-3) + relu(-3) + abs(-3) + square(-3)": 11,
    "max(1, 2, inf) ": math.inf,
    "min(3, inf)": 3,
    "where(1 < 2 and 2 < 1 or 3 >= 3, 5, 7)": 5,
    "-inf": -math.inf,
}


@pytest.mark.parametrize("text", VALUES)
def test_a_constant_is_what_it_says(text: str) -> None:
    found = constant(parse(text, ()).tree)
    assert found == pytest.approx(VALUES[text], abs=1e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_value(name: str) -> None:
    arguments = ["1/2 < 1", "1/2", "1/4"][-FUNCTIONS[name].least :]
    found = constant(parse(f"{name}({', '.join(arguments)})", ()).tree)
    assert found is not None
    assert math.isfinite(found)
    assert constant(parse(f"{name}({', '.join([*arguments[:-1], 'x'])})", "x").tree) is None
    assert set(CONSTANTS) == {"pi", "inf"}


@pytest.mark.parametrize(
    ("text", "part", "reason"),
    [
        ("x + 1/0", "1/0", "divides by zero"),
        ("x/(1 - 1)", "x/(1 - 1)", "divides by zero"),
        ("0**-1*x", "0**-1", "not a real number"),
        ("(-8)**(1/3)*x", "(-8)**(1/3)", "not a real number"),
        ("log(-1)", "log(-1)", "not a real number"),
        ("sqrt(1 - 2) + x", "sqrt(1 - 2)", "not a real number"),
        ("x*exp(1000)", "exp(1000)", "not a finite number"),
        ("x*inf", "x*inf", "max and min only"),
        ("exp(-inf)", "exp(-inf)", "max and min only"),
    ],
)
def test_what_is_no_finite_number_is_told(text: str, part: str, reason: str) -> None:
    with pytest.raises(Undefined, match=reason) as told:
        constant(parse(text, "x").tree)
    assert told.value.part == part
