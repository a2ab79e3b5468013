"""The arguments with which a layer calls its rule at the start of training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


class Recorder:
    """Stands in for a rule: keeps what it is called with, and gives back zeros."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.given: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rule, name)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensors]:
        self.given = {"q": q, "k": k, "v": v, **options}
        groups = q.shape[-2] // k.shape[-2]
        steps = v[:, :, 0] if v.ndim == 5 else v
        return torch.zeros_like(steps.repeat_interleave(groups, -2)), {}


def arguments(compiled: Any, x: Tensor, *, heads: int, seed: int = 0) -> tuple[Tensors, Tensors]:
    """Vectors and coefficients [1, T, heads, …] in float64, and the parameters of a deep memory.

    The layer is as it starts: its projections drawn with ``seed``, its coefficients where they
    begin, so keys and gates are those of a first training step on x [1, T, dim].
    """
    torch.manual_seed(seed)
    layer = compiled.module.Layer
    recorder = Recorder(layer.rule)
    kind = type("Recorded", (layer,), {"rule": recorder})
    made = kind(x.shape[-1], heads=heads).double()
    with torch.no_grad():
        made(x)
    given = recorder.given
    names = ("form", "mask", "initial_state", "output_final_state", "params", "cu_seqlens")
    tensors = {n: t for n, t in given.items() if n not in names and t is not None}
    params = given.get("params") or beginning(compiled.operator, tensors)
    return tensors, dict(params)


def beginning(rule: Any, tensors: Mapping[str, Tensor], seed: int = 0) -> Tensors:
    """Initial duals of a deep memory where the layer brings none: N(0, 1/columns)."""
    from mnemic.codegen.support.sizes import eval_size

    told = rule.signature
    rng = torch.Generator().manual_seed(seed)
    value = tensors["v"].shape[-1]
    sizes = {"v": value, "D": eval_size(told.features, tensors["k"].shape[-1])}
    sizes |= {name: round(share * value) for name, share in told.widths}
    heads = tensors["k"].shape[-2]
    found = {}
    for p in told.params:
        shape = (heads, sizes[p.rows], sizes[p.columns])
        x = torch.randn(*shape, generator=rng, dtype=torch.float64)
        found[p.name] = x / sizes[p.columns] ** 0.5
    return found
