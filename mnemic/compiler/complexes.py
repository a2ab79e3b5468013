"""A diagonal memory under a phase: complex numbers, x_t = α_t e^{iω_t} x_{t−1} + b_t.

Every key channel is one complex number, whose real and imaginary parts are two channels of the
value, of the state and of the read-out. The forms compute in a frame that rotates with the phases,
where the two parts never mix. So a step must commute with rotation: it is linear in prediction and
value, entry by entry, with real factors.
"""

from collections.abc import Iterator

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.problem import Problem
from mnemic.compiler.retention import Retained
from mnemic.dsl.memory import Diagonal
from mnemic.errors import InvalidSpec, Issue

HINT = "use bias: dot or l2 and plain retention, or leave the phase out"


def check(problem: Problem, error: ErrorSignal, retained: Retained) -> None:
    """Raise ``InvalidSpec`` where a complex memory's step depends on the angle it is seen from."""
    turned = problem.scalar("phase") is not None and isinstance(problem.spec.memory, Diagonal)
    found = [*_issues(problem, error, retained)] if turned else []
    if found:
        raise InvalidSpec(found)


def _issues(problem: Problem, error: ErrorSignal, retained: Retained) -> Iterator[Issue]:
    if not (error.affine and _linear(error.offset)):
        reason = "a complex memory's error is linear in prediction and value, and this one is not: "
        yield Issue(f"{reason}e = {error.signal}", "bias", hint=HINT)
    if not _linear(problem.keys["value"]):
        reason = "the value of a complex memory is a multiple of v: no other map keeps its angle"
        yield Issue(reason, "keys.value", str(problem.keys["value"]), hint=HINT)
    if not retained.link.identity:
        reason = "the link of a complex memory is the identity: any other bends its two parts apart"
        yield Issue(reason, "retention", hint=HINT)


def _linear(expr: sp.Expr) -> bool:
    """Return whether an expression is v times a factor that does not depend on v."""
    return not sp.simplify(expr / sym.v).has(sym.v)
