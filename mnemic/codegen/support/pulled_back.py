"""The gradient of a function by autograd of it alone, for functions that no tile computes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import interpolation, kept_attention, kernels, levels, links, local, rows
from .carried import carried_keys
from .chunks import accumulate_blended, accumulate_rows, decayed_products
from .features import features

MODULES = (interpolation, kept_attention, kernels, levels, links, local, rows)


def _functions() -> dict[str, Callable[..., Tensor]]:
    found: dict[str, Callable[..., Tensor]] = {}
    for module in MODULES:
        found |= {
            n: f for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__
        }
    alone = (carried_keys, accumulate_blended, accumulate_rows, decayed_products, features)
    return found | {f.__name__: f for f in alone}


FUNCTIONS = _functions()


def pulled_back(d: Tensor, *arguments: Tensor, of: str, place: int, **options: Any) -> Tensor:
    """Return the gradient at one argument of a function whose value has the gradient d.

    ``of`` names the function, ``place`` the argument; ``options`` are the function's own.
    """
    with torch.enable_grad():
        leaf = arguments[place].detach().requires_grad_()
        given = [leaf if i == place else x for i, x in enumerate(arguments)]
        value = FUNCTIONS[of](*given, **options)
        if not value.requires_grad:
            return torch.zeros_like(leaf)
        (found,) = torch.autograd.grad(value, leaf, d, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found
