"""Stability: how large a step may be before it stops contracting."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain import contraction, first_steps, placing
from mnemic.compiler.explain.climbing import Signs, signs
from mnemic.compiler.explain.key_sizes import key_size, product_name, product_symbol
from mnemic.compiler.explain.layered_words import bounded_steps
from mnemic.compiler.explain.normalised import Reach, reach
from mnemic.compiler.explain.printing import steps_of, text
from mnemic.compiler.explain.spans import INFINITE, ranges
from mnemic.compiler.kernelised import folded
from mnemic.compiler.network import Map, Network, Norm, node_symbol
from mnemic.compiler.rule import KeyValuePairs, Moments, Rule
from mnemic.dsl.ranges import range_at

Place = Literal["inside", "on", "outside", "unknown"]

SIGNED = {
    "mean": "The similarity can be negative: weights whose sum comes near zero let y grow without "
    "bound.",
    "interpolation": "The kernel can be negative: where its matrix is not positive definite, the "
    "operator stops with an error.",
}
"""What a fit risks whose weights change sign."""


@dataclass(frozen=True)
class Stability:
    """The bound on a step, and where the rule stands to it.

    ``bound`` is the inequality, ``None`` where there is none to give. ``kind``: ``always`` (no
    step size is too large), ``bounded``, ``unbounded`` (ℓ″ grows), ``kink`` (ℓ″ is unbounded at
    ŷ = v or another error only), ``open`` (not derived), ``growing`` (the decay or momentum exceeds
    one), ``climbing`` (the loss falls as ŷ leaves v), ``indefinite`` (κ1 is no inner product).

    ``place``: ``inside`` the bound for every value of the activations and every key of the block,
    ``on`` it (fixed numbers that meet it), ``outside`` it for some, or ``unknown`` (the input
    decides, or no bound is derived). ``read`` are the numbers that were looked at, ``warning`` what
    a user should hear, ``None`` unless the place is ``outside`` or the kernel indefinite.
    """

    kind: str
    bound: Any | None
    sentence: str
    place: Place = "unknown"
    read: tuple[str, ...] = ()
    warning: str | None = None

    @property
    def inside(self) -> bool | None:
        """Whether the rule keeps within the bound, ``None`` where that is not known."""
        return {"inside": True, "on": True, "outside": False, "unknown": None}[self.place]


def stability(rule: Rule) -> Stability:
    """Return the bound on a rule's step, and whether its coefficients and keys keep it."""
    if isinstance(rule, KeyValuePairs):
        fit = _of_fit(rule)
        return fit if rule.fit.carry is None else _of_carry(rule, fit.warning)
    rule = folded(rule)
    return _growing(rule) or _of_steps(rule)


def _of_fit(rule: KeyValuePairs) -> Stability:
    known = Stability("always", None, "A fit over kept pairs has no step size.", "inside")
    if rule.fit.similarity.sign != "any":
        return known
    return replace(known, place="unknown", warning=SIGNED[rule.fit.kind])


def _of_carry(rule: Rule, signed: str | None) -> Stability:
    """Bound η‖c‖² by 2, up to which I − η c cᵀ lengthens no key; at 2 it reflects."""
    twin = _predicting(rule)
    left, right = rule.rate * product_symbol(twin), sp.Integer(2)
    found = placing.place(twin, left, right)
    shown = f"A step lengthens no kept key while {text(left, steps_of(rule))} ≤ 2."
    warning = placing.warning(twin, found) if found.place == "outside" else None
    told = [None if warning is None else _of_a_carry(warning), signed]
    return Stability(
        "bounded", sp.Le(left, right, evaluate=False),
        _of_a_carry(f"{shown} {placing.describe_place(twin, found)}"), found.place,
        tuple(map(_of_a_carry, found.read)), " ".join(filter(None, told)) or None,
    )  # fmt: skip


def _predicting(rule: Rule) -> Rule:
    """Return the rule with the carry as its predict and erase keys.

    A carry with its own projection counts as a unit vector.
    """
    problem, spec = rule.problem, rule.problem.spec
    assert spec.keys.carry is not None
    if spec.keys.carry.own:
        block = spec.block.model_copy(update={"qk_norm": "l2"})
        spec = spec.model_copy(update={"block": block})
    carry = problem.keys["carry"]
    keys = {**problem.keys, "predict": carry, "erase": carry}
    return replace(rule, problem=replace(problem, spec=spec, keys=keys))


def _of_a_carry(words: str) -> str:
    table = (("‖φ‖²", "‖c‖²"), ("unit keys", "a unit c"), ("keys are", "c is"), ("errors", "keys"))
    for keys, carry in table:
        words = words.replace(keys, carry)
    return words


# -- what no step size mends -------------------------------------------------------------------


def _growing(rule: Rule) -> Stability | None:
    """Warn of a decay or momentum above one unless the link bounds the memory; else None."""
    if rule.retained.link.normaliser not in ("none", "norm"):
        return None
    parts = (("decay", "retention.decay", contraction.decay(rule)),
             ("momentum", "optimizer.momentum", contraction.momentum(rule)))  # fmt: skip
    for name, where, expr in parts:
        values = placing.values(rule, expr)
        if not values or max(map(abs, values)) <= 1 + placing.EDGE:
            continue
        shown = text(expr, steps_of(rule))
        most = max(values, key=abs)
        peak = placing.number(most, endless=abs(most) >= INFINITE)
        sentence = f"The {name} {shown} reaches {peak}: above 1 in size the memory grows."
        allowed = range_at(rule.problem.spec, where)
        mend = f"Keep the {name} {allowed}: an activation such as sigmoid."
        return Stability("growing", None, sentence, "outside", placing.read(rule, expr),
                         f"Outside the stable range. {sentence} {mend}")  # fmt: skip
    return None


# -- the step ----------------------------------------------------------------------------------


INDEFINITE = (
    "κ₁ is not known to be an inner product of features (its power series has a negative "
    "coefficient, or it has no series), so what is erased at one key may grow at others, whatever "
    "the rate: only keys that are equal or nearly at right angles are safe."
)
UNHELD = (
    "Under the dot loss each layer's step grows with the other layers, and nothing holds them: by "
    "rate and decay the memory grows without end or fades to nothing over a long text. A norm "
    "holds it (memory.norm, or retention.normalize), and so does a loss that sees the prediction."
)
UNTOLD = (
    "No bound is derived: the prediction is not linear in W, so a step's effect depends on W "
    "itself."
)
LARGE = 0.5
"""A step through O from this size on, in the spectral norm, counts as large as the memory."""
SMALLER = "Take fewer steps (optimizer.every), or a small rate outside O (rate_at: outside)."
HOLDING = "A decay holds the memory, and so do rows over their sums (normalise: row)."


def _of_steps(rule: Rule) -> Stability:
    spec = rule.problem.spec
    if rule.error.constant and rule.network.linear and rule.applied.kind == "identity":
        return Stability("always", None, "The gradient does not see the memory; no step is too "
                         "large for a decay of at most 1.", "inside")  # fmt: skip
    if isinstance(rule, Moments):
        return _of_moments(rule)
    if rule.structure.missing is not None:
        return Stability("open", None, "No bound is derived: the rule is not compiled yet.")
    found = signs(rule)
    if found.climbs:
        return _climbing(rule, found)
    if rule.applied.kind != "identity":
        return Stability("open", None, "No bound is derived: the step passes through O "
                         f"({rule.applied.kind}), its size is not the error's."
                         f"{bounded_steps(rule)}", warning=_as_large_as_w(rule))  # fmt: skip
    if not rule.network.linear:
        return _deep(rule)
    if rule.kernels is not None and rule.kernels.predict.normalised:
        return Stability("open", None, "No bound is derived: what is erased is a mean of what was "
                         "written.")  # fmt: skip
    if rule.kernels is not None and not rule.kernels.predict.positive:
        return Stability("indefinite", None, INDEFINITE, warning=f"{INDEFINITE} {HOLDING}")
    if spec.optimizer.rate.normalized:
        return _normalised(rule, found.lowest)
    peak, values = contraction.curvature(rule)
    if peak is None:
        return Stability("open", None, "sup ℓ″ could not be found.")
    if peak == sp.oo:
        return _unbounded(rule)
    return _bounded(rule, peak, values, found.lowest)


def _climbing(rule: Rule, found: Signs) -> Stability:
    """Report a loss that falls as ŷ leaves v, or is concave: no rate makes its steps stable."""
    sentence = f"The loss falls as ŷ leaves v: {_driven(rule, found)}, whatever the rate."
    if found.concave:
        sentence = "The loss is concave in ŷ (ℓ″ < 0): no step contracts, whatever the rate."
    mend = "A loss that is minimised grows as ŷ leaves v: is its sign right?"
    return Stability("climbing", None, sentence, "outside",
                     warning=f"Outside the stable range. {sentence} {mend}")  # fmt: skip


def _driven(rule: Rule, found: Signs) -> str:
    if found.away is None:
        return "every step drives the prediction from its value"
    size = "‖ŷ − v‖" if rule.error.uses_norm else "ŷ − v"
    place = placing.number(found.away)
    return f"steps near {size} = {place} drive the prediction from its value"


def _normalised(rule: Rule, lowest: float) -> Stability:
    if lowest < 0:
        sentence = "The normalised rate makes steps contractions where ℓ″ > 0 only"
        return Stability("open", None, f"{sentence}; {_falling(lowest)}")
    room = _room(rule)
    if room is None:
        return Stability("open", None, f"{OUTRUN}; no bound is derived behind this link.")
    plain = contraction.limit(rule) == 2 and rule.retained.link.identity and rule.gain == 1
    found = reach(rule, *room, alone=plain)
    if found.contracts == math.inf:
        holds = "The normalised rate η/(1 + η ℓ″‖φ‖²) keeps every step a contraction."
        return Stability("always", None, " ".join([holds, *_with_momentum(rule)]), "inside")
    return _outrun(rule, found)


OUTRUN = "The normalised rate takes ℓ″ where a step begins, and along the step this ℓ″ changes"
SHRINK = "what is read at a key comes nearer to its value"


def _room(rule: Rule) -> tuple[float, float] | None:
    """Return the range of η‖φ‖² ∂e/∂ŷ, with the normalised step's e, in which a step contracts.

    Within it both eigenvalues of (A, S) are inside the unit circle for all decays and momenta.
    """
    slope = sp.Integer(1) if rule.retained.link.identity else contraction.steepest_link(rule)
    if slope is None or slope == 0:
        return None
    unit = sp.sympify(contraction.still(rule) * contraction.seen(rule) * rule.gain * slope)
    least = placing.values(rule, contraction.floor(rule) / unit)
    most = placing.values(rule, contraction.limit(rule) / unit)
    return (max(least), min(most)) if least and most else None


def _outrun(rule: Rule, found: Reach) -> Stability:
    """Say up to which η‖φ‖² a normalised rate is stable, for a loss where that is limited."""
    left = contraction.plain_step(rule)
    shown = text(left, steps_of(rule))
    never = found.contracts == 0
    parts = [
        f"{OUTRUN}: no rate makes every step a contraction."
        if never
        else f"{OUTRUN}: a step contracts along its key while {shown} < {_below(found.contracts)}."
    ]
    if found.shrinks == math.inf:
        parts.append(f"At any rate {SHRINK}.")
    elif found.shrinks:
        parts.append(f"While {shown} < {_below(found.shrinks)}, {SHRINK}.")
    parts += _with_momentum(rule)
    bound = found.shrinks if never else found.contracts
    if never and found.shrinks == math.inf:
        return Stability("always", None, " ".join(parts), "inside")
    if not bound:
        warned = f"Outside the stable range. {parts[0]} Take the method implicit, which contracts."
        return Stability("open", None, " ".join(parts), "outside", warning=warned)
    right = sp.nsimplify(_below(bound), rational=True)
    placed = placing.place(rule, left, right)
    parts.append(placing.describe_place(rule, placed))
    warning = placing.warning(rule, placed) if placed.place == "outside" else None
    return Stability("bounded", sp.Lt(left, right, evaluate=False), " ".join(parts), placed.place,
                     placed.read, warning)  # fmt: skip


def _below(value: float) -> str:
    """Write a number in three digits, rounded down."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / scale + placing.EDGE) * scale:.3g}"


def _falling(lowest: float) -> str:
    """Say what holds where ℓ″ is negative."""
    return (
        f"it falls to {placing.number(lowest)} (the loss is not convex), and there a step draws no "
        "two memories together."
    )


def _as_large_as_w(rule: Rule) -> str | None:
    """Warn where O makes steps as large as the memory however small the error is; else None."""
    if rule.applied.kind != "newton-schulz":
        return None
    rate = rule.gain * (rule.rate if rule.applied.outside else sp.Integer(1))
    if max(placing.values(rule, rate), default=0.0) < LARGE:
        return None
    return (
        "O gives a step the size of the memory itself, however small the error: rounding grows "
        "from step to step, and over some hundred steps two precisions part, finite as both stay. "
        f"{SMALLER}"
    )


def _unheld(rule: Rule) -> bool:
    """Return whether layers have coupled steps that no norm bounds."""
    link, network = rule.retained.link, rule.network
    held = not link.identity or rule.applied.normalize != "none" or rule.retained.mode != "dual"
    normed = any(isinstance(node, Norm) for node in network.nodes)
    return len(network.matrices) > 1 and not held and not normed


def _saturates(network: Network) -> bool:
    """Return whether an activation stays bounded as its argument grows."""
    maps = [node for node in network.nodes if isinstance(node, Map) and len(node.sources) == 1]
    z = sp.Symbol("z", positive=True)
    ends = (sp.limit(_far(m.expr.subs(node_symbol(m.sources[0]), z), z), z, sp.oo) for m in maps)
    return any(end.is_finite for end in ends)


def _far(expr: sp.Expr, z: sp.Symbol) -> sp.Expr:
    """Replace each ``where`` by its case at large z, or by its last one if that is not known."""
    large = sp.Integer(10) ** 9

    def case(*cases: Any) -> sp.Expr:
        known = (e for e, condition in cases if condition.subs(z, large) == sp.true)
        found: sp.Expr = next(known, cases[-1][0])
        return found

    return expr.replace(sp.Piecewise, case)


def _deep(rule: Rule) -> Stability:
    """Bound a step, where possible, by the memory's own Jacobian, which changes with W."""
    peak, _ = contraction.curvature(rule)
    identity, delayed = (
        rule.retained.link.identity,
        contraction.still(rule) > 1 and rule.momentum is not None,
    )
    if peak == sp.oo and identity and contraction.far_curvature(rule) is None:
        return _unbounded(rule)
    unheld = _unheld(rule)
    if rule.error.constant or peak in (None, sp.oo) or not identity:
        grows = rule.error.constant and unheld and not _saturates(rule.network)
        return Stability("open", None, UNTOLD, warning=UNHELD if grows else None)
    jacobian = sp.Symbol("‖∂M/∂W‖²", positive=True)
    left = contraction.step_size(rule, peak).subs(product_symbol(rule), jacobian)
    right = contraction.limit(rule)
    warning = _overshooting(rule, left, right, jacobian) if unheld else None
    if delayed:
        return Stability("open", None, UNTOLD, warning=warning)
    shown = f"{text(left, steps_of(rule))} < {text(right, steps_of(rule))}"
    sentence = (
        f"Near a fit a step contracts while {shown}; ‖∂M/∂W‖ moves with W, so whether it holds "
        "depends on the input."
    )
    bound = sp.Lt(left, right, evaluate=False)
    return Stability("open", bound, sentence, read=placing.read(rule, left + right),
                     warning=warning)  # fmt: skip


def _overshooting(rule: Rule, left: Any, right: Any, jacobian: Any) -> str | None:
    """Warn of coupled layers whose steps are too long for the memory that a layer starts with."""
    size = first_steps.jacobian(rule)
    if not size:
        return None
    shown = f"{size:.3g}"
    found = placing.place(rule, left.subs(jacobian, sp.Float(shown)), right)
    if found.place != "outside":
        return None
    return (
        f"{placing.warning(rule, found)} That is with ‖∂M/∂W‖² = {shown}, where a layer starts, "
        "at the longest features of a key: a longer step lets the error grow, and each layer's "
        "step with the others. A norm holds them (memory.norm, or retention.normalize)."
    )


def _of_moments(rule: Moments) -> Stability:
    if not rule.solution.steps:
        return Stability("always", None, "An exact minimiser has no step size.", "inside")
    shown = sp.Symbol("h_max", positive=True)
    known = Stability("bounded", sp.Lt(rule.rate * shown, 2),
                      "Full-batch steps contract while η times the largest eigenvalue of "
                      "Σ φφᵀ is under 2.")  # fmt: skip
    pairs = rule.rate * (placing.TIME + 1) * product_symbol(rule)
    found = placing.place(rule, pairs, sp.Integer(2))
    sentence = f"{known.sentence} {placing.describe_place(rule, found)}"
    warning = placing.warning(rule, found) if found.place == "outside" else None
    return replace(known, sentence=sentence, place=found.place, read=found.read, warning=warning)


def _unbounded(rule: Rule) -> Stability:
    by_value = contraction.grows_with_value(rule)
    far = None if by_value else contraction.far_curvature(rule)
    if far is not None:
        return _kinked(rule, far)
    read, where = placing.read(rule, rule.rate), ""
    if rule.rate.is_number:
        read = (f"η = {float(rule.rate):g}",)
    rate = placing.values(rule, rule.rate) if rule.network.linear else []
    size = key_size(rule).high
    if rate and 0 < max(rate) * size < math.inf:
        gates = ranges(rule).get(sym.coefficient("gamma"), [1.0]) if rule.gamma else [1.0]
        allowed = 2 / (max(rate) * size * rule.window * max(gates))
        find = contraction.largest_value if by_value else contraction.largest_error
        edge = find(rule, allowed)
        where = (
            "" if edge is None else f", here under |{'v' if by_value else 'ŷ − v'}| = {edge:.3g}"
        )
    what, small = ("grows with the value v", "values") if by_value else ("has no bound", "errors")
    sentence = (
        f"ℓ″ {what}, so no rate is safe: steps contract for small {small} only{where}; beyond, the "
        "memory may blow up within tens of tokens."
    )
    given = f" Read: {'; '.join(read)}." if read else ""
    return Stability("unbounded", None, sentence, "outside", read,
                     f"{sentence}{given} {_normalise(rule)}")  # fmt: skip


def _normalise(rule: Rule) -> str:
    keys = {rule.problem.keys[role] for role in ("predict", "erase", "write")}
    if rule.window > 1 or len(keys) > 1 or not rule.network.linear:
        return "Keep the rate small; the normalised rate is derived for a single key a step."
    return "Ask for optimizer.rate: {normalized: true}, which is η/(1 + η ℓ″‖φ‖²)."


def _kinked(rule: Rule, far: Any) -> Stability:
    """Bound steps where ℓ″ is unbounded only at some points; ``far`` is ℓ″ at large errors."""
    sentence = "ℓ″ has no bound at ŷ = v: errors too small for the step are overshot."
    away, large = contraction.jump_away(rule), "Large ones"
    if away is not None:
        large = "Large errors"
        own = rule.error.signal.free_symbols & ranges(rule).keys()
        where = "an error that its coefficients tell" if own else f"ŷ − v = {text(away)}"
        sentence = f"The error signal jumps at {where}: no rate makes steps near it contract."
    left, right = contraction.step_size(rule, far), contraction.limit(rule)
    if left == 0 or not rule.retained.link.identity:
        return Stability("kink", None, f"{sentence} {large} shrink at any rate.")
    shown = f"{text(left, steps_of(rule))} < {text(right, steps_of(rule))}"
    found = placing.place(rule, left, right)
    warning = placing.warning(rule, found) if found.place == "outside" else None
    return Stability("kink", sp.Lt(left, right, evaluate=False),
                     f"{sentence} {large} shrink while {shown}.", found.place, found.read,
                     warning)  # fmt: skip


def _bounded(rule: Rule, peak: Any, values: list[float], lowest: float) -> Stability:
    left, right = contraction.step_size(rule, peak), contraction.limit(rule)
    if not rule.retained.link.identity:
        slope = contraction.steepest_link(rule)
        if slope is None:
            return Stability("open", None, "The link couples the entries, falls or has no bounded "
                             "slope; no bound is derived for the step behind it.")  # fmt: skip
        left = left * slope
    if contraction.still(rule) > 1 and rule.momentum is not None:
        return Stability("open", None, "No bound is derived for momentum under a chunk anchor.")
    found = placing.place(rule, left, right, values)
    warning = placing.warning(rule, found) if found.place == "outside" else None
    return Stability("bounded", sp.Lt(left, right, evaluate=False),
                     _sentence(rule, left, right, found, lowest), found.place,
                     found.read, warning)  # fmt: skip


def _with_momentum(rule: Rule) -> list[str]:
    """Say where a bound holds under momentum: its eigenvalues assume one slope, that at a fit."""
    if rule.momentum is None:
        return []
    near = "" if rule.error.affine else " near a fit"
    return [f"With momentum that holds{near} for a key that repeats; for keys that change the safe "
            "range is narrower."]  # fmt: skip


def _sentence(rule: Rule, left: Any, right: Any, found: placing.Found, lowest: float) -> str:
    timed = steps_of(rule)
    still = contraction.still(rule)
    what = "A step" if still == 1 else f"A chunk of {still} tokens"
    parts = [f"{what} contracts along its key while {text(left, timed)} < {text(right, timed)}."]
    parts += _with_momentum(rule)
    if rule.split or product_name(rule) != "‖φ‖²":
        parts.append("Predict and erase keys differ, so it bounds the eigenvalue, not the norm.")
    if lowest < 0:
        parts.append(f"That is where ℓ″ > 0; {_falling(lowest)}")
    return " ".join([*parts, placing.describe_place(rule, found)])
