"""PyTorch's attention with derivatives of any order: its fused kernels have the first one alone."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .transforms import transformed


def attended(
    q: Tensor, k: Tensor, v: Tensor, *, seen: Tensor | None = None, causal: bool = False,
    scale: float | None = None, grouped: bool = False,
) -> Tensor:  # fmt: skip
    """Σ_j softmax_j(scale q·k_j) v_j over the keys that each query sees; scale is 1/√d unless told.

    ``seen`` is true at the keys that a query sees, ``causal`` for those up to its own; with
    ``grouped`` heads of q share keys.
    """
    options = (seen, causal, scale, grouped)
    if torch.compiler.is_compiling():
        return _attended(q, k, v, *options)
    if transformed():  # forward derivatives, and nested ones, go through products and a softmax
        return _by_products(q, k, v, *options)
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))):
        return _attended(q, k, v, *options)
    found: Tensor = _Attended.apply(q, k, v, *options)
    return found


def _attended(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool, scale: float | None,
    grouped: bool,
) -> Tensor:  # fmt: skip
    return scaled_dot_product_attention(
        q, k, v, attn_mask=seen, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _by_products(*given: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return _attended(*given)


class _Attended(torch.autograd.Function):
    """The first gradient by PyTorch's own kernels; where it is differentiated, by products."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
        """Keep the graph of what is called, which holds what its gradient reads."""
        ctx.save_for_backward(q, k, v)
        ctx.options = options
        with torch.enable_grad():
            pairs = zip((q, k, v), ctx.needs_input_grad, strict=False)
            leaves: list[Any] = [x.detach().requires_grad_(w) for x, w in pairs]
            found = _attended(*leaves, *options)
        ctx.inner = found, leaves
        return found.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """∂/∂q, ∂/∂k and ∂/∂v of those that are asked for."""
        again = torch.is_grad_enabled()
        found, leaves = ctx.inner
        if again:
            leaves = ctx.saved_tensors
            found = _by_products(*leaves, *ctx.options)
        wanted = ctx.needs_input_grad[:3]
        at = [x for x, w in zip(leaves, wanted, strict=True) if w]
        told = torch.autograd.grad(found, at, grads[0], retain_graph=True, create_graph=again)
        rest = iter(told)
        return *(next(rest) if w else None for w in wanted), *(None for _ in ctx.options)
