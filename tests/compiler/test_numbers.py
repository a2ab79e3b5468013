"""Whether an expression is zero: also where it has no number, and where signs decide."""

from typing import Any

import pytest
import sympy as sp

from mnemic.compiler.numbers import compare, same_number, vanishes
from mnemic.compiler.symbols import HEAD, HEADS, TIME
from mnemic.compiler.symbols import round as rounded

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


Y, UP = sp.Symbol("y", real=True), sp.Symbol("up", positive=True)
ONE, TENTH = sp.Integer(1), sp.Rational(1, 10)
ABOVE = TENTH + sp.Rational(1, 10**9)


def cases(condition: Any, then: Any, otherwise: Any) -> Any:
    return sp.Piecewise((sp.sympify(then), condition), (sp.sympify(otherwise), True))


APART = {
    "a rate that falls after two tokens": (cases(TIME < 2, ONE, TENTH), ONE),
    "steps up to a hundred": (1 / (1 + TIME), 1 / (1 + sp.Min(TIME, 100))),
    "nothing after forty tokens": (1 / (1 + TIME), cases(TIME < 40, 1 / (1 + TIME), 0)),
    "the fortieth token": (cases(TIME < 40, 1, 2), cases(TIME <= 40, 1, 2)),
    "one token": (cases(sp.And(TIME > 37, TIME < 39), 1, 0), sp.Integer(0)),
    "heads after the second": (1 / (1 + HEAD), 1 / (1 + sp.Min(HEAD, 1))),
    "a number above five": (UP / (1 + UP), sp.Min(UP, 5) / (1 + sp.Min(UP, 5))),
    "a narrow gap": (cases(X > TENTH, 1, 2), cases(X > ABOVE, 1, 2)),
    "two conditions at once": (
        cases(TIME < 40, 0, 1) * cases(HEAD < 3, 0, 1), sp.Integer(0),
    ),
    "a condition inside another": (
        cases(TIME > 40, cases(HEAD > 5, 1, 2), 3), cases(TIME > 40, 2, 3),
    ),
    "an edge that is no line": (cases(sp.exp(-X) < sp.Rational(1, 10**7), 1, 0), sp.Integer(0)),
    "a root that is a size": (sp.sqrt((X - 50) ** 2), X - 50),
    "one number": (cases(sp.Eq(X, 3), 1, 0), sp.Integer(0)),
    "below a hundred alone": (X + sp.log(1 + sp.exp(-X - 100)), X),
    "near zero alone": (X * sp.tanh(10**5 * X), sp.Abs(X)),
    "a square that is not seen": (sp.sqrt(X**2 - 20000 * X + 10**8), 10000 - X),
    "a narrow corner of two": (
        cases(sp.And(X > 10, X < 10 + TENTH**5), 1, 0)
        * cases(sp.And(Y > 5, Y < 5 + TENTH**4), 1, 0),
        sp.Integer(0),
    ),
}  # fmt: skip
ALIKE = {
    "whole numbers have nothing between": (cases(TIME < 40, 1, 2), cases(TIME <= 39, 1, 2)),
    "half of x and its size": (sp.Max(X, 0), (X + sp.Abs(X)) / 2),
    "cases the other way round": (cases(X > 0, 1 + X, sp.exp(X)), cases(X <= 0, sp.exp(X), 1 + X)),
    "a maximum in a case of its own": (
        cases(X > 0, 1 + X, sp.exp(sp.Min(0, X))), cases(X > 0, 1 + X, sp.exp(X)),
    ),
    "clipped": (sp.Min(sp.Max(X, -1), 1), cases(sp.Abs(X) < 1, X, sp.sign(X))),
    "Huber": (
        cases(sp.Abs(X - Y) < UP, (X - Y) ** 2 / 2, UP * (sp.Abs(X - Y) - UP / 2)),
        cases(sp.Abs(X - Y) > UP, UP * (sp.Abs(X - Y) - UP / 2), (X - Y) ** 2 / 2),
    ),
    "but for one number": (sp.sign(X), cases(X > 0, 1, -1)),
    "a case that another rules out": (cases(X > 2, cases(X < 1, 7, X), X), X),
    "exponentials that cancel to no digits": (sp.cosh(X) ** 2 - sp.sinh(X) ** 2, ONE),
    "exponentials of hundreds": (sp.log(sp.cosh(X)), sp.log((sp.exp(X) + sp.exp(-X)) / 2)),
}  # fmt: skip


@pytest.mark.parametrize("case", APART)
def test_a_difference_in_one_branch_is_found(case: str) -> None:
    one, other = APART[case]
    assert compare(one, other) == compare(other, one) == "different"


@pytest.mark.parametrize("case", ALIKE)
def test_branches_that_agree_are_the_same(case: str) -> None:
    one, other = ALIKE[case]
    assert compare(one, other) == compare(other, one) == "same"


def test_a_branch_that_no_point_reaches_leaves_it_open() -> None:
    assert compare(cases(HEAD < HEADS, X, 0), X) == "open"
    assert compare(cases(X > 0, X, cases(X + Y > 10**9, 0, X)), X) != "same"


def test_a_condition_that_rounding_decides_is_not_looked_at() -> None:
    assert compare(cases(sp.tanh(X) < 1, X, 0), X) != "different"


def test_numbers_stay_within_a_range() -> None:
    assert compare(sp.Min(UP, 1), UP, 4, {UP: (0.0, 1.0)}) == "same"
    assert compare(sp.Min(UP, 1), UP, 4, {UP: (0.0, 2.0)}) == "different"


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


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        (rounded(2 * X + 1), rounded(1 + 2 * X), "same"),
        (rounded(-X), -rounded(X), "open"),
        (rounded(X + 1), rounded(X) + 1, "open"),
        (rounded(rounded(X)), rounded(X), "open"),
        (sp.Abs(rounded(X)), rounded(sp.Abs(X)), "open"),
        (rounded(X), X, "different"),
        (rounded(X / 2), rounded(X) / 2, "different"),
        (rounded(X + sp.Rational(1, 2)), rounded(X) + 1, "different"),
    ],
)
def test_what_is_rounded_is_told_different_only_where_it_is(one: Any, other: Any, answer: str):
    assert compare(one, other) == answer
    assert compare(other, one) == answer
