"""Rules whose weights fade too fast for a chunk's kernel, where the spec alone can tell."""

from itertools import product

import sympy as sp

from mnemic.codegen.describe import most_chunk
from mnemic.codegen.support.lengths import FAINTEST
from mnemic.compiler.numbers import sampler
from mnemic.compiler.ranges import ranges_of
from mnemic.compiler.rule import Moments, Rule

COUNTS = [float(2**i) - 1 for i in range(12)]
"""Steps and heads that a weight is looked at for."""


def too_fast(rule: Rule) -> str | None:
    """Return why no chunk kernel keeps the digits of a rule, or ``None``.

    A weight that is an argument by itself is looked at in each call: see ``launched.fainter``.
    """
    if _may_be_singular(rule):
        return (
            "the weights forget the ridge, and conjugate gradients in a kernel cannot refuse a "
            "matrix that is singular to within rounding"
        )
    rows = most_chunk(rule)
    weight = rule.problem.value("gamma")
    arguments = [s for s in rule.scalars if s.argument is not None]
    if not rows or any(s.symbol == weight and s.logarithmic for s in arguments):
        return None
    known = ranges_of(arguments)
    symbols = sorted(weight.free_symbols, key=str)
    value = sampler(weight, symbols)
    found = [value(*point) for point in product(*(known.get(s, COUNTS) for s in symbols))]
    least = min((x for x in found if x is not None), default=0.0)
    if least > 0 and least**rows >= FAINTEST:
        return None
    return (
        f"weights of {sp.Float(least, 3)} leave less than {FAINTEST} of the past over {rows} "
        "tokens, and a chunk's kernel divides by that in float32"
    )


def _may_be_singular(rule: Rule) -> bool:
    """Return whether conjugate gradients may meet a matrix that nothing holds above zero."""
    match rule:
        case Moments(solution=solution):
            return bool(solution.iterations) and solution.fades and not solution.constant
    return False
