"""Kept keys that move: every token takes k̃ ← (I − η w wᵀ) k̃ to the keys before it.

Rows come in blocks. Inside a block, with U_si = w_s·k̃_i as the key stands before row s,

    U = (I + stril(W Wᵀ) diag(η))⁻¹ W Kᵀ,   k̃_i after row t = k_i − Σ_{s ≤ t} η_s U_si w_s,

where a row of the same block moves the keys before its own alone. A whole block moves the keys
before it by one matrix, k̃ᵀ ← k̃ᵀ F; earlier blocks' keys wait at their own ends, and come through
the F of the blocks between, so that no key is kept for every row.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from .chunks import unit_lower_inverse
from .kept import append_rows
from .kept_attention import Block, squares

ROWS = 64
"""Rows of a block at most."""


@dataclass(frozen=True)
class _Step:
    """One block: its W [M, R, K], η [M, R], (I + stril(W Wᵀ) diag(η))⁻¹, its own keys at its end
    [M, R, K], and F [M, K, K]."""

    w: Tensor
    rate: Tensor
    inverse: Tensor
    ended: Tensor
    turn: Tensor

    def along(self, keys: Tensor, own: int) -> Tensor:
        """Compute U [M, R, n] of keys as before the block; the last ``own`` keys are its own."""
        reach = self.w @ keys.mT
        if own:
            before = keys.shape[-2] - own
            reach = torch.cat([reach[..., :before], reach[..., before:].tril(-1)], -1)
        return self.inverse @ reach


@dataclass(frozen=True)
class Carried:
    """Kept keys [M, n, K], the last rows' own among them, and the steps that change them.

    Keys older than these rows have the value before the first row; the rows' own are as given.
    """

    keys: Tensor
    blocks: tuple[Block, ...]
    steps: tuple[_Step, ...]

    @property
    def before(self) -> int:
        """Pairs that are older than the rows."""
        return self.keys.shape[-2] - sum(block.end - block.first for block in self.blocks)

    def standing(self, number: int, oldest: int) -> Tensor:
        """Return the keys from ``oldest`` on as before a block's first row, then its own."""
        found: list[Tensor] = []
        turn: Tensor | None = None
        newest = self.before if number == 0 else self.before + self.blocks[number - 1].end
        for earlier in reversed(range(number)):
            if newest <= oldest:
                break
            block, step = self.blocks[earlier], self.steps[earlier]
            skipped = max(0, oldest - self.before - block.first)
            found.append(_turned(step.ended[:, skipped:], turn))
            turn = step.turn if turn is None else step.turn @ turn
            newest = self.before + block.first
        if oldest < self.before:
            found.append(_turned(self.keys[:, oldest : self.before], turn))
        if number < len(self.blocks):
            block = self.blocks[number]
            found.insert(0, self.keys[:, self.before + block.first : self.before + block.end])
        return torch.cat(found[::-1], 1) if found else self.keys[:, :0]

    def reached(
        self, number: int, q: Tensor, *, sizes: bool, keys: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute for a block's rows [M, R, K]: q·k̃ and ‖k̃‖² [M, R, n], and k̃ [M, R, n, K].

        Without ``sizes`` or ``keys`` the norms or keys are those at the block's start.
        """
        block, step = self.blocks[number], self.steps[number]
        standing = self.standing(number, block.oldest)
        along = step.along(standing, block.end - block.first)
        moves = step.rate[..., None] * along  # [M, R, n]
        products = q @ standing.mT - (q @ step.w.mT).tril() @ moves
        lengths = squares(standing)[:, None, :]
        if sizes:
            loss = step.rate * (2.0 - step.rate * squares(step.w))
            lengths = lengths - (loss[..., None] * along.square()).cumsum(-2)
        if keys:
            taken = (moves[..., None] * step.w[:, :, None, :]).cumsum(1)
            standing = standing[:, None] - taken
        return products, lengths, standing


def _turned(keys: Tensor, turn: Tensor | None) -> Tensor:
    return keys if turn is None else keys @ turn


def carried(keys: Tensor, w: Tensor, rate: Tensor, blocks: tuple[Block, ...]) -> Carried:
    """Return the keys with the step of every block: keys [M, n, K], w [M, C, K], η [M, C]."""
    before = keys.shape[-2] - w.shape[-2]
    steps = []
    for block in blocks:
        rows = slice(block.first, block.end)
        own = keys[:, before + block.first : before + block.end]
        steps.append(_step(own, w[:, rows], rate[:, rows]))
    return Carried(keys, blocks, tuple(steps))


def _step(keys: Tensor, w: Tensor, rate: Tensor) -> _Step:
    gram = (w @ w.mT).tril(-1) * rate[:, None, :]
    inverse = unit_lower_inverse(gram)
    rated = rate[..., None] * w
    ended = keys - (inverse @ (w @ keys.mT).tril(-1)).mT @ rated
    eye = torch.eye(w.shape[-1], dtype=w.dtype, device=w.device)
    turn = eye - (inverse @ w).mT @ rated
    return _Step(w, rate, inverse, ended, turn)


def carried_keys(kept: Tensor, keys: Tensor, w: Tensor, rate: Tensor, *, span: int = 0) -> Tensor:
    """Return the kept keys after the last row: [M, n, K], a chunk's [M, C, K], w, η [M, C]."""
    rows = keys.shape[-2]
    every = append_rows(kept, keys, span=span)
    ends = [*range(0, rows, ROWS), rows]
    pieces = [Block(a, b, 0, 0) for a, b in pairwise(ends)]
    return carried(every, w, rate, tuple(pieces)).standing(len(pieces), 0)
