"""Norms over the last axis, computed in float32 at least."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .lengths import EPSILON

HALF = (torch.float16, torch.bfloat16)


def widened(x: Tensor) -> Tensor:
    """Return x, in float32 if it has only 16 bits."""
    return x.float() if x.dtype in HALF else x


def of_one_type(given: Mapping[str, Tensor], like: Tensor) -> dict[str, Tensor]:
    """Return tensors that are multiplied with each other in the type of ``like``, in float32 if
    that has only 16 bits: products take no others."""
    wide = torch.float32 if like.dtype in HALF else like.dtype
    return {name: x.to(wide) for name, x in given.items()}


def unit(x: Tensor) -> Tensor:
    """Compute x / sqrt(‖x‖² + ε): of length one, unless x is tiny."""
    wide = widened(x)
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + EPSILON)).to(x.dtype)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """Compute x / sqrt(mean x² + ε) times a weight of its last axis."""
    wide = widened(x)
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return (scaled * weight).to(x.dtype)


def autocasts(device: str) -> bool:
    """Return whether autocast is on for a kind of device; never for one without it, as ``meta``."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Return a context without autocast where it is on, and else one that does nothing.

    Where nothing is to be switched off nothing is entered, since exporting a graph stops there.
    """
    if not autocasts(device):
        return nullcontext()
    found: AbstractContextManager[Any] = torch.autocast(device, enabled=False)
    return found
