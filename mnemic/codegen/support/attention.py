"""The attention of a hybrid: grouped heads, rotary positions, a sliding window, a prefix."""

from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import positions
from .block import HEAD, Block
from .pickled import Pickled
from .scanned import unknown
from .transforms import transformed
from .vectors import States, projection

FEWEST = 64
"""Queries of a block of sliding-window attention, at least."""

Keys = tuple[Tensor, Tensor]
"""Keys and values, [B, H_k, S, d]."""


class Attention(Pickled, nn.Module):
    """o_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j over the j that i sees, with q, k, v linear in x.

    There are H heads of d = dim / H channels (H as in the block, else dim / 64), and each
    ``groups`` of them share keys and values; with ``rotary``, q and k get rotary position
    embeddings. The attention itself is PyTorch's ``scaled_dot_product_attention``.

    Args:
        dim: channels of x and o.
        block: of the memory beside it, for heads and groups.
        rotary: whether queries and keys get rotary position embeddings.

    Raises:
        ValueError: heads, groups and channels that do not go together.
    """

    def __init__(self, dim: int, block: Block, rotary: bool) -> None:
        super().__init__()
        heads = block.heads or max(1, dim // HEAD)
        self.heads, self.width, self.rotary = heads, max(1, dim // heads), rotary
        if heads % block.groups:
            told = f"read {heads} and {block.groups}"
            raise ValueError(f"heads must be a multiple of groups; {told}")
        if rotary and self.width % 2:
            told = f"read {self.width}, of {dim} channels and {heads} heads"
            raise ValueError(f"rotary positions need an even size of a head; {told}")
        self.key_heads = heads // block.groups
        self.project_q = projection(dim, heads * self.width)
        self.project_kv = projection(dim, 2 * self.key_heads * self.width)
        self.out = projection(heads * self.width, dim)

    def queries(self, x: Tensor, position: Tensor) -> Tensor:
        """Compute q [B, H, T, d] of x [B, T, dim] at positions [B, T]."""
        return self._turned(self._heads(self.project_q(x), self.heads), position).transpose(1, 2)

    def keys(self, x: Tensor, position: Tensor) -> Keys:
        """Compute k and v [B, H_k, T, d] of x [B, T, dim] at positions [B, T]."""
        k, v = self.project_kv(x).chunk(2, -1)
        k = self._turned(self._heads(k, self.key_heads), position)
        return k.transpose(1, 2), self._heads(v, self.key_heads).transpose(1, 2)

    def read(self, q: Tensor, keys: Keys, seen: Tensor) -> Tensor:
        """Compute the heads' outputs [B, H, T, d] of q [B, H, T, d]; ``seen`` [(B, 1,) T, S] is
        true at the keys that a query sees."""
        k, v = (x.to(q.dtype) for x in keys)
        grouped = self.key_heads != self.heads
        # forward derivatives go through products and a softmax: its fused kernels have none
        with sdpa_kernel(SDPBackend.MATH) if transformed() else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)

    def mixed(self, o: Tensor) -> Tensor:
        """Apply W_o to the heads' outputs: [B, H, T, d] → [B, T, dim]."""
        return self.out(o.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, self.width)

    def _turned(self, x: Tensor, position: Tensor) -> Tensor:
        return positions.rotate(x, position) if self.rotary else x


class WindowedAttention(Attention):
    """Attention in which token i sees the prefix and the tokens j with 0 ≤ i − j < window.

    The prefix stands at positions 0, 1, …, the tokens after it. The state keeps the keys and
    values of the prefix and of the last window − 1 tokens, zeros before the first.
    """

    def __init__(self, dim: int, block: Block, rotary: bool, window: int) -> None:
        super().__init__(dim, block, rotary)
        self.window = window

    def forward(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, first: Tensor,
        prefix: Tensor | None,
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Compute o [B, T, dim] of x [B, T, dim], and the state after x.

        ``lengths`` [B]: each row's real tokens, if some are padding; ``first`` [B]: the tokens
        before x; ``prefix`` [B, P, dim]: given at a document's start if there is one.
        """
        before = self._prefix(x, state, prefix)
        size = before["prefix_k"].shape[2] if before else 0
        position = size + first[:, None] + torch.arange(x.shape[1], device=x.device)
        q, (k, v) = self.queries(x, position), self.keys(x, position)
        kept = self._kept(state, k, v)
        after = {**before, **{n: self._tail(y, x, lengths) for n, y in kept.items()}}
        if not x.shape[1]:
            return x, after
        fixed = (before["prefix_k"], before["prefix_v"]) if before else (k[:, :, :0], v[:, :, :0])
        o = self._blocks(q, (kept["k"], kept["v"]), fixed, first, fresh="k" not in state)
        return self.mixed(o), after

    def _prefix(self, x: Tensor, state: Mapping[str, Tensor], prefix: Tensor | None) -> States:
        if prefix is None:
            return {name: state[name] for name in ("prefix_k", "prefix_v") if name in state}
        position = torch.arange(prefix.shape[1], device=x.device).expand(prefix.shape[:2])
        k, v = self.keys(prefix, position)
        return {"prefix_k": k, "prefix_v": v}

    def _kept(self, state: Mapping[str, Tensor], k: Tensor, v: Tensor) -> States:
        """Return the keys and values of the window − 1 tokens before, then of these."""
        zeros = k.new_zeros(k.shape[0], k.shape[1], self.window - 1, k.shape[3])
        pairs = (("k", k), ("v", v))
        return {name: torch.cat([state.get(name, zeros).to(y), y], 2) for name, y in pairs}

    def _tail(self, kept: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return kept[:, :, x.shape[1] :]
        index = lengths[:, None] + torch.arange(self.window - 1, device=x.device)
        return kept.gather(2, index[:, None, :, None].expand(*kept.shape[:2], -1, kept.shape[3]))

    def _blocks(
        self, q: Tensor, keys: Keys, prefix: Keys, first: Tensor, fresh: bool
    ) -> Tensor:  # fmt: skip
        """Attend block by block, each to the keys that its window reaches: time and memory ∝ T."""
        tokens, tail, device = q.shape[2], self.window - 1, q.device
        if unknown(tokens):
            return self._any_blocks(q, keys, prefix, first)
        size = min(tokens, max(self.window, FEWEST))
        skip = tail if fresh else 0  # nothing stands before a document's first token
        near = [y[:, :, skip : tail + size] for y in keys]
        seen = band(size, self.window, tail - skip, device)
        if not fresh:
            begun = torch.arange(tail + size, device=device) >= tail - first[:, None]
            seen = seen & begun[:, None, None]
        opening = self._behind(prefix, q[:, :, :size], near, seen)
        if tokens == size:
            return opening
        count = (tokens - 1) // size  # blocks behind the first, the last of them filled up
        missing = size * (count + 1) - tokens
        later = [F.pad(y[:, :, size:], (0, 0, 0, missing)) for y in (q, *keys)]
        queries = _stacked(later[0], size, size)
        spans = [_stacked(y, tail + size, size) for y in later[1:]]
        fixed = [y[:, None].expand(-1, count, -1, -1, -1).flatten(0, 1) for y in prefix]
        seen = band(size, self.window, tail, device)
        rest = self._behind((fixed[0], fixed[1]), queries, spans, seen)
        rest = rest.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)
        return torch.cat([opening, rest], 2)[:, :, :tokens]

    def _any_blocks(self, q: Tensor, keys: Keys, prefix: Keys, first: Tensor) -> Tensor:
        """Attend in blocks of one size, for a sequence length that is symbolic while a graph is
        traced.

        The sequence is padded with copies of its last token: torch cannot see that a length with
        padding is a multiple of the blocks'. With blocks as an axis of their own [B, N, H, size, d]
        torch writes the attention as products and a softmax, without its kernels' conditions.
        """
        tokens, tail, size = q.shape[2], self.window - 1, max(self.window, FEWEST)
        count = tokens // size + 2  # two at least: one alone would be a case of its own
        block = size * torch.arange(count, device=q.device)[:, None]
        rows = block + torch.arange(size, device=q.device)
        span = block + torch.arange(tail + size, device=q.device)
        k, v = (y[:, :, span.clamp(max=tail + tokens - 1)].transpose(1, 2) for y in keys)
        fixed = [y[:, None].expand(-1, count, -1, -1, -1) for y in prefix]
        begun = span >= tail - first[:, None, None]
        seen = band(size, self.window, tail, q.device) & begun[:, :, None, None]
        queries = q[:, :, rows.clamp(max=tokens - 1)].transpose(1, 2)
        o = self._behind((fixed[0], fixed[1]), queries, [k, v], seen)
        o = o.transpose(1, 2).flatten(2, 3)
        return o.index_select(2, torch.arange(tokens, device=q.device))

    def _behind(self, prefix: Keys, q: Tensor, near: list[Tensor], seen: Tensor) -> Tensor:
        """Return the heads' outputs; a query sees the prefix, and near keys where ``seen``."""
        k, v = (torch.cat([a.to(b), b], -2) for a, b in zip(prefix, near, strict=True))
        always = seen.new_ones(*seen.shape[:-1], prefix[0].shape[-2])
        return self.read(q, (k, v), torch.cat([always, seen], -1))


def band(rows: int, window: int, before: int, device: torch.device) -> Tensor:
    """Return whether query i sees key j, of ``before`` rows and its own: [rows, before + rows]."""
    distance = torch.arange(rows, device=device)[:, None] - torch.arange(
        -before, rows, device=device
    )
    return (distance >= 0) & (distance < window)


def _stacked(x: Tensor, length: int, step: int) -> Tensor:
    """Cut out stretches that begin ``step`` apart: [B, H, S, d] → [B·N, H, length, d]."""
    return x.unfold(2, length, step).permute(0, 2, 1, 4, 3).flatten(0, 1)
