"""The error signal on tiles, its transposed Jacobian, and the systems that residuals solve."""

from typing import Any

import sympy as sp

from mnemic.codegen.functions import Signal
from mnemic.codegen.tiled.printer import print_tile
from mnemic.compiler.implicit import roots_of

ERROR = '''@triton.jit
def error({parameters}):
    """The error signal e = ∂ℓ/∂ŷ, row by row."""
{norm}    return {body}
'''

ADJOINT = '''@triton.jit
def error_adjoint(grad, {parameters}):
    """(∂e/∂ŷ)ᵀ grad, row by row."""
{norm}{roots}    slope = {slope}
{result}
'''

RESIDUAL = '''@triton.jit
def residual(mixing, base, {rows}PRECISION: tl.constexpr):
    """The root y of y = base + L e(y), L strictly lower triangular: rows one after another inside
    blocks of 16, products between blocks."""
    C: tl.constexpr = base.shape[0]
    B: tl.constexpr = min(tiles.BASE, C)
    y = base
    e = tl.zeros_like(base)
    for block in range(0, C // B):
        own = tiles.rows_of(y, block, B)
        within = tiles.block_of(mixing, block, B)
{own}        found = tl.zeros_like(own)
        for i in range(0, B):
            one = error(tiles.row_of(own, i){of_row})
            found = tiles.with_row(found, one, i)
            own += tiles.column_of(within, i) * one
        e = tiles.with_rows(e, found, block, B)
        y = base + tiles.exact(mixing, e, PRECISION)
    return y
'''

RESIDUAL_VJP = '''@triton.jit
def residual_vjp(d, y, mixing, {rows}PRECISION: tl.constexpr):
    """g = d + Jᵀ Lᵀ g, the gradient at ``base``: the same system with time reversed."""
    C: tl.constexpr = d.shape[0]
    B: tl.constexpr = min(tiles.BASE, C)
    later = tl.zeros_like(d)
    g = tl.zeros_like(d)
    for before in range(0, C // B):
        block = C // B - 1 - before
        own = tiles.rows_of(later, block, B)
        d_own, y_own = tiles.rows_of(d, block, B), tiles.rows_of(y, block, B)
        within = tl.trans(tiles.block_of(mixing, block, B))
{own}        found = tl.zeros_like(own)
        for j in range(0, B):
            i = B - 1 - j
            grad = tiles.row_of(own, i)
            one = tiles.row_of(d_own, i) + error_adjoint(grad, tiles.row_of(y_own, i){of_row})
            found = tiles.with_row(found, one, i)
            own += tiles.column_of(within, i) * one
        g = tiles.with_rows(g, found, block, B)
        later = tiles.exact(tl.trans(mixing), g, PRECISION)
    return g
'''


SWEEPS = '''@triton.jit
def residual(mixing, base, {rows}PRECISION: tl.constexpr):
    """The root y of y = base + L e(y), L strictly lower triangular: sweeps over blocks of 16, of
    which the n-th makes row n exact, products between blocks."""
    C: tl.constexpr = base.shape[0]
    B: tl.constexpr = min(tiles.BASE, C)
    blocks = tiles.diagonal_blocks(mixing, B)
    y = base
    e = tl.zeros_like(base)
    for block in range(0, C // B):
        start = tiles.rows_of(y, block, B)
        within = tiles.one_of(blocks, block)
{own}        found = error(start{of_own})
        for sweep in range(1, B):
            found = error(start + tiles.exact(within, found, PRECISION){of_own})
        e = tiles.with_rows(e, found, block, B)
        y = base + tiles.exact(mixing, e, PRECISION)
    return y
'''

SWEEPS_VJP = '''@triton.jit
def residual_vjp(d, y, mixing, {rows}PRECISION: tl.constexpr):
    """g = d + Jᵀ Lᵀ g, the gradient at ``base``: the same system with time reversed."""
    C: tl.constexpr = d.shape[0]
    B: tl.constexpr = min(tiles.BASE, C)
    blocks = tiles.diagonal_blocks(mixing, B)
    later = tl.zeros_like(d)
    g = tl.zeros_like(d)
    for before in range(0, C // B):
        block = C // B - 1 - before
        start = tiles.rows_of(later, block, B)
        d_own, y_own = tiles.rows_of(d, block, B), tiles.rows_of(y, block, B)
        within = tl.trans(tiles.one_of(blocks, block))
{own}        found = d_own + error_adjoint(start, y_own{of_own})
        for sweep in range(1, B):
            back = start + tiles.exact(within, found, PRECISION)
            found = d_own + error_adjoint(back, y_own{of_own})
        g = tiles.with_rows(g, found, block, B)
        later = tiles.exact(tl.trans(mixing), g, PRECISION)
    return g
'''

SYSTEMS = {"substitution": (RESIDUAL, RESIDUAL_VJP), "sweeps": (SWEEPS, SWEEPS_VJP)}
"""How a chunk's residuals are solved: row by row, or where slopes are bounded in sweeps, in which a
row that is not exact yet stays finite."""


def functions(signal: Signal, solver: str) -> str:
    """The functions of one error signal, as Triton source; ``solver`` is a key of ``SYSTEMS``."""
    first, *rows = signal.parameters
    of_residual = first == "e"
    residual = "e" if of_residual else "y - v"
    parameters = ", ".join(signal.parameters)
    norm = f"    n = tiles.norm_column({residual})\n" if signal.uses_norm else ""
    given = {
        "rows": "".join(f"{row}, " for row in rows),
        "own": "".join(f"        {row}_own = tiles.rows_of({row}, block, B)\n" for row in rows),
        "of_row": "".join(f", tiles.row_of({row}_own, i)" for row in rows),
        "of_own": "".join(f", {row}_own" for row in rows),
    }
    parts = [
        ERROR.format(parameters=parameters, norm=norm, body=print_tile(signal.expr, {})),
        ADJOINT.format(
            parameters=parameters, norm=norm, roots=_roots(signal),
            slope=print_tile(sp.sympify(signal.slope).xreplace(_named(signal)), {}),
            result=_adjoint(signal, residual),
        ),
        *(system.format(**given) for system in SYSTEMS[solver]),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _named(signal: Signal) -> dict[Any, Any]:
    """The errors at new predictions that a slope holds, by names of their own."""
    found = roots_of(sp.sympify(signal.slope) + sp.sympify(signal.radial))
    return {root: sp.Symbol(f"s{i}", real=True) for i, root in enumerate(found)}


def _roots(signal: Signal) -> str:
    named = _named(signal).items()
    return "".join(f"    {name} = {print_tile(root, {})}\n" for root, name in named)


def _adjoint(signal: Signal, residual: str) -> str:
    if signal.radial == 0:
        return "    return slope * grad"
    return (
        f"    radial = {print_tile(signal.radial.xreplace(_named(signal)), {})}\n"
        f"    along = tl.sum(({residual}) * grad, 1, keep_dims=True)\n"
        f"    return slope * grad + radial * along * ({residual})"
    )
