"""Vectors read out of the state at a chunk's start."""

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.coefficients import Coefficients
from mnemic.codegen.keyed_rows import Side


def reached(b: Builder, vectors: str, factor: str | None) -> str:
    """Multiply vectors by the decay since the chunk's start, known for all chunks at once."""
    if factor is None:
        return vectors
    rows, channel = b.plan.axes(vectors)[0], b.plan.axes(factor)[1:]
    x, f = sp.Symbol("x_", real=True), sp.Symbol("f_", real=True)
    env = {"x_": vectors, "f_": (factor, (rows, *channel))}
    carried = factor.startswith("carry")
    return b.map(f"{vectors}_{'carry' if carried else 'reach'}", x * f, env)


def from_state(
    b: Builder, c: Coefficients, vectors: str, factor: str | None, state: str, name: str,
    row_decay: bool = True, side: Side | None = None,
) -> str:  # fmt: skip
    """Multiply rows of vectors by a state, with the decay since the chunk's start.

    Behind a kernel ``side`` tells the weights of the state's rows, and the decay follows them.
    """
    rows = b.plan.axes(vectors)[0]
    if side is None or side.kernel is None:
        vectors = reached(b, vectors, factor)
        read = b.product(name, (rows, "v"), vectors, state, flip_right=True)
    else:
        read = b.product(name, (rows, "v"), side.of_past(b, vectors), state)
        read = reached(b, read, factor)
    if c.row_reach is None or not row_decay:
        return read
    x, f = sp.Symbol("x_", real=True), sp.Symbol("f_", real=True)
    return b.map(f"{name}_rows", x * f, {"x_": read, "f_": (c.row_reach, (rows, "v"))})
