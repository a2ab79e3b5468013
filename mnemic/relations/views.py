"""Further forms of rules that the map compares, besides those that `canonical` writes.

A kernel that is a polynomial is represented by its coefficients. So a kernel of degree 4 equals
that of features of degree 4, and the algebra solves for coefficients of a kernel as for others.

A memory that only adds is also a sum over pairs, y = Σ g κ(k, q) v, or a mean where it is divided
by its weights. In this view it has the shape of attention, and its query may be longer or shorter.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.coordinates import COLUMNS, PARAMETERS, ROWS, Coordinates
from mnemic.compiler.compare.entry_form import Form
from mnemic.compiler.compare.matching import STRETCH
from mnemic.compiler.compare.spec_numbers import numbers
from mnemic.compiler.compare.special import Special, at_infinity
from mnemic.compiler.compare.tags import S
from mnemic.compiler.explain.letters import letter
from mnemic.compiler.rule import KeyValuePairs, Levels, Linear, Moments, Rule
from mnemic.compiler.series import kernel, series

DEGREES = 8
"""The highest degree of a kernel that is told by its coefficients."""
PAIRS = "a pair's weight"
V = sp.Symbol("v_0", real=True)
PLAIN = Special(())


def viewed(form: Form, rule: Rule, at: Special = PLAIN) -> Form:
    """Return the form with the kernel as entries, lowest degree first, where it has one."""
    shown = _kernel(rule)
    if shown is None:
        return form
    entries = _powers(Coordinates(rule, dict(at.values)).resolved(shown), S)
    if entries is None:
        return form
    output, tags = (*form.output, *entries), (*form.tags, "kernel of powers")
    return replace(form, output=output, tags=tags, features=())


def _kernel(rule: Rule) -> Any:
    """Return φ(x)·φ(y) as an expression in s, if it is one, the same wherever it stands."""
    if not isinstance(rule, Linear | Levels | Moments):
        return None
    kernels = rule.problem.kernels
    if kernels is None:
        return _of_features(rule)
    one = rule.error.constant or kernels.predict == kernels.read
    return kernels.read.expr if one and not kernels.read.normalised else None


def _of_features(rule: Rule) -> Any:
    problem = rule.problem
    if problem.features is not None:
        return S if problem.features == sym.x else None
    return kernel(problem, S)


def _powers(expr: Any, symbol: Any) -> tuple[Any, ...] | None:
    """Return the coefficients of a polynomial of low degree; None of anything else."""
    found = sp.expand(expr)
    if not found.is_polynomial(symbol) or sp.degree(found, symbol) > DEGREES:
        return None
    polynomial = sp.Poly(found, symbol)
    return tuple(polynomial.coeff_monomial(symbol**i) for i in range(DEGREES + 1))


# -- sums over pairs ---------------------------------------------------------------------------


def by_pairs(form: Form, rule: Rule) -> Form | None:
    """Return a form as a sum or a mean over pairs, if it is one: weight, decay, what it adds."""
    if isinstance(rule, KeyValuePairs):
        return _of_fit(form, rule)
    if not isinstance(rule, Linear) or form.wholes:
        return None
    kernels = rule.problem.kernels
    shown = kernels.read.expr if kernels is not None else _of_features(rule)
    found = _added(form)
    if shown is None or found is None:
        return None
    gain, decay, mean = found
    rows = kernels is not None and kernels.read.normalised
    if rows and (mean or decay != 1):
        return None
    return pair_form(shown.subs(S, sym.kq), gain, decay, mean=mean or rows, rows=rows)


def pair_form(
    weight: Any, gain: Any, decay: Any, *, mean: bool, window: str = "all", rows: bool = False
) -> Form:
    """Return the form of Σ gain·weight·v over the pairs, or of the mean with these weights.

    In a mean over ``rows`` the gain is one of the values alone, not of the weights.
    """
    log, powers = _logarithm(weight), _powers(weight, sym.kq)
    inside = gain if mean and not rows else sp.Integer(1)
    if log is not None:
        by, output = "logarithm", (log + sp.log(inside),)
    elif powers is not None:
        by, output = "powers", tuple(x * inside for x in powers)
    else:
        by, output = "value", (weight * inside,)
    outside = V if mean and not rows else gain * V
    if not mean and log is None:  # a sum has no weight but with its value
        output, outside = tuple(x * outside for x in output), sp.Integer(1)
    tags = (PAIRS, "mean" if mean else "sum", f"weights by {by}", f"pairs {window}")
    entries = tuple(sp.expand(sp.sympify(e)) for e in (*output, outside, decay))
    inputs = (sym.kq, sym.kk, sym.qq, V)
    return Form((), entries, (), (), tags, inputs, PARAMETERS | {sym.d_k})


def _logarithm(weight: Any) -> Any | None:
    """Return the logarithm of a weight that is an exponential, None of any other."""
    found = sp.expand(sp.expand_log(sp.log(weight), force=True))
    return None if found.has(sp.log) else found


def _of_fit(form: Form, rule: KeyValuePairs) -> Form | None:
    """Return the form of a fit that is a mean over pairs, None for any other fit."""
    fit = rule.fit
    if fit.kind != "mean" or "keys move" in form.tags or "value v" not in form.tags:
        return None
    weight, decay = form.output[0], form.output[1]
    weight = sp.exp(weight) if "weights by logarithm" in form.tags else weight
    window = str(rule.window) if rule.window > 1 else "all"
    return pair_form(weight, sp.Integer(1), decay, mean=True, window=window)


def _added(form: Form) -> tuple[Any, Any, bool] | None:
    """Return the gain and the decay of a memory that only adds v kᵀ, and whether its read-out is
    divided by the sum of weights; None of any other form."""
    names = [s.name for s in form.states]
    if names not in (["W"], ["W", "N"]) or any(s.start != 0 for s in form.states):
        return None
    k = [sp.Symbol(f"k_{j}", real=True) for j in range(COLUMNS)]
    q = [sp.Symbol(f"q_{j}", real=True) for j in range(COLUMNS)]
    found = set()
    for state in form.states:
        rows = len(state.symbols) // COLUMNS
        if len(state.symbols) not in (COLUMNS, ROWS * COLUMNS):
            return None
        v = [sp.Integer(1)] if rows == 1 else [sp.Symbol(f"v_{i}", real=True) for i in range(rows)]
        for at, (before, after) in enumerate(zip(state.symbols, state.after, strict=True)):
            i, j = divmod(at, COLUMNS)
            decay, gain = after.coeff(before), after.coeff(k[j])
            gain = sp.cancel(gain / v[i])
            if sp.expand(after - decay * before - gain * k[j] * v[i]) != 0:
                return None
            found.add((gain, decay))
    if len(found) != 1 or any(e.free_symbols & form.data for pair in found for e in pair):
        return None
    ((gain, decay),) = found
    memory = form.states[0].after
    size = sum(a * b for a, b in zip(form.states[-1].after, q, strict=False))
    size = size if len(names) == 2 else sp.Integer(1)
    for i in range(ROWS):
        read = sum(memory[i * COLUMNS + j] * q[j] for j in range(COLUMNS))
        if sp.cancel(sp.together(form.output[i] - read / size)) != 0:
            return None
    return gain, decay, len(names) == 2


def on_features(form: Form, rule: Rule) -> Form | None:
    """Return the form of a rule as that of one without features, which sees φ(k) and φ(q).

    None where features have a kernel that tells more.
    """
    plain = isinstance(rule, Linear) and rule.problem.kernels is None
    if not plain or _of_features(rule) is not None:
        return None
    identity = tuple(sp.Integer(int(i == 1)) for i in range(DEGREES + 1))
    tags = (*(t for t in form.tags if not t.startswith("features ")), "kernel of powers")
    return replace(form, output=(*form.output, *identity), tags=tags, features=())


def saturated(form: Form, rule: Rule) -> Iterator[tuple[Special, Form]]:
    """Return the limit of a read-out over max(|n·q|, 1) as its gain grows: that over n·q, where
    n·q is positive.

    It exists where states grow with the gain: numerator and n·q both grow, and the 1 is exceeded.
    """
    floors = [w for w in form.wholes if w.function == "floor"]
    if len(form.wholes) != 1 or len(floors) != 1:
        return
    states = {s: s for state in form.states for s in state.symbols}
    for scalar in rule.scalars:
        gain = scalar.symbol
        if scalar.argument is None or scalar.per != "head" or not gain.is_positive:
            continue
        grown = {s: gain * s for s in states}
        pairs = [e for state in form.states for e in state.after] + [floors[0].arguments[0]]
        if all(sp.expand(e.subs(grown) - gain * e.subs(gain, 1)) == 0 for e in pairs):
            size = {floors[0].symbol: floors[0].arguments[0]}
            found = form.mapped(lambda e: e.subs(size).subs(gain, 1))  # noqa: B023
            name = letter(scalar.name)
            yield (Special((f"{name} = ∞",), ((gain, sp.oo),)),
                   replace(found, wholes=(), functions=()))  # fmt: skip


def stretched(form: Form) -> Form:
    """Return a form of pairs for rescaled queries: q′ is q times an unknown to be solved for."""
    if PAIRS not in form.tags:
        return form
    if "weights by powers" in form.tags:
        kept = tuple(e * STRETCH**i for i, e in enumerate(form.output[:-2]))
        return replace(form, output=(*kept, *form.output[-2:]))
    longer = {sym.kq: sym.kq * STRETCH, sym.qq: sym.qq * STRETCH**2}
    return form.mapped(lambda e: e.subs(longer, simultaneous=True))


# -- special pairs -----------------------------------------------------------------------------


def of_pairs(form: Form, rule: Rule) -> Iterator[tuple[Special, Form]]:
    """Return special values of a form over pairs: keys of one length, short queries, a whole
    series, a ridge that outgrows the kernel."""
    if isinstance(rule, KeyValuePairs) and rule.fit.kind == "interpolation":
        words = ("ridge = ∞", "v′ = ridge·v")
        special = Special(words, edits=("memory.ridge=oo",), grown=True)
        one = sp.Integer(1)
        yield special, pair_form(rule.fit.similarity.weight, one, one, mean=False)
    if isinstance(rule, Moments):
        yield from _ridged(rule)
    found = by_pairs(form, rule)
    if found is None:
        return
    whole = _whole_series(rule)
    if whole is not None:
        path, weight = whole
        gain, decay, mean = _added(form) or (1, 1, False)
        yield (Special((f"{path.rsplit('.')[-1]} = ∞",), edits=(f"{path}=oo",)),
               pair_form(weight, gain, decay, mean=mean))  # fmt: skip
    if any(e.has(sym.kk, sym.qq) for e in found.output) and "mean" in found.tags:
        one = found.mapped(lambda e: e.subs({sym.kk: 1, sym.qq: 1}))
        constant = one.output[0].subs(sym.kq, 0)
        one = replace(one, output=(sp.expand(one.output[0] - constant), *one.output[1:]))
        yield Special(("‖k‖ = ‖q‖ = 1",), unit=True), one
    if "weights by value" in found.tags and "sum" in found.tags:
        weight = found.output[0]
        for power in range(1, DEGREES):
            lowest = sp.diff(weight, sym.kq, power).subs(sym.kq, 0) / sp.factorial(power)
            if weight.subs(sym.kq, 0) == 0 and lowest != 0:
                words = ("q → 0", f"v′ = v/q{'' if power == 1 else f'^{power}'}")
                decay = found.output[-1]
                yield (Special(words, shrunk=power),
                       pair_form(sym.kq**power, lowest / V, decay, mean=False))  # fmt: skip
                break


def _ridged(rule: Moments) -> Iterator[tuple[Special, Form]]:
    """Yield the limit of least squares as ridge and values grow: U (H/λ + 1)⁻¹ q becomes U q."""
    ridge = sp.sympify(rule.solution.ridge)
    size = sp.Symbol("ridge", positive=True)
    changed = replace(rule, solution=replace(rule.solution, ridge=size))
    larger = {sp.Symbol(f"v_{i}", real=True): size * sp.Symbol(f"v_{i}", real=True) for i in (0, 1)}
    states = {sp.Symbol(f"W_{i}_{j}", real=True) for i in (0, 1) for j in (0, 1)}
    larger |= {w: size * w for w in states}
    form = canonical(changed)
    if rule.solution.steps or any(state.start != 0 for state in form.states):
        return
    form = replace(form, output=tuple(e.subs(larger, simultaneous=True) for e in form.output))
    form = viewed(at_infinity(form, [size]), rule)
    if ridge.is_Symbol:
        name = letter(str(ridge))
        yield Special((f"{name} = ∞", f"v′ = {name}·v"), ((ridge, sp.oo),), grown=True), form
    for path, held in numbers("retention", rule.problem.spec.retention):
        if ridge.is_number and abs(held - float(ridge)) < 1e-12:
            name = letter(path.rsplit(".")[-1])
            words = (f"{name} = ∞", f"v′ = {name}·v")
            yield Special(words, edits=(f"{path}=oo",), grown=True), form


def _whole_series(rule: Rule) -> tuple[str, Any] | None:
    """Return the number that counts the terms of features that are a series, and the sum of all.

    The sum is known where each term is the previous one times s·r/i, with a constant r.
    """
    terms = series(rule.problem) if isinstance(rule, Linear) else None
    if terms is None or len(terms) < 3 or not all(x.is_number and x != 0 for x in terms):
        return None
    steps = {b / a * (i + 1) for i, (a, b) in enumerate(pairwise(terms))}
    counted = [p for p, x in numbers("features", rule.problem.spec.features) if x == len(terms) - 1]
    if len(steps) != 1 or not counted:
        return None
    return counted[0], terms[0] * sp.exp(steps.pop() * sym.kq)
