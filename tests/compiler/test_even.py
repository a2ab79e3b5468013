"""Weights of kept pairs that can hardly differ are told of before training."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mnemic import pipeline
from mnemic.compiler.explain import even
from mnemic.compiler.explain.explanation import warned
from mnemic.dsl.catalogue import names
from mnemic.dsl.memory import Nonparametric

ATTENTION: dict[str, Any] = {
    "mnemic": 1, "name": "mine", "bias": "l2", "window": "all", "weights": "similarity",
    "optimizer": "nonparametric",
}  # fmt: skip


def spec(block: dict[str, Any] | None = None, **memory: Any) -> dict[str, Any]:
    return {**ATTENTION, "memory": {"kind": "nonparametric", **memory}, "block": block or {}}


def test_attention_on_unit_vectors_is_told_to_be_a_mean() -> None:
    told = even.warning(pipeline.derive(spec()))
    assert told is not None
    assert "within ±0.125 for 64 channels, and no pair weighs more than 1.28 times" in told
    assert "Write memory.scale: 8, √d_k" in told
    assert told in warned(pipeline.derive(spec()))
    narrow = even.warning(pipeline.derive(spec({"key_dim": 16})))
    assert narrow is not None
    assert "±0.25 for 16 channels" in narrow


@pytest.mark.parametrize(
    ("block", "memory"),
    [
        ({"qk_norm": "none"}, {}),
        ({"scale": 64.0}, {}),
        ({"key_dim": 4}, {}),
        ({}, {"scale": 8.0}),
        ({}, {"similarity": "exp(8*s)"}),
        ({}, {"similarity": "exp(-d2)"}),
        ({}, {"similarity": "s**2 + 0.001"}),
    ],
)
def test_weights_that_differ_are_not(block: dict[str, Any], memory: dict[str, Any]) -> None:
    assert even.warning(pipeline.derive(spec(block, **memory))) is None


def test_what_is_told_is_what_attention_does() -> None:
    """A weight of up to 1.28 times another moves a mean of values by up to 0.28 of the largest; on
    keys at random by much less. Scale 8 is far from any mean."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 40, 1, 64, dtype=torch.float64) for _ in range(3))
    unit = {"q": F.normalize(q, dim=-1), "k": F.normalize(k, dim=-1), "v": v}
    mean = v.cumsum(1) / torch.arange(1, 41)[:, None, None]
    moved = [
        float((pipeline.compile(spec(**memory)).module.rule(**unit)[0] - mean)[:, 5:].abs().max())
        for memory in ({}, {"scale": 8.0})
    ]
    assert moved[0] < 0.1
    assert moved[1] > 1


def test_no_packaged_spec_is_even() -> None:
    kept = [n for n in names() if isinstance(pipeline.read(n).memory, Nonparametric)]
    assert "softmax-attention" in kept
    assert [n for n in kept if even.warning(pipeline.derive(n))] == []
