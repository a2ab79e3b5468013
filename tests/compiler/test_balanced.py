"""Quotients, logarithms and roots of exponentials in float32, beside mpmath with many digits."""

import math

import mpmath
import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from tiers import first_only

from mnemic.codegen.guards import TINY
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.balanced import balanced
from mnemic.compiler.error_signal import derive
from mnemic.compiler.symbolic import read

LOSSES = (
    "log(1 + exp(e) + exp(-e))",
    "log(3 + exp(2*e) + exp(-e))",
    "log(1 + cosh(e))",
    "log(1 + sinh(e)**2)",
    "1 - 1/cosh(e)",
    "sqrt(1 + exp(e) + exp(-e))",
    "e*(exp(e) - exp(-e))/(exp(e) + exp(-e))",
    "e**2/(1 + exp(-e))",
    "(exp(e) - 1)**2/(1 + exp(e))**2",
    "log(exp(y) + exp(v)) - (y + v)/2",
    "log(1 + exp(y) + exp(-y)) - v*y",
    "log(exp(y) + exp(2*v) + exp(y*v))",
)
"""Losses whose error or slope was no number, or whose value was none, far from zero."""

FAR = (0.0, 1e-3, 0.2, 2.0, 30.0, 60.0, 100.0, 1e4)
EXACT = [
    {
        "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
        "softplus": lambda z: mpmath.log(1 + mpmath.exp(z)),
    },
    "mpmath",
]


def _points(several: bool) -> list[tuple[float, ...]]:
    far = [sign * size for size in FAR for sign in (1, -1)]
    if not several:
        return [(e,) for e in far]
    return [(v, v + e) for v in (0.5, -3.0) for e in far] + [(300.0, 300.5), (-300.0, -301.0)]


@pytest.mark.parametrize("loss", LOSSES)
def test_errors_and_slopes_are_right_however_large_a_residual_is(loss: str) -> None:
    """And gradients through them, also at zero, where the largest exponent changes."""
    expression = read(loss, {"e": sym.e, "y": sym.y, "v": sym.v})
    error = derive(expression)
    for told in (expression, error.signal, error.slope):
        _compare(told, _points(len(told.free_symbols) > 1))


def _compare(told, points: list[tuple[float, ...]]) -> None:
    names = sorted(told.free_symbols, key=str)
    columns = torch.tensor(points, dtype=torch.float32).T
    given = {str(s): x.clone().requires_grad_() for s, x in zip(names, columns, strict=True)}
    written = print_torch(told, {name: name for name in given})
    found = eval(written, {"torch": torch, "F": F, "math": math, "TINY": TINY, **given})
    slopes = torch.autograd.grad(found.sum(), [*given.values()])
    with mpmath.workdps(200):
        for which, told_one in enumerate([told, *(sp.diff(told, s) for s in names)]):
            exact = sp.lambdify(names, told_one, EXACT)
            row = found if which == 0 else slopes[which - 1]
            for at, x in enumerate(columns.T.tolist()):
                true = exact(*map(mpmath.mpf, x))
                if abs(true) < 1e30:
                    near = 4e-6 * (1 + abs(true)) + 2e-7 * max(map(abs, x))
                    assert abs(row[at].item() - true) < near, (written, x, which)


FEATURES = (
    "log(sigmoid(x))",
    "log(3*sigmoid(x)**2*(2 + cosh(x)))",
    "log(1 - tanh(x)**2)",
    "log(1 - sigmoid(x))",
    "sqrt(1 - tanh(x)**2)",
    "sqrt(softplus(x))",
    "sigmoid(x)**0.3",
    "log(cosh(x) + sinh(x) + 1)",
    "log(1 + tanh(x))",
    "log(1 - sigmoid(x)**2)",
    "log(sqrt(1 + exp(x)))",
    "log(2**x + 3**x)",
    "sqrt(1 - tanh(x))",
    "2**x/(1 + 2**x)",
    "exp(-x)*cosh(x)",
    "sinh(x)*exp(-x**2)",
    "exp(x)*exp(-x**2)",
    "exp(x)*sigmoid(-2*x)",
    "exp(x)*(1 - tanh(x))",
    "exp(0.3*x)/(1 + exp(0.7*x))",
    "tanh(exp(x))",
    "exp(-exp(x))",
    "exp(-cosh(x))",
    "1/(1 + exp(exp(x)))",
    "where(x > 0, 1 + x, exp(x))",
    "where(x < -1, 2*exp(1 + x), 3 + x)",
)
"""Functions that were, or whose slope was, infinite or no number within a hundred of zero."""


@pytest.mark.parametrize("written", FEATURES)
def test_logarithms_roots_and_branches_are_right_far_from_zero(written: str) -> None:
    _compare(read(written, {"x": sym.x}), [(sign * x,) for x in FAR[:-1] for sign in (1, -1)])


@pytest.mark.parametrize(
    "written", first_only(["exp(x)", "1 + exp(x)", "exp(-x**2)/(1 + exp(-x**2))", "x*sigmoid(x)",
                           "cosh(x)", "log(2 + exp(-x**2))"], "cosh(x)")
)  # fmt: skip
def test_what_does_not_overflow_on_the_way_stays(written: str) -> None:
    expression = read(written, {"x": sym.x})
    assert balanced(expression) == expression
