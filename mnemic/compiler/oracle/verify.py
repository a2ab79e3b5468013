"""Check a derived rule without trusting the derivation.

The loss, the retention and the whole recurrence are evaluated from the spec's text with automatic
differentiation and numerical minimisers, and held against what was derived.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mnemic.compiler.oracle import verify_error
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated, unspoken
from mnemic.compiler.oracle.verify_retention import retention
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec

LONGEST = 70
"""Tokens that the check of a recurrence takes at most."""

CHEAP, DEAR = Sizes(1, 6, 2, 3, 3), Sizes(1, 3, 1, 3, 3)


@dataclass(frozen=True)
class Check:
    """One comparison: the largest error (relative for large numbers) and what is allowed."""

    name: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.error <= self.tolerance


def verify(rule: Rule) -> tuple[Check, ...]:
    """Every check that applies to the rule."""
    return tuple(Check(name, run(rule), allowed) for name, run, allowed in _plan(rule))


def _plan(rule: Rule) -> Iterator[tuple[str, Callable[[Rule], float], float]]:
    spec = rule.problem.spec
    method = spec.optimizer.method
    if method in ("implicit", "flow"):
        limit = spec.optimizer.rate.value == float("inf")
        yield "step as minimised", verify_error.step, 1e-5 if limit else 1e-8
    elif verify_error.spec_smooth(rule):
        yield "smooth stand-in", verify_error.smoothed_signal, 10.0
    else:
        yield "error signal", verify_error.error_signal, 1e-9
    yield "slope", verify_error.slope, 1e-8
    if method not in ("exact", "batch") and rule.fit is None:
        yield "link" if spec.retention.link is not None else "retention", retention, 1e-7
    if rule.structure.missing is None and unspoken(spec) is None:
        yield "recurrence", recurrence, 1e-8


def recurrence(rule: Rule) -> float:
    """The interpreter's outputs against autograd of the problem as written, token by token."""
    sample = draw(rule, _sizes(rule.problem.spec), seed=4)
    y, _ = interpret(rule, sample.q, sample.k, sample.v, sample.coefficients)
    z = stated(rule.problem, sample.q, sample.k, sample.v, sample.coefficients)
    return verify_error.difference(y, z)


def _sizes(spec: Spec) -> Sizes:
    """A few tokens more than a window or a chunk; fewer where every token is a minimisation."""
    window = spec.window if isinstance(spec.window, int) else 1
    entry = spec.retention
    kinds = {type(e).word() for e in (entry.local, entry.global_, entry.constraint)}
    dear = not kinds <= {"l2", "none"} or spec.optimizer.method == "flow"
    least = max(window + 2, spec.optimizer.anchor.chunk + 2)
    plain = DEAR if dear else CHEAP
    size = 3 if type(spec.memory).word() != "linear" else plain.value
    return Sizes(plain.batch, min(max(plain.length, least), LONGEST), plain.heads, 3, size)
