"""The error signal, and the systems that a chunk's residuals solve."""

import sympy as sp

from mnemic.codegen.derivative import derivative
from mnemic.codegen.error_functions import Signal
from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import Operation, Sample, Streaming, Tile
from mnemic.codegen.plan import Read
from mnemic.compiler import symbols as sym

SOLVED: dict[str, object] = {"error": "error", "adjoint": "error_adjoint"}
TANH = {
    "error": "def error(y):\n    return torch.tanh(y)\n",
    "error_adjoint": "def error_adjoint(d, y):\n    return d / torch.cosh(y) ** 2\n",
}
"""An error for the test of what solves with one."""

OWN = Tile(in_module=True, padded=True)

SIGNALS = ("error", "error_adjoint", "residual", "residual_vjp")
"""Functions of the spec's own error signal."""


def error(at: At) -> None:
    """Differentiate e(ŷ), or e(ŷ − v): dŷ = (∂e/∂ŷ)ᵀ d; rows that e reads beside ŷ get theirs."""
    unknown, *rows = at.arguments
    at.give_call(unknown, "error_adjoint", at.d, unknown, *rows)
    through_rows(at, at.d, at.arguments)


def through_rows(at: At, d: str, arguments: tuple[str, ...]) -> None:
    """Give what an error reads beside its unknown its gradients, d being that of e."""
    rows = arguments[1:]
    if not at.wants(*rows):
        return
    signal: Signal = at.plan.signals["error"]
    reads = _reads(at, signal, arguments)
    symbols = {s.name: s for s in signal.expr.free_symbols}
    for name, argument in zip(signal.parameters[1:], rows, strict=True):
        if not at.wants(argument):
            continue
        if name in symbols and derivative(signal.expr, symbols[name]) != 0:
            at.give(argument, _slope(at, signal, name, d, at.name(argument), reads))
        if name == "v" and "n" in symbols:
            _through_norm(at, signal, d, reads)


def _reads(at: At, signal: Signal, arguments: tuple[str, ...]) -> tuple[Read, ...]:
    axes = at.axes(arguments[0])
    reads = [Read(n, a, axes) for n, a in zip(signal.parameters, arguments, strict=True)]
    if signal.expr.has(sym.n):
        of = arguments[:1] if signal.of_residual else arguments[:2]
        function = "norm" if len(of) == 1 else "distance"
        n = at.call(f"{of[0]}_size", axes[:-1], function, *of)
        reads.append(Read("n", n, axes[:-1]))
    return tuple(reads)


def _slope(
    at: At, signal: Signal, name: str, d: str, part: str, reads: tuple[Read, ...]
) -> str:  # fmt: skip
    """Add ∂e/∂(one symbol) times the gradient to the plan; return its name."""
    axes = at.axes(reads[0].quantity)
    (symbol,) = [s for s in signal.expr.free_symbols if s.name == name]
    found = sp.Symbol("grad_", real=True) * derivative(signal.expr, symbol)
    return at.expression(part, axes, found, (*reads, Read("grad_", d, axes)))


def _through_norm(at: At, signal: Signal, d: str, reads: tuple[Read, ...]) -> None:
    """Give v the gradient that it gets through n = ‖ŷ − v‖, which e reads."""
    y, v, n = (next(r.quantity for r in reads if r.symbol == s) for s in "yvn")
    parts = _slope(at, signal, "n", d, f"d_{n}_parts", reads)
    d_n = at.call(f"d_{n}", at.axes(n), "total", parts)
    at.give_map(v, "d*(v - y)/n", d=d_n, y=y, v=v, n=n)


def residual(at: At) -> None:
    """Differentiate ŷ = base + L e(ŷ): dbase = d + Jᵀ m, m = Lᵀ dbase, a system back in time.

    dL = dbase eᵀ, and what e reads beside ŷ gets its share of m.
    """
    mixing, base, *rows = at.arguments
    options = {"adjoint": at.option("adjoint")}
    axes = at.axes(base)
    d_base = at.call(at.name(base), axes, "residual_vjp", at.d, at.out, mixing, *rows, **options)
    at.give(base, d_base)
    if at.wants(mixing):
        e = at.call("e", axes, "error", at.out, *rows)
        at.give_product(mixing, d_base, e, "r")
    if at.wants(*rows):
        back = at.product(f"{d_base}_back", axes, mixing, d_base, "l")
        through_rows(at, back, (at.out, *rows))


# fmt: off
OPERATIONS = (
    Operation("error", "tv, tv... -> tv", adjoint=error, tile=OWN, sample=None),
    Operation("error_adjoint", "tv, tv, tv... -> tv", tile=OWN, sample=None),
    Operation(
        "residual", "tt, tv, tv... -> tv", adjoint=residual,
        tile=Tile(extras=("precision",), in_module=True, padded=True),
        streaming=Streaming(costly=True),
        sample=Sample(kinds=("strictly lower",), options=SOLVED, functions=TANH),
    ),
    Operation(
        "residual_vjp", "tv, tv, tt, tv... -> tv",
        tile=Tile(extras=("precision",), in_module=True, padded=True),
        sample=Sample(
            kinds=("", "", "strictly lower"), options={"adjoint": "error_adjoint"}, functions=TANH
        ),
    ),
)
# fmt: on
