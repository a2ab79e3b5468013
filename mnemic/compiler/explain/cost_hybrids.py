"""What the attention of a hybrid adds to the costs of its memory, for one head of d_v channels.

A query that sees S keys costs 4·S·d_v; kept keys and values are shared by a group of heads. The
window's attention is taken in blocks of queries, whose masked products count as well.
"""

from dataclasses import replace
from typing import Any

import sympy as sp

from mnemic.compiler.explain.cost import Cost, cost
from mnemic.compiler.explain.cost_forms import matrix
from mnemic.compiler.explain.cost_layers import layered_forward, numbers
from mnemic.compiler.explain.cost_symbols import S, V
from mnemic.compiler.rule import Layers, Rule
from mnemic.dsl.block import Block

FEWEST = 64
"""Queries of a block of sliding-window attention, at least."""


def layer_cost(rule: Rule) -> Cost:
    """Return the costs of a rule in its layer: with the attention beside or around the memory."""
    known, block = cost(rule), rule.problem.spec.block
    if block.hybrid == "none":
        return known
    kept = _pairs(block) * 2 * V / block.groups
    again, state = sp.Integer(0), kept
    if block.hybrid == "context":
        again, state = _reading(rule), kept + _standing(rule)
    told = f"attention: heads of d_v channels; {block.hybrid} sees up to {_most(block)} keys"
    if block.hybrid == "context":
        told += "; the memory as it stood is kept beside it, and read once more"
    return replace(
        known,
        state=sp.expand(known.state + state),
        train_flops=sp.expand(known.train_flops + 4 * V * _dense(block) + again),
        train_bytes=sp.expand(known.train_bytes + S * 4 * V),
        decode_flops=sp.expand(known.decode_flops + 4 * V * _most(block) + again),
        decode_bytes=sp.expand(known.decode_bytes + S * (4 * V + state)),
        notes=(*known.notes, told),
    )


def _pairs(block: Block) -> int:
    """Count kept keys and values: of persistent tokens and a window's past, or of a segment."""
    if block.hybrid == "context":
        assert block.segment is not None
        return 2 * block.segment  # persistent ones are computed from their parameters
    assert block.attention_window is not None
    return block.persistent + block.attention_window - 1


def _most(block: Block) -> int:
    """Count the keys that one query sees at most."""
    if block.hybrid == "context":
        return _pairs(block) + block.persistent
    return _pairs(block) + 1


def _dense(block: Block) -> Any:
    """Count the keys that a query is multiplied with in training, masked ones too."""
    if block.hybrid == "context":
        return _most(block)
    return _most(block) + max(block.attention_window or 0, FEWEST) - 1


def _standing(rule: Rule) -> Any:
    """Count the numbers of the memory at a segment's start that a read needs."""
    if isinstance(rule, Layers):
        return sum((numbers(rule, m) for m in rule.network.matrices), sp.Integer(0))
    return matrix(rule)


def _reading(rule: Rule) -> Any:
    """Count the FLOPs of one read of the memory."""
    return layered_forward(rule) if isinstance(rule, Layers) else 2 * matrix(rule)
