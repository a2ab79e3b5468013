"""Inverses of monotone functions of one entry: the w at which slope(w) = a, in closed form.

A solution of SymPy's is kept if numbers confirm it over the whole domain and around a dual of zero,
where memories begin. Equations that would take SymPy minutes are recognised by their shape and
left to a numerical root finder.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import TrigonometricFunction
from sympy.solvers.solvers import unrad

from mnemic.compiler import symbols as sym
from mnemic.compiler.numbers import spelled as _spelled
from mnemic.compiler.numbers import vanishes
from mnemic.compiler.symbolic import simplified, tidy

LARGEST_DEGREE = 2
"""Up to this degree, roots and fractions cleared, a stationarity is solved in closed form."""

ROUNDED = 1e-12
"""How far below zero a size may come by rounding."""


def inside(low: Any, high: Any) -> list[float]:
    """Return points of an open interval, some near its ends."""
    unit = [0.001, 0.02, 0.1, 0.31, 0.5, 0.69, 0.9, 0.98, 0.999]
    if high == sp.oo:
        positive = [u / (1 - u) for u in unit]
        return positive if low == 0 else [*positive, *(-p for p in positive)]
    return [float(low) + (float(high) - float(low)) * u for u in unit]


def invert(slope: Any, domain: tuple[Any, Any]) -> Any | None:
    """Return w as a function of a where slope(w) = a, branch by branch at |w|; ``None`` if not
    found."""
    kinked = slope.has(sp.Abs, sp.sign)
    found = _invert_kinked(slope, domain) if kinked else _invert_smooth(slope, domain)
    return found if found is not None and _stays_real(found, slope, domain) else None


def _invert_kinked(slope: Any, domain: tuple[Any, Any]) -> Any | None:
    size = sp.Symbol("size", positive=True)
    right = slope.subs(sym.w, size)
    left = slope.subs(sym.w, -size)
    above, below = sp.limit(right, size, 0), sp.limit(left, size, 0)
    up = _invert_smooth(right.subs(size, sym.w), (0, sp.oo))
    down = _invert_smooth(left.subs(size, -sym.w), (-sp.oo, 0))
    if up is None or down is None:
        return None
    up, down = _mirrored(up, above, 1), _mirrored(down, below, -1)
    if up.has(sp.I) or down.has(sp.I):
        return None
    if vanishes(above - below):
        if above == 0 and vanishes(up + down) and up.has(sp.Abs):
            return sp.sign(sym.a) * up
        return sp.Piecewise((up, sym.a >= above), (down, True))
    return sp.Piecewise((up, sym.a > above), (down, sym.a < below), (0, True))


def _mirrored(branch: Any, end: Any, side: int) -> Any:
    """Write a branch that begins at ``end`` so that it is real on the other side, too.

    PyTorch computes both branches of a case everywhere: below zero the gradient of √a is nan even
    where that branch is not taken, while √|a| has a finite one.
    """
    if branch.is_polynomial(sym.a):
        return branch
    size = sp.Symbol("size", positive=True)
    real = simplified(branch.subs(sym.a, end + side * size))
    if real.has(sp.I):  # a root of what is below zero, as a complex number that comes to a real one
        real = simplified(sp.expand_complex(real))
    return real.subs(size, sp.Abs(sym.a - end))


SLOW = {sp.asinh: sp.sinh, sp.atanh: sp.tanh}
"""Functions that SymPy solves slowly under assumptions, and their inverses."""

PEELED = {**SLOW, sp.sinh: sp.asinh}
"""``SLOW``, and sinh, whose inverse SymPy writes as a logarithm that cancels below zero."""


def _peeled(slope: Any) -> Any | None:
    """Invert b·F(w·c) + d by taking one operation off after another; None where that fails."""
    left, right = slope, sym.a
    while left != sym.w:
        inner = [z for z in left.args if z.has(sym.w)]
        if len(inner) != 1:
            return None
        rest = [z for z in left.args if not z.has(sym.w)]
        if left.is_Add:
            right = right - sp.Add(*rest)
        elif left.is_Mul:
            right = right / sp.Mul(*rest)
        elif type(left) in PEELED:
            right = PEELED[type(left)](right)
        else:
            return None
        (left,) = inner
    return right


def _inverse_of_either_sign(slope: Any, domain: tuple[Any, Any]) -> Any | None:
    """Return the inverse found for positive coefficients, if it holds for negative ones too."""
    own = slope.free_symbols - {sym.w}
    positive = {s: sp.Symbol(s.name, positive=True) for s in own}
    candidate = _peeled(simplified(slope.subs(positive)))
    if candidate is None:
        return None
    candidate = candidate.subs({p: s for s, p in positive.items()})
    negative = {s: -s for s in own}
    both = _inverts(candidate, slope, domain)
    both = both and _inverts(candidate.subs(negative), slope.subs(negative), domain)
    return candidate if both else None


def _invert_smooth(slope: Any, domain: tuple[Any, Any]) -> Any | None:
    peeled = _inverse_of_either_sign(slope, domain) if slope.has(*PEELED) else None
    if peeled is not None or slope.has(*SLOW):
        return peeled
    factor, plain = _factored(slope)
    if factor != 1:
        inverse = _invert_smooth(plain, domain)
        found = None if inverse is None else tidy(inverse.subs(sym.a, sym.a / factor))
        return found if found is not None and _inverts(found, slope, domain) else None
    if _unequal_logarithms(slope):
        return None
    unknown = sp.Symbol("unknown", positive=True) if domain[0] == 0 else sym.w
    equation = slope.subs(sym.w, unknown) - sym.a
    if _mixes(equation, unknown) or _beyond_radicals(equation, unknown):
        return None
    if _beyond_roots(equation, unknown):
        return None
    try:
        roots = sp.solve(sp.Eq(slope.subs(sym.w, unknown), sym.a), unknown)
        roots = roots or _of_one_sign(slope.subs(sym.w, unknown), unknown)
    except NotImplementedError:
        return None
    for root in roots:
        candidate = tidy(simplified(root))
        if candidate.has(sp.LambertW):
            continue
        for written in (candidate, *_other_fraction(candidate)):
            if _inverts(written, slope, domain) and _begins(written, slope, domain):
                return written
    return None


def _other_fraction(root: Any) -> Iterator[Any]:
    """Yield (p² − r²)/(q (p − r)) for a root (p + r)/q, r a square root, where that cancels.

    >>> a = sym.a
    >>> list(_other_fraction((a - 3 + sp.sqrt(a**2 - 2*a + 9)) / a))
    [-4/(a - sqrt(a**2 - 2*a + 9) - 3)]
    """
    top, bottom = sp.fraction(sp.together(root))
    roots = [r for r in top.atoms(sp.Pow) if r.exp == sp.Rational(1, 2)]
    if len(roots) != 1 or not bottom.has(sym.a):
        return
    (r,) = roots
    part = sp.expand(top).coeff(r)
    rest = sp.expand(top - part * r)
    if not rest.has(r):
        yield sp.cancel(sp.expand(rest**2 - part**2 * r.base) / bottom) / (rest - part * r)


NEAR_START = (0.0, 1e-9, -1e-9, 1e-5, -1e-5)


def _begins(candidate: Any, slope: Any, domain: tuple[Any, Any]) -> bool:
    """Return whether the inverse is right at and around a dual of zero, where memories begin.

    It need not be where zero is no dual of an entry inside the domain.
    """
    low, high = map(float, domain)
    dual, back = _in_numbers(candidate, slope)

    def tried(point: float) -> tuple[bool, bool]:
        """Return whether the inverse gives an entry inside the domain, and the right one."""
        try:
            entry = complex(back(point))
            there = abs(entry.imag) < 1e-12 and low < entry.real < high
            return there, there and abs(complex(dual(entry.real)) - point) <= 1e-9
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return False, False

    found = [tried(point) for point in NEAR_START]
    around = found[-2:]
    return all(right for _, right in found) or not all(there for there, _ in around)


def _factored(slope: Any) -> tuple[Any, Any]:
    """Split a sum of logarithms into a constant and the rest that it multiplies.

    SymPy takes c·log(w) − c·log(1 − w) for log(wᶜ/(1 − w)ᶜ), and solves a polynomial of degree c.

    >>> _factored(4*sp.log(sym.w) - 4*sp.log(1 - sym.w))
    (4, log(w) - log(1 - w))
    """
    if not slope.is_Add or not slope.has(sp.log):
        return sp.Integer(1), slope
    factor, rest = sp.factor_terms(slope).as_independent(sym.w, as_Add=False)
    return factor, rest


def _unequal_logarithms(slope: Any) -> bool:
    """Return whether logarithms of the unknown have coefficients of several sizes.

    Then it is a root of a polynomial of a high degree, or of none.
    """
    terms = [t for t in sp.Add.make_args(slope) if t.has(sp.log)]
    sizes = {abs(t.as_independent(sym.w, as_Add=False)[0]) for t in terms if t.has(sym.w)}
    return len(sizes) > 1


def _of_one_sign(slope: Any, unknown: Any) -> list[Any]:
    """Solve for each sign of the slope apart, which SymPy does not take into account."""
    size = sp.Symbol("size", positive=True)
    found = [(sign, sp.solve(sp.Eq(slope, sign * size), unknown)) for sign in (1, -1)]
    return [root.subs(size, sign * sym.a) for sign, roots in found for root in roots]


TRANSCENDENTAL = (sp.exp, sp.log, sp.erf, HyperbolicFunction, TrigonometricFunction, sym.sigmoid,
                  sym.softplus, sym.expm1, sym.normal_cdf)  # fmt: skip


def _mixes(equation: Any, unknown: Any) -> bool:
    """Return whether the unknown is beside a transcendental function of itself, as w + exp(w).

    Such an equation has no elementary solution; SymPy would take minutes over Lambert's W, which
    has no place in the code.

    >>> w = sym.w
    >>> _mixes(w + sp.exp(w), w), _mixes(sp.log(w) - sp.log(1 - w), w), _mixes(w**3 + w, w)
    (True, False, False)
    >>> _mixes(sp.log(w) + (w + 1) / (2 * w + 2), w)  # the fraction is a number
    False
    """
    functions = [f for f in equation.atoms(*TRANSCENDENTAL) if f.has(unknown)]
    rest = equation.xreplace({f: sp.Dummy() for f in functions})
    return bool(functions) and bool(sp.cancel(sp.together(rest)).has(unknown))


def _beyond_radicals(equation: Any, unknown: Any) -> bool:
    """Return whether an equation with roots of the unknown comes to a polynomial of higher degree.

    SymPy would take minutes to write its solutions down, and they would cancel.
    """
    try:
        cleared = unrad(equation, unknown)
    except (NotImplementedError, ValueError):
        return False
    if not cleared or cleared[1] or not cleared[0].is_polynomial(unknown):
        return False
    polynomial = sp.Poly(cleared[0], unknown)
    return bool(polynomial.degree() > LARGEST_DEGREE and len(polynomial.terms()) > 2)


def _beyond_roots(equation: Any, unknown: Any) -> bool:
    """Return whether an equation without roots comes to a polynomial of a degree above 2.

    The formula of a cubic goes through complex numbers where it has three real roots, and SymPy
    would take minutes over a rational slope with a coefficient in it. A polynomial in a power of
    w − c is of the degree that it has in that power.

    >>> w, a = sym.w, sym.a
    >>> [_beyond_roots(x - a, w) for x in (w**3, (w + 1) ** 3, w**4 + w**2, w**3 + w)]
    [False, False, False, True]
    """
    top = sp.fraction(sp.together(equation))[0]
    if not top.is_polynomial(unknown):
        return False
    polynomial = sp.Poly(top, unknown)
    degree = polynomial.degree()
    if degree <= LARGEST_DEGREE:
        return False
    lead, below = polynomial.coeff_monomial(unknown**degree), unknown ** (degree - 1)
    shift = polynomial.coeff_monomial(below) / (degree * lead)
    shifted = sp.Poly(sp.expand(top.subs(unknown, unknown - shift)), unknown)
    powers = [power for (power,), part in shifted.terms() if not vanishes(part)]
    return bool(max(powers) / math.gcd(*powers) > LARGEST_DEGREE)


def _stays_real(found: Any, slope: Any, domain: tuple[Any, Any]) -> bool:
    """Return whether what stands under roots and in logarithms is nowhere below zero in the branch
    taken: code computes in real numbers, also where complex ones come to a real one."""
    if found.has(sp.I):
        return False
    at = _sampled(found, slope)
    dual = sp.lambdify(sym.w, _spelled(slope.subs(at)), "mpmath")
    guarded = [sp.lambdify(sym.a, pair, "mpmath") for pair in _guarded(_spelled(found.subs(at)))]
    with mpmath.workdps(40):
        duals = [dual(mpmath.mpf(point)) for point in inside(*_within(domain))]
        return all(_is_size(*part(a)) for part in guarded for a in duals)


def _guarded(expr: Any, taken: Any = sp.true) -> Iterator[tuple[Any, Any]]:
    """Yield what stands under roots and in logarithms, each with where its branch is taken."""
    if isinstance(expr, sp.Piecewise):
        for branch, condition in expr.args:
            yield from _guarded(branch, sp.And(taken, condition))
            taken = sp.And(taken, sp.Not(condition))
        return
    if isinstance(expr, sp.log) or (expr.is_Pow and expr.exp.is_integer is False):
        yield expr.args[0], taken
    for inner in expr.args:
        yield from _guarded(inner, taken)


def _is_size(value: Any, taken: Any) -> bool:
    number = mpmath.mpmathify(value)
    return not taken or (mpmath.im(number) == 0 and mpmath.re(number) >= -ROUNDED)


def _in_numbers(candidate: Any, slope: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a slope of an entry and its inverse of a dual as functions, coefficients sampled."""
    values = _sampled(candidate, slope)
    dual = sp.lambdify(sym.w, _spelled(slope.subs(values)), "mpmath")
    return dual, sp.lambdify(sym.a, _spelled(candidate.subs(values)), "mpmath")


def _sampled(candidate: Any, slope: Any) -> dict[Any, Any]:
    """Give the coefficients of a slope and of its inverse fixed values: 0.7, 0.8, …"""
    free = sorted((candidate.free_symbols | slope.free_symbols) - {sym.a, sym.w}, key=str)
    return {s: sp.Rational(7 + i, 10) for i, s in enumerate(free)}


def _inverts(candidate: Any, slope: Any, domain: tuple[Any, Any]) -> bool:
    """Check the inverse in double precision (closed forms that cancel are no closed forms)."""
    dual, back = _in_numbers(candidate, slope)
    points = inside(*_within(domain))
    return all(_close(partial(_round_trip, back, dual, p), p) for p in points)


def _round_trip(back: Any, dual: Any, point: float) -> Any:
    return back(dual(point))


def _close(value: Callable[[], Any], point: float) -> bool:
    try:
        return bool(abs(complex(value()) - point) <= 1e-7 * (1e-3 + abs(point)))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return False


def _within(domain: tuple[Any, Any]) -> tuple[Any, Any]:
    return (sp.Integer(-1000), sp.Integer(0)) if domain == (-sp.oo, 0) else domain
