"""A memory on a simplex to first order in its step, where its divergence is quadratic.

With w = w(a) the link of one entry, ζ the multiplier that holds the sum and s = dw/da, a step
a = −ηG moves the entries by s ∘ (−ηG − dζ), and Σ dw = 0 gives dζ = ⟨s, −ηG⟩/Σ s. For an
f-divergence w = w′ g(a − ζ) and s = w′/f″(1): f enters only by this one number.
"""

from itertools import chain
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import COLUMNS, PARAMETERS, ROWS, Coordinates, matrix
from mnemic.compiler.compare.entry_form import Form, State
from mnemic.compiler.compare.special import Special
from mnemic.compiler.rule import Linear, Rule


def first_order(rule: Rule, at: Special) -> Form | None:
    """Return the form of a rule on a simplex to first order in its rate; None for any other."""
    retained = rule.retained
    link, space = retained.link, Coordinates(rule, dict(at.values))
    shapes = {("multiplicative", "root"), ("dual", "softmax")}
    simple = isinstance(rule, Linear) and rule.window == rule.rows == rule.anchor == 1
    simple = simple and rule.momentum is None and rule.problem.features == sym.x
    if not simple or (retained.mode, link.normaliser) not in shapes or link.over != "all":
        return None
    if not rule.error.affine or space.resolved(rule.decay) != 1 or rule.row_decay != 1:
        return None
    if retained.mode == "dual":
        slope = 1 / sp.diff(retained.mirror, sym.w)
    else:
        slope = sym.w / sp.diff(link.slope, sym.w).subs(sym.w, 1)
    return _written(rule, space, sp.simplify(slope), space.resolved(link.scale))


def _written(rule: Rule, at: Coordinates, slope: Any, scale: Any) -> Form:
    """Write out W + s ∘ (−ηG − dζ), entry by entry."""
    before, keys, queries = matrix("W", ROWS, COLUMNS), at.features("predict", ""), at.queries()
    steep = [[slope.subs(sym.w, w) for w in row] for row in before]
    rate = at.at(rule.rate * rule.gain, 0, 0)
    wanted = []
    for i, row in enumerate(before):
        guess = sum((w * k for w, k in zip(row, keys, strict=True)), sp.Integer(0))
        error = at.at(rule.error.signal, i, i).subs({sym.y: guess, sym.v: at.value(i, "")})
        wanted.append([-rate * error * k for k in keys])
    size = sum((sum(row) for row in steep), sp.Integer(0))
    if sp.expand(size * before[0][0] - steep[0][0] * sum(map(sum, before))) == 0:
        size = steep[0][0] / before[0][0] * scale  # the entries sum to the scale
    mean = sum(
        (s * x for a, b in zip(steep, wanted, strict=True) for s, x in zip(a, b, strict=True)),
        sp.Integer(0),
    )
    after = [
        [sp.expand(w + s * (x - mean / size)) for w, s, x in zip(*rows, strict=True)]
        for rows in zip(before, steep, wanted, strict=True)
    ]
    output = [sum(w * q for w, q in zip(row, queries, strict=True)) for row in after]
    start = scale / sp.Integer(ROWS * COLUMNS)
    state = State("W", (*chain(*before),), (*chain(*after),), start)
    tags = ("first order in the step", f"sum {scale}")
    inputs = tuple(sorted(at.inputs, key=str))
    return Form((state,), tuple(map(sp.expand, output)), (), (), tags, inputs, PARAMETERS)
