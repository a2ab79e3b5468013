"""The error signal and its adjoint as functions of the generated module."""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym

ERROR = '''def written(y{parameters}):
    """u = −η e(ŷ): what a prediction makes the step write, row by row.  {label}"""
{norm}    return {body}
'''

ADJOINT = '''def written_adjoint(grad, y{parameters}):
    """(∂u/∂ŷ)ᵀ grad, for the backward pass."""
{norm}    slope = {slope}
{result}
'''


def error_functions(
    b: Builder, factor: Any, roles: dict[str, str]
) -> tuple[tuple[str, str], tuple[str, ...]]:
    """Declare u(ŷ) and (∂u/∂ŷ)ᵀ on the plan; return their names and the arguments after v."""
    error = b.rule.error
    signal = factor * error.signal
    found: dict[str, str] = b.row_coefficients(signal)
    if signal.has(sym.kappa):
        rows = b.plan.axes(roles["value"])[:-1]
        found["kappa"] = b.call("kappa", rows, "squared_norm", roles["predict"])
    arguments = {name: _column(b, quantity) for name, quantity in found.items()}
    parameters = "".join(f", {name}" for name in ("v", *arguments))
    norm = "    n = distance(y, v)[..., None]\n" if error.uses_norm else ""
    b.plan.functions["written"] = ERROR.format(
        parameters=parameters, norm=norm, body=print_torch(signal, {}), label="{error}"
    )
    b.plan.functions["written_adjoint"] = ADJOINT.format(
        parameters=parameters,
        norm=norm,
        slope=print_torch(factor * error.slope, {}),
        result=_adjoint(factor, error),
    )
    return ("written", "written_adjoint"), tuple(arguments.values())


def _adjoint(factor: Any, error: Any) -> str:
    if error.radial == 0:
        return "    return slope * grad"
    radial = print_torch(sp.simplify(factor * error.radial), {})
    return (
        f"    radial = {radial}\n"
        "    along = ((y - v) * grad).sum(-1, keepdim=True)\n"
        "    return slope * grad + radial * along * (y - v)"
    )


def _column(b: Builder, quantity: str) -> str:
    axes = b.plan.axes(quantity)
    if axes and axes[-1] == "v":
        return quantity
    return b.call(f"{quantity}_column", (*axes, "v"), "column", quantity)
