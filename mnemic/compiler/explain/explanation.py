"""Everything that is shown about a rule, in order, for each output format."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain import (
    at_value,
    at_zero,
    beginning,
    broken,
    even,
    flat,
    idle,
    printing,
    steep,
    still,
    unbounded,
    unreal,
)
from mnemic.compiler.explain.cost import Cost
from mnemic.compiler.explain.cost_hybrids import layer_cost
from mnemic.compiler.explain.dialect import dialect
from mnemic.compiler.explain.equations import Equation, equations
from mnemic.compiler.explain.layer_equations import layer_equations, layer_words
from mnemic.compiler.explain.layered_words import approximated, of_each_matrix, pace
from mnemic.compiler.explain.notation import role_letter
from mnemic.compiler.explain.one_product import one_product
from mnemic.compiler.explain.spans import ranges, span
from mnemic.compiler.explain.stability import Stability, stability
from mnemic.compiler.problem import HEAD, HEADS, TIME, Scalar
from mnemic.compiler.rule import Derived, Fit, KeyValuePairs, Levels, Moments, Rule
from mnemic.compiler.sense import unreal_of_value
from mnemic.dsl.methods import in_words

SHAPES = {
    "head": "[B, T, H]", "key": "[B, T, H, D]", "value": "[B, T, H, d_v]",
    "outer": "[B, T, H, d_v, D]",
}  # fmt: skip


VERBS = {"carry": "moves the kept keys along"}
"""What a rule does with a key of its own, where that is not the verb of its name."""


@dataclass(frozen=True)
class Argument:
    """A coefficient: its argument (``None`` where it is fixed), shape, range and value."""

    name: str
    argument: str | None
    shape: str
    span: str
    value: Any


@dataclass(frozen=True)
class Explanation:
    """Everything that is shown of a rule."""

    name: str
    title: str | None
    problem: str
    steps: tuple[Derived, ...]
    equations: tuple[Equation, ...]
    remarks: tuple[str, ...]
    layer: tuple[Equation, ...]
    """What a layer computes around the rule."""
    layer_words: tuple[str, ...]
    kind: str
    reason: str
    forms: tuple[str, ...]
    missing: str | None
    """What is not compiled."""
    approximations: tuple[str, ...]
    cost: Cost
    stability: Stability
    warnings: tuple[str, ...]
    arguments: tuple[Argument, ...]


def explain(rule: Rule) -> Explanation:
    """Collect everything that is shown about a rule: problem, steps, equations, costs, warnings."""
    structure, numbered, stable = rule.structure, equations(rule), stability(rule)
    return Explanation(
        name=rule.name,
        title=rule.problem.spec.title,
        problem=statement(rule),
        steps=rule.steps,
        equations=numbered,
        remarks=remarks(rule),
        layer=layer_equations(rule, len(numbered) + 1),
        layer_words=layer_words(rule),
        kind=structure.kind,
        reason=structure.reason,
        forms=structure.forms,
        missing=missing_of(rule),
        approximations=approximations(rule),
        cost=layer_cost(rule),
        stability=stable,
        warnings=warned(rule, stable),
        arguments=arguments(rule),
    )


def missing_of(rule: Rule) -> str | None:
    """Return what of a rule is not compiled, None where all of it is."""
    return "; ".join(issue.message for issue in rule.structure.refused) or None


def warned(rule: Rule, stable: Stability | None = None) -> tuple[str, ...]:
    """Return what a user should hear before training: of stability, of what is missing, of the
    pace. ``stable`` is the rule's stability, where that is known."""
    found = (
        _unreal(rule) or at_value.warning(rule),
        unreal.warning(rule) or at_zero.warning(rule),
        idle.warning(rule),
        (stable or stability(rule)).warning,
        beginning.warning(rule),
        still.warning(rule),
        unbounded.warning(rule),
        steep.warning(rule),
        broken.warning(rule),
        flat.warning(rule),
        even.warning(rule),
        pace(rule),
    )
    return tuple(line for line in found if line is not None)


def _unreal(rule: Rule) -> str | None:
    """Warn of a loss that is not a real number for some possible prediction; else None."""
    place = unreal_of_value(rule.problem)
    if place is None:
        return None
    y, v = (f"{z:.3g}".replace("-", "−") for z in place)
    return (
        f"The loss is not real for every prediction: not where ŷ = {y}, v = {v}. Nothing keeps "
        "predictions from there, and what follows is no number: write the loss in a function of ŷ "
        "that is real, such as sigmoid(y), y being ŷ there."
    )


def statement(rule: Rule) -> str:
    """Return the problem in one line."""
    spec = rule.problem.spec
    window = spec.window
    if isinstance(rule, KeyValuePairs):
        return _fitted(rule, rule.fit)
    plain = type(spec.weights).word() == "uniform"
    one = "ℓ(W; kᵢ, vᵢ)" if plain else "γᵢ ℓ(W; kᵢ, vᵢ)"
    if isinstance(rule, Moments) and rule.solution.fades:
        one = "Π_(j=i+1..t) γⱼ ℓ(W; kᵢ, vᵢ)"
    if window == 1:
        data = one.replace("ᵢ", "ₜ")
    elif window == "all":
        data = f"Σ_(i≤t) {one}"
    else:
        data = f"Σ_(i=t−{window - 1}..t) {one}"
    retention = type(spec.retention.local).word()
    extra = type(spec.retention.global_).word()
    near = "near Wₜ₋₁" if spec.retention.view != "ftrl" else "small"
    kept = f"kept {near} by {retention}" + (f" with the penalty {extra}" if extra != "none" else "")
    if spec.retention.link is not None:
        kept = "a stated link in place of a retention"
    return f"minimise {data} over W, {kept}{_faded(rule)}, {in_words(spec.optimizer.method)}"


def _faded(rule: Rule) -> str:
    """Write the decay and the phase that every token applies to the memory, if any."""
    timed = printing.steps_of(rule)
    decays = [x for x in map(rule.problem.value, ("alpha", "beta")) if x != 1]
    shown = ["decay " + " and ".join(printing.text(x, timed) for x in decays)] if decays else []
    if rule.problem.scalar("phase") is not None:
        shown.append(f"angle {printing.text(rule.problem.value('phase'), timed)}")
    order = rule.problem.spec.retention.order
    return f", {' and '.join(shown)} {order} the gradient" if shown else ""


def _fitted(rule: Rule, fit: Fit) -> str:
    """Write the problem of a fit over kept pairs."""
    if fit.kind == "interpolation":
        ridge = f" + ½ {printing.text(fit.ridge, {})} ‖W‖²" if fit.ridge != 0 else ""
        return f"minimise Σ_(i≤t) ℓ(W φ(kᵢ), vᵢ){ridge} over W, φ known by its kernel"
    data = "Σ_(i≤t)" if rule.window == 1 else f"Σ_(i=t−{rule.window - 1}..t)"
    over = "constants m" if fit.kind == "mean" else "m(k) = a + B (k − qₜ), a ridge on B"
    return f"minimise {data} wᵢ ℓ(m(kᵢ), vᵢ) over {over}, anew at every query qₜ"


def _letters(rule: Rule) -> list[str]:
    """Say what letters stand for that the equations do not define."""
    own = {sp.Symbol(role, real=True): role for role in ("predict", "erase", "write", "carry")}
    used = {s for expr in rule.problem.keys.values() for s in expr.free_symbols if s in own}
    found = [
        f"{role_letter(own[s])} is the key that the rule {VERBS.get(own[s], own[s] + 's with')}, "
        "an input of its own."
        for s in sorted(used, key=str)
    ]
    if any(s.expr.has(TIME) for s in rule.scalars):
        found.append(
            "Among the coefficients t counts tokens from 0, as in the spec; in the rule from 1."
        )
    used = {s for scalar in rule.scalars for s in scalar.expr.free_symbols}
    if HEAD in used:
        found.append(f"{HEAD} is the number of the head, from 0.")
    if HEADS in used:
        found.append(f"{HEADS} is the number of heads.")
    return found


def remarks(rule: Rule) -> tuple[str, ...]:
    """Return remarks on a rule about what its equations do not show."""
    found: list[str] = []
    if isinstance(rule, KeyValuePairs):
        return (*_letters(rule), *_kept_matrices(rule), _growth(rule))
    keys, optimizer = rule.problem.keys, rule.problem.spec.optimizer
    product = one_product(rule, dialect(rule, tex=False))
    if product is not None:
        found.append(f"In one product, as papers print it: {product}.")
    if keys["predict"] != keys["erase"] and not rule.error.constant:
        found.append("Predict and erase keys differ: no loss has this gradient.")
    found += _letters(rule)
    if optimizer.micro_steps > 1:
        found.append(
            f"Prediction to memory is repeated {optimizer.micro_steps} times a token, each time "
            "with its own k, v and rate; the decay acts once, at first."
        )
    if optimizer.inner_steps > 1 and not isinstance(rule, Moments):
        found.append(f"Prediction to memory is repeated {optimizer.inner_steps} times a token.")
    if rule.phase and rule.diagonal:
        found.append("v, W and y are complex, a number a key channel; each is kept as its real and "
                     "its imaginary part, and i² = −1.")  # fmt: skip
    elif rule.phase:
        angle = printing.text(rule.problem.value("phase"), printing.steps_of(rule))
        inner = "xₜ" if rule.problem.features == sym.x else "f(xₜ)"
        told = "" if inner == "xₜ" else ", f being the features above"
        found.append(
            "φ turns each key channel as a pair, by the running sum of the phase: "
            f"φ(xₜ) = [{inner} cos Ωₜ, {inner} sin Ωₜ], Ωₜ = Ωₜ₋₁ + {angle}{told}."
        )
    if isinstance(rule, Levels):
        found.append(
            f"{rule.levels} levels hold {2 ** (rule.levels - 1)} tokens of a document, in as many "
            "memories as their number has binary digits."
        )
    if rule.error.uses_norm:
        found.append("The norm couples the coordinates of the error.")
    if rule.seen != 1 and any(m.every > 1 for m in rule.network.matrices):
        found.append(
            "Tokens read a held memory as it stands, so order before is order after there: the "
            "decay acts on A alone until W moves."
        )
    found += of_each_matrix(rule)
    return tuple(found)


def _kept_matrices(rule: KeyValuePairs) -> Iterator[str]:
    """Say what the matrices K and V of an interpolation hold."""
    if rule.fit.kind == "interpolation":
        yield "K is the matrix of the keys up to the token, one a row."
        yield "V is the matrix of the values up to the token, one a row."


def _growth(rule: KeyValuePairs) -> str:
    """Say how the state of kept pairs grows."""
    if rule.window > 1:
        return f"The state is the last {rule.window - 1} pairs."
    square = rule.fit.kind == "interpolation"
    return "The state grows with the sequence" + (", as its square." if square else ".")


def approximations(rule: Rule) -> tuple[str, ...]:
    """Name the approximations: the anchor, smoothing, finite features, iterative solvers."""
    found: list[str] = []
    spec = rule.problem.spec
    found += approximated(rule)
    smooth = getattr(spec.bias, "smooth", None)
    if smooth is not None:
        found.append(f"smoothing: tanh({smooth:g}·x) for sign(x)")
    solver = spec.optimizer.solver
    match rule:
        case KeyValuePairs(fit=Fit(kind="linear")) if solver.most:
            found.append(f"conjugate gradients in the chunk form, to a relative residual of "
                         f"{solver.residual:g} in at most {solver.most} steps")  # fmt: skip
    word = type(spec.features).word()
    if word == "random":
        found.append(f"finite features: {getattr(spec.features, 'features', '')} random features "
                     "of the exponential kernel")  # fmt: skip
    if word == "taylor":
        found.append(f"finite features: exp to order {getattr(spec.features, 'order', '')}")
    if isinstance(rule, Moments) and rule.solution.iterations:
        found.append(
            "conjugate gradients in a chunk: to a relative residual of "
            f"{rule.solution.tolerance:g} or some roundings of the dtype, within "
            f"{rule.solution.iterations} iterations"
        )
    if rule.retained.link.expr is None:
        found.append("the link is a root found numerically")
    return tuple(found)


def arguments(rule: Rule) -> tuple[Argument, ...]:
    """Return the coefficients with argument, shape and range."""
    spans = ranges(rule)
    return tuple(_argument(rule, s, spans) for s in rule.scalars)


def _argument(rule: Rule, scalar: Scalar, spans: dict[Any, list[float]]) -> Argument:
    micro = rule.problem.spec.optimizer.micro_steps
    shape = SHAPES[scalar.per]
    if scalar.name == "gamma" and rule.gamma == "window" and rule.window > 1:
        shape = f"[B, T, H, {rule.window}]"
    if scalar.name == "levels" and isinstance(rule, Levels):
        shape = f"[B, T, H, {rule.levels}]"
    if micro > 1 and scalar.name in ("eta", "delta"):
        shape = shape.replace("T, ", f"T, {micro}, ")
    if scalar.argument is None:
        return Argument(scalar.name, None, "", "fixed", scalar.expr)
    return Argument(scalar.name, scalar.argument, shape, span(spans[scalar.symbol]), None)


def shown(value: Any) -> Any:
    """Return an equation of a step as SymPy where it is one."""
    return value if isinstance(value, sp.Basic) else str(value)
