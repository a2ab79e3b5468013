"""Hand-written memory layers that stand in for generated ones."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mnemic.models.contract import MakeLayer

TAPS = 4


class GatedDeltaState(NamedTuple):
    """W [B, H, d, d] (values by keys) and the last 3 inputs of the convolution, [B, 3, 3 dim]."""

    memory: Tensor
    inputs: Tensor


class GatedDelta(nn.Module):
    """W_t = alpha W_{t-1} (I - eta k kᵀ) + eta v kᵀ, y = W_t q, in one chunk."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.taps = nn.Parameter(torch.empty(3 * dim, 1, TAPS).uniform_(-0.5, 0.5))
        self.rates = nn.Linear(dim, 2 * heads)
        self.gate = nn.Linear(dim, dim, bias=False)
        self.norm = nn.RMSNorm(dim // heads, eps=1e-6)
        self.out = nn.Linear(dim, dim, bias=False)
        with torch.no_grad():
            self.rates.bias[heads:] = 4.0

    def forward(
        self,
        x: Tensor,
        *,
        state: GatedDeltaState | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, GatedDeltaState]:
        assert mask is None
        state = self._fresh(x) if state is None else state
        inputs = torch.cat([state.inputs, self.qkv(x)], 1)
        q, k, v = self._heads(F.conv1d(inputs.mT, self.taps, groups=inputs.shape[-1]).mT)
        eta, log_alpha = self._rates(x)
        y, memory = _chunk(q, k, v, eta, log_alpha, state.memory)
        y = self._read_out(x, y.transpose(1, 2))
        after = GatedDeltaState(memory, inputs[:, inputs.shape[1] - TAPS + 1 :])
        return (y, after) if output_state else y

    def step(self, x_t: Tensor, state: GatedDeltaState | None) -> tuple[Tensor, GatedDeltaState]:
        x = x_t[:, None]
        state = self._fresh(x) if state is None else state
        inputs = torch.cat([state.inputs, self.qkv(x)], 1)
        q, k, v = self._heads((inputs * self.taps[:, 0].T).sum(1, keepdim=True))
        eta, log_alpha = self._rates(x)
        q, k, v = q.mT, k.mT, v.mT  # columns
        decayed = state.memory * log_alpha.exp()[..., None]
        memory = decayed + eta[..., None] * (v - decayed @ k) @ k.mT
        y = self._read_out(x, (memory @ q).squeeze(-1)[:, None])
        return y[:, 0], GatedDeltaState(memory, inputs[:, 1:])

    def _fresh(self, x: Tensor) -> GatedDeltaState:
        b, dim = x.shape[0], x.shape[2]
        d = dim // self.heads
        return GatedDeltaState(x.new_zeros(b, self.heads, d, d), x.new_zeros(b, TAPS - 1, 3 * dim))

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, 3 dim] to q, k, v, each [B, H, T, d]; q and k of length 1."""
        b, t, _ = mixed.shape
        q, k, v = F.silu(mixed).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v

    def _rates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """eta and log alpha, each [B, H, T]."""
        eta, alpha = self.rates(x).mT.chunk(2, 1)
        return eta.sigmoid(), F.logsigmoid(alpha)

    def _read_out(self, x: Tensor, y: Tensor) -> Tensor:
        """y [B, T, H, d] normed, gated by x [B, T, dim] and mixed."""
        mixed: Tensor = self.out(self.norm(y).flatten(2) * F.silu(self.gate(x)))
        return mixed


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, eta: Tensor, log_alpha: Tensor, memory: Tensor
) -> tuple[Tensor, Tensor]:
    """The whole sequence as one chunk: solve for the written values u, then read."""
    g = log_alpha.cumsum(-1)
    ratio = (g[..., :, None] - g[..., None, :]).tril().exp().tril()
    past = g.exp()[..., None]
    system = eta[..., None] * (k @ k.mT * ratio).tril(-1)
    wanted = eta[..., None] * (v - past * (k @ memory.mT))
    u = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    y = past * (q @ memory.mT) + (q @ k.mT * ratio) @ u
    last = ratio[..., -1, :, None]
    return y, memory * past[..., -1:, :] + (u * last).mT @ k


class CausalMean(nn.Module):
    """y_t = V mean_{i<=t} x_i: the cheapest layer with a state."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.value = nn.Linear(dim, dim, bias=False)

    def forward(
        self,
        x: Tensor,
        *,
        state: tuple[Tensor, Tensor] | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        total, count = (
            (x.new_zeros(x.shape[0], x.shape[2]), x.new_zeros(1)) if state is None else state
        )
        totals = total[:, None] + self.value(x).cumsum(1)
        counts = count + torch.arange(1, x.shape[1] + 1)
        y = totals / counts[:, None]
        return (y, (totals[:, -1], counts[-1:])) if output_state else y

    def step(
        self, x_t: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, after = self(x_t[:, None], state=state, output_state=True)
        return y[:, 0], after


@pytest.fixture
def gated_delta() -> MakeLayer:
    """Two heads of gated delta rule."""
    return lambda dim, index: GatedDelta(dim, 2)


@pytest.fixture
def causal_mean() -> MakeLayer:
    """The cheapest layer."""
    return lambda dim, index: CausalMean(dim)
