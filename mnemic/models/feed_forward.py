"""The feed-forward halves of a block: position by position, read as a memory of parameters.

The associative-memory view (its second reading of a transformer) takes the hidden units for
stored keys and the output rows for their values; the activation is then the memory's kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.errors import Issue, UsageError, format_issue, nearest

_MULTIPLE = 8


def solu(x: Tensor) -> Tensor:
    """x softmax(x), over the last axis."""
    return x * x.softmax(-1)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": F.silu,
    "solu": solu,
    "exp": torch.exp,
}
"""The kernels of a `KernelFeedForward`, by name."""


class SwiGLU(nn.Module):
    """y = W_out (silu(W_gate x) * W_in x), with 8/3 dim hidden units (Shazeer 2020, Llama).

    Args:
        dim: of x and y, [..., dim].
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = _hidden(dim, 8 / 3)
        self.w_gate = nn.Linear(dim, hidden, bias=False)
        self.w_in = nn.Linear(dim, hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] to [..., dim]."""
        return self.w_out(F.silu(self.w_gate(x)) * self.w_in(x))  # type: ignore[no-any-return]


class KernelFeedForward(nn.Module):
    """y = W_out kernel(W_in x), with 4 dim hidden units.

    Args:
        dim: of x and y, [..., dim].
        kernel: a name in `KERNELS`.
    """

    def __init__(self, dim: int, kernel: str) -> None:
        super().__init__()
        self.kernel = KERNELS[kernel]
        self.w_in = nn.Linear(dim, _hidden(dim, 4), bias=False)
        self.w_out = nn.Linear(_hidden(dim, 4), dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] to [..., dim]."""
        return self.w_out(self.kernel(self.w_in(x)))  # type: ignore[no-any-return]


def make_feed_forward(name: str, dim: int) -> SwiGLU | KernelFeedForward | None:
    """The feed-forward of that name: ``swiglu``, one of `KERNELS`, or ``none``.

    Raises:
        UsageError: there is none of that name.
    """
    if name == "none":
        return None
    if name == "swiglu":
        return SwiGLU(dim)
    if name in KERNELS:
        return KernelFeedForward(dim, name)
    allowed = ("swiglu", *KERNELS, "none")
    issue = Issue("", "feed_forward", name, allowed, nearest(name, allowed))
    raise UsageError(format_issue(issue))


def _hidden(dim: int, ratio: float) -> int:
    """About ratio * dim, rounded up to a multiple of 8."""
    return _MULTIPLE * -(-round(ratio * dim) // _MULTIPLE)
