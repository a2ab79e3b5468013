"""The type of a rule, and properties of a spec that several rules use."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from mnemic.dsl.memory import (
    Chain,
    Diagonal,
    Glu,
    Interpolation,
    Linear,
    LowRank,
    Memory,
    Mlp,
    Nonparametric,
)
from mnemic.dsl.methods import ELEMENTWISE
from mnemic.dsl.optimizer import OptimizerEntry
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue

Rule: TypeAlias = Callable[[Spec], Iterable[Issue]]

PLAIN = OptimizerEntry()
"""The optimizer of a spec that gives none."""


def keeps_pairs(spec: Spec) -> bool:
    """Return whether the memory is made of the kept pairs themselves and has no parameters."""
    return isinstance(spec.memory, Nonparametric | Interpolation)


def carries_keys(spec: Spec) -> bool:
    """Return whether kept keys move at every later token."""
    return isinstance(spec.memory, Nonparametric) and spec.keys.carry is not None


def linear_in_parameters(memory: Memory) -> bool:
    """Return whether M(W, x) is certain to be linear in W."""
    if isinstance(memory, Mlp):
        return memory.depth == 1 and not memory.norm
    return isinstance(memory, Linear | Diagonal)


def deep(spec: Spec) -> bool:
    """Return whether the memory has parameters in which it is not linear."""
    return not keeps_pairs(spec) and not linear_in_parameters(spec.memory)


def steps_plainly(spec: Spec) -> bool:
    """Return whether a memory adds each token's step as it is: no O, no norms, no interval."""
    optimizer = spec.optimizer
    through_o = optimizer.method in ("muon", *ELEMENTWISE)
    return not through_o and optimizer.every == 1 and spec.retention.lines == "none"


def layers(memory: Memory) -> tuple[Memory, ...]:
    """Return the memories that a chain is made of; any other memory by itself."""
    if isinstance(memory, Chain):
        return tuple(layer for link in memory.chain for layer in layers(link))
    return (memory,)


def adds_its_input(memory: Memory) -> bool:
    """Return whether the memory adds the raw key or query to its output, or a diagonal times it."""
    return isinstance(memory, LowRank) or (isinstance(memory, Mlp | Glu) and memory.residual)
