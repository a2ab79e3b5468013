"""Generators with coefficients: hypentropy of a learned width, f-divergences of learned shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import mnemic
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.verify import verify
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

HYPENTROPY = "w*asinh(w/b) - sqrt(w**2 + b**2)"
WIDTH = {"from": "parameter", "activation": "softplus"}


def spec(b: Any = WIDTH, **retention: Any) -> dict[str, Any]:
    return {
        "name": "x", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"},
        "coefficients": {"b": b},
    }  # fmt: skip


def given(tokens: int = 6) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(2, tokens, 1, *shape, generator=rng, dtype=torch.float64)

    k = torch.nn.functional.normalize(normal(4), dim=-1)
    return {"q": normal(4), "k": k, "v": normal(3), "eta": 0.5 * torch.sigmoid(normal())}


def test_hypentropy_is_a_loop_of_its_equation() -> None:
    """A ← A − η∇ℓ, W = b sinh(A) (Ghai, Hazan and Singer 2020), with a gradient to b."""
    x, b = given(), torch.full((1,), 0.7, dtype=torch.float64)
    rule = mnemic.compile(spec(local={"bregman": HYPENTROPY}))
    found = rule.rule.retained.link.expr
    assert str(found) == "b*sinh(a)"  # ∇R = asinh(w/b) for the b > 0 that its activation gives
    leaves = [z.requires_grad_() for z in (*x.values(), b)]
    dual, outs = torch.zeros(2, 3, 4, dtype=torch.float64), []
    for t in range(6):
        q, k, v, eta = (x[n][:, t, 0] for n in ("q", "k", "v", "eta"))
        error = torch.einsum("bvk,bk->bv", b * torch.sinh(dual), k) - v
        dual = dual - eta[:, None, None] * error[..., None] * k[:, None]
        outs.append(torch.einsum("bvk,bk->bv", b * torch.sinh(dual), q))
    expected = torch.stack(outs, 1)[:, :, None]
    out, _ = rule(**x, b=b.expand(2, 6, 1), form="recurrent")
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    mine, theirs = (torch.autograd.grad(z.sin().sum(), leaves) for z in (out, expected))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "entries",
    [
        {"local": {"bregman": HYPENTROPY + " + w**2/2"}},
        {"local": {"bregman": HYPENTROPY}, "constraint": {"kind": "simplex", "scale": 2}},
        {"local": {"f-divergence": "x*log(x) + b*(x-1)**2"}, "constraint": "simplex"},
        pytest.param(
            {"local": {"f-divergence": "b*(x-1)**2/(x+1)"}, "constraint": "simplex"},
            marks=pytest.mark.full,
        ),
        {"local": {"f-divergence": "b*(x-1)**2 + (x-1)**4"}},
    ],
)
def test_gradients_to_the_coefficient(entries: dict[str, Any]) -> None:
    """Derived, checked against the problem as written, and differentiated as differences are."""
    if "constraint" not in entries:
        assert all(check.passed for check in verify(derive_spec(load(spec(**entries)))))
    rule, x = mnemic.compile(spec(**entries)), given(2)
    b = torch.full((2, 2, 1), 0.7, dtype=torch.float64, requires_grad=True)

    def read(b: Tensor) -> Tensor:
        found: Tensor = rule(**x, b=b, form="recurrent")[0]
        return found

    assert torch.autograd.gradcheck(read, (b,), eps=1e-6, atol=1e-6)


def test_a_generator_does_not_change_from_token_to_token() -> None:
    with pytest.raises(InvalidSpec, match="its coefficient b comes from the input"):
        derive_spec(load(spec("token", local={"bregman": HYPENTROPY})))


def test_a_coefficient_that_may_spoil_convexity_is_refused() -> None:
    wide = {"from": "parameter", "activation": "x"}
    with pytest.raises(InvalidSpec, match="not strictly convex on its domain at b = -"):
        derive_spec(load(spec(wide, local={"f-divergence": "b*(x-1)**2"})))


@pytest.mark.parametrize("text", ["w*asinh(w) - sqrt(1 + w**2) + w**2/9", "w*atanh(w) + w**2"])
def test_inverse_hyperbolic_functions(text: str) -> None:
    rule = {"name": "x", "bias": "l2", "optimizer": {"rate": "token"}}
    found = derive_spec(load({**rule, "retention": {"local": {"bregman": text}}}))
    assert all(check.passed for check in verify(found))


@pytest.mark.parametrize(
    ("text", "link"),
    [("cosh(w)", "asinh(a)"), ("sinh(w)**2", "asinh(a)/2"),
     ("2*cosh(w/3) + w", "3*asinh(3*a/2 - 3/2)"), ("cosh(w) + w**2", "None")],
)  # fmt: skip
def test_links_of_hyperbolic_generators(text: str, link: str) -> None:
    """What SymPy writes as a logarithm that cancels is asinh; what has no closed form is a root."""
    rule = {"name": "x", "bias": "l2", "optimizer": {"rate": "token"}}
    found = derive_spec(load({**rule, "retention": {"local": {"bregman": text}}}))
    assert str(found.retained.link.expr) == link
    assert all(check.passed for check in verify(found))
