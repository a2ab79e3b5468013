"""A rule with slots as two rules: a memory of the slots' keys, and one of their values.

The first writes with the spec's own keys, and what it holds are rows of slots; the second is
read with a softmax of what the first says. See ``support/slots.py`` for the equations.
"""

from dataclasses import replace
from typing import Any

from mnemic.codegen.support.signature import Coefficient, Signature, State
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.compiler.uncompiled import refuse
from mnemic.dsl.coefficients import ONE
from mnemic.dsl.coefficients import Coefficient as Declared
from mnemic.dsl.features import Identity
from mnemic.dsl.keys import Keys
from mnemic.dsl.memory import Linear
from mnemic.dsl.spec import Spec


def slots_of(rule: Rule) -> int:
    """Return the number of slots, 0 for a memory without."""
    return getattr(rule.problem.spec.memory, "slots", None) or 0


def by_slot(rule: Rule) -> bool:
    """Return whether each slot has a decay of its own."""
    decay = rule.problem.scalar("alpha")
    return decay is not None and decay.per == "key"


def memories(rule: Rule) -> tuple[Rule, Rule]:
    """Derive the rules of the slots' keys and of their values.

    Raises ``InvalidSpec`` for what is not compiled yet.
    """
    refuse(rule)
    spec = rule.problem.spec
    plain: dict[str, Any] = {"memory": Linear(), "keys": Keys()}
    keys = {**plain, **_transposed(spec, rule), "name": f"{spec.name}-keys"}
    values = {**plain, "features": Identity(), "name": f"{spec.name}-values"}
    return derive_spec(spec.model_copy(update=keys)), derive_spec(spec.model_copy(update=values))


def _transposed(spec: Spec, rule: Rule) -> dict[str, Any]:
    """Return the decay of columns as one of rows: slots are the rows of the first memory."""
    if not by_slot(rule):
        return {}
    decay, retention = _by_value(spec.retention.decay), spec.retention
    return {
        "retention": retention.model_copy(update={"decay": ONE, "row_decay": decay}),
        "coefficients": {name: _by_value(c) for name, c in spec.coefficients.items()},
    }


def _by_value(declared: Declared) -> Declared:
    return declared.model_copy(update={"per": "value"}) if declared.per == "key" else declared


def signature(rule: Rule, keys: Signature, values: Signature) -> Signature:
    """Describe what the memories of the slots' keys and values together take and carry."""
    of_features = tuple(c for c in keys.coefficients if c.same)  # slots' values have no φ
    coefficients = (*(_in_slots(c) for c in values.coefficients), *of_features)
    own = rule.problem.spec.keys.write
    return replace(
        keys,
        name=rule.name,
        coefficients=coefficients,
        states=(
            State("K", "sk", "the keys of the slots"),
            State("W", "vs", "the values of the slots"),
        ),
        keys=("write",) if own is not None and own.own else (),
        forms=tuple(form for form in keys.forms if form in values.forms),
        once=values.once,
        slots=slots_of(rule),
    )


def _in_slots(coefficient: Coefficient) -> Coefficient:
    return replace(coefficient, axes="s") if coefficient.axes == "K" else coefficient


def written(rule: Rule, described: Signature) -> str:
    """Write the source of w_t as a function of the operator's arguments.

    A coefficient of a head beside one of the slots is the same for all of them.
    """
    expr = rule.problem.keys["write"]
    arguments, names = [], {}
    for symbol in sorted(expr.free_symbols, key=str):
        scalar = rule.problem.scalar(symbol.name)
        argument = symbol.name if scalar is None else scalar.argument
        assert argument is not None
        arguments.append(argument)
        text = f"{argument}[..., None]" if argument in _of_heads(described) else argument
        logarithmic = scalar is not None and scalar.logarithmic
        names[symbol.name] = f"torch.exp({text})" if logarithmic else text
    return (
        f"def written({', '.join(arguments)}):\n"
        '    """w: what each slot takes in of a token."""\n'
        f"    return {print_torch(expr, names)}\n"
    )


def _of_heads(described: Signature) -> frozenset[str]:
    """Return the coefficients with one number a head."""
    return frozenset(c.name for c in described.coefficients if not c.axes)
