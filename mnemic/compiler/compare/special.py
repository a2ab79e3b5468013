"""Special values of a rule: a coefficient at 0, 1 or ∞, small steps, a window of one, and such."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import sympy as sp
from pydantic import ValidationError

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.entry_form import Form, pruned, tidy_entry
from mnemic.compiler.compare.removals import alone, ungated
from mnemic.compiler.compare.spec_numbers import put_number
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.error_signal import ErrorSignal, with_slope
from mnemic.compiler.explain.letters import letter
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import KeyValuePairs, Layers, Linear, Rule
from mnemic.dsl.memory import Glu, Mlp
from mnemic.dsl.memory import Linear as Matrix
from mnemic.dsl.optimizer import Rate
from mnemic.dsl.spec import Spec
from mnemic.errors import MnemicError

ROLES = ("predict", "erase", "write", "carry")
"""Keys that a rule may have of its own."""


@dataclass(frozen=True)
class Special:
    """Values of coefficients (or of keys of their own) and changes of the spec, in words.

    ``scaled`` is a coefficient that goes to 0 while values are divided by it, if there is one.
    ``grown`` says that values grow in proportion to the coefficient that goes to infinity.
    ``shrunk`` is the power of the query's length by which values are divided while that length
    goes to 0, if it does. ``unit`` says that keys and queries have length 1. ``faint`` are
    coefficients that are multiplied by ε, while values are divided by ε, as ε goes to 0. ``first``
    says that two rules agree only to first order in their rates; with ``faint`` coefficients the
    rates are multiplied by ε² and what is learned is divided by ε.
    """

    words: tuple[str, ...]
    values: tuple[tuple[Any, Any], ...] = ()
    edits: tuple[str, ...] = ()
    scaled: Any = None
    grown: bool = False
    shrunk: int = 0
    unit: bool = False
    faint: tuple[Any, ...] = ()
    first: bool = False

    def __add__(self, other: "Special") -> "Special":
        return Special(
            self.words + other.words, self.values + other.values, self.edits + other.edits,
            self.scaled or other.scaled, self.grown or other.grown, self.shrunk or other.shrunk,
            self.unit or other.unit, self.faint + other.faint,
            self.first or other.first,
        )  # fmt: skip

    @property
    def coefficients(self) -> bool:
        """Whether the special values are those of coefficients alone."""
        plain = bool(self.values) and not self.edits and self.scaled is None
        return plain and not any(str(s) in ROLES for s, _ in self.values)

    @property
    def endless(self) -> bool:
        """Whether the special value is a limit: at infinity, or where steps vanish."""
        far = any(value == sp.oo for _, value in self.values)
        far |= any(edit == "reach" or edit.endswith("=oo") for edit in self.edits)
        return far or self.scaled is not None or self.shrunk > 0 or bool(self.faint)

    def form(self, rule: Rule) -> Form | None:
        """Return the rule's form at this value, or ``None`` if it has none there."""
        try:
            changed = derive_spec(edited(rule.problem.spec, self.edits)) if self.edits else rule
        except (MnemicError, ValidationError):
            return None
        if self.faint and self.first:
            return canonical(_near_start(changed))
        if self.faint:
            return canonical(replace(changed, error=_of_values(changed.error)))
        if self.scaled is not None:
            rest = {s: x for s, x in self.values if s != self.scaled}
            return _of_small_steps(canonical(changed, rest), self.scaled)
        finite = {s: x for s, x in self.values if x != sp.oo}
        far = [s for s, x in self.values if x == sp.oo]
        form = canonical(changed, {**finite, **dict.fromkeys(far, sp.oo)})
        if broken(form) and far:
            form = at_infinity(canonical(changed, finite), far)
        return None if broken(form) else form


def singles(rule: Rule) -> Iterator[Special]:
    """Return every single special value of a rule, structural ones first."""
    spec = rule.problem.spec
    yield from of_keys(rule)
    if isinstance(spec.window, int) and spec.window > 1:
        yield Special(("window 1",), edits=("window",))
    if spec.optimizer.micro_steps > 1:
        yield Special(("one step a token",), edits=("micro",))
    if spec.optimizer.inner_steps > 1:
        yield Special(("one step a token",), edits=("inner",))
    if rule.applied.kind != "identity":
        yield Special(("O = identity",), edits=("plain",))
    if rule.applied.normalize != "none":
        yield Special(("no norms",), edits=("norms",))
    if isinstance(spec.memory, Glu):
        yield Special(("no gate",), edits=("gate",))
    if spec.optimizer.every > 1:
        yield Special(("every 1",), edits=("every",))
    if spec.optimizer.anchor.chunk > 1:
        yield Special(("chunk 1",), edits=("anchor",))
    yield from (Special(("window = ∞",), edits=edits) for edits in unbounded(rule))
    yield from of_coefficients(rule)


def unbounded(rule: Rule) -> Iterator[tuple[str, ...]]:
    """Return the edit that lets a window of pairs reach all tokens, where there is one."""
    if isinstance(rule, KeyValuePairs) and isinstance(rule.problem.spec.window, int):
        yield ("reach",)


def of_keys(rule: Rule) -> Iterator[Special]:
    """Return each key of the rule's own put at k."""
    for role in ROLES:
        entry = getattr(rule.problem.spec.keys, role)
        if entry is not None and entry.own:
            own, k = sp.Symbol(role, real=True), sp.Symbol("k", real=True)
            yield Special((f"{role} = k",), ((own, k),))


def small_steps(rule: Rule) -> Iterator[Special]:
    """Return the rule as its rate goes to 0 while its values grow as 1/rate.

    A memory of layers keeps its step, but with the error −v, into which no prediction enters. A
    memory behind a smooth link W = g(A) with A = O(ε) learns W − g(0) = g′(0) A.
    """
    if isinstance(rule, Layers):
        rates = {s for s in rule.scalars if s.argument is not None and s.symbol in _rates(rule)}
        if rule.error.affine and not rule.error.constant and rates:
            names = sorted(letter(s.name) for s in rates)
            told = (*(f"{n}′ = ε·{n}" for n in names), "v′ = v/ε", "ε → 0")
            yield Special(told, faint=tuple(sorted((s.symbol for s in rates), key=str)))
        return
    rates = sp.sympify(getattr(rule, "rate", 0)).free_symbols
    if isinstance(rule, Linear) and _slope_at_start(rule) is not None and rule.error.affine:
        for scalar in (s for s in rule.scalars if s.symbol in rates and s.argument is not None):
            name = letter(scalar.name)
            told = (f"{name}′ = ε²·{name}", "v′ = v/ε", "ε → 0, to first order")
            yield Special(told, faint=(scalar.symbol,), first=True)
    for scalar in rule.scalars:
        if scalar.symbol in rates and scalar.argument is not None and scalar.per == "head":
            name = letter(scalar.name)
            yield Special((f"{name} → 0", f"v′ = v/{name}"), ((scalar.symbol, sp.Integer(0)),),
                          scaled=scalar.symbol)  # fmt: skip


def _rates(rule: Rule) -> set[Any]:
    """Return the coefficients that multiply a whole step."""
    found = sp.sympify(rule.rate).free_symbols
    return found or ({sym.coefficient("gamma")} if rule.gamma is not None else set())


def _slope_at_start(rule: Linear) -> Any | None:
    """Return g′(0) of a link W = g(A) entry by entry, if it is another function than A and smooth
    there with a slope that is neither 0 nor infinite."""
    kept = rule.retained
    if kept.mode != "dual" or kept.link.normaliser != "none" or kept.link.identity:
        return None
    if kept.link.expr is None or kept.link.expr.has(sp.Piecewise, sp.Abs, sp.sign):
        return None
    slope = sp.diff(kept.link.expr, sym.a).subs(sym.a, 0)
    slope = sp.simplify(slope.replace(sym.sigmoid, lambda z: 1 / (1 + sp.exp(-z))))
    return slope if slope.is_finite and slope.is_nonzero else None


def _near_start(rule: Rule) -> Rule:
    """Return the rule that short steps of large values learn: g′(0) A in place of g(A)."""
    assert isinstance(rule, Linear)
    slope, retained = _slope_at_start(rule), replace(rule.retained, link=Link())
    error = _of_values(rule.error)
    return replace(rule, retained=retained, rate=rule.rate * slope, error=error)


def _of_values(error: ErrorSignal) -> ErrorSignal:
    """Return the limit of ε e(ŷ, v/ε) as ε → 0 for an affine error: its terms in v alone."""
    return with_slope(error.offset)


def of_coefficients(rule: Rule) -> Iterator[Special]:
    """Return each coefficient that is an argument at 0, at 1 and at infinity."""
    for scalar in rule.scalars:
        if scalar.argument is None:
            continue
        name = letter(scalar.name)
        for value in (1, 0, sp.oo):
            if value != sp.oo or (scalar.symbol.is_positive and scalar.per == "head"):
                shown = "∞" if value == sp.oo else str(value)
                symbol = sym.coefficient(scalar.name)
                yield Special((f"{name} = {shown}",), ((symbol, sp.sympify(value)),))


def pairs(rule: Rule) -> Iterator[Special]:
    """Yield each combination of two special values of a rule that set different coefficients."""
    for one, other in combinations(list(singles(rule)), 2):
        if not {s for s, _ in one.values} & {s for s, _ in other.values}:
            yield one + other


def edited(spec: Spec, edits: tuple[str, ...], reach: int | None = None) -> Spec:
    """Return the spec after changes; ``reach`` is the window that reaches all of so many tokens.

    Raises:
        ValidationError: a number that the spec may not have.
    """
    for edit in edits:
        if "=" in edit:
            spec = put_number(spec, edit)
        elif edit == "first":
            spec = alone(spec)
        elif edit == "gate":
            spec = spec.model_copy(update={"memory": ungated(spec.memory)})
        elif edit in _STEPPING:
            optimizer = spec.optimizer.model_copy(update=_STEPPING[edit](spec))
            spec = spec.model_copy(update={"optimizer": optimizer})
        else:
            axis, changes = _PLAINER[edit]
            if edit == "reach":
                spec = spec.model_copy(update={"window": reach or "all"})
            elif axis == "":
                spec = spec.model_copy(update=changes)
            else:
                part = getattr(spec, axis).model_copy(update=changes)
                spec = spec.model_copy(update={axis: part})
    memory = spec.memory
    if edits and isinstance(memory, Mlp) and not memory.residual and not memory.norm:
        plain = memory.depth == 1
        return spec.model_copy(update={"memory": Matrix()}) if plain else spec
    return spec


_PLAINER: dict[str, tuple[str, dict[str, Any]]] = {
    "window": ("", {"window": 1}), "reach": ("", {}),
    "norms": ("retention", {"normalize": "none"}), "link": ("retention", {"link": None}),
    "norm": ("memory", {"norm": False}), "residual": ("memory", {"residual": False}),
    "depth": ("memory", {"depth": 1}), "slots": ("memory", {"slots": None}),
    "normalizer": ("readout", {"normalizer": "none"}), "read": ("readout", {"memory": "after"}),
}  # fmt: skip
"""The axis that an edit changes, and what it puts there."""

_STEPPING: dict[str, Callable[[Spec], dict[str, Any]]] = {
    "micro": lambda _: {"micro_steps": 1},
    "inner": lambda _: {"inner_steps": 1},
    "every": lambda _: {"every": 1},
    "anchor": lambda s: {"anchor": s.optimizer.anchor.model_copy(update={"chunk": 1})},
    "plain": lambda s: {"method": "gd" if s.optimizer.momentum is None else "momentum"},
    "rate": lambda _: {"rate": Rate(value=1.0)},
}
"""What an edit puts into the optimizer."""


def broken(form: Form) -> bool:
    """Return whether an entry or a function of a form is no finite number."""
    every = [*form.entries(), *(e for _, e in form.functions)]
    return any(e.has(sp.nan, sp.zoo, sp.oo) for e in every)


def _of_small_steps(form: Form, rate: Any) -> Form | None:
    """Return a form's limit as ``rate`` → 0 with values divided by it; None without one."""
    if form.wholes or rate not in form.coefficients:
        return None
    larger = {v: v / rate for v in form.inputs if str(v).startswith("v_")}

    def limit(entry: Any) -> Any:
        return tidy_entry(sp.cancel(sp.together(entry.subs(larger))).subs(rate, 0))

    found = pruned(form.mapped(limit))
    return None if broken(found) else found


def at_infinity(form: Form, far: list[Any]) -> Form:
    """Return the form's limit as each symbol of ``far`` grows; ratios of polynomials only."""

    def limit(expr: Any) -> Any:
        for symbol in far:
            if expr.has(symbol):
                top, bottom = (sp.Poly(p, symbol) for p in sp.fraction(sp.together(expr)))
                gap = top.degree() - bottom.degree()
                ratio = top.LC() / bottom.LC()
                expr = sp.oo if gap > 0 else ratio if gap == 0 else sp.Integer(0)
        return tidy_entry(expr)

    try:
        return pruned(form.mapped(limit))
    except sp.PolynomialError:
        return form.mapped(lambda _: sp.nan)
