"""Rules about the mathematics that a user writes."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.constants import Undefined, constant
from mnemic.dsl.expressions import Apply, Name, Node, Number
from mnemic.dsl.rules.coefficients import unusable
from mnemic.dsl.rules.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.dsl.texts import LOSS_SYMBOLS, Text, texts, unknown_symbol, walk
from mnemic.errors import Issue

_KINKED = frozenset({"abs", "sign", "max", "min", "relu", "heaviside", "round", "where"})


def readable(spec: Spec) -> Iterator[Issue]:
    """Refuse an expression that cannot be parsed with the symbols of its place."""
    for text in texts(spec):
        if isinstance(text.read, Issue):
            yield _with_own(text, text.read)


def _with_own(text: Text, issue: Issue) -> Issue:
    """Add to an issue how to declare the coefficient that an unknown symbol may be."""
    word = issue.read or ""
    known = issue.nearest is not None or not text.coefficients or unusable(word)
    if known or not unknown_symbol(issue):
        return issue
    own = f"a coefficient of your own stands under coefficients: {{{word}: token}}"
    written = set(re.findall(r"[^\W\d]\w*", text.text))
    if len(text.needs) == 1 and not text.needs & written:
        own = f"it is a function of {min(text.needs)}; {own}"
    return replace(issue, hint=f"{issue.hint}; {own}" if issue.hint else own)


def finite_constants(spec: Spec) -> Iterator[Issue]:
    """Refuse parts without symbols that are not finite numbers, except ``inf`` as a bound."""
    coefficients = {where for where, value in walk(spec) if isinstance(value, Coefficient)}
    for text in texts(spec):
        if isinstance(text.read, Issue):
            continue
        try:
            value = constant(text.read.tree)
        except Undefined as part:
            inside = "" if part.part == str(text.read) else f" in {text.text}"
            yield Issue(f"{part.reason}{inside}", text.where, part.part, _FINITE)
            continue
        if value is not None and math.isinf(value) and text.where not in coefficients:
            yield Issue("is not a finite number", text.where, text.text, _FINITE)


_FINITE = ("expressions whose constants are finite real numbers",)


def says_something(spec: Spec) -> Iterator[Issue]:
    """Refuse an expression that does not name the symbol that it is a function of."""
    for text in texts(spec):
        if isinstance(text.read, Issue) or not text.needs or text.needs & text.names:
            continue
        symbols = " or ".join(sorted(text.needs))
        yield Issue(f"does not depend on {symbols}, so it is a constant", text.where, text.text)


def norm_in_conditions_only(spec: Spec) -> Iterator[Issue]:
    """Refuse a loss that mixes the norm with coordinates, except in conditions."""
    loss = _loss(spec)
    if isinstance(loss.read, Issue) or "n" not in _outside_conditions(loss.read.tree):
        return
    if others := sorted(loss.names & LOSS_SYMBOLS - {"n"}):
        yield Issue(
            f"n, the norm of all coordinates, is combined with {', '.join(others)}, of a single"
            " coordinate, which is allowed in conditions only",
            loss.where,
            loss.text,
            hint="write a radial loss in n alone, or a sum over coordinates in e, y and v",
        )


def smooth_where_kinked(spec: Spec) -> Iterator[Issue]:
    """Refuse ``smooth``, which replaces kinks, for a loss that has none."""
    loss = _loss(spec)
    if getattr(spec.bias, "smooth", None) is None or isinstance(loss.read, Issue):
        return
    if not _KINKED & _functions(loss.read.tree):
        yield Issue("the loss has no kink to smooth", "bias.smooth", hint="leave smooth out")


def _loss(spec: Spec) -> Text:
    return next(texts(spec))


def _outside_conditions(tree: Node) -> frozenset[str]:
    """Return the names in a tree, but for those that only conditions use."""
    match tree:
        case Name(word):
            return frozenset({word})
        case Apply("where", (_, *branches)):
            return frozenset().union(*map(_outside_conditions, branches))
        case Apply(_, arguments):
            return frozenset().union(*map(_outside_conditions, arguments))
    return frozenset()


def _functions(tree: Node) -> frozenset[str]:
    if isinstance(tree, Number | Name):
        return frozenset()
    return frozenset({tree.function}).union(*map(_functions, tree.arguments))


RULES: tuple[Rule, ...] = (
    readable,
    finite_constants,
    says_something,
    norm_in_conditions_only,
    smooth_where_kinked,
)
