"""Stability: how large a step may be before it stops contracting (``language.md``, 7).

Along a key that repeats, with x = η Σγ sup ℓ″ ‖φ‖² (and the retention's gain), decay a, seen part
s and momentum θ, the state (A, S) has trace a − s·x + θ and determinant aθ. Both eigenvalues lie
inside the unit circle while s·x < (1 + a)(1 + θ): 2 without decay and momentum, 2(1 + θ) with it.
"""

from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.printing import steps_of, text
from mnemic.compiler.explain.spans import ranges
from mnemic.compiler.numbers import evaluated, sampler
from mnemic.compiler.rule import Rule

MOST_POINTS = 4000

SIGNED = {
    "mean": "The similarity can be negative: weights whose sum comes near zero let y grow without "
    "bound.",
    "interpolation": "The kernel can be negative: where its matrix is not positive definite, the "
    "operator stops with an error.",
}
"""What a fit risks whose weights change sign."""


@dataclass(frozen=True)
class Stability:
    """The bound on a step.

    ``bound`` is the inequality, ``None`` where there is none to give. ``kind``: ``always`` (no
    step size is too large), ``bounded``, ``unbounded`` (ℓ″ grows), ``kink`` (ℓ″ is unbounded at
    ŷ = v only), ``open`` (not derived). ``inside`` tells whether the activations keep unit keys
    within the bound, ``None`` where that is not known.
    """

    kind: str
    bound: Any | None
    sentence: str
    inside: bool | None = None


def stability(rule: Rule) -> Stability:
    """The bound of a rule, and whether its activations stay inside."""
    if rule.fit is not None and rule.fit.carry is not None:
        return _of_keys(rule)
    if rule.fit is not None:
        return Stability("always", None, "A fit over kept pairs has no step size.", True)
    if rule.error.constant:
        return Stability("always", None, "The gradient does not see the memory; no step is too "
                         "large for a decay of at most 1.", True)  # fmt: skip
    if rule.moments is not None:
        return _of_moments(rule)
    if rule.structure.missing is not None or rule.headed:
        return Stability("open", None, "No bound is derived: W φ is not the prediction itself.")
    if rule.problem.spec.optimizer.rate.normalized:
        return Stability("always", None, "The normalised rate η/(1 + η ℓ″‖φ‖²) keeps every step "
                         "a contraction.", True)  # fmt: skip
    if rule.error.bound is None:
        return Stability("open", None, "sup ℓ″ could not be found.")
    if rule.error.bound == sp.oo:
        return _unbounded(rule)
    return _bounded(rule)


def _of_keys(rule: Rule) -> Stability:
    """I − η c cᵀ lengthens no key while η‖c‖² is at most 2; at 2 it reflects."""
    left, right = rule.rate * sp.Symbol("c", real=True) ** 2, sp.Integer(2)
    table = {s.symbol: s.expr for s in rule.scalars}
    inside = _inside(rule, rule.rate.subs(table, simultaneous=True), right)
    shown = f"{text(rule.rate, steps_of(rule))} ‖c‖² ≤ 2" if rule.rate != 1 else "‖c‖² ≤ 2"
    told = {True: "stay inside it", False: "may leave it", None: "were not checked against it"}
    sentence = f"A step lengthens no kept key while {shown}. Of a unit c the activations "
    bound = sp.Le(left, right, evaluate=False)
    return Stability("bounded", bound, f"{sentence}{told[inside]}.", inside)


def _of_moments(rule: Rule) -> Stability:
    assert rule.moments is not None
    if rule.moments.steps:
        return Stability("bounded", sp.Lt(rule.rate * sp.Symbol("h_max", positive=True), 2),
                         "Full-batch steps contract while η times the largest eigenvalue of "
                         "Σ φφᵀ is under 2.")  # fmt: skip
    return Stability("always", None, "An exact minimiser has no step size.", True)


def _unbounded(rule: Rule) -> Stability:
    slope = (rule.error.slope + rule.error.radial * sym.n**2).subs(sym.v, 0)
    free = slope.free_symbols - {sym.y, sym.n}
    at = [{**dict.fromkeys(free, 1), sym.y: z, sym.n: z} for z in (1e3, 1e6)]
    near, far = (evaluated(slope, point) for point in at)
    if near is not None and far is not None and far <= 2 * near + 1:
        return _kinked(rule, sp.nsimplify(round(far, 4), rational=True))
    return Stability("unbounded", None, "ℓ″ has no bound, so no rate is safe: on unit keys such a "
                     "memory may blow up within tens of tokens.", False)  # fmt: skip


def _kinked(rule: Rule, far: Any) -> Stability:
    """ℓ″ is unbounded where ŷ = v only; ``far`` is its size for large errors."""
    sentence = "ℓ″ has no bound at ŷ = v: errors too small for the step are overshot."
    left, right = step_size(rule, far), limit(rule)
    if left == 0 or not rule.retained.link.identity:
        return Stability("kink", None, sentence + " Large ones shrink at any rate.")
    shown = f"{text(left, steps_of(rule))} < {text(right, steps_of(rule))}"
    inside = _inside(rule, left.subs(sym.kappa, 1), right)
    bound = sp.Lt(left, right, evaluate=False)
    return Stability("kink", bound, f"{sentence} Large ones shrink while {shown}.", inside)


def _bounded(rule: Rule) -> Stability:
    left, right = step_size(rule, rule.error.bound), limit(rule)
    if not rule.retained.link.identity:
        slope = _steepest_link(rule)
        if slope is None:
            return Stability("open", None, "The link couples the entries or has no bounded slope; "
                             "no bound is derived for the step behind it.")  # fmt: skip
        left = left * slope
    inside = _inside(rule, left.subs(sym.kappa, 1), right)
    timed = steps_of(rule)
    shown = f"{text(left, timed)} < {text(right, timed)}"
    return Stability(
        "bounded", sp.Lt(left, right, evaluate=False), _sentence(rule, shown, inside), inside
    )


def step_size(rule: Rule, curvature: Any) -> Any:
    """η Σγ ℓ″ ‖φ‖², the retention's gain and the seen part included."""
    gates = sp.Integer(1)
    if rule.window > 1:
        gates = rule.window * (1 if rule.gamma is None else sym.coefficient("gamma"))
    table = {s.symbol: s.expr for s in rule.scalars}
    found = rule.seen * rule.gain * rule.rate * gates * curvature * sym.kappa
    if rule.split:
        found = found.subs(sym.kappa, sp.Symbol("predict·erase", real=True))
    return sp.nsimplify(sp.simplify(found.subs(table, simultaneous=True)))


def limit(rule: Rule) -> Any:
    """(1 + a)(1 + θ), for the trace of the state's transition."""
    theta = rule.momentum if rule.momentum is not None and rule.momentum_on == "gradient" else 0
    return sp.factor((1 + rule.decay * rule.row_decay) * (1 + theta))


def _steepest_link(rule: Rule) -> Any | None:
    link = rule.retained.link
    if link.expr is None or link.normaliser != "none":
        return None
    slope = sp.diff(link.expr, sym.a)
    free = sorted(slope.free_symbols - {sym.a}, key=str)
    at = sampler(slope, [*free, sym.a])
    sizes = [
        [at(*(size for _ in free), z / 4) for z in range(-200, 201)]
        for size in (0.001, 1.0, 1000.0)
    ]
    if any(v is None for row in sizes for v in row):
        return None
    peak = max(abs(v) for row in sizes for v in row if v is not None)
    edge = max(abs(v) for row in sizes for v in (row[0], row[-1]) if v is not None)
    return None if edge > 1 else sp.nsimplify(round(peak, 3), rational=True)


def _sentence(rule: Rule, shown: str, inside: bool | None) -> str:
    parts = [f"A step contracts along its key while {shown}."]
    if rule.momentum is not None:
        parts.append("With momentum that holds for a key that repeats; for keys that change the "
                     "safe range is narrower.")  # fmt: skip
    if rule.split or rule.problem.keys["predict"] != rule.problem.keys["erase"]:
        parts.append("Predict and erase keys differ, so it bounds the eigenvalue, not the norm.")
    told = {True: "stay inside it", False: "may leave it", None: "were not checked against it"}
    parts.append(f"On unit keys the activations {told[inside]}.")
    return " ".join(parts)


def _inside(rule: Rule, left: Any, right: Any) -> bool | None:
    spans = ranges(rule)
    room = right - left
    names = sorted(room.free_symbols & spans.keys(), key=str)
    if room.free_symbols - set(names):
        return None
    at = sampler(room, names)
    for point in islice(product(*(spans[s] for s in names)), MOST_POINTS):
        value = at(*point)
        if value is None:
            return None
        if value < -1e-9:
            return False
    return True


def warnings(rule: Rule) -> tuple[str, ...]:
    """What a user should hear before training."""
    found = []
    known = stability(rule)
    if rule.fit is not None and rule.fit.similarity.sign == "any":
        found.append(SIGNED[rule.fit.kind])
    if known.kind == "unbounded":
        found.append(f"{known.sentence} {_advice(rule)}")
    if known.kind == "bounded" and known.inside is False:
        found.append("The activations may leave the range in which a step contracts. "
                     + known.sentence)  # fmt: skip
    if rule.structure.missing is not None:
        found.append(rule.structure.missing[0].upper() + rule.structure.missing[1:] + ".")
    return tuple(found)


def _advice(rule: Rule) -> str:
    keys = {rule.problem.keys[role] for role in ("predict", "erase", "write")}
    if rule.window > 1 or len(keys) > 1:
        return "Keep the rate small; the normalised rate is derived for a single key a step."
    return "Ask for optimizer.rate: {normalized: true}, which is η/(1 + η ℓ″‖φ‖²)."
