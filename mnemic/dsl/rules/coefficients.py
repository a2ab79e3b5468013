"""Rules about coefficients: their names, their values, what they depend on, their shape."""

import math
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from keyword import iskeyword
from typing import Final

from mnemic.dsl.coefficients import WORDS, Coefficient
from mnemic.dsl.constants import Undefined, constant
from mnemic.dsl.expressions import INSTEAD, ExpressionError, parse
from mnemic.dsl.functions import CONSTANTS, FUNCTIONS
from mnemic.dsl.memory import Diagonal
from mnemic.dsl.ranges import range_at
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import LOSS_SYMBOLS, PAIR_SYMBOLS, TIME_SYMBOLS, texts, walk
from mnemic.errors import Issue

RESERVED: Final = frozenset(
    {
        *LOSS_SYMBOLS, *TIME_SYMBOLS, *PAIR_SYMBOLS, *FUNCTIONS, *CONSTANTS,
        "kq", "kk", "qq", "d_k",
        *"qkWASPGBDT", "predict", "erase", "write", "value", "carry", "out", "state", "params",
        "mask", "form", "initial_state", "output_final_state", "cu_seqlens", "chunk_size", "sizes",
        "states_at", "state_dtype", "rule", "self",
    }
)  # fmt: skip
"""Names with a meaning of their own: symbols, functions, arguments of the operator."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def identifiers(spec: Spec) -> Iterator[Issue]:
    """Refuse a coefficient's name that is not an ASCII identifier or has another meaning."""
    for name in spec.coefficients:
        reason = unusable(name)
        if reason:
            where, near = f"coefficients.{name}", INSTEAD.get(name)
            yield Issue(f"a coefficient's name {reason}", where, name, nearest=near)


def one_name_each(spec: Spec) -> Iterator[Issue]:
    """Refuse two coefficients of one name."""
    first: dict[str, str] = {}
    for name, where, _ in spec.placed_coefficients():
        if name in first:
            yield Issue(
                f"two coefficients are called {name}: this one and {first[name]}",
                where,
                hint=_ANOTHER,
            )
        first.setdefault(name, where)


def no_part_of_the_rule(spec: Spec) -> Iterator[Issue]:
    """Refuse a coefficient named like a part of the rule that is left out: it would be taken for
    that part."""
    absent = spec.absent_coefficients()
    for name in spec.coefficients:
        part = "scale" if _SCALE.fullmatch(name) else name
        if part in absent:
            reason = f"{name} is what a rule calls its {absent[part]}, which this spec leaves out"
            yield Issue(reason, f"coefficients.{name}", hint=_ANOTHER)


_SCALE: Final = re.compile(r"scale\d+")
"""The scale of one matrix of several."""

_ANOTHER: Final = "give a coefficient of your own another name"


def named_somewhere(spec: Spec) -> Iterator[Issue]:
    """Refuse a coefficient of the user's own that no expression names.

    One whose name is refused is passed over: nothing could name it.
    """
    every = list(texts(spec))
    if any(isinstance(text.read, Issue) for text in every):
        return
    used = frozenset().union(*(text.names - text.needs for text in every if text.coefficients))
    parts = {name for name, place in spec.all_coefficients() if place != f"coefficients.{name}"}
    for name in spec.coefficients:
        if name not in used | parts and unusable(name) is None:
            hint = f"by itself, {name} is a word: {_meaning(name)}" if name in WORDS else None
            yield Issue("no expression names this coefficient", f"coefficients.{name}", hint=hint)


def _meaning(word: str) -> str:
    """Write what a short word stands for, as a spec would have it."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in WORDS[word].items()) + "}"


def no_cycles(spec: Spec) -> Iterator[Issue]:
    """Refuse coefficients that are computed from each other in a circle."""
    named = spec.named_coefficients()
    places = {where: name for name, where, _ in spec.placed_coefficients()}
    needs = {
        places[t.where]: sorted(t.names & named.keys()) for t in texts(spec) if t.where in places
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        chain = " -> ".join(reversed(error.args[1]))
        where = next(w for w, name in places.items() if name == error.args[1][-1])
        yield Issue(f"coefficients depend on each other in a circle: {chain}", where)


def finite(spec: Spec) -> Iterator[Issue]:
    """Refuse infinite numbers and NaN, but for the rate that makes an implicit step exact."""
    for where, value in walk(spec):
        number = known(value) if isinstance(value, Coefficient) else value
        if not isinstance(number, float) or math.isfinite(number):
            continue
        place = where.removesuffix(".value")
        if number == math.inf and place == "optimizer.rate" and spec.optimizer.method == "implicit":
            continue
        if isinstance(value, float) or value.value is None:
            yield Issue("must be finite", place, str(number))


def known(coefficient: Coefficient) -> float | None:
    """Return the number that a coefficient's value or expression without symbols is, or None."""
    if coefficient.expr is None:
        return coefficient.value
    try:
        return constant(parse(coefficient.expr, ()).tree)
    except (ExpressionError, Undefined):  # it names symbols, or is told as an expression
        return None


def in_range(spec: Spec) -> Iterator[Issue]:
    """Refuse fixed values and starts of training outside the range of their coefficient."""
    for where, value in walk(spec):
        if not isinstance(value, Coefficient):
            continue
        for part, number in (("", known(value)), *((".init", x) for x in value.starts)):
            allowed = range_at(spec, where)
            if number is not None and math.isfinite(number) and number not in allowed:
                yield Issue(f"must be {allowed}", where + part, f"{number:g}")


def shapes(spec: Spec) -> Iterator[Issue]:
    """Refuse a coefficient with one value per channel where the rule has no such channel."""
    diagonal = isinstance(spec.memory, Diagonal)
    for where, value in walk(spec):
        if not isinstance(value, Coefficient) or value.per == "head":
            continue
        allowed = PER.get(where, () if not where.startswith("coefficients.") else _ANY)
        if where == "retention.global.l2" and spec.optimizer.method in ("exact", "batch"):
            allowed = ("key",)
        if value.per not in (allowed if not diagonal else _ANY):
            reason = f"cannot have one value per {value.per} here"
            yield Issue(reason, where, value.per, ("head", *allowed), hint=_SHAPE_HINT)


def shapes_of_expressions(spec: Spec) -> Iterator[Issue]:
    """Refuse an expression of a per-channel coefficient where it cannot vary by channel."""
    named = spec.named_coefficients()
    if isinstance(spec.memory, Diagonal):
        return
    for where, value in walk(spec):
        if not isinstance(value, Coefficient) or where.startswith("coefficients."):
            continue
        allowed = PER.get(where, ())
        if where == "retention.global.l2" and spec.optimizer.method in ("exact", "batch"):
            allowed = ("key",)
        for name in sorted(_behind(value, named)):
            way = named[name].per
            if way != "head" and way not in allowed:
                reason = f"depends on '{name}', which has one value per {way}, "
                reason += f"and this entry cannot vary by {way}"
                yield Issue(reason, where, value.expr, hint=_SHAPE_HINT)


def shapes_of_losses(spec: Spec) -> Iterator[Issue]:
    """Refuse per-channel coefficients in a loss, except per value channel in a sum over these."""
    if isinstance(spec.memory, Diagonal):
        return
    named = spec.named_coefficients()
    loss = next(iter(texts(spec)))
    radial = "n" in loss.names and not loss.names & {"e", "y", "v"}
    allowed = ("head",) if radial else ("head", "value")
    used = loss.names & named.keys()
    for name in sorted(used.union(*(_behind(named[one], named) for one in used))):
        if named[name].per not in allowed:
            of = "of the norm of all value channels" if radial else "a sum over value channels"
            reason = f"the loss is {of}, and {name} has one value per {named[name].per}"
            where = loss.where if name not in spec.coefficients else f"coefficients.{name}.per"
            yield Issue(reason, where, named[name].per, allowed)


def _behind(coefficient: Coefficient, named: Mapping[str, Coefficient]) -> set[str]:
    """Return the declared coefficients on which an expression depends, directly or indirectly."""
    found: set[str] = set()
    waiting = [coefficient]
    while waiting:
        text = waiting.pop().expr
        try:
            names = set() if text is None else parse(text, (*named, "h", "H", "t")).names
        except ExpressionError:  # told as an expression
            continue
        new = names & named.keys() - found
        found |= new
        waiting += [named[name] for name in new]
    return found


_ANY: Final = ("key", "value", "outer")
PER: Final[Mapping[str, tuple[str, ...]]] = {
    "retention.decay": _ANY,
    "retention.row_decay": ("value",),
    "retention.phase": ("key",),
    "readout.bonus": ("key",),
    "bias.delta": ("value",),
    "optimizer.momentum": ("key", "value"),
}
_SHAPE_HINT: Final = "scale a key or the value by a coefficient of your own in keys instead"


def unusable(name: str) -> str | None:
    """Return why a name cannot be a coefficient's; None where it can."""
    if not _IDENTIFIER.fullmatch(name):
        return "must be an ASCII identifier of at most 64 characters, the first a letter"
    if iskeyword(name):
        return "must not be a keyword of Python"
    if name in RESERVED:
        return "must not be a symbol, a function or an argument of the operator"
    if name.startswith("log_"):
        return "must not start with log_, which marks coefficients that travel as logarithms"
    return None


RULES: tuple[Rule, ...] = (
    identifiers,
    one_name_each,
    no_part_of_the_rule,
    named_somewhere,
    no_cycles,
    finite,
    in_range,
    shapes,
    shapes_of_expressions,
    shapes_of_losses,
)
