"""The error signal and its adjoint as functions of the generated module."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.guards import TINY
from mnemic.codegen.implicit_error import at_roots, declare_roots
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym

ERROR = '''def error({parameters}):
    """The error signal e = ∂ℓ/∂ŷ, row by row."""
{norm}    return {body}
'''

ADJOINT = '''def error_adjoint(grad, {parameters}):
    """(∂e/∂ŷ)ᵀ grad, for the backward pass."""
{norm}{roots}    slope = {slope}
{result}
'''


@dataclass(frozen=True)
class ErrorFunction:
    """What the generated ``error`` takes: the residual or the prediction, then ``arguments``."""

    of_residual: bool
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Signal:
    """The expression behind ``error``: e of its first parameter, then of the other ones."""

    expr: Any
    parameters: tuple[str, ...]
    slope: Any
    """∂e/∂ŷ along each coordinate."""
    radial: Any
    """What (∂e/∂ŷ) adds along the residual: radial · r rᵀ."""
    uses_norm: bool
    bounded: bool
    """Whether ∂e/∂ŷ is."""

    @property
    def of_residual(self) -> bool:
        """Whether e is one of ŷ − v alone."""
        return self.parameters[0] == "e"


def error_functions(b: Builder, roles: dict[str, str]) -> ErrorFunction:
    """Declare e and its transposed Jacobian on the plan."""
    error = b.rule.error
    shift = {sym.y: sym.e + sym.v}
    parts = [sp.sympify(z).subs(shift) for z in (error.signal, error.slope, error.radial)]
    parts = [sp.expand(z) if z.has(sym.v) else z for z in parts]
    of_residual = not any(z.has(sym.v) for z in parts)
    signal, slope, radial = parts if of_residual else (error.signal, error.slope, error.radial)
    slope = _at_value(signal, slope, sym.e if of_residual else sym.y - sym.v)
    found: dict[str, str] = b.row_coefficients(signal)
    if signal.has(sym.kappa):
        rows = b.plan.axes(roles["value"])[:-1]
        found["kappa"] = b.square(rows, roles["predict"])
    arguments = {name: _column(b, quantity) for name, quantity in found.items()}
    first = ["e"] if of_residual else ["y", "v"]
    parameters = ", ".join([*first, *arguments])
    residual = "e" if of_residual else "y - v"
    norm = f"    n = norm({residual})[..., None]\n" if error.uses_norm else ""
    b.plan.functions["error"] = ERROR.format(
        parameters=parameters, norm=norm, body=print_torch(signal, {})
    )
    declare_roots(b.plan, signal)
    found_roots, (printed, along) = at_roots(slope, radial)
    b.plan.functions["error_adjoint"] = ADJOINT.format(
        parameters=parameters,
        norm=norm,
        roots=found_roots,
        slope=print_torch(printed, {}),
        result=_adjoint(along, residual),
    )
    b.plan.signals["error"] = Signal(
        signal, (*first, *arguments), slope, radial, error.uses_norm, error.bounded
    )
    value = () if of_residual else (roles["value"],)
    return ErrorFunction(of_residual, (*value, *arguments.values()))


def _at_value(signal: Any, slope: Any, residual: Any) -> Any:
    """Return a slope that is 0 where a prediction meets its value, if it is infinite there, or the
    error is sign(e) f(|e|).

    Automatic differentiation of ``error`` has that as well: its roots are flat below ``TINY``, and
    sign(0) is 0. And 1/√TINY would make gradients no numbers.
    """
    met, slope = (sym.e, 0) if residual == sym.e else (sym.y, sym.v), sp.sympify(slope)
    there, roots = slope.subs(*met), (p for p in slope.atoms(sp.Pow) if not p.exp.is_nonnegative)
    endless = not there.is_finite and any(p.base.subs(*met) == 0 for p in roots)
    signs = (f for f in sp.Mul.make_args(signal) if isinstance(f, sp.sign))
    turned = there != 0 and any(f.args[0].subs(*met) == 0 for f in signs)
    if not (endless or turned):
        return slope
    return sp.Piecewise((slope, sp.Abs(residual) > sp.Float(TINY)), (0, True))


def _adjoint(radial: Any, residual: str) -> str:
    if radial == 0:
        return "    return slope * grad"
    return (
        f"    radial = {print_torch(radial, {})}\n"
        f"    along = (({residual}) * grad).sum(-1, keepdim=True)\n"
        f"    return slope * grad + radial * along * ({residual})"
    )


def _column(b: Builder, quantity: str) -> str:
    axes = b.plan.axes(quantity)
    if axes and axes[-1] == "v":
        return quantity
    return b.call(f"{quantity}_column", (*axes, "v"), "column", quantity)
