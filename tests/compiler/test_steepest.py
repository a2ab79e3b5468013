"""The steepest slope of a loss, by which its stable range is told, and whether it is convex."""

import pytest
import sympy as sp

from mnemic import pipeline
from mnemic.errors import InvalidSpec

CASES = {
    # that depend on the value beside the residual
    "e**2*v**2": sp.oo,
    "e**2*v**2/(1+v**2)": 2.0,
    "8*e**2*exp(-(v-3)**2)": 16.0,
    "erf(e)**2+log1p(e**2)*v**2/(1+v**2)": 8 / 3.141592653589793 + 2,
    "log(exp(y)+exp(v))-(y+v)/2": 0.25,
    # that are steepest between two powers of ten
    "4*sqrt(1+(e-5)**2)": 4.0,
    "10*log(cosh(e-2))": 10.0,
    # whose parts cancel near zero, and overflow far away
    "n*tanh(n)": 2.0,
    # that have kinks far from zero, which secants near it do not see
    "max(abs(e)-30,0)": sp.oo,
    "where(e>50,e**2,e**2/2)": sp.oo,
    "sqrt(1+e**2)+relu(e-40)": sp.oo,
    "relu(e-20)**2*7+e**2/2": 15.0,
    # that are steepest at zero alone
    "log1p(1e6*e**2)": 2e6,
    # as before
    "sqrt(1+e**2)-1": 1.0,
    "where(abs(e)>1,abs(e)-1/2,e**2/2)": 1.0,
    "log(1+n**2)": 2.0,
    "abs(e)**1.5": sp.oo,
    "n": sp.oo,
    "e**4": sp.oo,
}


@pytest.mark.parametrize("loss", CASES)
def test_the_steepest_slope_is_found(loss: str) -> None:
    rule = pipeline.derive({"name": "own", "bias": {"expr": loss}, "optimizer": {"rate": "token"}})
    bound = rule.error.bound
    assert bound == CASES[loss] if CASES[loss] == sp.oo else abs(bound - CASES[loss]) < 1e-3


@pytest.mark.parametrize("loss", ["e**2/2 - 1.3*cos(e)", "e**2*(2-v)", "e**2/2 - 1.3*cos(e-40/7)",
                                  "where(e>50, e**2/2-5*e, e**2/2)"])  # fmt: skip
def test_an_implicit_step_of_a_loss_that_is_not_convex_is_refused(loss: str) -> None:
    """Between two decades the error falls, or at large values alone."""
    spec = {"name": "own", "bias": {"expr": loss}}
    with pytest.raises(InvalidSpec, match="not convex"):
        pipeline.derive({**spec, "optimizer": {"method": "implicit", "rate": "token"}})


@pytest.mark.parametrize("loss", ["e**2/2 - 0.9*cos(e)", "e**2*exp(v/8)", "log(cosh(e))"])
def test_an_implicit_step_of_a_convex_loss_is_not(loss: str) -> None:
    spec = {"name": "own", "bias": {"expr": loss}}
    pipeline.derive({**spec, "optimizer": {"method": "implicit", "rate": "token"}})


@pytest.mark.parametrize("loss", ["-exp(-(y-8)**2)", "-exp(-((e-3)/4)**2)*20", "exp(e**6)"])
def test_constants_beside_a_residual_are_no_vast_powers(loss: str) -> None:
    pipeline.derive({"name": "own", "bias": {"expr": loss}})


@pytest.mark.parametrize("loss", ["exp(exp(e**9))", "2**(2**(2**e))", "exp((e-9)**6)"])
def test_vast_powers_are_refused(loss: str) -> None:
    with pytest.raises(InvalidSpec, match="may grow past"):
        pipeline.derive({"name": "own", "bias": {"expr": loss}})


def test_a_feature_map_that_comes_to_a_constant_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"features.expr: comes to a constant.*read '0\*x'"):
        pipeline.derive({"name": "own", "features": {"expr": "0*x"}})
