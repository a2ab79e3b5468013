"""Second-order rules written out: the moments H = Σ φφᵀ and U = Σ vφᵀ and what they solve."""

from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import ROWS, matrix
from mnemic.compiler.compare.form import NOUGHT, Form, State
from mnemic.compiler.compare.gradients import Writer, product
from mnemic.compiler.rule import Moments


def moments(rule: Moments, writer: Writer) -> Form:
    """Return H, U and the read-out U (H + λ)⁻¹ q, or that of full-batch steps from the origin."""
    at, solution = writer.at, rule.solution
    keys, size = at.features("predict", ""), at.columns
    h = matrix("H", size, size)
    u = matrix("W", ROWS, size)
    fade, weight = _weights(rule, writer)
    new_h = [
        [fade * h[i][j] + weight * keys[i] * keys[j] for j in range(size)] for i in range(size)
    ]
    new_u = [
        [fade * u[i][j] + weight * at.value(i, "") * keys[j] for j in range(size)]
        for i in range(ROWS)
    ]
    ridge = [at.at(solution.ridge, j, j) for j in range(size)]
    stays = solution.constant or fade == 1  # what never fades may stand beside the sum
    beside = sp.diag(*ridge) if stays else sp.zeros(size)
    whole = sp.Matrix(new_h) + beside
    if solution.steps:
        memory = _descended(rule, writer, whole, sp.Matrix(new_u))
    else:
        memory = sp.Matrix(new_u) * whole.adjugate() / whole.det()
    queries = at.queries()
    output = [product(list(memory.row(i)), queries) for i in range(ROWS)]
    start = sp.Integer(0) if stays else ridge[0]
    return Form((_state("W", u, new_u), _state("H", h, new_h, start)), tuple(output))


def _weights(rule: Moments, writer: Writer) -> tuple[Any, Any]:
    """Return how much the past is kept, and how much the new pair weighs."""
    gamma = sym.coefficient("gamma") if rule.solution.fades else sp.Integer(1)
    return writer.at.at(gamma, 0, 0), writer.at.at(rule.solution.weight, 0, 0)


def _descended(rule: Moments, writer: Writer, h: Any, u: Any) -> Any:
    """Take steps W ← W − η(WH − U) from the origin."""
    rate = writer.at.at(rule.rate, 0, 0)
    memory = sp.zeros(*u.shape)
    for _ in range(min(rule.solution.steps, 3)):
        memory = (memory - rate * (memory * h - u)).expand()
    return memory


def _state(name: str, before: Any, after: Any, start: Any = NOUGHT) -> State:
    symbols = tuple(x for row in before for x in row)
    return State(name, symbols, tuple(x for row in after for x in row), start)
