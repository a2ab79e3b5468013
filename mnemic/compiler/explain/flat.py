"""Whether a step has zero slope, so that nothing can be learned through it."""

from typing import Any

from mnemic.compiler.elementwise import is_flat
from mnemic.compiler.explain.printing import steps_of, text
from mnemic.compiler.network import Map
from mnemic.compiler.rule import Rule
from mnemic.compiler.symbols import coefficient

ROLES = ("predict", "erase", "write")


def warning(rule: Rule) -> str | None:
    """Warn of what learns nothing under a step such as sign(g); None where the step has a slope.

    The gradients are exactly zero: the parameters behind keys, values and the listed coefficients
    keep their initial values, as far as they act through the memory.
    """
    if not (rule.applied.elementwise and is_flat(rule.applied.step)):
        return None
    lost = ", ".join(["k", "v", *_own_keys(rule), *_lost(rule)])
    return (
        f"The step of {rule.applied.kind} is flat: its derivative by the gradient is zero. So "
        f"through the memory no gradient reaches {lost}, and what makes them learns nothing there. "
        "What scales the step, decays the memory or reads it learns as usual."
    )


def _lost(rule: Rule) -> list[str]:
    """Return the arguments that act through the gradient of the loss alone."""
    inside = [rule.error.signal, rule.weight, *rule.applied.expressions]
    inside += [*rule.problem.keys.values(), *([coefficient("gamma")] if rule.gamma else [])]
    outside = [rule.rate, rule.gain, rule.decay, rule.row_decay, rule.retained.mirror]
    outside += [rule.retained.link.expr, rule.retained.link.scale]
    outside += [node.expr for node in rule.network.nodes if isinstance(node, Map)]
    arguments = [s.symbol for s in rule.scalars if s.argument is not None]
    lost = _symbols(inside) - _symbols(outside)
    return [text(symbol, steps_of(rule)) for symbol in arguments if symbol in lost]


def _symbols(expressions: list[Any]) -> set[Any]:
    return set().union(*(getattr(x, "free_symbols", set()) for x in expressions))


def _own_keys(rule: Rule) -> list[str]:
    """Return the roles of keys that have a projection of their own."""
    entries = {role: getattr(rule.problem.spec.keys, role) for role in ROLES}
    return [role for role, entry in entries.items() if entry is not None and entry.own]
