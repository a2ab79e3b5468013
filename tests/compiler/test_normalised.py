"""What is said of the normalised rate, against the steps that it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiers import first_only

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.stability import stability
from mnemic.compiler.oracle.interpret import interpret
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec

Loss = Callable[[torch.Tensor], torch.Tensor]

LOSSES: dict[str, tuple[Any, Loss]] = {
    "l2": ("l2", lambda r: r**2 / 2),
    "log-cosh": ({"expr": "log(cosh(e))"}, lambda r: r.cosh().log()),
    "cosh": ({"expr": "cosh(e)"}, torch.cosh),
    "fair": ({"expr": "abs(e)-log(1+abs(e))"}, lambda r: r.abs() - r.abs().log1p()),
    "arctangent": ({"expr": "e*atan(e)"}, lambda r: r * r.atan()),
    "pseudo-Huber of a coordinate": ({"expr": "sqrt(1+e**2)"}, lambda r: (1 + r**2).sqrt()),
    "pseudo-Huber of the norm": ({"expr": "sqrt(1+n**2)"}, lambda r: (1 + r**2).sqrt()),
    "gaussian": ({"expr": "exp(e**2)"}, lambda r: (r**2).exp()),
    "cubic": ({"kind": "lp", "p": 3}, lambda r: r.abs() ** 3),
    "p = 1.6": ({"kind": "lp", "p": 1.6}, lambda r: r.abs() ** 1.6),
    "p = 1.4": ({"kind": "lp", "p": 1.4}, lambda r: r.abs() ** 1.4),
    "huber": (
        {"kind": "huber", "delta": 1},
        lambda r: torch.where(r.abs() < 1, r**2 / 2, r.abs() - 0.5),
    ),
    "dead zone": ({"expr": "max(abs(e)-1,0)**2/2"}, lambda r: (r.abs() - 1).clamp(min=0) ** 2 / 2),
}  # fmt: skip
"""As specs have them, and as functions of one coordinate's residual."""

RATES = (1e-2, 0.1, 1.0, 10.0, 1e3)


def sentence(bias: Any, **entries: Any) -> str:
    """What is printed of a loss under the normalised rate."""
    rate = {"from": "input", "normalized": True}
    spec = {"name": "mine", "bias": bias, "optimizer": {"rate": rate}, **entries}
    return stability(derive_spec(Spec.model_validate(spec))).sentence


def claimed(told: str) -> tuple[float, float | None]:
    """The η‖φ‖² up to which steps contract, and up to which errors shrink."""
    contracts = re.search(r"contracts along its key while \S+ < ([\d.e+]+)[ .]", told)
    shrinks = re.search(r"While \S+ < ([\d.e+]+), what is read at a key comes nearer", told)
    edge = math.inf if "keeps every step a contraction" in told else 0.0
    assert contracts or edge or "no rate makes every step a contraction" in told
    near = math.inf if "At any rate what is read" in told else None
    return (float(contracts[1].rstrip(".")) if contracts else edge,
            float(shrinks[1].rstrip(".")) if shrinks else near)  # fmt: skip


def taken(loss: Loss, x: float, radial: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Residuals in order, and what a normalised step makes of them, by autograd."""
    sizes = torch.logspace(-11, 2, 3001, dtype=torch.float64)
    sizes = torch.cat([sizes, 1 + torch.linspace(-1e-6, 1e-6, 22, dtype=torch.float64)])
    r = torch.cat([-sizes, sizes]).sort().values.requires_grad_()
    (error,) = torch.autograd.grad(loss(r).sum(), r, create_graph=True)
    (slope,) = torch.autograd.grad(error.sum(), r)
    slope = torch.maximum(slope, error / r) if radial else slope.abs()
    kept = error.isfinite() & slope.isfinite()
    step = r - x * error / (1 + x * slope)
    return r.detach()[kept], step.detach()[kept]


def spread(loss: Loss, x: float, decay: float, radial: bool = False) -> float:
    """The most by which a step draws two neighbours apart: 1 and less is none."""
    r, after = taken(loss, x, radial)
    moved = after - (1 - decay) * r
    return float(((moved[1:] - moved[:-1]) / (r[1:] - r[:-1])).abs().max())


def away(loss: Loss, x: float, radial: bool = False) -> float:
    """The most by which a step leaves |r| larger."""
    r, after = taken(loss, x, radial)
    return float((after / r).abs().max())


DECAYED = ("log-cosh", "gaussian", "p = 1.6")


CASES = (*((name, 1.0) for name in LOSSES), *((name, 0.3) for name in DECAYED))
FIRST = (("cosh", 1.0), ("arctangent", 1.0), ("pseudo-Huber of the norm", 1.0), ("p = 1.4", 1.0),
         ("huber", 1.0), ("gaussian", 0.3))  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize(("name", "decay"), first_only(CASES, *FIRST))
def test_the_bound_that_is_printed_is_where_steps_cease_to_contract(
    name: str, decay: float
) -> None:
    bias, loss = LOSSES[name]
    kept = {} if decay == 1 else {"retention": {"decay": decay, "order": "after"}}
    told = sentence(bias, **kept)
    edge, near = claimed(told)
    radial = "n" in str(bias) and "of the norm" in name
    inside = [x for x in (*RATES, edge * 0.99) if x < edge and x > 0]
    outside = [x for x in (*RATES, edge * 1.03) if x > edge and x > 0 and edge < math.inf]
    assert all(spread(loss, x, decay, radial) <= 1 + 1e-4 for x in inside), told
    assert all(spread(loss, x, decay, radial) > 1 + 1e-4 for x in outside), told
    if near is None:
        return
    assert decay == 1, "beside a decay the fixed point is not v"
    inside = [x for x in (*RATES, near * 0.99) if 0 < x < near and x < math.inf]
    assert all(away(loss, x, radial) <= 1 + 1e-9 for x in inside), told
    assert near == math.inf or away(loss, near * 1.03, radial) > 1, told


def test_a_repeated_pair_that_is_overshot_is_warned_of() -> None:
    """log cosh behind elu: one pair again and again, at a rate within an ordinary activation."""
    rate = {"value": 0.5, "normalized": True}
    spec = {"name": "mine", "features": "elu", "bias": {"expr": "log(cosh(e))"}}
    one = derive_spec(Spec.model_validate({**spec, "optimizer": {"rate": rate}}))
    k = torch.nn.functional.normalize(torch.randn(32, dtype=torch.float64), dim=0).abs()
    k, v = k.expand(1, 40, 1, 32), torch.full((1, 40, 1, 1), 10.0, dtype=torch.float64)
    y, _ = interpret(one, k, k, v, {})
    assert (y[:, 20:] - 10).abs().max() > 10, "it does not come to rest at the value"
    found = stability(one)
    assert found.place == "outside"
    assert found.warning is not None
    assert "where the bound is 3.94" in found.warning
    slow = spec | {"optimizer": {"rate": {"value": 0.04, "normalized": True}}}
    gentle = derive_spec(Spec.model_validate(slow))
    assert stability(gentle).place == "inside"
    y, _ = interpret(gentle, k, k, v, {})
    errors = (y - 10).abs().flatten()
    assert bool((errors[1:] <= errors[:-1] + 1e-12).all())


def test_a_steep_link_narrows_the_bound() -> None:
    """A link of slope 3 takes three times the step."""
    steep = {"link": {"expr": "tanh(3*a)"}}
    edge, _ = claimed(sentence({"expr": "log(cosh(e))"}, retention=steep))
    assert 0 < edge < claimed(sentence({"expr": "log(cosh(e))"}))[0] / 3


@pytest.mark.parametrize("normalized", [True, False])
def test_a_mixture_of_losses_promises_no_contraction(normalized: bool) -> None:
    """Beyond δ the 2-norm decides, and coordinates far smaller than it take steps of full size."""
    rate = {"from": "input", "activation": "sigmoid", "normalized": normalized}
    loss = {"kind": "huber", "over": "mixture", "delta": 1.0}
    found = derive_spec(load({"name": "mixed", "bias": loss, "optimizer": {"rate": rate}}))
    error = torch.full((101,), 0.1, dtype=torch.float64, requires_grad=True)
    assert error.norm() > 1
    (slope,) = torch.autograd.grad(error.abs().sum(), error)  # the mixture's beyond δ
    assert (error - 0.9 * slope).norm() > error.norm()
    assert stability(found).bound is None
