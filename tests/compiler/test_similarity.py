"""What is read off a similarity: its logarithm, its parts, its sign; and what has no fit."""

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Fit, KeyValuePairs, Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec

LOCAL: dict[str, Any] = {"name": "made", "weights": "similarity", "bias": "l2", "window": "all"}


def made(similarity: str = "exp(s)", memory: dict[str, Any] | None = None, **more: Any) -> Rule:
    entry = {"kind": "nonparametric", "similarity": similarity, "scale": 1.0, **(memory or {})}
    return derive_spec(Spec.model_validate({**LOCAL, "memory": entry, **more}))


def fit(similarity: str, **more: Any) -> Fit:
    found = made(similarity, **more)
    assert isinstance(found, KeyValuePairs)
    return found.fit


@pytest.mark.parametrize(
    ("text", "slope", "terms"),
    [
        ("exp(s)", 1, 0),
        ("exp(2*s)*exp(-s/2)", sp.Rational(3, 2), 0),
        ("2**s", sp.log(2), 0),
        ("3*exp(s - 1)", 1, 0),
        ("exp(-d2/4)", sp.Rational(1, 2), -sym.kk / 4),
        ("exp(s)/exp(d2)", 3, -sym.kk),
        ("sqrt(exp(s))", sp.Rational(1, 2), 0),
    ],
)
def test_exponentials_are_inner_products(text: str, slope: Any, terms: Any) -> None:
    found = fit(text).similarity
    assert found.sign == "positive"
    assert found.linear is not None
    assert sp.simplify(found.linear.slope - slope) == 0
    assert sp.expand(sum(a * b for a, b in found.linear.terms) - terms) == 0


@pytest.mark.parametrize("text", ["exp(s**2)", "exp(-abs(s))", "sigmoid(s)", "exp(s*d2)"])
def test_other_exponentials_have_a_logit(text: str) -> None:
    found = fit(text).similarity
    assert found.logit is not None
    assert found.linear is None


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("relu(s)", "nonnegative"),
        ("s**2", "nonnegative"),
        ("1/(1 + d2)", "nonnegative"),
        ("exp(s) + 1", "nonnegative"),
        ("s", "any"),
        ("exp(s) - 1", "any"),
        ("1 - d2", "any"),
    ],
)
def test_other_weights_are_no_logits(text: str, sign: str) -> None:
    found = fit(text).similarity
    assert found.logit is None
    assert found.sign == sign


@pytest.mark.parametrize(
    ("text", "activation", "sign"),
    [
        ("a*exp(s) + (1 - a)*exp(-d2/2)", "sigmoid", "nonnegative"),
        ("a*exp(s) + (1 - a)*exp(-d2/2)", "softplus", "any"),
        ("a + exp(s)", "tanh", "any"),
        ("1 + a + exp(s)", "tanh", "nonnegative"),
    ],
)
def test_a_sign_is_that_of_the_values_that_coefficients_take(
    text: str, activation: str, sign: str
) -> None:
    gate = {"a": {"from": "input", "activation": activation}}
    assert fit(text, coefficients=gate).similarity.sign == sign


def test_the_scale_is_that_of_the_key_unless_told() -> None:
    plain = derive_spec(Spec.model_validate({**LOCAL, "memory": "nonparametric"}))
    assert isinstance(plain, KeyValuePairs)
    assert plain.fit.similarity.logit == sym.kq / sp.sqrt(sym.d_k)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"bias": "dot"}, "quadratic loss only; write bias: l2"),
    ({"bias": "huber"}, "quadratic loss only"),
    ({"bias": {"expr": "e**2"}}, "with the factor 1/2"),
    ({"window": 1}, "a window of 1 holds the current pair alone"),
    ({"memory": {"degree": 1, "similarity": "s"}}, "can be negative"),
    ({"memory": {"degree": 1, "similarity": "exp(s) - 1"}}, "can be negative"),
    ({"memory": {"degree": 1, "ridge": 0}}, "write ridge: 0.1"),
    (
        {"memory": {"similarity": "exp(a*s)"}, "coefficients": {"a": "channel"}},
        "a is one number a head",
    ),
    ({"memory": {"kind": "interpolation"}, "weights": "uniform", "window": 1}, "window: all"),
    (
        {
            "memory": {"kind": "interpolation"},
            "weights": "uniform",
            "retention": {"decay": "token"},
        },
        "leave retention.decay out",
    ),
]


@pytest.mark.parametrize(("entries", "words"), REFUSED, ids=lambda x: x if type(x) is str else "")
def test_what_has_no_fit_is_refused(entries: dict[str, Any], words: str) -> None:
    memory = {"kind": "nonparametric", **entries.get("memory", {})}
    with pytest.raises(InvalidSpec, match=words):
        derive_spec(Spec.model_validate({**LOCAL, **entries, "memory": memory}))


def test_weights_that_change_sign_are_told() -> None:
    from mnemic.compiler.explain.stability import stability

    assert "can be negative" in stability(made("s")).warning
    assert stability(made("relu(s)")).warning is None
