"""Printed equations: indices are bound, letters are told, and windows compute what they say."""

from __future__ import annotations

import re

import pytest
import sympy as sp
import torch
from packaged import NAMES, rule_of
from printed_specs import OWN

from mnemic.compiler import symbols as sym
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.explanation import remarks
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.rule import KeyValuePairs, Rule
from mnemic.dsl.load import load
from mnemic.dsl.spec import Spec


def rule(name: str) -> Rule:
    if name not in OWN:
        return rule_of(name)
    return derive_spec(Spec.model_validate({"name": "mine", **OWN[name]}))


@pytest.mark.parametrize("name", [*NAMES, *OWN])
def test_a_token_of_the_past_stands_in_a_sum_or_is_what_the_line_defines(name: str) -> None:
    for line in equations(rule(name)):
        left, _, right = re.split("( = |: | ← )", line.text, maxsplit=1)
        if "ᵢ" in right:
            bound = "ᵢ" in left or "Σ_(i" in right or "Π_(i" in right or "i ≤ t" in right
            assert bound, line.text
        if "ᵢ" in left and line.name == "error":
            assert not re.search(r"ŷ(?!ᵢ)|\bv\b", right), line.text


@pytest.mark.parametrize("name", [*NAMES, *OWN])
def test_every_letter_of_a_key_is_told(name: str) -> None:
    one = rule(name)
    own = [role for role in ("predict", "erase", "write") if getattr(one.problem.spec.keys, role)]
    told = " ".join(remarks(one))
    for role in own:
        given = one.problem.keys[role] == sp.Symbol(role, real=True)
        if given and not isinstance(one, KeyValuePairs):
            assert f"is the key that the rule {role}s with" in told
    shares = [e for e in equations(one) if "cᵢ uᵢ" in e.text]
    assert not shares or any(e.text.startswith("cᵢ = ") for e in equations(one))
    if any(scalar.expr.has(sp.Symbol("t", nonnegative=True)) for scalar in one.scalars):
        assert isinstance(one, KeyValuePairs) or "t counts tokens from 0" in told


def test_a_window_with_an_own_erase_key_computes_what_is_printed() -> None:
    """Gₜ = Σ γᵢ (ŷᵢ rᵢᵀ − vᵢ kᵢᵀ), by hand beside the interpreter."""
    one = rule("own erase key")
    shown = {line.name: line.text for line in equations(one)}
    assert shown["gradient"] == "Gₜ = Σ_(i=t−2..t) γᵢ (ŷᵢ rᵢᵀ − vᵢ kᵢᵀ)"
    assert shown["memory"] == "Wₜ = Wₜ₋₁ − Gₜ"
    draw = torch.Generator().manual_seed(0)
    k, v, q, r = torch.randn(4, 1, 7, 1, 3, dtype=torch.float64, generator=draw) / 2
    gamma = torch.rand(1, 7, 1, 3, dtype=torch.float64, generator=draw)
    y, _ = interpret(one, q, k, v, {"gamma": gamma, "erase": r})
    W = torch.zeros(3, 3, dtype=torch.float64)
    for t in range(7):
        G = torch.zeros_like(W)
        for i in range(max(0, t - 2), t + 1):
            weight = gamma[0, t, 0, i - t + 2]
            G += weight * torch.outer(W @ k[0, i, 0], r[0, i, 0])
            G -= weight * torch.outer(v[0, i, 0], k[0, i, 0])
        W = W - G
        torch.testing.assert_close(W @ q[0, t, 0], y[0, t, 0])


def test_a_loss_of_the_norm_has_its_rank_one_term() -> None:
    """slope·I + radial·(ŷ − v)(ŷ − v)ᵀ is the Jacobian of e."""
    steps = {step.title: step.equation for step in rule("window of the norm").steps}
    z = torch.tensor([0.3, -1.2, 0.5], dtype=torch.float64)
    jacobian = torch.autograd.functional.hessian(lambda z: (1 + z @ z).sqrt(), z)
    slope, radial = (
        float(sp.sympify(steps[title]).subs(sym.n, float(z.norm())))
        for title in ("slope", "rank-one term")
    )
    torch.testing.assert_close(
        slope * torch.eye(3, dtype=torch.float64) + radial * torch.outer(z, z), jacobian
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_behind_a_kernel_fade_as_is_printed(seed: int) -> None:
    """cᵢ = mᵢ = 1 at t = i, then mᵢ ← θₜ mᵢ, cᵢ ← αₜ cᵢ + mᵢ."""
    one = rule("kernel and momentum")
    lines = [line.text for line in equations(one) if line.name == "rows"]
    assert lines[1] == "cᵢ = mᵢ = 1 at t = i, then mᵢ ← θₜ mᵢ,  cᵢ ← αₜ cᵢ + mᵢ"
    draw = torch.Generator().manual_seed(seed)
    k, v, q = torch.randn(3, 1, 6, 1, 2, dtype=torch.float64, generator=draw) / 2
    alpha, theta, eta = torch.rand(3, 1, 6, 1, dtype=torch.float64, generator=draw)
    given = {"log_alpha": alpha.log(), "theta": theta, "eta": eta / 2}
    y, _ = interpret(one, q, k, v, given)
    c, m, u = torch.zeros(3, 6, dtype=torch.float64)[0], torch.zeros(6).double(), []
    for t in range(6):
        kappa = [(k[0, i, 0] @ k[0, t, 0]).exp() for i in range(t)]
        seen = sum((c[i] * u[i] * kappa[i] for i in range(t)), torch.zeros(2).double())
        u.append(-given["eta"][0, t, 0] * (seen - v[0, t, 0]))
        m[:t] = theta[0, t, 0] * m[:t]
        c[:t] = alpha[0, t, 0] * c[:t] + m[:t]
        c[t] = m[t] = 1
        read = sum(c[i] * u[i] * (k[0, i, 0] @ q[0, t, 0]).exp() for i in range(t + 1))
        torch.testing.assert_close(read, y[0, t, 0])


def test_every_value_of_a_window_is_at_its_own_token() -> None:
    told = {"bias": {"expr": "e**2/2 + v**2*e"}, "window": 3, "weights": "token"}
    found = derive_spec(load({"name": "mine", **told}))
    shown = {line.name: line.text for line in equations(found)}
    assert shown["error"] == "eᵢ = vᵢ² + ŷᵢ − vᵢ"
