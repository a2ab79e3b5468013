"""The check of a layer's step: token after token through its kernel, against float64.

The layer's PyTorch step in float64, and in the dtype that is checked, take the same tokens with the
same rounded parameters. The state is moved once into new tensors and once in place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import fused, step, step_cut
from .seeded import seeded

BEFORE, TOKENS = 5, 12
"""Tokens before the first step, and steps. More come before where intervals are longer."""

WAYS = ("a new state", "in place")


@dataclass(frozen=True)
class Sample:
    """A layer and tokens, in float64 with values that a dtype has."""

    layer: Any
    x: Tensor
    before: int


@dataclass(frozen=True)
class Tried:
    """Outputs and last states by name: exact, of PyTorch's step in the dtype, of the kernel."""

    way: str
    exact: Mapping[str, Tensor]
    eager: Mapping[str, Tensor]
    found: Mapping[str, Tensor]


def memory_of(layer: Any) -> Any:
    """Return the layer that holds the rule: a hybrid's memory, or the layer itself."""
    return getattr(layer, "memory", layer)


def checkable(layer: Any) -> bool:
    """Return whether a layer (or its type) has a kernel for its token."""
    return getattr(memory_of(layer), "step_kernel", None) is not None


def tried(
    layer: Any, dtype: torch.dtype, device: torch.device, batch: int, *, along: bool
) -> Iterator[Tried]:
    """Yield both ways of a layer's step in a dtype, by the kernel of memories in registers or by
    that which goes ``along`` them; none where there is no such kernel, or they do not fit."""
    sample = _sample(layer, dtype, device, batch)
    if not _fits(sample, dtype, along=along):
        return
    exact = _stepped(sample, torch.float64, "recurrent", WAYS[0])
    eager = _stepped(sample, dtype, "recurrent", WAYS[0])
    for way in WAYS:
        with fused.sweeping(always=along):
            found = _stepped(sample, dtype, "triton", way)
        yield Tried(way + ", block by block" * along, exact, eager, found)


def _sample(layer: Any, dtype: torch.dtype, device: torch.device, batch: int) -> Sample:
    found = memory_of(layer).to(device=device, dtype=dtype).to(torch.float64)
    before = found.period - BEFORE if found.period > BEFORE else BEFORE
    with seeded(1):
        tokens = found.at_most(before + TOKENS)
        x = torch.randn(batch, tokens, found.dim, dtype=torch.float64)
    x = x.to(dtype).to(device=device, dtype=torch.float64)
    return Sample(found, x, min(before, tokens - 1))


def _begun(sample: Sample, dtype: torch.dtype) -> tuple[Any, Tensor, dict[str, Tensor]]:
    """Return the layer in a dtype, the tokens of its steps, and the state before them."""
    layer, x = sample.layer.to(dtype), sample.x.to(dtype)  # whose numbers the dtype has
    _, state = layer.rows(x[:, : sample.before], {}, None, "recurrent")
    return layer, x[:, sample.before :], {name: s.clone() for name, s in state.items()}


@torch.no_grad()
def _fits(sample: Sample, dtype: torch.dtype, *, along: bool) -> bool:
    """Return whether a kernel of memories in registers, or one ``along`` them, fits the layer."""
    layer, _, state = _begun(sample, dtype)
    one = layer.step_kernel()
    with fused.sweeping(always=along):
        found = step_cut.suited(one, step.sizes_of(layer, one, state))
    return found is not None and bool(found.along) == along


@torch.no_grad()
def _stepped(sample: Sample, dtype: torch.dtype, form: str, way: str) -> dict[str, Tensor]:
    """Run the steps in a dtype; return the outputs and the last state."""
    layer, x, state = _begun(sample, dtype)
    outputs = []
    for token in x.unbind(1):
        if way == "in place":
            outputs.append(layer.advance(token, state, form=form))
        else:
            y, state = layer.step(token, state, form=form)
            outputs.append(y)
    states = {f"state {n}": s for n, s in state.items() if s.is_floating_point()}
    return {"output": torch.stack(outputs, 1), **states}
