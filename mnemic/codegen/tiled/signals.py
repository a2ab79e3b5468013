"""The error signal on tiles, and its transposed Jacobian."""

from typing import Any

import sympy as sp

from mnemic.codegen.error_functions import Signal
from mnemic.codegen.tiled.printer import print_exact, print_function, print_tile
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


def functions(signal: Signal) -> tuple[str, str]:
    """Write ``error`` and ``error_adjoint`` as Triton source."""
    residual = "e" if signal.of_residual else "y - v"
    parameters = ", ".join(signal.parameters)
    norm = f"    n = tiles.norm_column({residual})\n" if signal.uses_norm else ""
    slope = sp.sympify(signal.slope).xreplace(_named(signal))
    body = print_function(signal.expr, signal.parameters[0])
    return (
        ERROR.format(parameters=parameters, norm=norm, body=body),
        ADJOINT.format(
            parameters=parameters, norm=norm, roots=_roots(signal),
            slope=print_exact(slope, {}, _zero(signal)), result=_adjoint(signal, residual),
        ),
    )  # fmt: skip


def _zero(signal: Signal) -> str:
    return f"tl.zeros_like({signal.parameters[0]})"


def _named(signal: Signal) -> dict[Any, Any]:
    """Name the errors at new predictions that a slope holds: s0, s1 and so on."""
    found = roots_of(sp.sympify(signal.slope) + sp.sympify(signal.radial))
    return {root: sp.Symbol(f"s{i}", real=True) for i, root in enumerate(found)}


def _roots(signal: Signal) -> str:
    named = _named(signal).items()
    return "".join(f"    {name} = {print_tile(root, {})}\n" for root, name in named)


def _adjoint(signal: Signal, residual: str) -> str:
    if signal.radial == 0:
        return "    return slope * grad"
    radial = print_exact(signal.radial.xreplace(_named(signal)), {}, _zero(signal))
    return (
        f"    radial = {radial}\n"
        f"    along = tl.sum(({residual}) * grad, 1, keep_dims=True)\n"
        f"    return slope * grad + radial * along * ({residual})"
    )
