"""Rules that compute a matrix for every row of a chunk, in models."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

SHARE = 0.5
"""Of the memory that a process may take: what such rules keep of it for gradients."""


def rules_with_parts(model: nn.Module) -> list[Any]:
    """Return the rules of a model's layers that have ``parts``, each once."""
    rules = (getattr(layer, "rule", None) for layer in model.modules())
    return list({id(rule): rule for rule in rules if getattr(rule, "parts", ())}.values())


def keep_share(model: nn.Module, memory: float) -> None:
    """Let a model's rules use `SHARE` of a process's memory for what they keep for gradients.

    Args:
        model: the model of the process; its rules divide this memory among them.
        memory: GiB that the process may take; if infinite, the rules keep their own bound.
    """
    if math.isinf(memory):
        return
    rules = rules_with_parts(model)
    for rule in rules:
        rule.keep_up_to(int(SHARE * memory * 2**30) // len(rules))
