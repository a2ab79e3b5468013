"""A phase as the language states it: keys and queries turn by its running sum, or the state does.

A matrix keeps each key channel as a pair, φ becoming (φ cos Ω, φ sin Ω) with Ω_t = Σ_{s≤t} ω_s. The
state of a diagonal memory is complex, W_t = α e^{iω} ∘ W_{t−1} + …, real parts before imaginary.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler.oracle.statement import Names
from mnemic.dsl.spec import Spec

Turn: TypeAlias = Callable[[Tensor], Tensor]


def is_complex(spec: Spec) -> bool:
    """Return whether the state is a vector of complex numbers."""
    return spec.retention.phase is not None and type(spec.memory).word() == "diagonal"


def turned_pair(x: Tensor, angle: Tensor) -> Tensor:
    """Return (x cos Ω, x sin Ω) for x [D] and Ω [D]."""
    return torch.cat([x * torch.cos(angle), x * torch.sin(angle)])


def complex_turn(phase: Tensor) -> Turn:
    """Return the multiplication by e^{iω} of states [2D, 1], for ω [D]."""
    factor = torch.polar(torch.ones_like(phase), phase)

    def turn(state: Tensor) -> Tensor:
        real, imaginary = state[:, 0].chunk(2)
        z = factor * torch.complex(real.contiguous(), imaginary.contiguous())
        return torch.cat([z.real, z.imag])[:, None]

    return turn


def doubled(names: Names, size: int, axis: int) -> dict[str, Tensor]:
    """Return coefficients with those of ``size`` key channels given to both parts of each."""

    def both(x: Tensor) -> Tensor:
        by_channel = x.ndim > 0 and x.ndim > -axis - 1 and x.shape[axis] == size > 1
        return torch.cat([x, x], axis) if by_channel else x

    return {name: both(x) for name, x in names.items()}
