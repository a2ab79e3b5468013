"""What of a rule cannot be compiled, found by planning it without writing any code."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from mnemic.codegen import layer, module, slots
from mnemic.codegen.layer import start
from mnemic.codegen.own_names import rename_own_coefficients
from mnemic.codegen.repeated import repeated
from mnemic.compiler.rule import Rule
from mnemic.errors import InvalidSpec, Issue


def refused(rule: Rule) -> tuple[Issue, ...]:
    """Return all that `mnemic.compile` would refuse of a derived rule; nothing if it compiles.

    Each issue is at a path into the spec, without the spec's name.
    """
    found = dict.fromkeys(
        issue for look in (_planned, _hybrid, _started) for issue in _raised(look, rule)
    )
    return tuple(replace(issue, where=issue.where.partition(" ")[2]) for issue in found)


def _planned(rule: Rule) -> None:
    """Plan every operator of a rule (slots join two), which raises where one is refused."""
    for part in slots.memories(rule) if slots.slots_of(rule) else (rule,):
        module.plans(repeated(rename_own_coefficients(part)))


def _hybrid(rule: Rule) -> None:
    """Check that a memory which is the context of a block can be read without a write."""
    if rule.problem.spec.block.hybrid == "context":
        layer.check_readable(rule, module.readable(rule))


def _started(rule: Rule) -> None:
    """Compute where a layer's coefficients start, which raises for values out of reach."""
    for scalar in rule.scalars:
        if scalar.argument is not None:
            start(rule, scalar)


def _raised(look: Callable[[Rule], None], rule: Rule) -> Iterator[Issue]:
    try:
        look(rule)
    except InvalidSpec as refusal:
        yield from refusal.issues
