"""Levels by their definition: every token's share of the memory is kept and weighted by itself.

A step is affine in the state, W' = T(W) + C, so a share W becomes step(W) − step(0), and a token's
own share is step(0). Token t reads the share of s with the weight of the level given by the highest
binary digit in which their positions differ. The work grows with the square of the length; shares
are merged only when the state is requested.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from mnemic.compiler.oracle.interpret_gradient import Values
from mnemic.compiler.oracle.interpret_inputs import Inputs
from mnemic.compiler.oracle.interpret_run import pair_of
from mnemic.compiler.oracle.interpret_state import Layer, Pairs, State, chosen
from mnemic.compiler.oracle.interpret_step import micro_step
from mnemic.compiler.rule import Levels

Named: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class Share:
    """What one token (or a carried bucket) left: its position [B], its memory [B, H, d_v, D]."""

    position: Tensor
    memory: Tensor


def digits(x: Tensor) -> Tensor:
    """Return the number of binary digits of integers; 0 has none."""
    found = torch.zeros_like(x)
    while bool((x > 0).any()):
        found = found + (x > 0).long()
        x = x >> 1
    return found


def levelled(rule: Levels, inputs: Inputs, start: Named) -> tuple[list[Named], Named]:
    """Return the weighted sum of shares that each token's query reads, and the final buckets."""
    (matrix,) = rule.network.matrices
    shares, memories = _carried(inputs, start), []
    for t in range(inputs.mask.shape[1]):
        live, position = inputs.mask[:, t], inputs.position[:, t]
        pair, values = pair_of(rule, inputs, t, 0), inputs.at(t, 0)
        zero = torch.zeros_like(pair.value[:, 0] * pair.write[:, 0])
        own = _step(rule, zero, pair, values, position)
        gone = [_step(rule, s.memory, pair, values, position) - own for s in shares]
        shares = [
            Share(s.position, chosen(live, w, s.memory)) for s, w in zip(shares, gone, strict=True)
        ]
        shares.append(Share(position, chosen(live, own, zero)))
        read = sum((_weight(inputs, t, s) * s.memory for s in shares), zero)
        memories.append({matrix.name: read})
    return memories, {"W": _buckets(rule, inputs, start, shares)}


def _step(rule: Levels, memory: Tensor, pair: Pairs, values: Values, position: Tensor) -> Tensor:
    layer = Layer(memory, memory, torch.zeros_like(memory), memory)
    state = State((layer,), pair.last(0))
    (new,) = micro_step(rule, state, pair, values, position, first=True, last=True).layers
    return new.memory


def _weight(inputs: Inputs, t: int, share: Share) -> Tensor:
    """Return λ_t at the level of a share, [B, H, 1, 1]."""
    assert inputs.levels is not None
    level = digits(share.position ^ inputs.position[:, t])
    weights = inputs.levels[:, t]
    index = level[:, None, None].expand(*weights.shape[:2], 1)
    return weights.gather(-1, index)[..., None]


def _carried(inputs: Inputs, start: Named) -> list[Share]:
    """Return an initial state's buckets, each at the position of its first token."""
    if "W" not in start:
        return []
    position = start.get("position", torch.zeros_like(inputs.position[:, 0]))
    found = []
    for i in range(start["W"].shape[2]):
        first = (position >> (i + 1)) << (i + 1)
        filled = ((position >> i) & 1).bool()
        memory = start["W"][:, :, i]
        found.append(Share(first, chosen(filled, memory, torch.zeros_like(memory))))
    return found


def _buckets(rule: Levels, inputs: Inputs, start: Named, shares: list[Share]) -> Tensor:
    """Add up the shares by bucket, [B, H, L, d_v, D]."""
    first = start.get("position", torch.zeros_like(inputs.position[:, 0]))
    end = first + inputs.mask.long().sum(1)
    found = []
    for i in range(rule.levels):
        inside = [
            chosen(digits(s.position ^ end) == i + 1, s.memory, torch.zeros_like(s.memory))
            for s in shares
        ]
        found.append(torch.stack(inside).sum(0))
    return torch.stack(found, 2)
