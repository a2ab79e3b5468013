"""Steps in their limits, flows of constant errors, and oracles that take the right rate."""

from typing import Any

import pytest

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.printing import text
from mnemic.compiler.oracle.verify import verify
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec


def rule(**entries: Any) -> Rule:
    base = {"name": "mine", "bias": "l2", "optimizer": {"rate": "token"}}
    return derive_spec(load({**base, **entries}))


def passes(found: Rule, *names: str) -> bool:
    checks = verify(found)
    assert {check.name for check in checks} >= set(names)
    return all(check.passed for check in checks)


def test_a_loss_without_a_lowest_prediction_has_no_limit() -> None:
    endless = {"method": "implicit", "rate": float("inf")}
    with pytest.raises(InvalidSpec, match="falls without end along ŷ"):
        rule(bias="dot", optimizer=endless)
    with pytest.raises(InvalidSpec, match="missing or has no one closed form"):
        rule(bias={"expr": "exp(e)"}, optimizer=endless)
    assert rule(bias="dot", optimizer={**endless, "rate": "token"}).error.signal == -sym.v


def test_the_flow_of_a_constant_error_is_one_step() -> None:
    found = rule(bias="dot", optimizer={"method": "flow", "rate": "token"})
    assert found.error.signal == -sym.v
    assert passes(found, "step as minimised", "recurrence")
    with pytest.raises(InvalidSpec, match="affine in ŷ"):
        rule(bias="huber", optimizer={"method": "flow", "rate": "token"})


HUBER = {"kind": "huber", "delta": "token"}
IMPLICIT = {"method": "implicit", "rate": "token"}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "entries",
    [
        {"bias": HUBER, "retention": {"global": {"l2": 0.3}}},
        {"retention": {"global": {"l2": 0.3}}, "optimizer": IMPLICIT},
        {
            "bias": {"expr": "log(cosh(e))"},
            "retention": {"local": {"bregman": "2*w**2"}, "global": {"l2": 0.3}},
            "optimizer": IMPLICIT,
        },
    ],
)
def test_a_global_term_takes_the_rate_of_the_step(entries: Any) -> None:
    """A threshold called delta is no rate, and the rate of an implicit step is."""
    assert passes(rule(**entries), "retention", "recurrence")


def test_a_kink_in_the_loss_is_no_obstacle_to_the_oracle() -> None:
    found = rule(bias={"expr": "(3/4*heaviside(e) + 1/4*heaviside(-e))*e**2"})
    assert passes(found, "error signal", "slope", "recurrence")


@pytest.mark.parametrize("generator", ["softplus(w) + w**2/8", "w**2/2 + logsigmoid(w)/16",
                                       "w**2/2 + gelu(w)/16"])  # fmt: skip
def test_generators_in_functions_of_our_own(generator: str) -> None:
    assert passes(rule(retention={"local": {"bregman": generator}}), "retention", "recurrence")


@pytest.mark.parametrize("generator", ["-log(4-w**2)", "w**2/2 - log(w-1)", "-sqrt(4-w**2)"])
def test_a_domain_of_another_size_is_told_with_those_that_are_looked_at(generator: str) -> None:
    with pytest.raises(InvalidSpec, match=r"the real line, \(0, ∞\), \(−1, 1\) and \(0, 1\)"):
        rule(retention={"local": {"bregman": generator}})


def test_generators_that_end_with_their_domain_are_taken() -> None:
    for generator, domain in (("-log(1-w**2)", (-1, 1)), ("-sqrt(1-w**2)", (-1, 1)),
                              ("w*log(w) + (1-w)*log(1-w)", (0, 1))):  # fmt: skip
        assert rule(retention={"local": {"bregman": generator}}).retained.link.domain == domain
    assert rule(retention={"local": {"bregman": "1/w**2"}}).retained.link.domain[0] == 0


def test_fractional_powers_stand_in_parentheses() -> None:
    found = rule(bias={"expr": "abs(e)**(5/2)"}).error.signal
    assert text(found) == "5·|ŷ − v|^(3/2)·sign(ŷ − v)/2"
    p = sym.coefficient("p")
    assert text(sym.n**p) == "‖ŷ − v‖^p"
    assert text(sym.n ** (p + 1)) == "‖ŷ − v‖^(1 + p)"
