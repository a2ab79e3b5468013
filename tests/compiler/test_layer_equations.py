"""The equations of a layer around its memory, against the layers that are generated."""

import re

import pytest
import torch
from packaged import NAMES, available, rule_of
from torch import Tensor
from torch.nn import functional as F

from mnemic import pipeline
from mnemic.compiler.explain.equations import equations
from mnemic.compiler.explain.layer_equations import layer_equations


def lines(name: str) -> dict[str, str]:
    """Return a layer's equations by what stands on their left."""
    found = layer_equations(rule_of(name), 1)
    return dict(q.text.split(" = ", 1) for q in found if " = " in q.text)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_follow_those_of_the_rule(name: str) -> None:
    rule = rule_of(name)
    last = len(equations(rule))
    numbers = [q.number for q in layer_equations(rule, last + 1)]
    assert numbers == [*range(last + 1, last + 1 + len(numbers))]


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_vectors_are_those_that_the_layer_projects(name: str) -> None:
    """A vector has an equation exactly where the layer has channels for it, or a value not 0."""
    layer = pipeline.compile(name).layer(16, heads=2)
    vectors = getattr(layer, "memory", layer).vectors
    letters = {"predict": "p", "erase": "r", "write": "s", "carry": "c"}
    projected = {letters.get(n, n) for n in vectors.channels}
    constant = {letters.get(n, n) for n, x in vectors.constant.items() if x}
    told = {m[1]: text for left, text in lines(name).items() if (m := re.match(r"([a-z])ₜ$", left))}
    told = {n: x for n, x in told.items() if n in "qkvprsc"}
    assert {n for n, x in told.items() if f"W_{n} " in x} == projected
    assert {n for n, x in told.items() if "W_" not in x} == constant
    convolved = vectors.convolution is not None
    assert all(("conv(" in told[n]) == convolved for n in projected)


def rms(u: Tensor) -> Tensor:
    """u over the root of its mean square."""
    return u / (u.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def test_a_layer_computes_its_equations() -> None:
    """Gated DeltaNet's layer from the printed lines, with the compiled rule in their middle."""
    compiled = pipeline.compile("gated-deltanet")
    torch.manual_seed(0)
    layer = compiled.layer(16, heads=1).double()
    x = torch.randn(1, 12, 16, dtype=torch.float64)
    assert lines("gated-deltanet") == {
        "qₜ": "unit(silu(conv(W_q x)ₜ))", "kₜ": "unit(silu(conv(W_k x)ₜ))",
        "vₜ": "silu(conv(W_v x)ₜ)", "oₜ": "W_o (rms(yₜ) ∘ silu(W_g xₜ))",
    }  # fmt: skip
    taps = layer.vectors.convolution.weight.reshape(-1, 4)
    mixed = F.pad(layer.vectors.project(x), (0, 0, 3, 0))
    convolved = sum(taps[:, j] * mixed[:, j : j + 12] for j in range(4))
    q, k, v = (
        F.silu(u)[:, :, None] for u in convolved.split(list(layer.vectors.channels.values()), -1)
    )
    unit = lambda u: u / u.norm(dim=-1, keepdim=True)  # noqa: E731
    y, _ = compiled(unit(q), unit(k), v, **layer.coefficients(x))
    o = layer.out((rms(y) * layer.norm_weight).flatten(2) * F.silu(layer.gate(x)))
    assert torch.allclose(o, layer(x), atol=1e-5)


def softmax_over(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Σ_j softmax_j(q_t·k_j / √d) v_j over the j that are seen, [H, T, d]."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("kind", ["gate", "layer"])
def test_a_hybrid_computes_its_equations(kind: str) -> None:
    """Memory as a gate and as a layer, from their lines, with M(x̃) from the memory's own layer."""
    spec = {
        "name": "hybrid", "bias": "l2", "optimizer": {"rate": "token"},
        "block": {"hybrid": kind, "attention_window": 5, "persistent": 2, "heads": 1},
    }  # fmt: skip
    compiled = pipeline.compile(spec)
    told = [q.text for q in layer_equations(pipeline.derive(spec), 1)]
    assert "x̃ = [p_1, p_2; x_1, …, x_T]" in told
    torch.manual_seed(0)
    layer = compiled.layer(8, heads=1).double()
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    tilde = torch.cat([layer.persistent[None], x], 1)
    m = layer.memory(tilde)
    source = tilde if kind == "gate" else m
    attention = layer.attention
    q = attention.project_q(source)
    k, v = attention.project_kv(source).chunk(2, -1)
    t, j = torch.arange(2, 13)[:, None], torch.arange(13)
    seen = (j < 2) | ((j <= t) & (j > t - 5))
    a = attention.out(softmax_over(q[:, 2:], k, v, seen))
    window = "Σ_(j: p; t−4 ≤ j ≤ t) softmax_j(q̄ₜ·k̄_j / √d) v̄_j"
    if kind == "layer":
        assert told[-1] == f"oₜ = W_a {window}  (of m)"
        wanted = a
    else:
        assert told[-2:] == [f"aₜ = W_a {window}  (of x̃)", "oₜ = rms(aₜ) ∘ σ(rms(mₜ))"]
        gate = layer.gate
        wanted = rms(a) * gate.branch * torch.sigmoid(rms(m[:, 2:]) * gate.memory)
    assert torch.allclose(wanted, layer(x), atol=1e-5)


def test_an_activation_of_ones_own_is_defined_behind_its_line() -> None:
    rule = pipeline.derive({"name": "own", "block": {"activation": "x*sigmoid(2*x)"}})
    told = [q.text for q in layer_equations(rule, 1)]
    assert told[1] == "kₜ = unit(f(conv(W_k x)ₜ)),  f(x) = σ(2·x)·x"
