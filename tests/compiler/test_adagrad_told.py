"""What is told of AdaGrad: equations, words, state, how far a step goes, diffs and refusals."""

from typing import Any

import pytest

from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import warned
from mnemic.compiler.explain.in_words import in_words
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.verify import verify
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.pipeline import derive, diff

PLAIN = {"mnemic": 1, "name": "by-adagrad", "bias": "l2"}
LAYERS = {"memory": {"kind": "mlp", "residual": False, "activation": "tanh"}}


def by(**optimizer: Any) -> dict[str, Any]:
    return {**PLAIN, "optimizer": {"method": "adagrad", "rate": "token", **optimizer}}


def test_equations_in_text_and_latex() -> None:
    found = {e.name: e for e in equations(derive(by()))}
    assert found["squares"].text == "sₜ = sₜ₋₁ + Gₜ ∘ Gₜ"
    assert found["memory"].text == "Wₜ = Wₜ₋₁ − ηₜ Gₜ/(√sₜ + 1e−08)"
    assert found["memory"].latex == r"W_t = W_{t-1} - \eta_t \frac{G_t}{\sqrt{s_t} + 10^{-8}}"
    assert not {"momentum", "means"} & found.keys()


def test_the_sum_is_told_in_words() -> None:
    """Not as an average."""
    (line,) = [s for s in in_words(derive(by())).split("\n  (") if "Gₜ ∘ Gₜ" in s]
    assert "sum" in line


def test_the_state_counts_one_sum() -> None:
    assert str(cost(derive(by())).state) == "2*D*d_v"


def test_how_far_a_step_goes_is_told() -> None:
    """|G| ≤ √(Σ G²), of which G² is a part."""
    assert "at most ηₜ, whatever" in stability(derive(by())).sentence
    assert not any("flat" in w for w in warned(derive(by())))


@pytest.mark.parametrize("told", [{}, LAYERS, {"retention": {"decay": "token"}}])
def test_the_problem_as_written_has_the_same_gradients(told: dict[str, Any]) -> None:
    checks = verify(derive({**by(), **told}))
    assert checks
    assert [check for check in checks if not check.passed] == []


def test_what_tells_two_rules_apart() -> None:
    def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return diff(a, b).verdict.kind == "equal"

    assert same(by(), by(epsilon=1e-8, rate_at="outside"))
    assert not same(by(), by(epsilon=0.1))
    adam = {**PLAIN, "optimizer": {"method": "adam", "rate": "token"}}
    assert not same(by(), adam)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"beta2": 0.9}, "the method 'adagrad' has no use for 'beta2'"),
        ({"momentum": 0.9}, "the method 'adagrad' has no use for 'momentum'"),
        ({"momentum": "token"}, "the method 'adagrad' has no use for 'momentum'"),
        ({"rate_at": "inside"}, "size of all that came, which a rate inside would cancel"),
        ({"every": 4}, "AdaGrad takes the gradient of every token by itself"),
    ],
)
def test_what_is_refused(option: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        load(by(**option))
