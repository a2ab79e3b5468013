"""What torch.func (grad, vmap, jvp) and forward-mode derivatives ask of functions."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad


def functional() -> bool:
    """Return whether a transform of ``torch.func`` is at work, where no number can be read."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def host_reads() -> bool:
    """Return whether the host can read numbers: neither a trace nor a transform is at work."""
    return not (torch.compiler.is_compiling() or functional())


def transformed() -> bool:
    """Return whether a functional transform or forward-mode differentiation is at work.

    Then formulas take the place of derivatives written by hand, which know the backward mode alone.
    """
    if torch.compiler.is_compiling():
        return False
    return functional() or forward_ad._current_level >= 0


def pushed(
    function: Callable[..., Tensor], at: Sequence[Tensor], moved: tuple[Tensor, ...]
) -> Tensor:
    """Return the derivative along a direction, as the transpose of the transpose: forward modes do
    not nest."""
    pulled = torch.func.vjp(function, *at)
    value, pull = pulled[0], pulled[1]
    found: Tensor = torch.func.vjp(pull, torch.zeros_like(value))[1](moved)[0]
    return found
