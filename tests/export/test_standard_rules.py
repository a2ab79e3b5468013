"""Which rules are one of ONNX's ``LinearAttention``, and that its formula then is theirs."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp
import torch
from standard_specs import FOUND
from tiers import first_only
from torch import Tensor

import mnemic
from mnemic.compiler.derive import derive_spec
from mnemic.dsl.load import load
from mnemic.export.linear_attention import StandardOperator
from mnemic.export.standard_rules import standard
from mnemic.pipeline import derive

OWN: dict[str, dict[str, Any]] = {
    "delta": {"bias": {"expr": "(y - v)**2/2"}, "optimizer": {"rate": "token"}},
    "gated": {"bias": {"expr": "-3*y*v"}, "retention": {"decay": 0.5, "order": "before"}},
}
"""Specs that nobody named."""


def formula(
    rule: str, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, beta: Tensor | None,
    state: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The operator's own definition, token by token: o [B, T, H, d_v] and S [B, H, d_k, d_v]."""
    outputs = []
    for t in range(q.shape[1]):
        key, value = k[:, t, :, :, None], v[:, t, :, None, :]
        if decay is not None:
            g = decay[:, t] if decay.ndim == 4 else decay[:, t, :, None]
            state = g.exp()[..., None] * state
        if beta is not None:
            value = beta[:, t, :, None, None] * (value - key.mT @ state)
        state = state + key * value
        outputs.append((q[:, t, :, None] @ state)[:, :, 0])
    assert (decay is None) == (rule in ("linear", "delta"))
    assert (beta is None) == (rule in ("linear", "gated"))
    return torch.stack(outputs, 1), state


def agrees(spec: Any, rule: str) -> None:
    """A layer's rule in float64 beside the formula, on the layer's own coefficients."""
    found = standard(derive(spec))
    assert found is not None
    assert found.update_rule == rule
    torch.manual_seed(0)
    layer = mnemic.compile(spec).layer(24, heads=3).double()
    x = torch.randn(2, 11, 24, dtype=torch.float64)
    with torch.no_grad():
        given = layer.arguments(x)
        _, before = layer.rule(**given, output_final_state=True)
        out, after = layer.rule(**given, initial_state=before, output_final_state=True)
        q, k, v = given.pop("q"), given.pop("k"), given.pop("v")
        stands = StandardOperator(layer.rule, derive(spec), found)
        query, value, decay, beta = stands.inputs(q, k, v, given)
        expected, last = formula(rule, query, k, value, decay, beta, before["W"].mT)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(after["W"].mT, last, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", first_only(list(FOUND), "longhorn", "gla"))
def test_a_rule_is_the_operators(name: str) -> None:
    agrees(name, FOUND[name])


@pytest.mark.parametrize("rule", list(OWN))
def test_no_name_decides(rule: str) -> None:
    agrees({"mnemic": 1, "name": "nobodys", **OWN[rule]}, rule)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        pytest.param("efla", "its rate divides by ‖k‖², which may be 0", marks=pytest.mark.full),
        ("leaky-lms", "its decay may be negative"),
        ("rwkv7", "it erases along another key"),
        ("huber-norm", "its error is not affine"),
        ("deltanet-momentum", "it carries a second matrix"),
    ],
)
def test_a_rule_that_is_none_of_them(name: str, why: str) -> None:
    assert standard(derive(name)) is None, why


DECAYS = {
    "1 - 2**(-5 - h)": True, "1 - 1/(2 + h)": True, "exp(-(h + 1)/H)": True,
    "1 - 2**(-5 - 3*h/H)": True, "1 - h/(H + 1)": True,
    "1 - h/80": False, "1 - H/100": False, "1 - 1/(1 + h)": False,
}  # fmt: skip
"""Decays by head, and whether each is above 0 at every head of any number of heads."""


@pytest.mark.parametrize("decay", DECAYS)
def test_a_decay_by_head_is_above_zero_for_any_number_of_heads(decay: str) -> None:
    h, many = sp.Symbol("h"), sp.Symbol("H")
    value = sp.lambdify((h, many), sp.sympify(decay, locals={"h": h, "H": many}))
    heads = [(i, n) for n in (1, 2, 65, 100, 150) for i in (0, 1, n // 2, n - 1) if i < n]
    assert all(float(value(i, n)) > 0 for i, n in heads) is DECAYS[decay]
    spec = {"mnemic": 1, "name": "by-head", "bias": "dot", "retention": {"decay": decay}}
    found = standard(derive(spec))
    assert (found is not None and found.update_rule == "gated") is DECAYS[decay]


@pytest.mark.full
def test_of_all_packaged_specs_these_are(packaged_rules: dict[str, Any]) -> None:
    assert {n: s.update_rule for n, r in packaged_rules.items() if (s := standard(r))} == FOUND


@pytest.fixture
def packaged_rules() -> dict[str, Any]:
    from packaged import PATHS, available

    return {name: derive_spec(load(PATHS[name])) for name in available()}
