"""Which entries a spec may combine: the list of rules, and the check that runs them all.

A rule is a function from a spec to issues. It refuses combinations that are certain to make no
sense, by structure alone; whatever depends on the mathematics of a loss or a link is left to the
derivation.
"""

from typing import Final

from mnemic.dsl.rules import (
    blocks,
    coefficients,
    expressions,
    levels,
    memories,
    optimizers,
    retentions,
)
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue

RULES: Final[tuple[Rule, ...]] = (
    *expressions.RULES,
    *coefficients.RULES,
    *optimizers.RULES,
    *retentions.RULES,
    *memories.RULES,
    *levels.RULES,
    *blocks.RULES,
)


def issues(spec: Spec) -> list[Issue]:
    """Return everything that makes no sense in a spec, in the order of the rules."""
    return [issue for rule in RULES for issue in rule(spec)]


def check(spec: Spec) -> None:
    """Raise InvalidSpec where a spec makes no sense, with every reason."""
    if found := issues(spec):
        raise InvalidSpec(found)
