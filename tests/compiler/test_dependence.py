"""Expressions that depend on nothing, and coefficients without a number, are refused."""

import re
from typing import Any

import pytest

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec


def rule(**more: Any) -> Rule:
    return derive_spec(load({"name": "mine", "bias": "l2", **more}))


def layers(activation: str, **more: Any) -> dict[str, Any]:
    return {"memory": {"activation": activation, **more}, "optimizer": {"rate": 0.1}}


def stated(expr: str) -> dict[str, Any]:
    """A rate by an expression, in which ``a`` is a coefficient of the input."""
    own = {"coefficients": {"a": "token"}} if re.search(r"\ba\b", expr) else {}
    return {"optimizer": {"rate": {"expr": expr}}, **own}


def rate(activation: str) -> dict[str, Any]:
    return {"optimizer": {"rate": {"from": "input", "activation": activation}}}


@pytest.mark.parametrize(
    ("more", "where"),
    [
        (layers("0*x", kind="mlp"), "memory.activation"),
        (layers("tanh(x - x)", kind="glu"), "memory.activation"),
        (layers("sin(x)**2 + cos(x)**2", kind="mlp"), "memory.activation"),
        (rate("x - x + 1/2"), "optimizer.rate.activation"),
        (rate("where(x > 0, 1, 1)"), "optimizer.rate.activation"),
        ({"retention": {"decay": {"from": "input", "activation": "0*x"}}},
         "retention.decay.activation"),
        ({"memory": {"kind": "interpolation", "kernel": "s - s + 1", "ridge": 0.1}},
         "memory.kernel"),
        ({"memory": {"kind": "nonparametric", "similarity": "0*s + 1"}, "weights": "similarity"},
         "memory.similarity"),
        ({"retention": {"view": "ftrl", "link": "a*0 + nu"}}, "retention.link"),
        ({"retention": {"local": {"bregman": "0*w"}}}, "retention.local.bregman"),
    ],
)  # fmt: skip
def test_an_expression_that_comes_to_a_constant_is_refused(
    more: dict[str, Any], where: str
) -> None:
    with pytest.raises(InvalidSpec, match="comes to a constant") as told:
        rule(**more)
    assert told.value.issues[0].where == where


@pytest.mark.parametrize("activation", ["heaviside(x)", "round(x)", "relu(x)", "sign(x) + 2"])
def test_a_step_is_no_constant(activation: str) -> None:
    rule(**rate(activation))


def test_a_decay_that_is_always_zero_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="comes to 0 for all values") as told:
        rule(retention={"decay": {"expr": "0*eta"}}, optimizer={"rate": "token"})
    assert told.value.issues[0].where == "retention.decay"
    rule(retention={"decay": {"from": "input", "activation": "min(relu(x), 1)"}})


@pytest.mark.parametrize(
    ("expr", "place"),
    [
        ("1/t", "t = 0"), ("log(t)", "t = 0"), ("sqrt(1 - t)", "t = 2"), ("1/(h - 1)", "h = 1"),
        ("a/h", "h = 0"), ("1/(t + h - 2)", "h = 0, t = 2"),
    ],
)  # fmt: skip
def test_a_coefficient_without_a_number_at_a_token_or_a_head_is_refused(
    expr: str, place: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"no finite real number at {place}: ") as told:
        rule(**stated(expr))
    assert (told.value.issues[0].where, told.value.issues[0].read) == ("optimizer.rate", expr)


def test_a_coefficient_that_has_no_number_anywhere_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="no finite real number, whatever stands in it"):
        rule(**stated("sqrt(-1 - a)"))


@pytest.mark.parametrize("expr", ["1/(t + 1)", "a/(1 + t/4)", "2**(-5 - h)", "h/H", "1/2"])
def test_a_coefficient_with_a_number_everywhere_is_taken(expr: str) -> None:
    rule(**stated(expr))


@pytest.mark.parametrize(
    ("heads", "expr", "place"),
    [
        (4, "1/(4 - h)", None), (5, "1/(4 - h)", "h = 4"), (None, "1/(4 - h)", "h = 4"),
        (2, "1/(H - 1)", None), (1, "1/(H - 1)", "H = 1"),
    ],
)  # fmt: skip
def test_heads_are_those_of_the_block(heads: int | None, expr: str, place: str | None) -> None:
    spec = {**stated(expr), "block": {"heads": heads}}
    if place is None:
        rule(**spec)
        return
    with pytest.raises(InvalidSpec, match=f"no finite real number at {place}: ") as told:
        rule(**spec)
    assert ("block.heads" in (told.value.issues[0].hint or "")) == (heads is None)
