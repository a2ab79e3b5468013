"""The gradient of a form whose kernel is to be printed: its plan, and what of it a kernel takes."""

from dataclasses import replace

from mnemic.codegen.adjoint import Adjoint, NoAdjoint, adjoint
from mnemic.codegen.plan import Plan
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import Row


def reversed_of(plan: Plan) -> Adjoint:
    """Return the adjoint of a plan.

    Raises ``NoTiles`` where it has none.
    """
    try:
        return adjoint(plan)
    except NoAdjoint as reason:
        raise NoTiles(str(reason)) from None


def output_of(back: Adjoint) -> str:
    """Name the argument that is the gradient of the form's output."""
    return next(n for n in back.plan.arguments() if n.startswith("d_out"))


def given_back(back: Adjoint, rows: tuple[Row, ...]) -> Adjoint:
    """Return the adjoint with the gradients of the kernel's own arguments alone."""
    known = {row.name for row in rows}
    return replace(back, gradients={n: g for n, g in back.gradients.items() if n in known})


def ordered(rows: tuple[Row, ...], under: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return a gradient kernel's rows in the order of the form's, whether or not it reads them."""
    own = {row.name: row for row in under}
    output = tuple(row for row in under if row.name.startswith("d_out"))
    return (*(own.get(row.name, row) for row in rows), *output)
