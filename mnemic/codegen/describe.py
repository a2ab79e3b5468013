"""Rule → Signature: the operator's arguments and states, described."""

import math
from typing import Any

from mnemic.codegen.chunk import takes_band
from mnemic.codegen.own_names import public
from mnemic.codegen.plan import Plan
from mnemic.codegen.repeated import spread
from mnemic.codegen.support.signature import Coefficient, Parameter, Signature, State
from mnemic.compiler.bounds import bounds
from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import KeyValuePairs, Layers, LeastSquares, Levels, Moments, Rule
from mnemic.dsl import features
from mnemic.dsl.methods import ELEMENTWISE
from mnemic.dsl.ranges import Range

MEANINGS = {
    "alpha": "decay of the state",
    "beta": "decay of the state's rows (value channels)",
    "eta": "rate of the step",
    "delta": "threshold of the loss, or weight of the implicit step",
    "theta": "momentum",
    "gamma": "weight in the regression",
    "lam": "strength of the global retention",
    "phase": "angle by which a complex decay turns, in radians",
    "bonus": "extra weight of the current token",
    "levels": "weight of each level of the Fenwick tree, the nearest tokens first",
    "scale": "what the entries sum to",
    "radius": "largest norm of the memory",
}

STATES = {
    "W": "the memory",
    "A": "the dual of the memory",
    "S": "momentum",
    "n": "the normaliser",
    "m": "running maximum of the weights' logarithms",
    "anchor": "the memory at the last chunk's end",
    "held": "the memory since its last update",
    "norms": "the norms to which the memory is scaled",
    "P": "inverse second moment of the keys",
    "H": "second moment of the keys",
    "U": "moment of values and keys",
    "keys": "the kept keys",
    "values": "the kept values",
    "log_kept": "log of what decays left of each kept pair's weight",
    "factor": "the Cholesky factor of the kept keys' kernel matrix",
    "solved": "the kept values, behind the factor's inverse",
}


KEPT = {
    "K": "the kept keys",
    "U": "the rows that the kept keys lead to",
    "S": "momentum of the rows",
    "anchor": "the rows at the last chunk's end",
    "shares": "how much of each kept row is left",
    "S_shares": "how much of each kept row the momentum holds",
    "anchor_shares": "how much of each kept row was left at the last chunk's end",
}
"""States of a memory behind a kernel."""


def signature(
    rule: Rule, plan: Plan, start: Plan | None = None, chunk: Plan | None = None
) -> Signature:  # fmt: skip
    """Describe the operator of a rule of which these plans are given: the recurrent form's, the
    start's, the chunk form's."""
    spec = rule.problem.spec
    window, span, inner, levels = rule.window, 0, spec.optimizer.inner_steps, 0
    match rule:
        case KeyValuePairs():
            window, span = 1, rule.window if rule.window > 1 else 0
        case Moments():
            inner = 1
        case Levels():
            levels = rule.levels
    vectors = ("k", "v") if rule.kernels is None else ("v",)  # behind a kernel K has every key
    window_tails = (*vectors, *_own_keys(rule)) if window > 1 else ()
    return Signature(
        name=rule.name,
        coefficients=_coefficients(rule),
        states=_states(rule, plan, window_tails),
        keys=_own_keys(rule),
        forms=rule.structure.forms,
        steps=spec.optimizer.micro_steps,
        inner=inner,
        once=spread(rule),
        window=window,
        span=span,
        token_weights=rule.gamma == "token" and rule.window > 1,
        banded=takes_band(rule),
        anchor=math.gcd(*plan.closed) if plan.closed else 1,
        diagonal=rule.diagonal,
        square=rule.network.adds_input,
        phase=rule.phase,
        levels=levels,
        chunk=_chunk(rule, chunk),
        most_chunk=most_chunk(rule),
        tolerance=rule.problem.spec.optimizer.solver.residual,
        params=_params(rule),
        widths=rule.network.widths,
        started=tuple(start.following) if start is not None else (),
        features=feature_size(rule),
    )


def _own_keys(rule: Rule) -> tuple[str, ...]:
    keys = rule.problem.spec.keys
    roles = (
        ("predict", keys.predict), ("erase", keys.erase), ("write", keys.write),
        ("carry", keys.carry),
    )  # fmt: skip
    return tuple(name for name, role in roles if role is not None and role.own)


def _coefficients(rule: Rule) -> tuple[Coefficient, ...]:
    ranges = bounds(rule.problem)
    return tuple(_coefficient(s, rule, ranges[s.name]) for s in rule.scalars if s.argument)


def _coefficient(scalar: Scalar, rule: Rule, allowed: Range) -> Coefficient:
    assert scalar.argument is not None
    axes = {"head": "", "key": "K", "value": "v", "outer": "K"}[scalar.per]
    if rule.diagonal and axes:
        axes = "k"
    if scalar.name == "gamma" and rule.gamma == "window" and rule.window > 1:
        axes = "c"
    if scalar.name == "phase" and axes:
        axes = "k"  # of keys, before their features
    axes = "l" if scalar.name == "levels" else axes
    allowed = logarithms(allowed) if scalar.logarithmic else allowed
    meanings = {**MEANINGS, **_by_method(rule)}
    family = scalar.name if scalar.name in meanings else scalar.name.rstrip("123456789")
    meaning = meanings.get(family, "a coefficient of the spec")
    of_features = [name for name, _, _ in rule.problem.spec.features.coefficients()]
    same = scalar.name in of_features
    if same:
        degree = of_features.index(scalar.name)
        meaning = f"weight of (x·y)^{degree} in the features' kernel, the same at every token"
    match rule:
        case Moments(solution=LeastSquares(steps=0)) if scalar.name == "eta":
            meaning = "weight of the pair in the regression"
        case KeyValuePairs() if scalar.name == "eta":
            meaning = "rate at which the kept keys move"
    meaning = f"log of the {meaning}" if scalar.logarithmic else meaning
    micro = scalar.name in ("eta", "delta") and rule.problem.spec.optimizer.micro_steps > 1
    name = public(scalar.argument)
    inside = "" if name == scalar.argument else scalar.argument
    ends = (allowed.open_low, allowed.open_high)
    return Coefficient(name, meaning, axes, allowed.low, allowed.high, micro, same, inside, *ends)


def logarithms(natural: Range) -> Range:
    """Return where the logarithm of a positive number lies.

    >>> str(logarithms(Range(0, 1, open_low=True)))
    'at most 0'
    """
    low = math.log(natural.low) if natural.low > 0 else -math.inf
    high = math.log(natural.high) if natural.high < math.inf else math.inf
    return Range(low, high, natural.open_low and natural.low > 0, natural.open_high)


def _states(rule: Rule, plan: Plan, tails: tuple[str, ...]) -> tuple[State, ...]:
    found = [_state(rule, n, "".join(plan.axes(n))) for n in plan.states()]
    if tails:
        names = [*tails, "live"] + (["gamma"] if rule.gamma == "token" else [])
        found += [State(f"{n}_tail", "window", f"the last c - 1 tokens' {n}") for n in names]
    if rule.phase:
        found.append(State("angle", "angle", "the cumulative angle"))
    if needs_position(rule, plan):
        found.append(State("position", "position", "tokens since the document's start"))
    return tuple(found)


def _state(rule: Rule, name: str, axes: str) -> State:
    """Describe a state of the forms; a deep memory's are named by role and matrix."""
    role = name.rstrip("0123456789")
    matrix = f"W{name.removeprefix(role)}"
    meanings = {**STATES, **_averages(rule)}
    if rule.kernels is not None:
        meanings |= KEPT
    if not _params(rule) or name == role:
        meaning, identity = meanings.get(name, name), _identity(rule, name)
        begun = _begun(rule, role)
        return State(name, axes, meaning, identity, begins=bool(begun), of=begun)
    if "n" in axes:
        side = rule.network.matrix(matrix).rows
        return State(name, axes, f"{KEPT[role]} ({matrix})", side="" if side == "v" else side)
    meaning = f"{meanings[role]} ({matrix})"
    return State(name, axes, meaning, begins=role in ("A", "W"), of=matrix)


def _by_method(rule: Rule) -> dict[str, str]:
    """Return what each coefficient of an optimizer that acts entry by entry does."""
    method = ELEMENTWISE.get(rule.problem.spec.optimizer.method)
    return {} if method is None else dict(method.coefficients)


def _averages(rule: Rule) -> dict[str, str]:
    """Return what the states of running averages hold, and what those of their weights do."""
    found = {a.state: a.meaning for a in rule.applied.averages}
    weights = {a.weight: f"the weight that the {a.meaning} has gathered"
               for a in rule.applied.averages}  # fmt: skip
    return found | weights


def _begun(rule: Rule, role: str) -> str:
    """Return the parameter at which the one memory of a rule without layers starts, or ""."""
    if isinstance(rule, Layers) or role not in ("A", "W") or not rule.parameters:
        return ""
    return rule.parameters[0].name


def _params(rule: Rule) -> tuple[Parameter, ...]:
    """Return the initial duals of the matrices that do not start at zero."""
    return tuple(Parameter(m.name, m.rows, m.columns) for m in rule.parameters)


def _identity(rule: Rule, state: str) -> float:
    """Return the multiple of the unit matrix that a state starts at: H at λ, unless λ stands beside
    it; of shares, what is left of a kept row that no state tells of."""
    if rule.kernels is not None:
        steps = rule.problem.spec.optimizer.inner_steps
        return float(steps) if state == "shares" else 0.0
    if not isinstance(rule, Moments) or rule.solution.constant or rule.solution.ridge == 0:
        return 0.0
    ridge = float(rule.solution.ridge)
    return {"P": 1 / ridge, "H": ridge}.get(state, 0.0)


def needs_position(rule: Rule, plan: Plan) -> bool:
    """Return whether anything depends on the number of the token."""
    counted = any("n" in plan.axes(name) for name in plan.states())
    return counted or isinstance(rule, Levels) or bool(plan.closed) or "t_index" in plan.graph


def _chunk(rule: Rule, plan: Plan | None) -> int:
    """Choose the rows of a chunk: all where pairs are fitted, more where every chunk reads all kept
    keys, few where there are many matrices (rows against rows for every channel, which no product
    of matrices does; windows of a linear memory, whose pairs are rows), fewest where channels are
    heads, whose states are as small as what a row is weighed by.
    """
    if isinstance(rule, KeyValuePairs):
        return 0
    if rule.kernels is not None and rule.window == 1:
        return 64
    if rule.diagonal:
        return 4
    if plan is not None and any(_of_channels(q.axes) for q in plan.ordered()):
        return 8
    if rule.window > 1 and not takes_band(rule):
        return 8
    layered = rule.window > 1 and isinstance(rule, Layers)
    return 16 if layered or most_chunk(rule) else 32


def _of_channels(axes: tuple[str, ...]) -> bool:
    """Return whether a quantity has an entry for each row, source and channel."""
    return {"t", "s", "k"} <= set(axes)


def most_chunk(rule: Rule) -> int:
    """Return the most rows that a chunk may have, 0 for any number.

    They are few where a chunk divides by what decays leave of the past, by which its differences
    lose digits; as few as a product of kernels has.
    """
    match rule:
        case Moments(solution=solution) if solution.inverted and solution.fades:
            return 16
    return 0


def feature_size(rule: Rule) -> str:
    """Return D in terms of d_k, in the shapes that the operator reads."""
    spec: Any = rule.problem.spec.features
    match spec:
        case features.Polynomial(degree=p, mode="power"):
            return f"power({p})"
        case features.Polynomial(degree=p) | features.Taylor(order=p):
            return f"monomials({p})"
        case features.Cosine():
            return "double"
        case features.Dpfp(nu=nu):
            return f"multiple({2 * nu})"
        case features.Random(features=m):
            return f"fixed({m})"
        case _:
            return "d"
