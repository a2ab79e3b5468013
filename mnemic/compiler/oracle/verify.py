"""Check a derived rule without trusting the derivation.

The loss, the retention and the whole recurrence are evaluated from the spec's text with automatic
differentiation and numerical minimisers, and compared with what was derived.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle import verify_error
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.oracle.stated import stated, unspoken
from mnemic.compiler.oracle.verify_retention import retention
from mnemic.compiler.rule import KeyValuePairs, Layers, Rule
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
    """Return every check that applies to the rule."""
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
    if method not in ("exact", "batch") and not isinstance(rule, KeyValuePairs):
        yield "link" if spec.retention.link is not None else "retention", retention, 1e-7
    if rule.structure.missing is None and unspoken(spec) is None:
        yield (
            "recurrence",
            recurrence,
            1e-8 if not isinstance(rule, KeyValuePairs) else 1e-7,
        )  # a fit is minimised


def recurrence(rule: Rule) -> float:
    """Compare the interpreter's outputs with autograd of the problem as written."""
    rule = _shortened(rule)
    sample = draw(rule, _sizes(rule.problem.spec), seed=4)
    given = (sample.q, sample.k, sample.v, sample.coefficients)
    y, _ = interpret(rule, *given, params=sample.params)
    z = stated(rule.problem, *given, sample.params)
    told = z.isfinite()  # a loss that grows without bound overflows, in both or one token later
    return verify_error.difference(y[told], z[told])


def _shortened(rule: Rule) -> Rule:
    """Return the rule with a long anchor cut to two tokens if each token is a minimisation."""
    spec = rule.problem.spec
    optimizer = spec.optimizer
    if not (
        isinstance(rule, Layers) and _dear(spec) and rule.intervals == (optimizer.anchor.chunk,)
    ):
        return rule
    short = optimizer.model_copy(
        update={"anchor": optimizer.anchor.model_copy(update={"chunk": 2})}
    )
    return derive_spec(spec.model_copy(update={"optimizer": short}))


def _dear(spec: Spec) -> bool:
    """Return whether every token is a numerical minimisation."""
    entry = spec.retention
    kinds = {type(e).word() for e in (entry.local, entry.global_, entry.constraint)}
    return not kinds <= {"l2", "none"} or spec.optimizer.method == "flow"


def _sizes(spec: Spec) -> Sizes:
    """Choose a few tokens more than a window or a chunk; fewer where each is a minimisation."""
    window = spec.window if isinstance(spec.window, int) else 1
    least = max(window + 2, spec.optimizer.anchor.chunk + 2)
    plain = DEAR if _dear(spec) else CHEAP
    size = 3 if type(spec.memory).word() != "linear" else plain.value
    return Sizes(plain.batch, min(max(plain.length, least), LONGEST), plain.heads, 3, size)
