"""The gradient step of one key with every entry written out."""

from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare import opaque_functions
from mnemic.compiler.compare.coordinates import COLUMNS, Coordinates, matrix
from mnemic.compiler.compare.entry_form import HOLDERS, Whole
from mnemic.compiler.error_signal import ErrorSignal
from mnemic.compiler.network import Norm
from mnemic.compiler.rule import Rule

Matrix = list[list[Any]]


@dataclass
class Writer:
    """What a step has written so far."""

    rule: Rule
    at: Coordinates
    wholes: list[Whole] = field(default_factory=list)
    functions: dict[str, Any] = field(default_factory=dict)

    def whole(self, function: str, expr: Any, arguments: list[Any], label: str) -> Any:
        """Return a symbol for a function of entries, which is not written out."""
        symbol = sp.Symbol(f"{function}{label}", real=True)
        self.functions[function] = expr
        self.wholes.append(Whole(symbol, function, tuple(map(sp.sympify, arguments))))
        return symbol

    def channel(self, column: int) -> int:
        """Return the key channel that a column belongs to (two columns each under a phase)."""
        return column * COLUMNS // self.at.columns

    def each(self, entry: Any) -> Matrix:
        """Build a matrix by row and column; off the diagonal a diagonal memory is zero."""
        zero = sp.Integer(0)
        return [
            [
                zero if self.rule.diagonal and self.channel(j) != i % COLUMNS else entry(i, j)
                for j in range(self.at.columns)
            ]
            for i in range(self.at.rows)
        ]

    def symbols(self, name: str) -> Matrix:
        """Return a state's matrix of symbols."""
        named = matrix(name, self.at.rows, self.at.columns)
        return self.each(lambda i, j: named[i][j])

    def by_entry(self, expr: Any, row: int, column: int, step: str = "") -> Any:
        """Return a coefficient at an entry of the state."""
        return self.at.at(expr, row, self.channel(column), step)


@dataclass(frozen=True)
class Key:
    """One key of a step: its mark, that of its rate, and the memory that its gradient sees."""

    mark: str
    rate_mark: str
    seen: Matrix
    label: str


def gradient(writer: Writer, error: ErrorSignal, key: Key) -> tuple[Matrix, Matrix]:
    """Return −ηγ times what the step erases (by the prediction) and writes (by the value)."""
    at, rule = writer.at, writer.rule
    erase, write = at.features("erase", key.mark), at.features("write", key.mark)
    values = [at.value(i, key.mark) for i in range(at.rows)]
    predicted, slopes = predict(writer, key)
    zero = writer.each(lambda i, j: sp.Integer(0))
    rate = _rate(writer, key)
    if rule.split:
        slope = [at.at(error.slope, i, i % COLUMNS, key.rate_mark) for i in range(at.rows)]
        offset = [
            at.at(error.offset, i, i % COLUMNS, key.rate_mark).subs(sym.v, values[i])
            for i in range(at.rows)
        ]
        taken = writer.each(lambda i, j: -rate(i, j) * slope[i] * predicted[i] * erase[j])
        return taken, writer.each(lambda i, j: -rate(i, j) * offset[i] * write[j])
    phi = at.features("predict", key.mark)
    errors = _through(slopes, _errors(writer, error, key, predicted, values, phi))
    if error.constant:
        return zero, writer.each(lambda i, j: -rate(i, j) * errors[i] * write[j])
    return writer.each(lambda i, j: -rate(i, j) * errors[i] * erase[j]), zero


def predict(writer: Writer, key: Key) -> tuple[list[Any], Matrix | None]:
    """Return ŷ, and ∂ŷ/∂(Wφ) where a norm stands between."""
    phi = writer.at.features("predict", key.mark)
    products = [product(row, phi) for row in key.seen]
    return through_network(writer, products, ("predict", key.mark), f"_{key.label}{key.mark}")


def through_network(
    writer: Writer, products: list[Any], at: tuple[str, ...], label: str
) -> tuple[list[Any], Matrix | None]:
    """Return M(W, x) of one matrix from the entries of W φ(x), and its slopes where it has a norm.

    ``at`` tells the coordinates which vector x is.
    """
    found, slopes = products, None
    for node in writer.rule.network.nodes[1:]:
        if isinstance(node, Norm):
            found, slopes = _normed(writer, found, label)
        else:
            found = [x + y for x, y in zip(writer.at.raw(*at), found, strict=True)]
    return found, slopes


def _normed(writer: Writer, z: list[Any], label: str) -> tuple[list[Any], Matrix]:
    """Return LN(z) and ∂LN/∂z, each entry kept whole."""
    group, rows = [sp.Integer(0), *z], range(writer.at.rows)
    slopes = [
        [
            writer.whole(f"slope{i}{j}", opaque_functions.norm_slope(i, j), group, label)
            for j in rows
        ]
        for i in rows
    ]
    return [
        writer.whole(f"norm{i}", opaque_functions.layer_norm(i), group, label) for i in rows
    ], slopes


def product(row: list[Any], vector: list[Any]) -> Any:
    """Return ⟨row, vector⟩."""
    return sum((a * b for a, b in zip(row, vector, strict=True)), sp.Integer(0))


def _through(slopes: Matrix | None, errors: list[Any]) -> list[Any]:
    if slopes is None:
        return errors
    return [product(errors, [row[j] for row in slopes]) for j in range(len(errors))]


def _rate(writer: Writer, key: Key) -> Any:
    rule = writer.rule
    gated = rule.window > 1 and rule.gamma is not None
    gamma = sym.coefficient("gamma") if gated else sp.Integer(1)
    return lambda i, j: (
        writer.by_entry(rule.rate, i, j, key.rate_mark) * writer.by_entry(gamma, i, j, key.mark)
    )


def _errors(
    writer: Writer, error: ErrorSignal, key: Key, predicted: list[Any], values: list[Any],
    phi: list[Any],
) -> list[Any]:  # fmt: skip
    at = writer.at
    sizes = [_square(writer, phi, i) for i in range(at.rows)]
    if error.affine and error.offset.is_polynomial(sym.v):
        return [
            at.at(error.signal, i, i % COLUMNS, key.rate_mark).subs(
                {sym.y: predicted[i], sym.v: values[i], sym.kappa: sizes[i]}, simultaneous=True
            )
            for i in range(at.rows)
        ]
    factor, body = opaque_functions.error_function(error.signal)
    norm = product(
        [y - v for y, v in zip(predicted, values, strict=True)],
        [y - v for y, v in zip(predicted, values, strict=True)],
    )
    wholes = []
    for i in range(at.rows):
        used = dict(zip(HOLDERS, [predicted[i], values[i], norm, sizes[i]], strict=False))
        arguments = [a if body.has(h) else sp.Integer(0) for h, a in used.items()]
        wholes.append(writer.whole("error", body, arguments, f"_{key.label}{key.mark}_{i}"))
    scale = at.at(factor, 0, 0, key.rate_mark).subs(sym.kappa, sizes[0])
    return [scale * w for w in wholes]


def _square(writer: Writer, phi: list[Any], row: int) -> Any:
    """Compute ‖φ‖², over the row's own channel alone for a diagonal memory."""
    one = writer.rule.diagonal
    own = [x for j, x in enumerate(phi) if not one or writer.channel(j) == row % COLUMNS]
    return sum((x**2 for x in own), sp.Integer(0))
