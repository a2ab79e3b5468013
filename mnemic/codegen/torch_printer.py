"""SymPy → PyTorch source, one expression at a time."""

import ast
import re
import struct
from typing import Any

import sympy as sp
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from mnemic.codegen.guards import may_vanish
from mnemic.compiler import symbols as sym
from mnemic.compiler.balanced import SUMS, balanced
from mnemic.compiler.symbolic import steady

STARS = re.compile(r"\*+")
"""Signs of products and powers, which stand between spaces."""

FUNCTIONS: dict[str, str] = {
    "exp": "torch.exp",
    "expm1": "torch.expm1",
    "tanh": "torch.tanh",
    "sin": "torch.sin",
    "cos": "torch.cos",
    "tan": "torch.tan",
    "sinh": "torch.sinh",
    "cosh": "torch.cosh",
    "asinh": "torch.asinh",
    "atan": "torch.atan",
    "atanh": "torch.atanh",
    "sign": "torch.sign",
    "erf": "torch.erf",
    "sigmoid": "torch.sigmoid",
    "softplus": "F.softplus",
    "logsigmoid": "F.logsigmoid",
    "normal_cdf": "ops.normal_cdf",
    "gelu": "F.gelu",
    "round": "ops.rounded",
    "Abs": "torch.abs",
    "steep": "ops.steep",
}
"""SymPy's and our own functions by name, and what they are in PyTorch."""


POINTS = tuple(sp.Rational(p, 2) for p in (2, -2, 1, -1, 4, -4, 20, -20))
"""Where a branch of a ``Piecewise`` that is not taken may be evaluated."""


def _fragile(value: Any) -> bool:
    """Return whether an expression has points without a finite derivative, or overflows."""
    powers = [p for p in value.atoms(sp.Pow) if p.base.free_symbols]
    steep = any(not (p.exp.is_integer and p.exp.is_positive) for p in powers)
    return steep or value.has(sp.log, *SUMS)


def _endless(value: Any, condition: Any) -> bool:
    """Return whether a branch is infinite, or no number, at a residual of 0 (of one symbol, or of
    two that are alike), and a condition holds there."""
    shared = sorted(value.free_symbols & condition.free_symbols, key=str)
    if not 1 <= len(shared) <= 2:
        return False
    met = (shared[-1], sp.Add(*shared[:-1]))
    return condition.subs(*met) == True and value.subs(*met).is_finite is not True  # noqa: E712


def _fraction(product: Any) -> tuple[Any, Any]:
    """Split a product by its own factors into a fraction; exp(−z) stays: 1/exp(z) overflows."""
    above, below = [], []
    for factor in sp.Mul.make_args(product):
        base, power = factor.as_base_exp()
        divides = base != sp.E and power.could_extract_minus_sign()
        if divides:
            below.append(base**-power)
        elif factor.is_Rational:
            above.append(sp.Integer(factor.p))
            below.append(sp.Integer(factor.q))
        else:
            above.append(factor)
    return sp.Mul(*above), sp.Mul(*below)


gelu: Any = sp.Function("gelu")
"""x Φ(x), printed as PyTorch's."""


def _with_gelu(product: Any) -> Any:
    """Write x Φ(x) among the factors of a product as one function."""
    factors = list(sp.Mul.make_args(product))
    for factor in factors:
        if isinstance(factor, sym.normal_cdf) and factor.args[0] in factors:
            factors.remove(factor)
            factors.remove(factor.args[0])
            return sp.Mul(gelu(factor.args[0]), *factors)
    return product


def closed(number: Any) -> str:
    """Print a number as Python computes it: roots of rational multiples of powers of π by name.

    >>> closed(sp.sqrt(2 / sp.pi)), closed(3 * sp.log(2)), closed(sp.Rational(1, 4))
    ('math.sqrt(2 / math.pi)', '3 * math.log(2)', '0.25')
    >>> closed(sp.pi / 2), closed(sp.pi ** sp.Rational(3, 2))
    ('(math.pi / 2)', 'math.sqrt(math.pi ** 3)')
    """
    if number.is_Rational:
        return repr(float(number))
    factor, rest = number.as_coeff_Mul()
    if isinstance(rest, sp.log) and rest.args[0].is_Integer and factor.is_Integer:
        return (
            f"math.log({rest.args[0]})" if factor == 1 else f"{factor} * math.log({rest.args[0]})"
        )
    if rest == sp.pi:
        shown_pi = "math.pi" if factor.p == 1 else f"{factor.p} * math.pi"
        return shown_pi if factor == 1 else f"({shown_pi}{f' / {factor.q}' * (factor.q > 1)})"
    square = sp.simplify(number**2)
    if number.is_positive and all(a.is_Rational or a == sp.pi for a in _leaves(square)):
        shown = [
            STARS.sub(r" \g<0> ", str(part)).replace("pi", "math.pi")
            for part in sp.fraction(square)
        ]
        below = f"({shown[1]})" if "*" in shown[1] else shown[1]
        return f"math.sqrt({shown[0]})" if below == "1" else f"math.sqrt({shown[0]} / {below})"
    return repr(float(number))


def _leaves(product: Any) -> list[Any]:
    """Return the bases of a product of powers with whole exponents; or the expression itself."""
    factors = [factor.as_base_exp() for factor in sp.Mul.make_args(product)]
    return [base for base, power in factors] if all(p.is_Integer for _, p in factors) else [product]


def _gathered(above: Any, below: Any) -> tuple[Any, Any]:
    """Gather the irrational numbers of a fraction in one: √2 x / (2 √π) is x / √(2π)."""
    (one, x), (two, y) = (
        part.as_independent(*part.free_symbols, as_Add=False) for part in (above, below)
    )
    number = one / two
    if number.is_Rational or not number.is_positive or x == 1:
        return above, below
    square = sp.simplify(number**2)
    if all(a.is_Rational or a == sp.pi for a in _leaves(square)):
        if sp.fraction(square)[0] == 1:
            return x, y / number
        return number * x, y
    return above, below


class TorchPrinter(StrPrinter):
    """Prints an expression; symbols print as ``names`` has them."""

    closed = True
    """Whether irrational numbers are printed as roots and logarithms."""

    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.names = names

    def _print(self, expr: Any, **kwargs: Any) -> str:
        number = isinstance(expr, sp.Expr) and expr.is_number and not expr.is_Integer
        if number and expr.is_finite:
            return closed(expr) if self.closed else repr(float(expr))
        return str(super()._print(expr, **kwargs))

    def _print_Symbol(self, expr: Any) -> str:
        return self.names.get(expr.name, expr.name)

    def _print_Function(self, expr: Any) -> str:
        name = FUNCTIONS[type(expr).__name__]
        return f"{name}({', '.join(self._print(a) for a in expr.args)})"

    def _print_held(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])})"

    def _print_NewErrorBase(self, expr: Any) -> str:
        return f"new_error({', '.join(self._print(a) for a in expr.args)})"

    def _print_Abs(self, expr: Any) -> str:
        return f"torch.abs({self._print(expr.args[0])})"

    def _print_sign(self, expr: Any) -> str:
        return f"torch.sign({self._print(expr.args[0])})"

    def _print_log(self, expr: Any) -> str:
        rest = sp.expand(expr.args[0]) - 1
        plain = expr.args[0].is_Add and expr.args[0].has(sp.Integer(1)) and not rest.is_number
        if plain and 1 in expr.args[0].args:
            return f"torch.log1p({self._print(rest)})"
        return f"torch.log({self._print(expr.args[0])})"

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr))

    def _print_Rational(self, expr: Any) -> str:
        return repr(float(expr)) if expr.q != 1 else str(expr.p)

    def _print_Half(self, expr: Any) -> str:
        return "0.5"

    def _print_Pi(self, expr: Any) -> str:
        return "math.pi"

    def _print_Exp1(self, expr: Any) -> str:
        return "math.e"

    def _print_Infinity(self, expr: Any) -> str:
        return "math.inf"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if base == sp.E:
            return f"torch.exp({self._print(power)})"
        if base.is_number and not power.is_number:
            return f"torch.exp({self._print(sp.log(base) * power)})"
        inner = self.parenthesize(base, PRECEDENCE["Pow"])
        fragile = not (power.is_integer and power.is_positive)
        if may_vanish(base, power) or (fragile and base.has(sp.Abs) and not base.is_Add):
            inner = f"torch.clamp_min({self._print(base)}, TINY)"
        if power == sp.Rational(1, 2):
            guarded = inner.startswith("torch.clamp_min")
            return f"torch.sqrt({inner if guarded else self._print(base)})"
        if power == -sp.Rational(1, 2):
            return f"torch.rsqrt({self._print(base) if not inner.startswith('torch.') else inner})"
        if power == -1:
            return f"1 / {inner}"
        return f"{inner} ** {self.parenthesize(power, PRECEDENCE['Pow'])}"

    def _print_Mul(self, expr: Any) -> str:
        above, below = _fraction(_with_gelu(expr))
        if self.closed:
            above, below = _gathered(above, below)
        if below == 1:
            return self._factors(above)
        return f"{self._factors(above)} / {self._divisor(below)}"

    def _divisor(self, expr: Any) -> str:
        text = self._print(expr)
        whole = ast.Call | ast.Name | ast.Attribute | ast.Constant | ast.Subscript
        if isinstance(ast.parse(text, mode="eval").body, whole):
            return text
        return str(self.parenthesize(expr, PRECEDENCE["Pow"]))

    def _factors(self, expr: Any) -> str:
        coefficient, rest = expr.as_independent(*expr.free_symbols, as_Add=False)
        factors = [self.parenthesize(f, PRECEDENCE["Mul"]) for f in sp.Mul.make_args(rest)]
        if coefficient == 1:
            return " * ".join(factors)
        if coefficient == -1:
            return "-" + " * ".join(factors)
        if rest == 1:
            return self._print(coefficient)
        return " * ".join([self._print(coefficient), *factors])

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        terms = sorted(expr.args, key=lambda term: (term.could_extract_minus_sign(), str(term)))
        text = ""
        for term in terms:
            negative = term.could_extract_minus_sign()
            body = self.parenthesize(-term if negative else term, PRECEDENCE["Add"])
            text += (
                (" - " if negative else " + ") + body if text else ("-" if negative else "") + body
            )
        return text

    def _print_Relational(self, expr: Any) -> str:
        return f"{self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)}"

    def _print_And(self, expr: Any) -> str:
        return " & ".join(f"({self._print(a)})" for a in expr.args)

    def _print_Or(self, expr: Any) -> str:
        return " | ".join(f"({self._print(a)})" for a in expr.args)

    def _print_Piecewise(self, expr: Any) -> str:
        clamped = as_clamp(expr)
        if clamped is not None:
            x, bound = (self._print(part) for part in clamped)
            return f"torch.clamp({x}, -{bound}, {bound})"
        if not all(value.is_number for value, _ in expr.args) or expr.args[0][1] == True:  # noqa: E712
            return self._branches(expr)
        like = self._print(min(expr.args[0][1].free_symbols, key=str))  # of numbers alone: float32
        if all(in_float32(value) for value, _ in expr.args):
            return f"{self._branches(expr)}.to({like})"
        return self._branches(expr, like)

    def _branches(self, expr: Any, like: str = "", before: Any = sp.false) -> str:
        """Return nested choices; the last number is a tensor like ``like``, if that is given.

        ``before`` holds where a finite branch before these is taken: infinity has no slope.
        """
        (value, condition), *rest = expr.args
        if condition == True or not rest:  # noqa: E712
            return self._print(value)
        own = condition
        if _endless(value, sp.And(condition, before)):  # where none is taken that comes first
            own = sp.And(condition, sp.Not(before))
        taken = before if value == sp.oo else sp.Or(before, condition)
        if len(rest) > 1:
            other = self._branches(sp.Piecewise(*rest, evaluate=False), like, taken)
        else:
            ((last, _),) = rest
            endless = _endless(last, taken) or last.has(*SUMS)
            other = self._guarded(last, sp.Not(taken)) if endless else self._print(last)
            other = f"torch.full_like({like}, {other})" if like else other
        return f"torch.where({self._print(condition)}, {self._guarded(value, own)}, {other})"

    def _guarded(self, value: Any, condition: Any) -> str:
        """Print a branch, its root, logarithm, quotient or exponential of a harmless number where
        it is not taken.

        ``torch.where`` drops what is not taken, but its gradient would be 0·∞.
        """
        shared = sorted(value.free_symbols & condition.free_symbols, key=str)
        if not 1 <= len(shared) <= 2 or not _fragile(value):
            return self._print(value)
        *others, symbol = shared
        offset = sp.Add(*others)  # of a residual: the value, beside which there are harmless places
        places = (offset + p for p in POINTS)
        place = next((x for x in places if condition.subs(symbol, x) == True), None)  # noqa: E712
        if place is None:
            return self._print(value)
        name, instead = self._print(symbol), self._print(sp.Float(place - offset))
        if others:
            instead = f"{self._print(offset)} + {instead}"
        safe = f"torch.where({self._print(condition)}, {name}, {instead})"
        return TorchPrinter({**self.names, symbol.name: safe})._print(value)

    def _print_Heaviside(self, expr: Any) -> str:
        like = self._print(min(expr.free_symbols, key=str))
        return f"torch.where({self._print(expr.args[0])} > 0, 1.0, 0.0).to({like})"

    def _print_Max(self, expr: Any) -> str:
        return self._extreme(expr, "clamp_min", "maximum")

    def _print_Min(self, expr: Any) -> str:
        return self._extreme(expr, "clamp_max", "minimum")

    def _extreme(self, expr: Any, clamp: str, binary: str) -> str:
        numbers = [a for a in expr.args if a.is_number]
        others = [a for a in expr.args if not a.is_number]
        text = self._print(others[0])
        for other in others[1:]:
            text = f"torch.{binary}({text}, {self._print(other)})"
        for value in numbers:
            text = f"torch.{clamp}({text}, {self._print(value)})"
        return text


def in_float32(number: Any) -> bool:
    """Return whether a number has the same value in float32 and float64."""
    value = float(number)
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False


def as_clamp(expr: Any) -> tuple[Any, Any] | None:
    """Return (x, b) if an expression is x where |x| ≤ b and b·sign(x) elsewhere: a clamp."""
    if len(expr.args) != 2 or not isinstance(expr.args[0][1], sp.Ge | sp.Le):
        return None
    (x, condition), (other, _) = expr.args
    bound, size = condition.gts, condition.lts
    matches = size in (sp.Abs(x), sp.Abs(-x)) and bound.is_Symbol
    return (x, bound) if matches and sp.simplify(other - bound * sp.sign(x)) == 0 else None


def print_torch(expr: Any, names: dict[str, str]) -> str:
    """Print an expression whose symbols stand for the given Python names."""
    return str(TorchPrinter(names).doprint(balanced(steady(expr))))
