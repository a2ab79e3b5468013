"""Optimizers that act entry by entry (`mnemic.dsl.methods`), read into SymPy and reduced.

An average whose decay is zero is its newest entry, so the step reads that entry in its place; one
that the step does not read is left out. What remains is all that any form carries.
"""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import Problem
from mnemic.compiler.rule import Applied
from mnemic.compiler.running import GRADIENT, Running
from mnemic.compiler.symbolic import read, tidy
from mnemic.dsl.methods import ELEMENTWISE, Average


@dataclass(frozen=True)
class _Read:
    """A step with the averages that it may read."""

    step: Any
    averages: tuple[Running, ...]


def applied(problem: Problem, norms: str, *, centred: bool) -> Applied | None:
    """Return the step of the spec's optimizer, ``None`` where it does not act entry by entry."""
    optimizer = problem.spec.optimizer
    if optimizer.method not in ELEMENTWISE:
        return None
    method = ELEMENTWISE[optimizer.method]
    table = {name: problem.value(name, sp.Integer(0)) for name in method.coefficients}
    numbers = {name: getattr(optimizer, name) for name in method.options if name not in table}
    symbols = {name: sym.coefficient(name) for name in numbers}
    averages = tuple(_running(a, table) for a in method.averages)
    letters = {s.name: s for a in averages for s in (a.after, a.before)}
    step = read(method.step, {**table, **symbols, **letters, "g": GRADIENT})
    found = _reduced(_Read(step, averages))
    return Applied(
        optimizer.method, 0, True, norms, centred, step=found.step, averages=found.averages,
        numbers=tuple((symbols[n], float(x)) for n, x in numbers.items()),
    )  # fmt: skip


def _running(average: Average, table: dict[str, Any]) -> Running:
    entry = read(average.of, {**table, "g": GRADIENT})
    one = sp.Integer(1)
    decay = one if average.decay is None else table[average.decay]
    share = one if average.decay is None else 1 - decay
    return Running(
        average.state, average.letter, decay, share, entry, average.corrected, average.meaning
    )


def _reduced(found: _Read) -> _Read:
    """Remove from a step the averages whose decay is zero, and those that nothing reads."""
    step, kept = found.step, []
    for average in found.averages:
        if average.decay == 0 and not step.has(average.before):
            step = step.subs(average.after, average.entry)
    for average in found.averages:
        if step.has(average.after, average.before):
            kept.append(average)
    return replace(found, step=step, averages=tuple(kept))


def is_flat(step: Any) -> bool:
    """Return whether a step has no slope: its derivative by all it reads of the gradient is 0.

    >>> is_flat(sp.sign(GRADIENT)), is_flat(GRADIENT / (1 + sp.Abs(GRADIENT)))
    (True, False)
    """
    read_of = [s for s in step.free_symbols if not isinstance(s, sym.Coefficient)]
    return all(tidy(sp.diff(step, s)) == 0 for s in read_of)
