"""The gradients of an elementwise expression: its derivative by each read, summed."""

from typing import Any

import sympy as sp

from mnemic.codegen.derivative import derivative
from mnemic.codegen.ops.at import At
from mnemic.codegen.plan import MEMORIES, Map, Read
from mnemic.compiler.implicit import NewErrorBase


def through_map(at: At) -> None:
    """Give each read ∂expr/∂read times the gradient, summed over the axes that it lacks."""
    op = at.quantity.op
    assert isinstance(op, Map)
    symbols = {s.name: s for s in op.expr.free_symbols}
    for read in op.reads:
        if not at.wants(read.quantity):
            continue
        slope = derivative(op.expr, symbols[read.symbol])
        if slope != 0:
            at.give(read.quantity, _part(at, op, read, slope))


def _part(at: At, op: Map, read: Read, slope: Any) -> str:
    name, axes = at.name(read.quantity), at.quantity.axes
    if read.axes == axes:
        return _sloped(at, name, op, slope)
    joined = _joined(at, op, read, slope)
    if joined is not None:
        return at.call(name, at.axes(read.quantity), *joined)
    inner = at.d if slope == 1 else _sloped(at, f"{name}_parts", op, slope)
    return at.summed(name, inner, axes, read.axes)


def _sloped(at: At, name: str, op: Map, slope: Any) -> str:
    """Plan the derivative times the gradient; a root in it is the quantity itself."""
    d, itself = _unread("d_", op), _unread("itself_", op)
    axes = at.quantity.axes
    if isinstance(op.expr, NewErrorBase):
        slope = slope.xreplace({op.expr: itself})
    reads = (*op.reads, Read(d.name, at.d, axes), Read(itself.name, at.quantity.name, axes))
    return at.expression(name, axes, d * slope, reads)


def _unread(name: str, op: Map) -> Any:
    """Return a symbol that the expression does not read."""
    while any(read.symbol == name for read in op.reads):
        name = f"{name}_"
    return sp.Symbol(name, real=True)


def _joined(at: At, op: Map, read: Read, slope: Any) -> tuple[str, ...] | None:
    """Return the product that is Σ over one axis of the gradient times a vector, or ``None``."""
    axes = at.quantity.axes
    if not (slope.is_Symbol and len(axes) == 2 and len(read.axes) == 1):
        return None
    (other,) = [r for r in op.reads if r.symbol == slope.name]
    (missing,) = [a for a in axes if a not in read.axes]
    if other.axes != (missing,):
        return None
    along = missing == axes[1]
    if axes in MEMORIES:
        return "recall" if along else "pull", at.d, other.quantity
    return ("matrix_rows", at.d, other.quantity) if along else (
        "vector_matrix", other.quantity, at.d
    )  # fmt: skip
