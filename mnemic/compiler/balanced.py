"""Quotients and logarithms of exponentials, written so that nothing overflows on the way.

(eᶻ − e⁻ᶻ)/(1 + eᶻ + e⁻ᶻ) is ∞/∞ in float32 from |z| = 89 on, though its value is 1. A sum of
exponentials divided by its largest one has terms of at most 1. In a product of such sums the
divisors are multiplied into one exponential, in whose exponent large terms cancel:

    Σᵢ cᵢ exp(aᵢ) = exp(m) Σᵢ cᵢ exp(aᵢ − m),  m = maxᵢ aᵢ

log σ(z) is −∞ from z = −104 on, and log(1 − tanh² z) from |z| = 10 on: they are −log(1 + e⁻ᶻ) and
−2 log cosh z.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.saturated import saturated

SUMS = (sp.exp, sp.sinh, sp.cosh)
"""Functions of which sums are divided by their largest exponential."""

FALLING = (sym.sigmoid, sp.tanh)
"""Functions that, or whose distances to one, go to zero as an exponential does."""


class held(sp.Function):  # type: ignore[misc]
    """A sum that is computed first, by itself: u − |u| is zero then where u is positive."""

    is_real = True


class Sum:
    """A sum of exponentials, Σᵢ cᵢ exp(aᵢ), and the largest of its exponents.

    Where all exponents are multiples of one u, the largest is written by |u|: by one function, so
    that slopes that cancel do so where two exponents are equal, too.
    """

    def __init__(self, terms: dict[Any, Any]) -> None:
        unit = next((sp.expand(a).primitive()[1] for a in terms if a != 0), sp.Integer(1))
        self.unit = -unit if unit.could_extract_minus_sign() else unit
        times = [self.times(a) for a in terms]
        if 0 in terms and all(a.is_nonpositive for a in terms):
            self.largest = sp.Integer(0)
        elif all(t is not None for t in times):
            low, high, u = min(times), max(times), _held(self.unit)
            size = u if self.unit.is_nonnegative else sp.Abs(u)
            self.largest = (low + high) / 2 * u + (high - low) / 2 * size
        else:
            self.unit = None
            self.largest = sp.Max(*terms)
        self.terms = {self.shown(a): before for a, before in terms.items()}

    def times(self, exponent: Any) -> Any:
        """Return how many times u an exponent is; None if no number of times."""
        found = sp.Integer(0) if exponent == 0 else sp.cancel(exponent / self.unit)
        return found if found.is_Rational else None

    def shown(self, exponent: Any) -> Any:
        """Return an exponent, as a multiple of u if it is one."""
        times = None if self.unit is None else self.times(exponent)
        return exponent if times is None else times * _held(self.unit)

    def divided(self) -> Any:
        """Return the sum over its largest exponential; c (eᵃ − e⁻ᵃ) by tanh a, exact near zero."""
        left, total = dict(self.terms), sp.Integer(0)
        for a in [*left]:
            if a == 0 or a not in left or a.could_extract_minus_sign():
                continue
            if -a in left and sp.expand(left[-a] + left[a]) == 0:
                curve = sp.tanh(a.replace(held, lambda u: u)) * left.pop(a)
                total += curve * (self._power(a) + self._power(-a))
                del left[-a]
        total += sp.Add(*(before * self._power(a) for a, before in left.items()))
        number, rest = total.primitive() if total.is_Add else (sp.Integer(1), total)
        return rest if number == 1 else sp.Mul(number, rest, evaluate=False)

    def _power(self, exponent: Any) -> Any:
        return sp.exp(sp.expand(exponent - self.largest))


def _held(u: Any) -> Any:
    return u if u.is_Symbol or u.is_number else held(u)


@lru_cache(maxsize=1 << 12)
def balanced(expression: Any) -> Any:
    """Write quotients, logarithms and roots of exponentials so that they do not overflow.

    >>> from sympy import cosh, exp, log, symbols, tanh
    >>> z = symbols("z", real=True)
    >>> balanced(1 / (2 + cosh(z)))
    2*exp(-Abs(z))/(exp(-z - Abs(z)) + exp(z - Abs(z)) + 4*exp(-Abs(z)))
    >>> balanced(log(1 - tanh(z) ** 2))
    -2*log((exp(-z - Abs(z)) + exp(z - Abs(z)))/2) - 2*Abs(z)
    >>> balanced(1 + exp(z))  # grows itself
    exp(z) + 1
    """
    if not (_grows(expression) or expression.has(*FALLING)):
        return expression
    found = None
    if isinstance(expression, sp.log):
        found = _logarithm(expression.args[0])
    elif (
        expression.is_Pow
        and not expression.exp.is_integer
        and _without_difference(expression) != expression
    ):
        found = balanced(_without_difference(expression))
    elif expression.is_Pow and isinstance(expression.base, sym.sigmoid):
        found = _power_of_sigmoid(expression)
    elif expression.is_Mul or (expression.is_Pow and expression.base != sp.E):
        found = _quotient(expression)
    if found is not None:
        return found
    expression = saturated(expression)
    return expression.func(*map(balanced, expression.args))


def _grows(expression: Any) -> bool:
    """Return whether an expression has exponentials, of e or of another number."""
    return bool(expression.has(*SUMS)) or any(map(_is_exponential, expression.atoms(sp.Pow)))


def _is_exponential(node: Any) -> bool:
    base, power = node.as_base_exp()
    return bool(base.is_number and base.is_positive and power.free_symbols)


def _exponent(base: Any, power: Any) -> Any:
    """Return a for eᵃ = bᵖ."""
    return power if base == sp.E else power * sp.log(base)


def _logarithm(inner: Any) -> Any:
    """Split the logarithm of a product so that no factor overflows; None where none could."""
    apart, rest = sp.Integer(0), sp.Integer(1)
    for factor in sp.Mul.make_args(sp.Mul(*map(_without_difference, sp.Mul.make_args(inner)))):
        base, power = factor.as_base_exp()
        if power.is_Rational and not power.is_Integer and base.is_Add and _grows(base):
            apart += power * balanced(sp.log(base))
        elif isinstance(base, sym.sigmoid):
            apart -= power * sym.softplus(-base.args[0])
        elif isinstance(base, sp.cosh):
            z = base.args[0]
            apart += power * _logarithm_of(Sum({z: sp.Rational(1, 2), -z: sp.Rational(1, 2)}))
        else:
            rest *= factor
    terms = _sum(rest)
    if terms is not None and len(terms.terms) > 1 and terms.largest != 0:
        return apart + _logarithm_of(terms)
    return None if apart == 0 else apart + balanced(sp.log(rest))


def _logarithm_of(terms: Sum) -> Any:
    return terms.largest + sp.log(terms.divided())


def _without_difference(factor: Any) -> Any:
    """Rewrite a power of a difference that cancels near zero by a function without cancellation.

    1 − tanh² z is written with cosh z, 1 ± tanh z with σ(±2z), 1 − σ(z) and 1 − σ(z)² with σ(−z).
    """
    base, power = factor.as_base_exp()
    sign, rest = (base - 1).as_coeff_Mul()
    falls, times = rest.as_base_exp()
    if not isinstance(falls, FALLING) or sign not in (1, -1):
        return factor
    z = falls.args[0]
    match type(falls), times, sign:
        case sp.tanh, 2, -1:
            return sp.cosh(z) ** (-2 * power)
        case sp.tanh, 1, _:
            return sp.Integer(2) ** power * sym.sigmoid(2 * sign * z) ** power
        case sym.sigmoid, 1, -1:
            return sym.sigmoid(-z) ** power
        case sym.sigmoid, 2, -1:
            return sym.sigmoid(-z) ** power * (1 + falls) ** power
    return factor


def _power_of_sigmoid(power: Any) -> Any:
    """Write σ(z)ᵖ with a fractional p as an exponential: at σ(z) = 0 a root has no slope.

    Return None where p is a whole number.
    """
    z, times = power.base.args[0], power.exp
    return None if times.is_integer else sp.exp(-times * sym.softplus(-z))


def _quotient(product: Any) -> Any:
    """Rewrite a product with sums of exponentials whose intermediate values may overflow.

    They may where a sum is a divisor or under a root, or where another factor goes to zero or is
    an exponential. Return None for any other product.
    """
    exponent, sums, rest, powers = sp.Integer(0), [], [], 0
    for base, power in _factors(product):
        terms = _sum(base) if power.is_Rational else None
        if base == sp.E or _is_exponential(base**power):
            exponent += _exponent(base, power)
            powers += bool(power.free_symbols)
        elif terms is not None:
            sums.append((terms, power))
        else:
            rest.append((base, power))
    growing = [power for terms, power in sums if terms.largest != 0]
    vanishing = any(_vanishes(base, power) for base, power in rest)
    beside = powers + bool(growing) + vanishing
    if not (beside > 1 or any(power < 1 for power in growing)):
        return None
    for terms, _ in sums:
        exponent = terms.shown(exponent)
    for at, (base, power) in enumerate(rest):
        if _vanishes(base, power):  # σ(a) = exp(min(a, 0)) σ(|a|)
            a = base.args[0]
            for terms, _ in sums:
                a = terms.shown(a)
            exponent += power * (a - sp.Abs(a)) / 2
            rest[at] = (sym.sigmoid(sp.Abs(a)), power)
    exponent += sum(power * terms.largest for terms, power in sums)
    divided = (terms.divided() ** power for terms, power in sums)
    others = (balanced(base) ** power for base, power in rest)
    return sp.Mul(sp.exp(sp.expand(exponent)), *divided, *others)


def _factors(product: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each factor's base and power; differences that go to zero are rewritten first.

    Only positive whole powers in a product without exponentials stay as they are.
    """
    factors = sp.Mul.make_args(product)
    grows = any(map(_grows, factors))
    for factor in factors:
        power = factor.as_base_exp()[1]
        plain = power.is_integer and power.is_positive and not grows
        yield from (
            f.as_base_exp()
            for f in sp.Mul.make_args(factor if plain else _without_difference(factor))
        )


def _vanishes(base: Any, power: Any) -> bool:
    """Return whether a factor goes to zero as an exponential does."""
    return isinstance(base, sym.sigmoid) and bool(power.is_positive)


def _sum(expression: Any) -> Sum | None:
    """Read an expression as a sum of exponentials and of terms without any; None if it is not."""
    if not _grows(expression):
        return None
    expression = expression.replace(sp.sinh, lambda z: (sp.exp(z) - sp.exp(-z)) / 2)
    expression = expression.replace(sp.cosh, lambda z: (sp.exp(z) + sp.exp(-z)) / 2)
    found: dict[Any, Any] = {}
    for term in sp.Add.make_args(sp.expand(expression)):
        exponent, factors = sp.Integer(0), []
        for factor in sp.Mul.make_args(term):
            base, power = factor.as_base_exp()
            if base == sp.E or _is_exponential(factor):
                exponent += _exponent(base, power)
            else:
                factors.append(factor)
        before = sp.Mul(*factors)
        if _grows(before):
            return None
        found[exponent] = found.get(exponent, 0) + before
    return Sum(found)
