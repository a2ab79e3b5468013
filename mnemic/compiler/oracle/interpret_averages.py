"""Running averages of the gradient, and steps that act entry by entry on them."""

from dataclasses import replace
from functools import reduce
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret_gradient import Values
from mnemic.compiler.oracle.interpret_state import Averages, Layer
from mnemic.compiler.rule import Rule
from mnemic.compiler.running import GRADIENT

Named = dict[str, Tensor]


def averaged(rule: Rule, layer: Layer, gradient: Tensor, values: Values) -> Layer:
    """Return every average X of an expression of g = −G, and the step that reads them."""
    assert layer.averages is not None
    known, old = {GRADIENT: -gradient}, layer.averages
    found, lefts = [], []
    for average, before, left in zip(rule.applied.averages, old.values, old.left, strict=True):
        decay = evaluate(average.decay, values)
        share = evaluate(average.share, values)
        new, rest = decay * before + share * evaluate(average.entry, known), decay * left
        gathered = 1 - rest if average.corrected else torch.ones_like(rest)
        after = new / torch.where(gathered == 0, 1, gathered)
        known |= {average.before: before, average.after: after}
        found.append(new)
        lefts.append(rest)
    step = _entrywise(rule.applied.valued, known, values)
    return replace(layer, averages=Averages(tuple(found), tuple(lefts), step))


def _entrywise(step: Any, known: dict[Any, Tensor], values: Values) -> Tensor:
    """Return the step; it and its derivative are 0 where all averages and gradients it reads are.

    A zero under a root is replaced by 1e-300, since a root has no slope at 0.
    """
    known = {s: x for s, x in known.items() if s in step.free_symbols}
    empty = reduce(torch.logical_and, [x == 0 for x in known.values()])
    rooted = {p.base for p in step.atoms(sp.Pow) if p.exp == sp.Rational(1, 2)}
    for symbol, x in known.items():
        at_zero = torch.where(x == 0, 1e-300, x) if symbol in rooted else x
        known[symbol] = torch.where(empty, 1.0, at_zero)
    return torch.where(empty, 0.0, evaluate(step, {**values, **known}))


def first_averages(rule: Rule, tag: str, zero: Tensor, start: Named) -> Averages | None:
    """Return a matrix's averages from a state, or zeros; None where the step has no averages."""
    if not rule.applied.elementwise:
        return None
    one, lefts = zero[..., :1, :1] + 1, []
    for name in (average.weight for average in rule.applied.averages):
        lefts.append(one - start[name][..., None, None] if name in start else one)
    found = tuple(start.get(f"{a.state}{tag}", zero) for a in rule.applied.averages)
    return Averages(found, tuple(lefts), zero)


def averages_named(rule: Rule, averages: Averages | None, tag: str) -> Named:
    """Name a matrix's running averages, and the gathered weights, which all matrices share."""
    found: Named = {}
    if averages is None:
        return found
    every = zip(rule.applied.averages, averages.values, averages.left, strict=True)
    for average, x, left in every:
        found[f"{average.state}{tag}"] = x
        if average.corrected:
            found[average.weight] = 1 - left[..., 0, 0]
    return found
