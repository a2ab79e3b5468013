"""Costs of a memory of layers, or behind O, intervals or norms: matrix by matrix.

A matrix of r × c numbers costs 2rc a product with a vector, and O by Newton–Schulz, with r ≤ c,
4r²c + 2r³ an iteration (two products with the Gram matrix, and its square). Behind a kernel the
matrix that sees φ is r × T, a row for every kept key, half of them in the mean over a text.
"""

from typing import Any

import sympy as sp

from mnemic.compiler.explain.cost_symbols import B, C, D, K, M, T, V
from mnemic.compiler.network import Apply, Back, Matrix
from mnemic.compiler.rule import Rule

ZERO = sp.Integer(0)


# -- sizes -------------------------------------------------------------------------------------


def side(rule: Rule, name: str) -> Any:
    """Return a side of a matrix: d_v, D, or a hidden width, m where all are one.

    Each channel of a diagonal memory is one number for one value.
    """
    widths = dict(rule.network.widths)
    if name not in widths:
        value = sp.Integer(1) if rule.diagonal else V
        return {"v": value, "D": D if rule.kernels is None else T}[name]
    if widths[name] == 0:
        return sp.Integer(1)
    return M if width(rule) is not None else sp.nsimplify(widths[name]) * V


def sides(rule: Rule, matrix: Matrix) -> tuple[Any, Any]:
    """Return how many rows and columns a matrix has."""
    return side(rule, matrix.rows), side(rule, matrix.columns)


def numbers(rule: Rule, matrix: Matrix) -> Any:
    """Return how many numbers one matrix has."""
    rows, columns = sides(rule, matrix)
    return rows * columns


def product(rule: Rule, matrix: Matrix) -> Any:
    """Count the FLOPs of the matrix times a vector; κ of every kept key comes first."""
    keys = 2 * K * T if rule.keeps_rows(matrix) else ZERO
    return 2 * numbers(rule, matrix) + keys


def width(rule: Rule) -> Any | None:
    """Return m in terms of d_v, where the rule has one."""
    sizes = {size for _, size in rule.network.widths if size}
    return sp.nsimplify(sizes.pop()) * V if len(sizes) == 1 else None


# -- the state ---------------------------------------------------------------------------------


def layered_state(rule: Rule) -> Any:
    """Return how many numbers are carried: matrices, each S, held and anchored memories, norms.

    An optimizer that acts entry by entry also carries its averages and their gathered weights.
    """
    weights = sum(average.corrected for average in rule.applied.averages)
    weights *= D if rule.diagonal else 1
    return sum((_carried(rule, m) for m in rule.network.matrices), ZERO) + weights


def _carried(rule: Rule, matrix: Matrix) -> Any:
    rows, columns = sides(rule, matrix)
    norms = {"none": ZERO, "rows": rows, "columns": columns}[rule.applied.normalize]
    norms = ZERO if rule.keeps_rows(matrix) else norms
    keys = K * T if rule.keeps_rows(matrix) else ZERO
    return _copies(rule, matrix) * rows * columns + norms + keys


def _copies(rule: Rule, matrix: Matrix) -> int:
    held = matrix.every > 1
    sees = not (rule.error.constant and rule.network.linear)
    asks = rule.problem.spec.readout.memory == "anchor"
    anchored = rule.anchor > matrix.every and (sees or asks)
    gathers = rule.momentum is not None or held
    return 1 + gathers + len(rule.applied.averages) + held + anchored


# -- FLOPs -------------------------------------------------------------------------------------


def layered_decode(rule: Rule) -> Any:
    """Return the FLOPs of a token of the recurrence: M, its gradient, the moves, M again."""
    keys = C if rule.window > 1 else sp.Integer(1)
    written = layered_forward(rule, needed=True) + _backward(rule)
    found = keys * written + layered_forward(rule)
    for matrix in rule.network.matrices:
        size = numbers(rule, matrix)
        if not rule.keeps_rows(matrix):
            found += 2 * size * keys  # the outer products
        gathers = rule.momentum is not None or matrix.every > 1
        found += 2 * size * (gathers + len(rule.applied.averages))
        found += 2 * size if matrix.every == 1 or rule.decay != 1 else ZERO
        found += _moved(rule, matrix)
    return found


def layered_train(rule: Rule) -> Any:
    """Return the FLOPs of a token of the chunk form, layer by layer."""
    window = (B + C - 1) / B if rule.window > 1 else sp.Integer(1)  # the last chunk's keys, anew
    found = window * (layered_forward(rule, needed=True) + _backward(rule))
    if rule.window > 1:
        found += 2 * B * (B + C)
    for matrix in rule.network.matrices:
        found += _read(rule, matrix, window) + _moved(rule, matrix)
    found += _anew(rule)
    return found if rule.kernels is None else found.subs(T, T / 2)


def _anew(rule: Rule) -> Any:
    """Count a query's second read, needed where the end of an interval moved the memory; else 0."""
    if rule.problem.spec.readout.memory != "after":
        return ZERO
    ends = {m.every for m in rule.network.matrices} - {1}
    if rule.anchor > 1 and (rule.applied.normalize != "none" or rule.retained.mode == "prox"):
        ends.add(rule.anchor)
    return sum((layered_forward(rule) / every for every in ends), ZERO)


def _read(rule: Rule, matrix: Matrix, window: Any) -> Any:
    """Count a matrix read by every query of a chunk, and moved by every key."""
    rows, columns = sides(rule, matrix)
    size = rows * columns
    if rule.keeps_rows(matrix):
        copies = 1 if rule.momentum is None else 2
        return 2 * K * T + copies * 2 * size + 2 * window * B * (rows + K)
    held = 2 * size
    if matrix.every > 1:
        return held + 2 * window * size
    if by_row(rule):  # a memory for every row
        sums = 2 if rule.applied.kind != "identity" else 1
        sums = 1 + len(rule.applied.averages) if rule.applied.elementwise else sums
        return held + sums * 2 * B * size
    carried = 2 if rule.momentum is not None else 1
    inside = 2 * window * B * (rows + columns)
    return carried * (held + 2 * window * size) + inside


def by_row(rule: Rule) -> bool:
    """Return whether the memory of each token is computed, since a link or O is not linear."""
    linked = rule.retained.mode != "dual" or not rule.retained.link.identity
    return linked or rule.applied.kind != "identity"


def _moved(rule: Rule, matrix: Matrix) -> Any:
    """Count the FLOPs of a matrix's link and O per token; norms at chunk ends are left out."""
    size, often = numbers(rule, matrix), sp.Rational(1, matrix.every)
    found = ZERO
    if rule.retained.mode != "dual" or not rule.retained.link.identity:
        found += 4 * size * often
    if rule.applied.kind == "newton-schulz":
        found += rule.applied.steps * iteration(*sides(rule, matrix)) * often
    if rule.applied.elementwise:
        entries = [rule.applied.step, *(average.entry for average in rule.applied.averages)]
        found += sum(map(_operations, entries)) * size
    return found


def _operations(expr: Any) -> int:
    """Count the operations of an expression, a root being one."""
    named = expr.replace(lambda p: p.is_Pow and p.exp == sp.Rational(1, 2),
                         lambda p: sp.Function("root")(p.base))  # fmt: skip
    return int(sp.count_ops(named))


def iteration(rows: Any, columns: Any) -> Any:
    """Return the FLOPs of one Newton–Schulz step on a matrix, which the smaller side multiplies."""
    small, large = _ordered(rows, columns)
    return 4 * small**2 * large + 2 * small**3


def _ordered(rows: Any, columns: Any) -> tuple[Any, Any]:
    if rows == columns:
        return rows, columns
    return sp.Min(rows, columns), sp.Max(rows, columns)


def layered_forward(rule: Rule, *, needed: bool = False) -> Any:
    """Count the products of M at one vector; with ``needed`` only those that its gradient reads."""
    network = rule.network
    wanted = _wanted(rule) if needed and rule.error.constant else None
    return sum(
        (
            product(rule, network.matrix(node.matrix))
            for node in network.nodes
            if isinstance(node, Apply) and (wanted is None or node.name in wanted)
        ),
        ZERO,
    )


def _wanted(rule: Rule) -> set[str]:
    """Return the layers that the chain rule reads where the error does not read the prediction."""
    network = rule.network
    front: set[str] = set()
    for node in network.backward.nodes:
        front |= set(_reads(node))
    front |= {keys for _, keys in network.backward.outer.values()}
    found: set[str] = set()
    for layer in reversed(network.nodes):
        if layer.name in front:
            found.add(layer.name)
            front |= set(_reads(layer))
    return found


def _reads(node: Any) -> tuple[str, ...]:
    sources: tuple[str, ...] = getattr(node, "sources", ())
    one = tuple(getattr(node, name) for name in ("source", "at") if hasattr(node, name))
    return (*sources, *one)


def _backward(rule: Rule) -> Any:
    return sum(
        (
            product(rule, rule.network.matrix(node.matrix))
            for node in rule.network.backward.nodes
            if isinstance(node, Back)
        ),
        ZERO,
    )
