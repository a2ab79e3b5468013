"""Norms that are steep where a layer starts: told before training, from the memory's form."""

from typing import Any

import pytest
import torch

import mnemic
from mnemic.compiler.explain.beginning import STEEP, steepest, warning
from mnemic.compiler.explain.explanation import warned
from mnemic.dsl.catalogue import names
from mnemic.pipeline import derive

Spec = dict[str, Any]

NORMED: Spec = {"kind": "mlp", "norm": True}
ONE: Spec = {**NORMED, "depth": 1}
PLAIN: Spec = {
    "mnemic": 1, "name": "mine", "bias": "l2", "memory": NORMED,
    "optimizer": {"anchor": {"chunk": 16}},
}  # fmt: skip


@pytest.mark.full
def test_packaged_layers_start_where_a_norm_is_not_steep() -> None:
    found = {name: steepest(derive(name)) for name in names()}
    assert {"ttt-linear", "titans", "memora", "moneta", "cms"} <= {n for n in found if found[n]}
    assert {n: s for n, s in found.items() if s is not None and s >= STEEP} == {}


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"features": "exponential"}, "Behind a kernel the memory starts without pairs"),
        ({"features": "exponential", "memory": ONE}, "Behind a kernel"),
        ({"memory": {**NORMED, "activation": "max(x - 2, 0)"}}, "Let the link"),
        ({"retention": {"local": "kl", "constraint": {"kind": "simplex"}}}, "the scale"),
        ({"retention": {"global": {"elastic": {"l1": 1, "l2": 0}}}}, "Let the link"),
        ({"memory": ONE, "optimizer": {}, "retention": {"local": {"f-divergence": "chi2"}}}, "Let"),
    ],
)
def test_a_users_own_steep_start_is_told(part: Spec, told: str) -> None:
    rule = derive({**PLAIN, **part})
    found = warning(rule)
    assert found is not None
    assert "the norm's slope 316" in found
    assert told in found
    assert found in warned(rule)


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"memory": ONE},
        {"features": "exponential", "memory": {**NORMED, "activation": "softplus"}},
        {"retention": {"local": {"bregman": "w*log(w) + (1-w)*log(1-w)"}}},
        {"memory": {"kind": "mlp", "norm": False}},
        {"bias": "dot", "memory": "linear"},
    ],
)
def test_other_starts_say_nothing(part: Spec) -> None:
    assert warning(derive({**PLAIN, **part})) is None


@pytest.mark.parametrize("name", ["ttt-linear", "ttt-mlp", "moneta-derived", "memora"])
def test_the_slope_is_that_of_a_layer(name: str) -> None:
    """Against the layer's own memory, read by automatic differentiation of its norm's input."""
    torch.manual_seed(0)
    compiled = mnemic.compile(name)
    layer = compiled.layer(16, heads=1).double()
    x = torch.randn(1, 32, 16, dtype=torch.float64)
    key = torch.nn.functional.normalize(x.new_zeros(1, 32, 1, 16).normal_(), dim=-1)
    state = layer.begin(x[:, :1])
    matrices = [state[n] for n in ("anchor", "anchor1", "anchor2") if n in state]
    z = key
    for index, w in enumerate(reversed(matrices)):
        z = torch.nn.functional.gelu(z) if index else z
        z = (w[0].double() @ z[..., None])[..., 0]
    slope = (z.var(-1, unbiased=False) + 1e-5).rsqrt()
    assert slope.min() / 2 < steepest(derive(name)) < 2 * slope.max()
