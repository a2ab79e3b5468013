"""Quotients and logarithms of sums of exponentials in float32, beside mpmath with sixty digits."""

import math

import mpmath
import pytest
import sympy as sp
import torch
import torch.nn.functional as F
from tiers import first_only

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
EXACT = [{"sigmoid": lambda z: 1 / (1 + mpmath.exp(-z))}, "mpmath"]


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
        _compare(told)


def _compare(told) -> None:
    names = sorted(told.free_symbols, key=str)
    points = _points(len(names) > 1)
    columns = torch.tensor(points, dtype=torch.float32).T
    given = {str(s): x.clone().requires_grad_() for s, x in zip(names, columns, strict=True)}
    written = print_torch(told, {name: name for name in given})
    found = eval(written, {"torch": torch, "F": F, "math": math, **given})
    slopes = torch.autograd.grad(found.sum(), [*given.values()])
    with mpmath.workdps(60):
        for which, told_one in enumerate([told, *(sp.diff(told, s) for s in names)]):
            exact = sp.lambdify(names, told_one, EXACT)
            row = found if which == 0 else slopes[which - 1]
            for at, x in enumerate(columns.T.tolist()):
                true = exact(*map(mpmath.mpf, x))
                if abs(true) < 1e30:
                    near = 1e-6 * abs(true) + 2e-6 * (1 + max(map(abs, x)))
                    assert abs(row[at].item() - true) < near, (written, x, which)


@pytest.mark.parametrize(
    "written", first_only(["exp(x)", "1 + exp(x)", "exp(-x**2)/(1 + exp(-x**2))", "x*sigmoid(x)",
                           "cosh(x)", "sinh(x)*exp(-x**2)", "log(2 + exp(-x**2))"], "cosh(x)")
)  # fmt: skip
def test_what_does_not_overflow_on_the_way_stays(written: str) -> None:
    expression = read(written, {"x": sym.x})
    assert balanced(expression) == expression
