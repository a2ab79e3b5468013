"""The feed-forward half of a block, position by position: a memory whose pairs are parameters.

y = W_out κ(W_in x) = Σ_i v_i κ(k_i·x), with the m rows k_i of W_in for keys and the m columns v_i
of W_out for values: what an unnormalised kernel attention reads out of m kept pairs. So the
activation is the memory's kernel, and the pairs are the same for every sequence.

Source: Associative memory, section 2.1.1, (9), (14), and section 2.1.2, (16).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_MULTIPLE = 8


def solu(s: Tensor) -> Tensor:
    """Compute s exp(s), as (16) has it: not the softmax linear unit that divides by Σ exp(s)."""
    return s * torch.exp(s)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": F.silu,
    "solu": solu,
    "exp": torch.exp,
}
"""κ(s) of s = k·x, by name. The temperature τ of (16) is 1 here: rows drawn from N(0, 1/dim) are
the paper's unit-variance keys divided by its τ = √d."""


class SwiGLU(nn.Module):
    """y = W_out (silu(W_gate x) ∘ W_in x), with 8/3 dim hidden units (Shazeer 2020, Llama).

    As a memory: Σ_i v_i κ(x), κ = silu(g_i·x) (k_i·x), with two keys a pair, of which g_i gates.

    Args:
        dim: of x and y, [..., dim].
        hidden: units, in place of 8/3 dim.
    """

    loudness = 1.0
    """See `KernelFeedForward.loudness`."""

    def __init__(self, dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = hidden or _hidden(dim, 8 / 3)
        self.w_gate = nn.Linear(dim, hidden, bias=False)
        self.w_in = nn.Linear(dim, hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute y = W_out (silu(W_gate x) ∘ W_in x): [..., dim] to [..., dim]."""
        return self.w_out(F.silu(self.w_gate(x)) * self.w_in(x))  # type: ignore[no-any-return]


class KernelFeedForward(nn.Module):
    """y = W_out κ(W_in x), with 4 dim hidden units.

    ``exp`` and ``solu`` have no bound on what they amplify; a model divides their initial values
    by ``loudness``, and their step size may have to be smaller.

    Args:
        dim: of x and y, [..., dim].
        kernel: a name in `KERNELS`.
        hidden: units, in place of 4 dim.
    """

    def __init__(self, dim: int, kernel: str, hidden: int | None = None) -> None:
        super().__init__()
        hidden = hidden or _hidden(dim, 4)
        self.kernel = KERNELS[kernel]
        self.w_in = nn.Linear(dim, hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute y = W_out κ(W_in x): [..., dim] to [..., dim]."""
        return self.w_out(self.kernel(self.w_in(x)))  # type: ignore[no-any-return]

    @property
    def loudness(self) -> float:
        """√E κ(s)² of a standard normal s, at least 1: e for ``exp``, e√5 for ``solu``."""
        s = torch.linspace(-10, 10, 4001, dtype=torch.float64)
        density = torch.exp(-s.square() / 2) / math.sqrt(2 * math.pi)
        mean = torch.trapezoid(density * self.kernel(s).square(), s)
        return max(1.0, math.sqrt(mean.item()))


NAMES = ("swiglu", *KERNELS, "none")
"""The feed-forwards that there are."""


def make_feed_forward(
    name: str, dim: int, hidden: int | None = None
) -> SwiGLU | KernelFeedForward | None:
    """Make the feed-forward of that name: ``swiglu``, one of `KERNELS`, or ``none``.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in NAMES:
        raise ValueError(f"feed_forward: read {name!r}, allowed: {', '.join(NAMES)}")
    if name == "none":
        return None
    return SwiGLU(dim, hidden) if name == "swiglu" else KernelFeedForward(dim, name, hidden)


def _hidden(dim: int, ratio: float) -> int:
    """Return about ratio * dim, rounded up to a multiple of 8."""
    return _MULTIPLE * -(-round(ratio * dim) // _MULTIPLE)
