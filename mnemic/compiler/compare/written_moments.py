"""Second-order rules written out: the moments H = Σ φφᵀ and U = Σ vφᵀ and what they solve."""

from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import ROWS, matrix
from mnemic.compiler.compare.entry_form import NOUGHT, Form, State
from mnemic.compiler.compare.gradient_step import Writer, product
from mnemic.compiler.compare.written_readout import divided, of_ones, with_bonus
from mnemic.compiler.rule import Moments


def moments(rule: Moments, writer: Writer) -> Form:
    """Return H, U and the read-out U (H + λ)⁻¹ q, or that of full-batch steps from the origin."""
    queries = writer.at.queries()
    states: tuple[State, ...]
    states, memory = _solved(rule, writer, "W")
    output = [product(list(memory.row(i)), queries) for i in range(ROWS)]
    output = with_bonus(writer, output, queries)
    if rule.problem.spec.readout.normalizer != "none":
        ones = of_ones(writer)
        (weights, _), counted = _solved(rule, ones, "N")
        row = State("N", weights.symbols[: counted.cols], weights.after[: counted.cols])
        states = (*states, row)
        output = divided(writer, ones, output, product(list(counted.row(0)), queries), queries)
    return Form(states, tuple(output))


def _solved(rule: Moments, writer: Writer, name: str) -> tuple[tuple[State, State], Any]:
    """Return U, under a name, and H, with the memory that solves them: as they are before the
    token where the read-out asks for that, else after it."""
    at, solution = writer.at, rule.solution
    keys, size = at.features("predict", ""), at.columns
    h = matrix("H", size, size)
    u = matrix(name, ROWS, size)
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
    before = rule.problem.spec.readout.memory == "before"
    whole, crossed = sp.Matrix(h if before else new_h) + beside, sp.Matrix(u if before else new_u)
    if solution.steps:
        memory = _descended(rule, writer, whole, crossed)
    else:
        memory = crossed * whole.adjugate() / whole.det()
    start = sp.Integer(0) if stays else ridge[0]
    return (_state(name, u, new_u), _state("H", h, new_h, start)), memory


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
