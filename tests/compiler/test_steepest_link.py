"""The steepest slope of a link, by which the bound on a step behind it is told."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.compiler.explain.contraction import steepest_link
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.rule import Rule


def rule(retention: dict[str, Any], rate: str = "4*sigmoid(x)", **entries: Any) -> Rule:
    given = {"rate": {"from": "input", "activation": rate}}
    spec = {"name": "own", "bias": "l2", "retention": retention, "optimizer": given, **entries}
    return pipeline.derive(spec)


STEEPEST = {
    # whose steepest place lies between the points of a grid, is narrow, far, or beside a kink
    "tanh(8*a - 1)/8": 1.0,
    "tanh(500*a - 250)/500": 1.0,
    "tanh(100*a - 3000)/100": 1.0,
    "a + sin(a)": 2.0,
    "erf(3*a - 2)": 6 / math.sqrt(math.pi),
    "0.7*max(a, 0) + 0.9*min(a, 0)": 0.9,
    "where(a > 17, asinh(a - 17), 0)": 1.0,
    # without a bound: they grow, or jump
    "a**3": None,
    "sign(a)*sqrt(abs(a))": None,
    "sign(a - 1)*sqrt(abs(a - 1))": None,
    "where(abs(a) > 1, a, 0)": None,
    "a*log(1 + abs(a))": None,
    # without one, since the memory moves against its dual
    "-tanh(a)": None,
    "a + 2*sin(a)": None,
}


@pytest.mark.parametrize("link", STEEPEST)
def test_the_steepest_slope_of_a_link_is_found(link: str) -> None:
    found = steepest_link(rule(retention={"view": "ftrl", "link": link}))
    want = STEEPEST[link]
    assert found is None if want is None else float(found) == pytest.approx(want, rel=5e-4)
    assert want is None or float(found) >= want * (1 - 1e-6)


GENERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "w**4/4 + w**2/2": lambda w: w**4 / 4 + w**2 / 2,
    "sqrt(1+w**2) + w**2/8": lambda w: (1 + w**2).sqrt() + w**2 / 8,
    "w**2/2 + 4*cosh(w/2-3)": lambda w: w**2 / 2 + 4 * (w / 2 - 3).cosh(),
    "w**2 + sin(3*w - 1)/9": lambda w: w**2 + (3 * w - 1).sin() / 9,
}


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("penalty", [0.0, 1e-6, 3.3])
@pytest.mark.parametrize("view", ["ftrl", "learning-retaining"])
def test_a_root_is_as_steep_as_one_over_the_least_curvature(
    generator: str, penalty: float, view: str
) -> None:
    """The curvature is differentiated at a million points; a penalty on |w| adds a kink at 0."""
    elastic = {"elastic": {"l1": penalty, "l2": 0}}
    entry = {
        "view": view,
        "local": {"bregman": generator},
        **({"global": elastic} if penalty else {}),
    }
    w = torch.linspace(-40, 40, 1_000_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(GENERATORS[generator](w).sum(), w, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), w)
    found = steepest_link(rule(entry))
    assert found is not None
    assert float(found) == pytest.approx(1 / float(curvature.min()), rel=5e-4)
    assert float(found) >= (1 - 1e-6) / float(curvature.min())


def test_a_root_of_a_generator_that_is_flat_somewhere_has_no_bound() -> None:
    assert steepest_link(rule({"view": "ftrl", "local": {"bregman": "w**4/4"}})) is None
    quartic = {"local": {"bregman": "w**4/4"}, "global": {"l2": 1}}
    assert steepest_link(rule(quartic)) is None


def test_a_slope_is_told_over_the_range_of_its_coefficients() -> None:
    def steepest(activation: str) -> Any:
        given = {"b": {"from": "parameter", "activation": activation}}
        link = {"view": "ftrl", "link": "tanh(b*a)"}
        return steepest_link(rule(link, coefficients=given))

    assert float(steepest("0.5 + sigmoid(x)")) == pytest.approx(1.5)
    assert steepest("x") is None


@pytest.mark.parametrize(("rate", "leaves"), [(1.9, False), (2.15, True)])
def test_a_step_that_is_told_to_stay_inside_does(rate: float, leaves: bool) -> None:
    """Near w = 0.05 the link of w⁴/4 + w²/2 is as steep as 1; each step is solved as written."""
    elastic = {"elastic": {"l1": 0.000001, "l2": 0}}
    entry = {"local": {"bregman": "w**4/4 + w**2/2"}, "global": elastic}
    told = stability(rule(entry, f"{rate}*sigmoid(x)"))
    assert told.place == ("outside" if leaves else "inside")
    w = 0.0501
    for _ in range(400):
        dual = w**3 + w - rate * (w - 0.05)
        w = dual
        for _ in range(60):
            w -= (w**3 + w + rate * 1e-6 * math.copysign(1, w) - dual) / (3 * w**2 + 1)
    assert (abs(w - 0.05) > 1e-3) == leaves


def test_a_global_term_holds_no_larger_steps_than_a_fit_does() -> None:
    """At a fit with R'' = 1 and an ℓ2 weight of η a step goes by (1 − ηκ)/(1 + η), κ = 2."""
    entry = {"global": {"elastic": {"l1": 0.5, "l2": 1}}}
    bound = stability(rule(entry)).bound
    assert bound is not None
    (eta,) = (s for s in bound.lhs.free_symbols if s.name == "eta")
    rate = 2.9
    assert abs((1 - 2 * rate) / (1 + rate)) > 1
    assert not bound.subs({s: rate if s == eta else 2 for s in bound.lhs.free_symbols})
