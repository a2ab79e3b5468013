"""Steps of coupled layers that are too long where a layer starts: told, and true."""

from typing import Any

import pytest
import torch
from torch import Tensor

import mnemic
from mnemic.compiler.explain.first_steps import jacobian
from mnemic.compiler.explain.stability import stability
from mnemic.dsl.catalogue import names
from mnemic.pipeline import derive

Spec = dict[str, Any]


def spec(memory: object, rate: object = "token", **parts: object) -> Spec:
    return {
        "mnemic": 1, "name": "mine", "bias": "l2", "memory": memory,
        "retention": {"decay": "token"},
        "optimizer": {"rate": rate, "anchor": {"chunk": 16}}, **parts,
    }  # fmt: skip


MLP: Spec = {"kind": "mlp", "norm": False}
GLU: Spec = {"kind": "glu", "norm": False}
LOW: Spec = {"kind": "low-rank"}


def predicted(kind: str, w: dict[str, Tensor], key: Tensor) -> Tensor:
    """M(W, k), written by hand."""
    gelu = torch.nn.functional.gelu
    if kind == "mlp":
        return key + w["W1"] @ gelu(w["W2"] @ key)
    if kind == "glu":
        return key + w["W1"] @ (torch.nn.functional.silu(w["W2"] @ key) * (w["W3"] @ key))
    return w["W1"] @ (w["W2"] @ key) + w["W3"][:, 0] * key


@pytest.mark.parametrize("memory", [MLP, GLU, LOW])
def test_the_jacobian_is_that_of_a_layer(memory: Spec) -> None:
    """Against automatic differentiation, at the parameters that torch draws for a layer."""
    torch.manual_seed(0)
    layer = mnemic.compile(spec(memory)).layer(16, heads=1).double()
    drawn = dict(layer.named_parameters())
    w = {n: next(p[0] for m, p in drawn.items() if m.split(".")[-1] == n)
         for n in layer.rule.params}  # fmt: skip
    sizes = []
    for _ in range(8):
        key = torch.nn.functional.normalize(torch.randn(16, dtype=torch.float64), dim=-1)
        at = torch.func.jacrev(lambda w, key=key: predicted(memory["kind"], w, key))(w)
        flat = torch.cat([x.flatten(1) for x in at.values()], 1)
        sizes.append(torch.linalg.matrix_norm(flat, 2).square().item())
    found = jacobian(derive(spec(memory)))
    assert found is not None
    assert min(sizes) / 2 < found < 2 * max(sizes)


def test_other_features_are_taken_at_their_longest() -> None:
    """ELU + 1 of unit keys: above what automatic differentiation finds at random ones."""
    torch.manual_seed(0)
    made = spec({**MLP, "residual": False}, features="elu")
    drawn = dict(mnemic.compile(made).layer(16, heads=1).double().named_parameters())
    w = {n: next(p[0] for m, p in drawn.items() if m.endswith(n)) for n in ("W1", "W2")}

    def prediction(w: dict[str, Tensor], key: Tensor) -> Tensor:
        hidden = w["W2"] @ (torch.nn.functional.elu(key) + 1)
        return w["W1"] @ torch.nn.functional.gelu(hidden)

    sizes = []
    for _ in range(4):
        key = torch.nn.functional.normalize(torch.randn(16, dtype=torch.float64), dim=-1)
        at = torch.func.jacrev(lambda w, key=key: prediction(w, key))(w)
        flat = torch.cat([x.flatten(1) for x in at.values()], 1)
        sizes.append(torch.linalg.matrix_norm(flat, 2).square().item())
    found = jacobian(derive(made))
    assert found is not None
    assert max(sizes) < found < 20 * max(sizes)


@pytest.mark.parametrize("memory", [MLP, GLU, LOW])
def test_what_is_told_is_so(memory: Spec) -> None:
    """One key again and again: at the rate that is warned of the memory grows, at the mend not."""
    line = stability(derive(spec(memory))).warning
    assert line is not None
    mend = float(line.partition("activation: ")[2].partition("*sigmoid")[0])
    assert not bounded(memory, 1.0)
    assert bounded(memory, mend)
    rate = {"from": "input", "activation": f"{mend}*sigmoid(x)"}
    assert stability(derive(spec(memory, rate))).warning is None


def bounded(memory: Spec, rate: float) -> bool:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    layer = mnemic.compile(spec(memory)).layer(16, heads=1)
    drawn = dict(layer.named_parameters())
    params = {n: next(p.detach() for m, p in drawn.items() if m.split(".")[-1] == n)
              for n in layer.rule.params}  # fmt: skip
    q, v = (torch.randn(1, 512, 1, 16, generator=generator) for _ in range(2))
    key = torch.nn.functional.normalize(q[:, :1], dim=-1).expand_as(q)
    flat = torch.ones(1, 512, 1)
    try:
        out, _ = layer.rule(q, key, v, eta=rate * flat, log_alpha=-0.01 * flat, params=params)
    except ValueError:
        return False
    return bool(out.isfinite().all())


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": {"kind": "mlp", "norm": True}},
        {"retention": {"decay": "token", "normalize": "layer-norm"}},
        {"memory": "linear", "optimizer": {"rate": "token"}},
    ],
)
def test_what_a_norm_holds_says_nothing(parts: Spec) -> None:
    assert "‖∂M/∂W‖² =" not in (stability(derive({**spec(MLP), **parts})).warning or "")


@pytest.mark.full
def test_no_packaged_layers_are_warned_of() -> None:
    found = {name: stability(derive(name)).warning for name in names()}
    assert not {name for name, line in found.items() if line and "‖∂M/∂W‖² =" in line}
