"""Problem → Rule: every line of the normal form, derived."""

from collections.abc import Callable
from functools import partial
from typing import Any

import sympy as sp

from mnemic.compiler import (
    complexes,
    elementwise,
    error_signal,
    kernelised,
    multiplied,
    pair_fits,
    retention,
    sense,
    series,
    shares,
    stated_link,
    steps,
    uncompiled,
)
from mnemic.compiler import symbols as sym
from mnemic.compiler.classify import Facts, classify, is_layered
from mnemic.compiler.network import Outer, network
from mnemic.compiler.problem import Problem, state
from mnemic.compiler.ranges import ranges_of
from mnemic.compiler.refused import Refused, asked_at
from mnemic.compiler.rule import (
    Applied,
    Derived,
    Fit,
    KeyValuePairs,
    Layers,
    LeastSquares,
    Levels,
    Linear,
    Moments,
    Rule,
)
from mnemic.dsl.memory import Diagonal
from mnemic.dsl.methods import ELEMENTWISE
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue

STEPS = {"implicit": steps.implicit, "flow": steps.flow}
"""Methods that are gradient steps in disguise; any other method's step is plain."""


def derive_spec(spec: Spec) -> Rule:
    """Derive the rule of a spec, by its problem."""
    return derive(state(spec))


def derive(problem: Problem) -> Rule:
    """Derive the rule of a problem; raise InvalidSpec, with the reason, where it has none."""
    spec = problem.spec
    try:
        rule = _derive(problem)
        sense.check_first_step(rule)
        return uncompiled.mark(rule, _place_of_class(rule))
    except Refused as refusal:
        from mnemic.compiler.explain.printing import text

        where = f"{spec.name} {refusal.place}".rstrip()
        raise InvalidSpec((Issue(refusal.written_by(text), where),)) from None


def _derive(problem: Problem) -> Rule:
    spec = problem.spec
    loss_error = error_signal.derive(problem.loss, getattr(spec.bias, "smooth", None))
    sense.check(problem, loss_error)
    series.check(problem)
    own = _own_rate(problem)
    with asked_at(_place_of_retention(spec)):  # an infinite step takes a global term once
        retained = _retained(problem, sp.Integer(1) if own == sp.oo else own)
    if _is_one_matrix(problem):
        retained = retention.unlinked(retained)
    with asked_at("optimizer.rate" if spec.optimizer.rate.normalized else "optimizer.method"):
        step = _step(problem, loss_error, retained)
    complexes.check(problem, step.error, retained)
    per = {s.symbol: s.per for s in problem.scalars}
    with asked_at("features"):
        kernelised.check(problem, step.error, retained.factor * retained.gain, per)
    method = _method(problem, step.error)
    alpha, rows = decays_of(problem)
    anchor = spec.optimizer.anchor.chunk
    with asked_at(_place_of_split(spec)):
        split = _splits(problem, step.error)
    facts = Facts(
        problem, step.error, retained, method, _per(problem, step.rate),
        _per(problem, problem.value("theta")), rows != 1, anchor,
        network(spec.memory, spec.optimizer.every), split,
    )  # fmt: skip
    with asked_at("readout.levels"):
        shares.check(facts)
    multiplied.check(facts)
    structure = classify(facts)
    shared = _rows_share(problem, step.error, anchor)
    with asked_at("weights.gamma"):
        gamma = _gamma(problem)
    kind = _kind(facts)
    momentum = _momentum(problem, method)
    gain, rate = retained.factor * retained.gain, step.rate * _curve(method, step.error)
    if momentum is not None:  # S is as large as W
        gain, rate = retained.gain, retained.factor * rate
    return kind(
        problem=problem,
        error=step.error,
        rate=rate,
        gain=gain,
        decay=sp.simplify(alpha * retained.decay),
        row_decay=rows,
        seen=alpha if spec.retention.order == "before" else sp.Integer(1),
        phase=problem.scalar("phase") is not None,
        momentum=momentum,
        momentum_on=getattr(spec.optimizer.momentum, "on", "gradient"),
        retained=retained,
        network=facts.network,
        applied=method if isinstance(method, Applied) else Applied(),
        window=spec.window if isinstance(spec.window, int) else 1,
        gamma=gamma,
        rows=window_of(spec) if shared else spec.optimizer.micro_steps * _inner(spec),
        shared_rows=shared,
        anchor=anchor,
        split=split,
        structure=structure,
        steps=_trail(problem, loss_error, step, retained, structure, method),
    )


def _is_one_matrix(problem: Problem) -> bool:
    """Return whether the memory is one matrix that takes steps from zero, each a number times its
    gradient."""
    optimizer = problem.spec.optimizer
    if optimizer.method in ("exact", "batch"):
        return False
    if optimizer.rate.normalized and problem.scalar("theta") is not None:
        return False
    return not is_layered(network(problem.spec.memory, optimizer.every), _applied(problem))


def _method(problem: Problem, error: error_signal.ErrorSignal) -> Fit | LeastSquares | Applied:
    """Decide how the memory is found: a fit over stored pairs, solved from moments, or by steps."""
    with asked_at("memory"):
        fit = pair_fits.derive(problem, error)
    if fit is not None:
        return fit
    with asked_at("optimizer.method"):
        return _least_squares(problem, error) or _applied(problem)


def _kind(facts: Facts) -> Callable[..., Rule]:
    """Return the class of the rule, with what is its own (fit, solution, levels) filled in."""
    match facts.method:
        case Fit() as fit:
            return partial(KeyValuePairs, fit=fit)
        case LeastSquares() as solution:
            return partial(Moments, solution=solution)
        case Applied() as applied if is_layered(facts.network, applied):
            return Layers
    weight = facts.problem.scalar("levels")
    if weight is None or weight.expr == 1:  # equal weights of one: the memory as a whole
        return Linear
    return partial(Levels, levels=facts.problem.spec.readout.max_levels)


def _curve(method: Fit | LeastSquares | Applied, error: error_signal.ErrorSignal) -> Any:
    """Return c of a loss c/2 (ŷ − v)², which multiplies the rate of full-batch steps; else 1."""
    return error.slope if isinstance(method, LeastSquares) and method.steps else 1


def _place_of_retention(spec: Spec) -> str:
    """Return the entry that states what a retention's stationarity is solved for."""
    retention = spec.retention
    if retention.link is not None:
        return "retention.link"
    for kind, text in (("bregman", retention.local.generator),
                       ("f-divergence", retention.local.divergence)):  # fmt: skip
        if text is not None:
            return f"retention.local.{kind}"
    return "retention.global" if retention.global_.norm is not None else "retention"


def _place_of_class(rule: Rule) -> str:
    """Return the entry that decides whether a rule's class has forms."""
    return _place_of_retention(rule.problem.spec) if rule.retained.bounded else "memory"


def _place_of_split(spec: Spec) -> str:
    """Return the entry by which prediction and value are written apart."""
    named = [role for role in ("erase", "write") if getattr(spec.keys, role) is not None]
    return f"keys.{named[0]}" if named else "optimizer.momentum.on"


def decays_of(problem: Problem) -> tuple[Any, Any]:
    """Return the decay of key channels or heads, and that of the state's rows (value channels)."""
    alpha, beta = problem.value("alpha"), problem.value("beta")
    scalar = problem.scalar("alpha")
    if isinstance(problem.spec.memory, Diagonal):  # its rows are its channels
        return alpha * beta, sp.Integer(1)
    by_row = scalar is not None and scalar.per == "value"
    if by_row:
        return sp.Integer(1), alpha * beta
    return alpha, beta


def _step(
    problem: Problem, error: error_signal.ErrorSignal, retained: retention.Retained
) -> steps.Step:  # fmt: skip
    optimizer = problem.spec.optimizer
    rate = problem_rate(problem, _own_rate(problem))
    many = len(network(problem.spec.memory).matrices) > 1
    if many and (optimizer.method in STEPS or optimizer.rate.normalized):
        raise steps.Refused(
            "an implicit, flowing or normalised step is derived for a memory that is linear in W"
        )
    plain_keys = len({problem.keys[r] for r in ("predict", "erase", "write")}) == 1
    disguised = optimizer.method in STEPS or optimizer.rate.normalized
    if disguised and not (plain_keys and window_of(problem.spec) == 1):
        raise steps.Refused("an implicit, flowing or normalised step is derived for one key a step")
    if optimizer.method == "implicit":
        _check_unrounded(problem)
        steps.check_convex(error, ranges_of(problem.scalars))
    if rate == 0:  # whatever the method, nothing is written
        return steps.plain(error, rate)
    if optimizer.rate.normalized:
        return steps.normalized(error, rate)
    if optimizer.method in STEPS:
        return STEPS[optimizer.method](error, rate, _held(problem, retained))
    return steps.plain(error, rate)


def _held(problem: Problem, retained: retention.Retained) -> steps.Held:
    """Return what retention leaves of a prediction, where it solves the step too."""
    link = retained.link
    moving = {s.symbol for s in problem.scalars if s.declared.origin == "input"}
    factor = sp.nan if link.expr is None else sp.cancel(link.expr / sym.a)
    linear = retained.mode == "dual" and link.normaliser == "none" and factor is not sp.nan
    if not linear or factor.has(sym.a) or factor.free_symbols & moving:
        method = problem.spec.optimizer.method
        raise steps.Refused(
            f"the method '{method}' solves the loss and the retention together, which is derived "
            "for a retention whose link is a constant times the dual: ½‖W − W′‖² with a decay or "
            "an l2 term. With any other each entry's minimum depends on all: use gd or momentum, "
            "which solve it beside the loss's gradient"
        )
    return steps.Held(retained.decay, factor * retained.factor * retained.gain)


def _check_unrounded(problem: Problem) -> None:
    """Raise Refused where a minimiser would see the steps of round, which gradients do not see."""
    if problem.loss.has(sym.round):
        raise steps.Refused(
            f"the method '{problem.spec.optimizer.method}' minimises the loss, which is flat "
            "between the jumps of round: use gd or momentum, which take its gradient as if round "
            "were not there"
        )


def _applied(problem: Problem) -> Applied:
    """O and the norms that the memory is held to."""
    spec, optimizer = problem.spec, problem.spec.optimizer
    retention, outside = spec.retention, _rate_outside(spec)
    norms, centred = retention.lines, retention.centred
    match optimizer.method:
        case "muon":
            return Applied("newton-schulz", optimizer.ns_steps, outside, norms, centred=centred)
    found = elementwise.applied(problem, norms, centred=centred)
    return found or Applied("identity", 0, outside, norms, centred=centred)


def _rate_outside(spec: Spec) -> bool:
    """Return whether η multiplies O(S): in a step entry by entry a rate inside would cancel."""
    return spec.optimizer.rate_at == "outside" or spec.optimizer.method in ELEMENTWISE


def _momentum(problem: Problem, method: Fit | LeastSquares | Applied) -> Any | None:
    """Return θ; None without momentum, and for an optimizer by entry, which has averages."""
    momentum = problem.scalar("theta")
    if momentum is None or (isinstance(method, Applied) and method.elementwise):
        return None
    return momentum.expr


def _own_rate(problem: Problem) -> Any:
    """Return η, or the δ of an implicit step."""
    return problem.value(problem.spec.rate_name)


def problem_rate(problem: Problem, rate: Any) -> Any:
    """Return η, with a weight γ of the whole step folded in, unless O stands between."""
    steps_once = problem.spec.optimizer.method not in ("exact", "batch")  # those weigh pairs
    steps_once = steps_once and not _rate_outside(problem.spec)
    if steps_once and problem.even_weight is not None:
        return rate * problem.even_weight
    return rate


def _gamma(problem: Problem) -> str | None:
    """Return ``token`` or ``window`` where each has a gate of its own as argument, else None."""
    word, gamma = type(problem.spec.weights).word(), problem.scalar("gamma")
    if word not in ("token", "window") or gamma is None:
        return None
    if gamma.argument is None and problem.even_weight is None:
        raise steps.Refused(
            "a token's weight stays with it in the window, and past values of an expression of "
            "coefficients or of t are not kept: give weights.gamma from the input, as a number or "
            "as an expression of h, or write weights: {kind: window} for the weight of each step"
        )
    return word if gamma.argument is not None else None


def _retained(problem: Problem, rate: Any) -> retention.Retained:
    entry = problem.spec.retention
    texts = (problem.generator, problem.divergence, problem.penalty)
    if any(text is not None and sp.sympify(text).has(sym.round) for text in texts):
        raise retention.Refused(
            "round is flat between its jumps, so a retention with it is not convex and has no one "
            "minimiser: write a smooth function"
        )
    _check_coefficients(problem)
    leader = entry.view == "ftrl"
    if problem.link is not None and entry.link is not None:
        return stated_link.retained(problem.link, entry.link.power)
    if problem.divergence is not None:
        if problem.penalty != 0:
            raise retention.Refused("a global term beside an f-divergence has no closed form")
        return retention.divergence(problem.divergence, constraint=problem.constraint)
    if entry.global_.norm is not None:
        return retention.norm(entry.global_.norm)
    generator = problem.generator if problem.generator is not None else sym.w**2 / 2
    if problem.spec.optimizer.method in ("exact", "batch"):  # the ridge is the solver's
        return retention.bregman(
            generator, sp.Integer(0), rate, leader=True, constraint=("none", 1, "all")
        )
    penalty = sp.Integer(0) if problem.penalty == 0 else problem.penalty
    ranges = ranges_of(problem.scalars)
    positive = frozenset(s for s, values in ranges.items() if values and min(values) > 0)
    return retention.bregman(
        generator, penalty, rate, leader=leader, constraint=problem.constraint, positive=positive
    )


def _check_coefficients(problem: Problem) -> None:
    """Refuse a generator whose coefficients move it from token to token, or out of convexity."""
    held = {s.symbol for s in problem.scalars if s.declared.origin == "input"}
    moving = set() if problem.generator is None else problem.generator.free_symbols & held
    if moving:
        names = ", ".join(sorted(s.name for s in moving))
        raise retention.Refused(
            f"the generator of a Bregman retention is one function for all tokens, and its "
            f"coefficient {names} comes from the input: take a number or {{from: parameter}}"
        )
    retention.check_coefficients(
        problem.generator, problem.divergence, ranges_of(problem.scalars),
        nonnegative=problem.constraint[0] == "simplex",
    )  # fmt: skip


def _least_squares(problem: Problem, error: error_signal.ErrorSignal) -> LeastSquares | None:
    """Return how running moments are solved, None for an optimizer that steps token by token."""
    optimizer = problem.spec.optimizer
    if optimizer.method not in ("exact", "batch"):
        return None
    _check_unrounded(problem)
    curvature = _curvature(problem, error)
    ridge = sp.diff(problem.penalty, sym.w, 2) / curvature
    fades = type(problem.spec.weights).word() == "geometric"
    if optimizer.method == "exact" and ridge == 0:
        raise retention.Refused(
            "the exact minimiser needs a ridge: retention.global: {l2: λ > 0}",
            place="retention.global",
        )
    constant = getattr(problem.spec.weights, "ridge", "forgotten") == "constant"
    if fades and not constant and not ridge.is_number:
        raise retention.Refused(
            "a ridge that is forgotten with the pairs is where the state starts, H_0 = λI, so it "
            "is a number; with weights: {kind: geometric, ridge: constant} it may be learned",
            place="retention.global",
        )
    weight = problem.value("gamma") if problem.even_weight is not None else sp.Integer(1)
    stays = constant or not ridge.is_number
    if optimizer.method == "batch":
        return LeastSquares(ridge, optimizer.inner_steps, stays, weight, fades)
    solver = optimizer.solver
    weight = weight * problem.value("eta")
    return LeastSquares(ridge, 0, stays, weight, fades, solver.most, solver.tolerance)


def _curvature(problem: Problem, error: error_signal.ErrorSignal) -> Any:
    """Return c of a loss c/2 (ŷ − v)², as l2 with ridge λ/c and steps by ηc; else raise Refused."""
    c = error.slope
    affine = error.affine and sp.expand(error.offset + c * sym.v) == 0
    if not (affine and c.is_number and c.is_positive):
        raise retention.Refused(
            f"the method '{problem.spec.optimizer.method}' sees the past through Σ k kᵀ and "
            "Σ v kᵀ, which is enough for a loss c (ŷ − v)² with a number c > 0 only (bias: l2 is "
            "e**2/2; weigh pairs by weights); here e = {}",
            error.signal,
        )
    return c


def _splits(problem: Problem, error: error_signal.ErrorSignal) -> bool:
    """Return whether prediction and value are written apart: −η slope·ŷ rᵀ − η offset·sᵀ."""
    keys = problem.keys
    on_write = getattr(problem.spec.optimizer.momentum, "on", "gradient") == "write"
    apart = keys["erase"] != keys["write"] or on_write
    if apart and not error.affine:
        raise retention.Refused(
            "erase and write keys (and momentum on the write) need an error that splits into "
            "prediction and value; e = {} does not",
            error.signal,
        )
    return apart and not error.constant


def window_of(spec: Spec) -> int:
    """Return the window c as a number; ``all`` is the exact solvers' and counts as one here."""
    return spec.window if isinstance(spec.window, int) else 1


def _inner(spec: Spec) -> int:
    return 1 if spec.optimizer.method == "batch" else spec.optimizer.inner_steps


def _rows_share(problem: Problem, error: error_signal.ErrorSignal, anchor: int) -> bool:
    """Return whether every key of the window has an error of its own at every step."""
    return window_of(problem.spec) > 1 and not error.constant and anchor == 1


def _per(problem: Problem, rate: Any) -> str:
    table = {s.symbol: s.per for s in problem.scalars}
    ways = {table.get(s, "head") for s in rate.free_symbols}
    return next((way for way in ("value", "key") if way in ways), "head")


def _slopes(error: error_signal.ErrorSignal) -> tuple[Derived, ...]:
    """List ∂e/∂ŷ: slope·I, and for a loss of the norm a multiple of (ŷ − v)(ŷ − v)ᵀ beside it."""
    use = "for the class and the backward pass"
    if error.radial == 0:
        return (Derived("slope", error.slope, f"∂e/∂ŷ, {use}"),)
    return (
        Derived("slope", error.slope, f"∂e/∂ŷ across ŷ − v, times I, {use}"),
        Derived("rank-one term", error.radial, "∂e/∂ŷ beside it, times (ŷ − v)(ŷ − v)ᵀ"),
    )


def _trail(
    problem: Problem, loss_error: Any, step: Any, retained: Any, structure: Any,
    method: Fit | LeastSquares | Applied,
) -> tuple[Derived, ...]:  # fmt: skip
    found = [
        Derived("loss", sp.Eq(sp.Symbol("ell"), problem.loss), "as stated"),
        Derived("error signal", sp.Eq(sym.e, loss_error.signal), "e = ∂ℓ/∂ŷ"),
    ]
    if step.error.signal != loss_error.signal:
        found.append(Derived("step", sp.Eq(sym.e, step.error.signal), step.reason))
    found += _slopes(step.error)
    found += series.trail(problem)
    layers = network(problem.spec.memory)
    if len(layers.matrices) > 1:
        back = layers.backward
        ends = [Outer(name, *pair) for name, pair in sorted(back.outer.items())]
        found += [Derived("layer", node, "forward pass") for node in layers.nodes]
        found += [Derived("chain rule", step, "∂ℓ/∂W") for step in (*back.nodes, *ends)]
    if isinstance(method, Fit):
        found += pair_fits.trail(method)
    else:
        found += [Derived(title, equation, retained.reason) for title, equation in retained.steps]
    found.append(Derived("class", structure.kind, structure.reason))
    return tuple(found)
