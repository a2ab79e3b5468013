"""SymPy → Triton source: the PyTorch printer with a tile's functions in place of tensors'."""

from typing import Any

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from mnemic.codegen.guards import may_vanish
from mnemic.codegen.torch_printer import TorchPrinter, as_clamp, in_float32
from mnemic.codegen.words import in_words
from mnemic.compiler.balanced import balanced
from mnemic.compiler.symbolic import steady

FUNCTIONS: dict[str, str] = {
    "exp": "tl.exp",
    "sin": "tl.sin",
    "cos": "tl.cos",
    "erf": "tl.erf",
    "Abs": "tl.abs",
    **{
        name: f"tiles.{name}"
        for name in (
            "expm1", "tanh", "tan", "sinh", "cosh", "asinh", "atan", "atanh", "sign", "sigmoid",
            "softplus", "logsigmoid", "normal_cdf", "gelu",
        )
    },
    "round": "tiles.rounded",
    "steep": "tiles.steep",
}  # fmt: skip
"""SymPy's and our own functions by name, and what they are on tiles."""

POWERS = {2: "square", 3: "cube", 4: "fourth"}


class UnknownFunction(Exception):
    """A function that no tile computes."""


NOTHING = sp.Symbol("nothing_", real=True)
"""A zero that gives numbers a type."""


class TilePrinter(TorchPrinter):
    """Prints an expression on tiles; symbols print as ``names`` has them.

    Numbers that conditions choose are of the type of ``zero``, where that is given; else float32.
    """

    closed = False  # a kernel may not call Python's mathematics

    def __init__(self, names: dict[str, str], zero: str = "") -> None:
        super().__init__({**names, NOTHING.name: zero} if zero else names)
        self.zero = zero

    def _print_Symbol(self, expr: Any) -> str:
        return "tiles.TINY" if expr.name == "TINY" else super()._print_Symbol(expr)

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        if name not in FUNCTIONS:
            raise UnknownFunction(in_words(name.rpartition(".")[2]))
        return f"{FUNCTIONS[name]}({', '.join(self._print(a) for a in expr.args)})"

    def _print_Abs(self, expr: Any) -> str:
        return f"tl.abs({self._print(expr.args[0])})"

    def _print_sign(self, expr: Any) -> str:
        text = f"tiles.sign({self._print(expr.args[0])})"
        return f"({text} + {self.zero})" if self.zero else text

    def _print_log(self, expr: Any) -> str:
        inner = expr.args[0]
        if inner.is_Add and 1 in inner.args and not (inner - 1).is_number:
            return f"tiles.log1p({self._print(inner - 1)})"
        return f"tl.log({self._print(inner)})"

    def _print_Pi(self, expr: Any) -> str:
        return repr(float(sp.pi))

    def _print_Exp1(self, expr: Any) -> str:
        return repr(float(sp.E))

    def _print_Infinity(self, expr: Any) -> str:
        return 'float("inf")'

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if base == sp.E:
            return f"tl.exp({self._print(power)})"
        if base.is_number and not power.is_number:
            return f"tl.exp({self._print(sp.log(base).evalf(17) * power)})"
        if power == -1:
            return f"1 / {self.parenthesize(base, PRECEDENCE['Pow'])}"
        if power in POWERS:
            return f"tiles.{POWERS[int(power)]}({self._print(base)})"
        if power.is_Integer:
            return self._integer(base, int(power))
        inner = self._guarded_base(base, power)
        if power == sp.Rational(1, 2):
            return f"tl.sqrt({inner})"
        if power == -sp.Rational(1, 2):
            return f"1 / tl.sqrt({inner})"
        return f"tiles.power({inner}, {self._print(power)})"

    def _integer(self, base: Any, power: int) -> str:
        size = abs(power)
        text = self._print(base)
        factors = [f"tiles.fourth({text})"] * (size // 4)
        if size % 4 == 1:
            factors.append(self.parenthesize(base, PRECEDENCE["Mul"]))
        elif size % 4:
            factors.append(f"tiles.{POWERS[size % 4]}({text})")
        product = " * ".join(factors)
        return product if power > 0 else f"1 / ({product})"

    def _guarded_base(self, base: Any, power: Any) -> str:
        if may_vanish(base, power) or (base.has(sp.Abs) and not base.is_Add):
            return f"tl.maximum({self._print(base)}, tiles.TINY)"
        return str(self._print(base))

    def _print_Piecewise(self, expr: Any) -> str:
        clamped = as_clamp(expr)
        if clamped is not None:
            x, bound = (self._print(part) for part in clamped)
            return f"tl.minimum(tl.maximum({x}, -{bound}), {bound})"
        if self.zero and stepped(expr):
            parts = ((self._typed(value), condition) for value, condition in expr.args)
            expr = sp.Piecewise(*parts, evaluate=False)
        elif all(v.is_number for v, _ in expr.args):  # of the kernel's own type, not integers
            parts = ((sp.Float(value), condition) for value, condition in expr.args)
            expr = sp.Piecewise(*parts, evaluate=False)
        return self._branches(expr).replace("torch.where", "tl.where")

    def _typed(self, value: Any) -> Any:
        if value == 0:
            return NOTHING
        return sp.Add(value, NOTHING, evaluate=False) if value.is_number else value

    def _print_Mul(self, expr: Any) -> str:
        """Print quotients of a guarded sum one division after another: its square underflows."""
        numerator, divisors = sp.Integer(1), []
        for factor in sp.Mul.make_args(expr):
            base, power = factor.as_base_exp()
            if power.is_Integer and power < -1 and any(s.name == "TINY" for s in base.free_symbols):
                divisors += [base] * -int(power)
            else:
                numerator = numerator * factor
        if not divisors:
            return str(super()._print_Mul(expr))
        text = self.parenthesize(numerator, PRECEDENCE["Mul"])
        shown = [self.parenthesize(base, PRECEDENCE["Pow"]) for base in divisors]
        return " / ".join([text, *shown])

    def _guarded(self, value: Any, condition: Any) -> str:
        return str(self._print(value))

    def _print_Heaviside(self, expr: Any) -> str:
        one, nothing = (f"1.0 + {self.zero}", self.zero) if self.zero else ("1.0", "0.0")
        return f"tl.where({self._print(expr.args[0])} > 0, {one}, {nothing})"

    def _extreme(self, expr: Any, clamp: str, binary: str) -> str:
        text = self._print(expr.args[0])
        for other in expr.args[1:]:
            text = f"tl.{binary}({text}, {self._print(other)})"
        return text


def stepped(expr: Any) -> bool:
    """Return whether an expression takes numbers alone, which conditions choose."""
    one = sp.Integer(1)
    found = (
        expr.replace(sp.Heaviside, lambda *_: one)
        .replace(sp.sign, lambda _: one)
        .replace(
            lambda part: isinstance(part, sp.Piecewise),
            lambda part: sp.Add(*(value for value, _ in part.args)),
        )
    )
    return not found.free_symbols


def rounds(expr: Any) -> bool:
    """Return whether a number of an expression would become another one in float32: it is chosen
    by a condition, or computed with such a number alone, before a tensor comes in."""
    if not expr.free_symbols:
        return bool(isinstance(expr, sp.Expr) and not in_float32(expr))
    if isinstance(expr, sp.Add | sp.Mul):
        numbers = [part for part in expr.args if stepped(part)]
        if any(part.free_symbols for part in numbers) and any(map(_rounded, numbers)):
            return True
    elif isinstance(expr, sp.Expr) and stepped(expr):
        return _rounded(expr)
    return any(part.free_symbols and rounds(part) for part in expr.args)


def _rounded(expr: Any) -> bool:
    """Return whether a number outside of conditions is another one in float32."""
    if isinstance(expr, sp.Piecewise):
        return any(_rounded(value) for value, _ in expr.args)
    if expr.is_number:
        return not in_float32(expr)
    return not isinstance(expr, sp.Heaviside | sp.sign) and any(map(_rounded, expr.args))


def print_typed(expr: Any, names: dict[str, str], zero: str) -> str:
    """Write an expression so that it is of the type of ``zero``, also where it takes numbers alone,
    which conditions choose."""
    if expr.free_symbols and stepped(expr):
        return _of_type(expr, names, zero)
    return print_exact(expr, names, zero)


def print_exact(expr: Any, names: dict[str, str], zero: str) -> str:
    """Write an expression so that each number is as exact as ``zero``'s type: one that stands alone
    or that a condition chooses is float32 in Triton, which may round it."""
    return _of_type(expr, names, zero) if rounds(expr) else print_tile(expr, names)


def print_function(expr: Any, like: str) -> str:
    """Write a function of the symbol that is called ``like``, of its type and shape."""
    zero = f"tl.zeros_like({like})"
    return print_typed(expr, {}, zero) if expr.free_symbols else f"{zero} + {print_tile(expr, {})}"


def print_tile(expr: Any, names: dict[str, str]) -> str:
    """Write an expression whose symbols stand for the given tiles, as Triton source."""
    return str(TilePrinter(names).doprint(balanced(steady(expr))))


def _of_type(expr: Any, names: dict[str, str], zero: str) -> str:
    if not expr.free_symbols or isinstance(expr, sp.sign):
        return f"{zero} + {print_tile(expr, names)}"
    return str(TilePrinter(names, zero).doprint(balanced(steady(expr))))
