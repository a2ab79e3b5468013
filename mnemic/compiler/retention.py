"""Retention solved: the stationarity condition gives the decay and the link.

Learning-retaining, per entry:  min over w of  η g w + D_R(w, w') + η P(w),
    R'(w) + η P'(w) = α R'(w') − η g − ζ =: a − ζ.
Follow-the-regularised-leader:  min over w of  −A w + R(w) + P(w),
    R'(w) + P'(w) = a − ζ.
ζ is the multiplier of a constraint on the sum. An f-divergence gives w = w' g(S − ζ), g = (f')⁻¹.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import mpmath  # type: ignore[import-untyped]
import sympy as sp

from mnemic.compiler import refused
from mnemic.compiler import symbols as sym
from mnemic.compiler.distances import Distances, distances, limit
from mnemic.compiler.inverse import inside, invert
from mnemic.compiler.jumps import jump
from mnemic.compiler.numbers import spelled as _spelled
from mnemic.compiler.numbers import vanishes
from mnemic.compiler.points import points
from mnemic.compiler.symbolic import simplified, tidy

DOMAINS: tuple[tuple[Any, Any], ...] = (
    (-sp.oo, sp.oo),
    (sp.Integer(0), sp.oo),
    (sp.Integer(-1), sp.Integer(1)),
    (sp.Integer(0), sp.Integer(1)),
)
"""Where a generator may live, the widest first."""

DIGITS = 1000
"""Digits of the test for convexity: the curvature of log(cosh(w)) at 999 is 4e-868."""

INFINITE = (sp.oo, -sp.oo, sp.zoo, sp.nan, sp.Limit)
"""What a limit that is no number has in it."""

Normaliser = Literal["none", "softmax", "root", "norm", "ball"]
Mode = Literal["dual", "prox", "multiplicative"]


class Refused(refused.Refused):
    """The retention as written has no solution that mnemic derives; the text says why."""


@dataclass(frozen=True)
class Link:
    """W = link(A): an expression in one entry a, coefficients, ζ or ν.

    ``normaliser`` says which scalar couples the entries: none; a softmax over ``over`` (then
    ``expr`` is the exponent and the entries sum to ``scale``); ζ as the root of Σ w = scale;
    ν = ‖A‖_p with p = ``power``; or the projection onto a ball. Without a closed form ``expr`` is
    ``None`` and the entry is the root w of ``slope``(w) = a on ``domain``, found numerically.
    """

    expr: Any | None = sym.a
    normaliser: Normaliser = "none"
    over: str = "all"
    scale: Any = sp.Integer(1)
    power: Any = None
    slope: Any = sym.w
    domain: tuple[Any, Any] = (-sp.oo, sp.oo)
    apart: Distances | None = None
    """For a ``root``: ``slope`` and its inverse in the form in which ζ is searched for."""

    @property
    def identity(self) -> bool:
        """Whether W is A itself."""
        return self.expr == sym.a and self.normaliser == "none"

    @property
    def unit(self) -> float:
        """The change of the dual that changes W by about its own size: |link(0)/link′(0)|.

        It is 0 where a dual of zero gives W = 0, which sets no scale.

        >>> Link(sp.exp(sym.a)).unit, Link(sym.a).unit
        (1.0, 0.0)
        """
        if self.expr is None or self.normaliser == "norm":
            return 0.0
        expr = sp.exp(self.expr) if self.normaliser == "softmax" else self.expr
        expr = expr.subs({s: 1 for s in expr.free_symbols - {sym.a}})
        value, slope = (part.subs(sym.a, 0) for part in (expr, sp.diff(expr, sym.a)))
        known = value.is_finite and slope.is_finite and slope != 0
        return abs(float(value / slope)) if known else 0.0


@dataclass(frozen=True)
class Retained:
    """The result of deriving a retention, in one of three modes.

    ``dual``: A_t = decay·A_{t−1} + gain·S_t + shift, W_t = link(A_t).
    ``prox``: a = decay·∇R(W_{t−1}) + S_t, W_t = link(a); ``mirror`` is ∇R.
    ``multiplicative``: W_t = decay·W_{t−1} ∘ g(S_t − ζ), ``link.expr`` being g in a.
    """

    mode: Mode
    decay: Any
    gain: Any
    link: Link
    mirror: Any
    steps: tuple[tuple[str, Any], ...] = ()
    bounded: bool = False
    """Whether steps can take the dual out of the range in which a minimiser exists."""
    reason: str = "retention"
    """Where the link comes from."""
    factor: Any = sp.Integer(1)
    """How many times the dual the state is: other than 1 where a link only multiplies by a number,
    which goes into the step, so that the state is the memory."""
    first: Link | None = None
    """Under ``prox`` and a constraint beside a global term: the link of the local term alone."""

    @property
    def without_step(self) -> Link:
        """The link of the dual before any step, W_0 = argmin R(W) − ⟨A_0, W⟩ under the constraint.

        It has no global term, whose weight would be the rate of a step.
        """
        return self.link if self.first is None else self.first


def unlinked(retained: Retained) -> Retained:
    """Rewrite a retention whose link multiplies by a number c to have W = cA as its state.

    W_t = decay·W_{t−1} + c·gain·S_t is then linear in its steps, as A_t was.

    >>> half = Retained("dual", sp.Integer(1), sp.Integer(1), Link(sym.a / 2), 2 * sym.w)
    >>> unlinked(half).factor, unlinked(half).link.identity
    (1/2, True)
    """
    link = retained.link
    if retained.mode != "dual" or link.normaliser != "none" or link.expr is None or link.identity:
        return retained
    factor = sp.diff(link.expr, sym.a)
    if not factor.is_number or factor == 0 or sp.expand(link.expr - factor * sym.a) != 0:
        return retained
    state = f"W itself, as the link only multiplies: {factor} goes into the step"
    steps = (*retained.steps, ("state", state))
    return replace(retained, link=Link(), mirror=sym.w, steps=steps, factor=factor)


def bregman(
    generator: Any, penalty: Any, rate: Any, *, leader: bool, constraint: tuple[str, Any, str],
    positive: frozenset[Any] = frozenset(),
) -> Retained:  # fmt: skip
    """Solve the stationarity of a Bregman retention with a separable global term.

    ``positive`` are coefficients that are above 0, by which ∇R may be a shorter function.
    """
    mirror = _shortest(tidy(sp.diff(generator, sym.w)), positive)
    domain = find_domain(generator + penalty, nonnegative=constraint[0] == "simplex")
    weight = sp.Integer(1) if leader else rate
    whole = mirror + weight * tidy(sp.diff(penalty, sym.w))
    kind, scale, over = constraint
    steps = [("stationarity", sp.Eq(whole, sym.a - sym.zeta if kind == "simplex" else sym.a))]
    inverse = invert(whole, domain)
    base = Link(expr=inverse, slope=whole, domain=domain, over=over, scale=scale)
    base = constrained(base, kind)
    bounded = kind == "none" and has_bounded_range(whole, domain)
    if leader or base.identity:
        solved = Retained("dual", sp.Integer(1), sp.Integer(1), base, mirror, bounded=bounded)
        return replace(solved, steps=(*steps, ("link", base.expr)))
    inner = inverse if mirror == whole else invert(mirror, domain)
    alone = Link(inner, "none", over, scale, None, mirror, domain)
    first = None if kind == "none" or penalty == 0 else constrained(alone, kind)
    prox = Retained(
        "prox", sp.Integer(1), sp.Integer(1), base, mirror, bounded=bounded, first=first
    )
    back = _back_to_dual(mirror, base, inner)
    if back is None or (back[1] != 0 and kind != "simplex"):
        _check_mirror(mirror, domain)
        return replace(prox, steps=(*steps, ("link", base.expr)))
    ratio, shift = back
    link = constrained(alone, kind)
    steps += [("dual", sp.Eq(sp.Symbol("dual"), ratio * sym.a + shift)), ("link", link.expr)]
    return Retained("dual", ratio, ratio, link, mirror, tuple(steps), bounded)


def _shortest(mirror: Any, positive: frozenset[Any]) -> Any:
    """Return the shorter of ∇R and ∇R for coefficients above 0, where roots of squares cancel.

    >>> b = sp.Symbol("b", real=True)
    >>> size = sp.sqrt(b**2 + sym.w**2)
    >>> root = sym.w / (b * sp.sqrt(1 + sym.w**2 / b**2))
    >>> _shortest(sp.asinh(sym.w / b) + root - sym.w / size, frozenset({b}))
    asinh(w/b)
    """
    own = {s: sp.Symbol(f"{s.name}_", positive=True) for s in positive & mirror.free_symbols}
    rooted = any(not node.exp.is_integer for node in mirror.atoms(sp.Pow))
    if not own or not rooted:
        return mirror
    found = simplified(mirror.subs(own)).subs({held: s for s, held in own.items()})
    return found if sp.count_ops(found) < sp.count_ops(mirror) else mirror


def _check_mirror(mirror: Any, domain: tuple[Any, Any]) -> None:
    """Refuse a generator with a kink where the next step starts from ∇R of the memory itself."""
    place = jump(mirror, sym.w, domain)
    if place is not None:
        raise Refused(
            "∇R(w) = {} jumps at w = {}, so that an entry there has no one ∇R for the next step to "
            "start from: take view: ftrl, which keeps the dual itself, or write |w| as a global "
            "term, elastic: {{l1: …}}",
            mirror,
            place,
        )


def has_bounded_range(slope: Any, domain: tuple[Any, Any]) -> bool:
    """Return whether an increasing function stays finite towards an end of its domain.

    It counts as finite if it grows by less than 1 over six decades; a logarithm grows by over 10.
    """
    free = {s: 1 for s in slope.free_symbols - {sym.w}}
    value = sp.lambdify(sym.w, _spelled(slope.subs(free)), "mpmath")
    return any(_levels_off(value, end, -1 if i == 0 else 1) for i, end in enumerate(domain))


def told_range(slope: Any, domain: tuple[Any, Any]) -> str:
    """Return the range of an increasing function as an open interval, coefficients at one."""
    free = {s: 1 for s in slope.free_symbols - {sym.w}}
    value = sp.lambdify(sym.w, _spelled(slope.subs(free)), "mpmath")
    ends = ["−∞", "∞"]
    for i, (end, side) in enumerate(zip(domain, (-1, 1), strict=True)):
        if _levels_off(value, end, side):
            found = float(mpmath.re(value(_place(end, side, 12))))
            ends[i] = f"{found if abs(found) > 1e-4 else 0:.4g}".replace("-", "−")
    return f"({ends[0]}, {ends[1]})"


def _place(end: Any, side: int, power: int) -> Any:
    """Return a point far out towards an end, or near it where the end is finite."""
    far = mpmath.mpf(10) ** power
    return side * far if end in (sp.oo, -sp.oo) else mpmath.mpf(float(end)) - side / far


def _levels_off(value: Any, end: Any, side: int) -> bool:
    try:
        near, far = (value(_place(end, side, power)) for power in (3, 9))
        return bool(abs(far - near) < 1)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return False


def _back_to_dual(mirror: Any, link: Link, inner: Any) -> tuple[Any, Any] | None:
    """Return (ratio, shift) of ∇R(link(a)) = ratio·a + shift (the dual is the state), or None."""
    if link.normaliser in ("root", "ball", "norm"):
        return None
    if vanishes(link.slope - mirror):
        return sp.Integer(1), sp.Integer(0)
    entry = link.expr
    if entry is None or entry.has(sp.Piecewise) or inner is None:
        return None
    if link.normaliser == "softmax":  # the exponent is the dual up to a constant
        ratio = simplified(sp.diff(entry, sym.a) / sp.diff(_exponent(inner), sym.a))
        return (ratio, sp.Integer(0)) if not ratio.has(sym.a) else None
    dual = simplified(mirror.subs(sym.w, entry))
    dual = simplified(sp.expand_log(dual, force=True))
    ratio = simplified(sp.diff(dual, sym.a))
    if ratio.has(sym.a):
        return None
    return ratio, simplified(dual - ratio * sym.a)


def constrained(link: Link, kind: str) -> Link:
    """Put the constraint's multiplier into an unconstrained link."""
    if kind == "simplex":
        return _on_simplex(link)
    if kind == "ball":
        if link.expr is None or not _is_shrunk_by_a_ball(link.slope):
            with refused.asked_at("retention.constraint"):
                raise Refused(
                    "the multiplier μ of a ball adds μ w to the stationarity {}, which is solved "
                    "where that shrinks all entries by one factor, as under ℓ2 retention with or "
                    "without a global ℓ2 or elastic term",
                    sp.Eq(link.slope, sym.a, evaluate=False),
                )
        return replace(link, normaliser="ball")
    return link


def _is_shrunk_by_a_ball(slope: Any) -> bool:
    """Return whether slope(w) + μ w = a has the roots of slope(w) = a times one number.

    So it is where slope(w) = c w + g(w) with g(t w) = g(w) for t > 0, as of a sign: w solves it at
    μ = 0 if and only if w c/(c + μ) does at μ.
    """
    size, times = sp.symbols("size times", positive=True)
    grown = [
        simplified((slope.subs(sym.w, side * times * size) - slope.subs(sym.w, side * size)) / side)
        for side in (1, -1)
    ]
    ratios = [simplified(part / (size * (times - 1))) for part in grown]
    return not ratios[0].has(size, times) and vanishes(ratios[0] - ratios[1])


def _on_simplex(link: Link) -> Link:
    exponent = _exponent(link.expr)
    if exponent is not None:
        return replace(link, expr=exponent, normaliser="softmax")
    expr = None if link.expr is None else _within_range(link, sym.a - sym.zeta)
    apart = distances(link.slope, link.expr, link.domain[1])
    return replace(link, expr=expr, normaliser="root", apart=apart)


def _within_range(link: Link, reach: Any) -> Any:
    """Extend the link to all duals: w is 0 below R'(0), where w ≥ 0 binds, and above the range of
    R' it is the end of its domain."""
    assert link.expr is not None
    lowest = sp.limit(link.slope, sym.w, 0, "+")
    highest = sp.limit(link.slope, sym.w, link.domain[1], "-")
    entry = link.expr.subs(sym.a, reach)
    if not lowest.has(*INFINITE):
        steep = vanishes(sp.limit(sp.diff(link.slope, sym.w), sym.w, 0, "+"))
        cut = sp.Piecewise((entry, reach > lowest), (0, True))
        entry = cut if steep else link.expr.subs(sym.a, sp.Max(reach, lowest))
    if not highest.has(*INFINITE):
        entry = sp.Piecewise((entry, reach < highest), (link.domain[1], True))
    return entry


def _exponent(entry: Any) -> Any | None:
    """Return r·a if the entry is C·exp(r·a), whose multiplier has a closed form (a softmax)."""
    if entry is None or entry.has(sp.Piecewise):
        return None
    ratio = simplified(sp.diff(entry, sym.a) / entry)
    return None if ratio.has(sym.a) else ratio * sym.a


def norm(power: Any) -> Retained:
    """Derive R = ½‖W‖_q²: ν^(2−q) sign(w)|w|^(q−1) = a, ν = ‖W‖_q = ‖A‖_p*, p* = q/(q−1)."""
    q = sp.nsimplify(power, rational=True)
    size, entry = sp.Symbol("size", positive=True), sp.Symbol("entry", positive=True)
    stationarity = sp.Eq(sym.nu ** (2 - q) * entry ** (q - 1), size)
    root = size ** (1 / (q - 1)) * sym.nu ** ((q - 2) / (q - 1))
    dual = q / (q - 1)  # Σ entry^q = ν^q: the exponent of |a| inside the sum
    expr = sp.sign(sym.a) * root.subs(size, sp.Abs(sym.a)) if q != 2 else sym.a
    told = stationarity.subs({entry: sp.Abs(sym.w), size: sp.Abs(sym.a)})
    steps = (("stationarity", told), ("link", expr))
    link = Link(expr, "norm", power=dual) if q != 2 else Link()
    return Retained("dual", sp.Integer(1), sp.Integer(1), link, sym.w, steps)


def divergence(function: Any, *, constraint: tuple[str, Any, str]) -> Retained:
    """Derive W = W' ∘ g(S − ζ), with g = (f')⁻¹ on x > 0 and 0 below f'(0+)."""
    slope = tidy(sp.diff(function, sym.x))
    _check_convex(_Generator.of(function, sym.x))
    g = invert(slope.subs(sym.x, sym.w), (0, sp.oo))
    kind, scale, over = constraint
    if kind == "ball":
        with refused.asked_at("retention.constraint"):
            raise Refused("an f-divergence is defined on W ≥ 0: use a simplex")
    steps = (("stationarity", sp.Eq(slope, sym.a - sym.zeta)), ("g", g))
    log_g = None if g is None else simplified(sp.expand_log(sp.log(g), force=True))
    linear = log_g is not None and log_g.is_polynomial(sym.a) and sp.degree(log_g, sym.a) == 1
    # a constant factor of g is taken up by ζ, and by nothing else
    if linear and log_g is not None and (kind == "simplex" or log_g.subs(sym.a, 0) == 0):
        entropy = bregman(
            sym.w * sp.log(sym.w) - sym.w, sp.Integer(0), 0, leader=False, constraint=constraint
        )
        gain = sp.diff(log_g, sym.a)
        return replace(entropy, gain=gain, steps=(*steps, *entropy.steps))
    lowest, highest = limit(slope, sym.x, sp.Integer(0), "+"), limit(slope, sym.x, sp.oo, "-")
    apart = distances(slope.subs(sym.x, sym.w), g, sp.oo) if kind == "simplex" else None
    if g is not None and lowest.is_finite:
        g = sp.Piecewise((g, sym.a > lowest), (0, True))
    if g is not None and highest.is_finite:  # g has a pole at the end of its domain
        g = sp.Piecewise((g, sym.a < highest), (sp.oo, True))
    link = Link(
        expr=g if g is None or kind != "simplex" else g.subs(sym.a, sym.a - sym.zeta),
        normaliser="root" if kind == "simplex" else "none",
        over=over,
        scale=scale,
        slope=slope.subs(sym.x, sym.w),
        domain=(0, sp.oo),
        apart=apart,
    )
    bounded = kind == "none" and highest != sp.oo
    return Retained(
        "multiplicative", sp.Integer(1), sp.Integer(1), link, sym.w, steps, bounded=bounded
    )


def check_coefficients(
    generator: Any, divergence: Any, ranges: dict[Any, list[float]], *, nonnegative: bool
) -> None:
    """Refuse a generator that is not convex on its domain for all values of its coefficients."""
    function = generator if generator is not None else divergence
    own = sorted((set() if function is None else function.free_symbols) & set(ranges), key=str)
    if not own:
        return
    looked = _Generator.of(function, sym.x if generator is None else sym.w, own)
    domain = None if generator is None else _domain(looked, nonnegative=nonnegative)
    known = [ranges[s] for s in own]
    for values in points(known) if len(own) > 1 else product(*known):
        if not _stays_convex(replace(looked, values=values), domain, nonnegative=nonnegative):
            where = ", ".join(f"{s.name} = {v:.3g}" for s, v in zip(own, values, strict=True))
            raise Refused(
                f"the generator {function} is not strictly convex on its domain at {where}, which "
                "the activation allows: give its coefficients one that keeps it convex, as softplus"
            )


@dataclass(frozen=True)
class _Generator:
    """A generator and its curvature in numbers, at some values of its coefficients."""

    generator: Any
    value: Any
    curvature: Any
    values: tuple[Any, ...]

    @staticmethod
    def of(generator: Any, variable: Any, own: Sequence[Any] = ()) -> "_Generator":
        """Return a generator for coefficients ``own``, all others and they themselves at 0.7."""
        middle = sp.Rational(7, 10)
        rest = generator.free_symbols - {variable, *own}
        shown = generator.subs(dict.fromkeys(rest, middle))
        curvature = _spelled(tidy(sp.diff(shown, variable, 2)))
        names = (variable, *own)
        value, bent = (sp.lambdify(names, f, "mpmath") for f in (_spelled(shown), curvature))
        return _Generator(generator, value, bent, (float(middle),) * len(own))

    def is_real(self, point: float) -> bool:
        """Return whether the value is real there."""
        return _real(self.value, (point, *self.values), -mpmath.inf)

    def is_convex(self, point: float) -> bool:
        """Return whether the value is real there and bends upwards."""
        return _real(self.curvature, (point, *self.values), 0) and self.is_real(point)


def _stays_convex(looked: _Generator, domain: Any, *, nonnegative: bool) -> bool:
    try:
        if domain is None:
            _check_convex(looked)
            return True
        return bool(_domain(looked, nonnegative=nonnegative) == domain)
    except Refused:
        return False


def _check_convex(looked: _Generator) -> None:
    """Refuse an f that is not real and strictly convex on x > 0: f′ would have no inverse there.

    It is sampled next to round numbers, not at them: there a curvature may happen to vanish or be
    infinite.
    """
    for point in (1.0137 * p for p in inside(sp.Integer(0), sp.oo)):
        if not looked.is_convex(point):
            raise Refused(
                "the generator {} of an f-divergence is not real and strictly convex on "
                f"x > 0 (see x = {point:.3g}), so that f′ has no inverse there",
                looked.generator,
            )


def find_domain(generator: Any, *, nonnegative: bool = False) -> tuple[Any, Any]:
    """Find the widest of ``DOMAINS`` where the generator is real and strictly convex, and no wider.

    ``nonnegative`` says that a constraint ends the domain at zero, whatever the generator.
    """
    return _domain(_Generator.of(generator, sym.w), nonnegative=nonnegative)


def _domain(looked: _Generator, *, nonnegative: bool) -> tuple[Any, Any]:
    for low, high in DOMAINS:
        ends = [float(z) for z in (low, high) if z.is_finite and not (nonnegative and z == 0)]
        whole = low == 0 or looked.is_real(0)  # no pole in the middle
        points_inside = inside(low, high)
        if (
            whole
            and all(map(looked.is_convex, points_inside))
            and not any(map(looked.is_convex, ends))
        ):
            return low, high
    raise Refused(
        "the domain on which the generator {} is real and strictly convex is none of those "
        "supported: the real line, (0, ∞), (−1, 1) and (0, 1). Shift or scale w so that it "
        "becomes one of them",
        looked.generator,
    )


def _real(function: Any, place: tuple[Any, ...], above: Any) -> bool:
    """Return whether the value at a place is real and above a bound.

    It is evaluated with enough digits for cancellation.
    """
    with mpmath.workdps(DIGITS):
        try:
            value = mpmath.mpmathify(function(*map(mpmath.mpf, place)))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return False
        return bool(mpmath.im(value) == 0 and mpmath.re(value) > above)
