"""Contradictions between a rule and its block: inputs that the rule needs but does not get."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mnemic.codegen.activations import expression
from mnemic.dsl.memory import Diagonal
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue


def contradictions(spec: Spec) -> Iterator[Issue]:
    """Yield what a spec needs of its block and does not get: values to write, keys to tell apart.

    A diagonal memory has one number for each product of a key's and a value's channel, and may have
    either constant; any other would keep the same for every token, whatever its rule.
    """
    if isinstance(spec.memory, Diagonal):
        return
    values = spec.block.value or spec.block.activation
    keys = spec.block.key or spec.block.activation
    if _constant(values) and _writes_values(spec):
        told = "the block gives every token the same value, and this rule writes values"
        yield Issue(told, "block.value", values)
    if _constant(keys):
        told = "the block gives every token the same key, and this rule tells pairs apart by keys"
        yield Issue(told, "block.key", keys)


def _constant(text: str) -> bool:
    return bool(expression(text).is_number)


def _writes_values(spec: Spec) -> bool:
    """Return whether the written value depends on v; if not, it is made of other vectors."""
    value = spec.keys.value
    return value is None or value.expr is None or re.search(r"\bv\b", value.expr) is not None
