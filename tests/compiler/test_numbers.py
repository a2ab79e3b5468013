"""Whether an expression is zero: also where it has no number, and where signs decide."""

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler.numbers import same_number, vanishes

X = sp.Symbol("x", real=True)
N = sp.Symbol("n", nonnegative=True)
E = sp.Symbol("e", real=True)
F = sp.Function("f")
SIZE, OTHER = sp.Symbol("size", positive=True), sp.Symbol("size", real=True)

NOTHING = (
    sp.sqrt(N**2) - N,
    sp.tan(X) - sp.sin(X) / sp.cos(X),
    X * sp.gamma(X) - sp.gamma(X + 1),
    sp.sqrt(sp.sqrt(X**4)) - sp.Abs(X),
    sp.log(sp.exp(X) * sp.exp(2 * X)) - 3 * X,
    sp.cosh(200 * X) ** 2 - sp.sinh(200 * X) ** 2 - 1,
    sp.log(sp.E * (E**2 + 1)) - sp.log(E**2 + 1) - 1,
    sp.expand(sp.Float(1 / 3) * (X + N) ** 2 - sp.Float(1 / 3) * X * (X + 2 * N))
    - sp.Float(1 / 3) * N**2,
)
SOMETHING = (
    X / 10**9,
    SIZE * sp.Abs(OTHER) ** 3,
    sp.Float(0.1) * X**2,
    sp.exp(-(X**2)),
    sp.sin(X) - X,
    sp.DiracDelta(X),
    sp.Derivative(sp.sign(X), X),
    sp.Subs(sp.Derivative(F(X), X), X, 0),
    sp.Piecewise((X, X > 3), (0, True)),
    sp.zoo,
    sp.nan,
)


def test_what_python_does_not_read_is_the_same_only_as_itself() -> None:
    deep = X
    for _ in range(250):
        deep = sp.sin(deep)
    assert same_number(deep, deep)
    assert not same_number(deep, X)


@pytest.mark.parametrize("expression", NOTHING, ids=str)
def test_nothing(expression: Any) -> None:
    assert vanishes(expression)


@pytest.mark.parametrize("expression", SOMETHING, ids=str)
def test_something(expression: Any) -> None:
    assert not vanishes(expression)
