"""Special values of a rule: a coefficient at 0, 1 or ∞, small steps, a window of one, and such."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import sympy as sp
from pydantic import ValidationError

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.compare.entry_form import Form, pruned, tidy_entry
from mnemic.compiler.compare.spec_numbers import edits_of, put_number, words_of
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain.letters import letter
from mnemic.compiler.rule import Layers, Rule
from mnemic.dsl.spec import Spec
from mnemic.errors import MnemicError


@dataclass(frozen=True)
class Special:
    """Values of coefficients (or of keys of their own) and changes of the spec, in words.

    ``scaled`` is a coefficient that goes to 0 while values are divided by it, if there is one.
    """

    words: tuple[str, ...]
    values: tuple[tuple[Any, Any], ...] = ()
    edits: tuple[str, ...] = ()
    scaled: Any = None

    def __add__(self, other: "Special") -> "Special":
        return Special(
            self.words + other.words, self.values + other.values, self.edits + other.edits,
            self.scaled or other.scaled,
        )  # fmt: skip

    @property
    def endless(self) -> bool:
        """Whether it lies at infinity, or where steps vanish, so that it is a limit."""
        far = any(value == sp.oo for _, value in self.values)
        return far or self.scaled is not None or "reach" in self.edits

    def form(self, rule: Rule) -> Form | None:
        """Return the rule's form at this value, or ``None`` if it has none there."""
        try:
            changed = derive_spec(edited(rule.problem.spec, self.edits)) if self.edits else rule
        except (MnemicError, ValidationError):
            return None
        if self.scaled is not None:
            rest = {s: x for s, x in self.values if s != self.scaled}
            return _of_small_steps(canonical(changed, rest), self.scaled)
        finite = {s: x for s, x in self.values if x != sp.oo}
        far = [s for s, x in self.values if x == sp.oo]
        form = canonical(changed, {**finite, **dict.fromkeys(far, sp.oo)})
        if _broken(form) and far:
            form = _at_infinity(canonical(changed, finite), far)
        return None if _broken(form) else form


def singles(rule: Rule) -> Iterator[Special]:
    """Return every single special value of a rule, structural ones first."""
    spec = rule.problem.spec
    for role in ("predict", "erase", "write", "carry"):
        entry = getattr(spec.keys, role)
        if entry is not None and entry.own:
            own, k = sp.Symbol(role, real=True), sp.Symbol("k", real=True)
            yield Special((f"{role} = k",), ((own, k),))
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
    if spec.optimizer.every > 1:
        yield Special(("every 1",), edits=("every",))
    if spec.optimizer.anchor.chunk > 1:
        yield Special(("chunk 1",), edits=("anchor",))
    if isinstance(spec.window, int) and spec.optimizer.method == "nonparametric":
        yield Special(("window = ∞",), edits=("reach",))
    yield from _of_coefficients(rule)


def of_numbers(rule: Rule) -> Iterator[Special]:
    """Return the rule with numbers of its spec at 0, 1 and 2, alone and with structure taken away.

    Memories of layers are left out: writing one out takes seconds.
    """
    if isinstance(rule, Layers):
        return
    structural = [special for special in singles(rule) if special.edits]
    for edits in edits_of(rule.problem.spec):
        plain = Special(words_of(edits), edits=edits)
        yield plain
        if len(edits) == 1:
            yield from (plain + special for special in structural)


def small_steps(rule: Rule) -> Iterator[Special]:
    """Return the rule as its rate goes to 0 while its values grow as 1/rate."""
    rates = sp.sympify(getattr(rule, "rate", 0)).free_symbols
    for scalar in rule.scalars:
        if scalar.symbol in rates and scalar.argument is not None and scalar.per == "head":
            name = letter(scalar.name)
            yield Special((f"{name} → 0", f"v′ = v/{name}"), ((scalar.symbol, sp.Integer(0)),),
                          scaled=scalar.symbol)  # fmt: skip


def _of_coefficients(rule: Rule) -> Iterator[Special]:
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
    """Two special values at once."""
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
        elif edit == "reach":
            spec = spec.model_copy(update={"window": reach or "all"})
        elif edit == "window":
            spec = spec.model_copy(update={"window": 1})
        elif edit == "norms":
            retention = spec.retention.model_copy(update={"normalize": "none"})
            spec = spec.model_copy(update={"retention": retention})
        else:
            optimizer = spec.optimizer.model_copy(update=_stepping(spec, edit))
            spec = spec.model_copy(update={"optimizer": optimizer})
    return spec


def _stepping(spec: Spec, edit: str) -> dict[str, Any]:
    """What an edit changes of the optimizer."""
    optimizer = spec.optimizer
    anchor = optimizer.anchor.model_copy(update={"chunk": 1})
    plain = "gd" if optimizer.momentum is None else "momentum"
    changes: dict[str, dict[str, Any]] = {
        "micro": {"micro_steps": 1}, "inner": {"inner_steps": 1}, "anchor": {"anchor": anchor},
        "every": {"every": 1}, "plain": {"method": plain},
    }  # fmt: skip
    return changes[edit]


def _broken(form: Form) -> bool:
    every = [*form.entries(), *(e for _, e in form.functions)]
    return any(e.has(sp.nan, sp.zoo, sp.oo) for e in every)


def _of_small_steps(form: Form, rate: Any) -> Form | None:
    """The limit of a form as ``rate`` → 0 with values divided by it; None where it has none."""
    if form.wholes or rate not in form.coefficients:
        return None
    larger = {v: v / rate for v in form.inputs if str(v).startswith("v_")}

    def limit(entry: Any) -> Any:
        return tidy_entry(sp.cancel(sp.together(entry.subs(larger))).subs(rate, 0))

    found = pruned(form.mapped(limit))
    return None if _broken(found) else found


def _at_infinity(form: Form, far: list[Any]) -> Form:
    """Limits entry by entry, of ratios of polynomials only."""

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
