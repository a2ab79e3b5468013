"""From an expression's tree to SymPy, and the rewrites that keep the result readable."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.dsl.expressions import LARGEST_DENOMINATOR, Node, fold, parse

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "neg": lambda a: -a,
    "lt": sp.Lt,
    "le": sp.Le,
    "gt": sp.Gt,
    "ge": sp.Ge,
    "eq": sp.Eq,
    "and": sp.And,
    "or": sp.Or,
    "where": lambda c, a, b: sp.Piecewise((a, c), (b, True)),
    "exp": sp.exp,
    "log": sp.log,
    "log1p": lambda a: sp.log(1 + a),
    "expm1": lambda a: sp.exp(a) - 1,
    "sqrt": sp.sqrt,
    "abs": sp.Abs,
    "sign": sp.sign,
    "max": sp.Max,
    "min": sp.Min,
    "sin": sp.sin,
    "cos": sp.cos,
    "tan": sp.tan,
    "tanh": sp.tanh,
    "sinh": sp.sinh,
    "cosh": sp.cosh,
    "atan": sp.atan,
    "asinh": sp.asinh,
    "atanh": sp.atanh,
    "sigmoid": sym.sigmoid,
    "softplus": sym.softplus,
    "logsigmoid": lambda a: -sym.softplus(-a),
    "relu": lambda a: sp.Max(a, 0),
    "silu": lambda a: a * sym.sigmoid(a),
    "gelu": lambda a: a * sym.normal_cdf(a),
    "erf": sp.erf,
    "heaviside": lambda a: sp.Piecewise((1, a > 0), (0, a < 0), (sp.Rational(1, 2), True)),
    "round": sym.round,
    "square": lambda a: a**2,
    "logit": lambda a: sp.log(a) - sp.log(1 - a),
}

CONSTANTS: Mapping[str, Any] = {"pi": sp.pi, "inf": sp.oo}


def number(value: float) -> Any:
    """Convert a literal to SymPy: exact if it is a short decimal (large ones make powers hang)."""
    if value == float("inf"):
        return sp.oo
    if value == int(value):
        return sp.Integer(int(value))
    exact = sp.Rational(str(value))
    return exact if exact.q <= LARGEST_DENOMINATOR else sp.Float(value)


def to_sympy(tree: Node, names: Mapping[str, Any]) -> Any:
    """Return the tree in SymPy, its names looked up in ``names``."""
    return fold(
        tree,
        number=number,
        name=lambda word: names[word] if word in names else CONSTANTS[word],
        apply=lambda function, arguments: FUNCTIONS[function](*arguments),
    )


def read(text: str, names: Mapping[str, Any]) -> Any:
    """Parse ``text`` and convert it, its symbols being the keys of ``names``."""
    return to_sympy(parse(text, list(names)).tree, names).replace(_is_cut, _branched)


def _is_cut(node: Any) -> bool:
    """Return whether a node is a root of what max or min cut at zero, as of max(u, 0)."""
    if not (node.is_Pow and node.base.has(sp.Max, sp.Min) and node.exp.is_number):
        return False
    root = node.exp > 0 and not node.exp.is_integer
    return bool(root and node.base.is_nonnegative and not node.base.is_positive)


def _branched(power: Any) -> Any:
    """Write u^p, u ≥ 0, as u^p where u > 0 and 0 elsewhere, where it is flat: as a product of
    derivatives its slope there would be 0·∞."""
    inner = power.base
    if isinstance(inner, sp.Max):  # max(u, 0) > 0 where u > 0
        inner = sp.Max(*(u for u in inner.args if u != 0))
    return sp.Piecewise((inner**power.exp, inner > 0), (0, True))


SMALL = 40
"""Operations above which `simplify` may take minutes, and is not asked."""


def simplified(expression: Any) -> Any:
    """Simplify a small expression; return a large one as it is."""
    found = sp.sympify(expression)
    return sp.simplify(found) if sp.count_ops(found) <= SMALL else found


_A = sp.Wild("A")

REWRITES: tuple[tuple[Any, Any], ...] = (
    (sp.sinh(_A) / sp.cosh(_A), sp.tanh(_A)),
    (sp.exp(_A) / (sp.exp(_A) + 1), sym.sigmoid(_A)),
    (1 / (1 + sp.exp(-_A)), sym.sigmoid(_A)),
    (sp.log(1 + sp.exp(_A)), sym.softplus(_A)),
)
"""Each pair is one rule, left to right: forms that overflow, and the ones that do not."""


def tidy(expression: Any) -> Any:
    """Apply the rewrites, and drop derivatives of the kinks (almost everywhere zero)."""
    expression = sp.sympify(expression).replace(sp.DiracDelta, lambda *_: sp.Integer(0))
    expression = expression.replace(sp.Heaviside, lambda z, *_: sp.Piecewise((1, z > 0), (0, True)))
    expression = expression.replace(sp.ITE, lambda c, a, b: (c & a) | (~c & b))
    return steady(expression)


@lru_cache(maxsize=1 << 12)
def steady(expression: Any) -> Any:
    """Apply the rewrites that keep intermediate values from overflowing if the result is finite."""
    if not expression.has(*GROWING):
        return expression
    expression = _rewritten(expression.replace(_mixed, _pull_out_growing))
    expression = expression.replace(_is_logistic, lambda node: sym.sigmoid(
        -(node.base - 1).args[0]) ** -node.exp)  # fmt: skip
    return expression.replace(lambda node: node.is_Mul and node.has(sp.exp), _folded)


GROWING = (sp.exp, sp.sinh, sp.cosh)
"""Functions of which a quotient overflows although its value is small; each rewrite has one."""


def _mixed(node: Any) -> bool:
    """Return whether a product has growing factors beside others, hiding them from a pattern."""
    return bool(node.is_Mul and len({bool(f.has(*GROWING)) for f in node.args}) == 2)


def _pull_out_growing(node: Any) -> Any:
    """Rewrite the growing factors of a product by themselves."""
    growing = sp.Mul(*(f for f in node.args if f.has(*GROWING)))
    rest = sp.Mul(*(f for f in node.args if not f.has(*GROWING)))
    return rest * _rewritten(growing)


def _rewritten(expression: Any) -> Any:
    """Apply each rewrite all of whose functions stand in an expression."""
    for pattern, result in REWRITES:
        if all(expression.has(of.func) for of in pattern.atoms(sp.Function)):
            expression = expression.replace(pattern, result)
    return expression


def _is_logistic(node: Any) -> bool:
    """Return whether a node is 1/(1 + exp(x))ⁿ."""
    power = node.is_Pow and node.exp.is_Integer and node.exp < 0
    return bool(power and isinstance(node.base - 1, sp.exp))


def _folded(product: Any) -> Any:
    """Write exp(n x) σ(−x)ᵐ in a product as σ(x)ⁿ σ(−x)ᵐ⁻ⁿ, n ≤ m: ∞·0 where x is large."""
    exponent = sp.Add(*(f.args[0] for f in product.args if isinstance(f, sp.exp)))
    for factor in product.args:
        base, power = factor.as_base_exp()
        if not (isinstance(base, sym.sigmoid) and power.is_Integer):
            continue
        x = -base.args[0]
        times = sp.cancel(exponent / x)
        if times.is_Integer and 1 <= times <= power:
            rest = product / sp.exp(exponent) / factor
            return rest * sym.sigmoid(x) ** times * base ** (power - times)
    return product


def simplest(*candidates: Any) -> Any:
    """Return the candidate with the fewest operations, the first of equals."""
    return min(candidates, key=sp.count_ops)
