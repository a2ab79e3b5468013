"""A change of coefficients in words: α = 1, η′ = αη, v′ = v/α."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.compiler.compare.entry_form import family
from mnemic.compiler.compare.matching import STRETCH, Match
from mnemic.compiler.drawn_points import ends, sample, sample_far
from mnemic.compiler.explain.letters import letter
from mnemic.compiler.explain.printing import text
from mnemic.compiler.numbers import same_number, sampler

Ranges = Mapping[str, tuple[float, float]]
"""Between which numbers coefficients lie, by name."""
POINTS = 20
"""At how many values of coefficients a change is tried, of small ones and of large."""
CLOSE = 1e-9
"""How far out of its range a coefficient is by rounding."""

_ENTRY = re.compile(r"(?P<name>.+?)(?P<index>(_\d+)+)?(?P<mark>__\d+)?$")


@dataclass(frozen=True)
class Change:
    """A change in lines: ``special`` are fixed values, ``general`` the others that change.

    A prime marks the coefficients, and the value, of the rule that is changed.
    """

    special: tuple[str, ...]
    general: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything that changes."""
        return (*self.special, *self.general)


def change_of(found: Match) -> Change:
    """Describe the change; entries of one coefficient that change alike share one line."""
    special, general = [], []
    for name, symbol, value in _once(found):
        shown = _shown(value)
        if symbol == STRETCH:
            if value != 1:
                general.append(f"q′ = {_shown(value * sp.Symbol('q', real=True))}")
        elif not value.free_symbols:
            special.append(f"{name} = {shown}")
        elif shown == name and value != symbol:
            general.append(f"{name}′ = {shown} in every channel")
        elif value != symbol:
            general.append(f"{name}′ = {shown}")
    if found.scale != 1:
        general.append(f"v′ = {_times_value(found.scale)}")
    return Change(tuple(special), tuple(general))


def _once(found: Match) -> list[tuple[str, Any, Any]]:
    """List each changed coefficient of B once: its name as shown, its symbol, and its value."""
    groups: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for symbol, value in found.change:
        parts = _ENTRY.match(str(symbol))
        assert parts is not None
        groups.setdefault((parts["name"], parts["mark"] or ""), []).append((symbol, value))
    rows: list[tuple[str, Any, Any]] = []
    for (name, mark), entries in groups.items():
        plain = [general(symbol, value) for symbol, value in entries]
        if all(v == plain[0][1] or same_number(v, plain[0][1], 2) for _, v in plain):
            rows.append((_spelled(name, mark), *plain[0]))
        else:
            rows += [(text(symbol), symbol, value) for symbol, value in entries]
    return rows


def general(symbol: Any, value: Any) -> tuple[Any, Any]:
    """Drop the index of a coefficient's entry from the coefficient and from its value."""
    parts = _ENTRY.match(str(symbol))
    assert parts is not None
    index = parts["index"] or ""
    value = sp.sympify(value)
    table = {
        s: sp.Symbol(str(s).removesuffix(index), real=True)
        for s in value.free_symbols
        if index and str(s).endswith(index)
    }
    own = sp.Symbol(parts["name"], real=True) if index else symbol
    return own, value.subs(table)


def _spelled(name: str, mark: str) -> str:
    shown = letter(name)
    return shown if not mark else f"{shown} of key {int(mark[2:]) + 1}"


def _shown(value: Any) -> str:
    def spelled(mark: re.Match[str]) -> str:
        return f"{letter(mark[1])} of key {int(mark[2]) + 1}"

    return re.sub(r"([^\W_]+)__(\d+)", spelled, text(value)).replace("φ", "k")


def _times_value(scale: Any) -> str:
    return text(sp.simplify(scale) * sp.Symbol("v", real=True, finite=True)).replace("φ", "k")


def leaves(found: Match, mine: Ranges, theirs: Ranges) -> bool:
    """Return whether the change takes some coefficient of B out of its range, or has no value.

    The coefficients of A take values in ``mine``; those of B have the ranges ``theirs``, by name.
    """
    return any(_leaves(symbol, sp.sympify(value), mine, theirs) for symbol, value in found.change)


def _leaves(symbol: Any, value: Any, mine: Ranges, theirs: Ranges) -> bool:
    low, high = theirs.get(family(symbol), ends(symbol, {}))
    if math.isinf(low) and math.isinf(high):
        return False
    free = sorted(value.free_symbols, key=str)
    reach = {s: mine[family(s)] for s in free if family(s) in mine}
    at = sampler(value, free)
    seeds = range(POINTS if free else 1)
    for draw in (sample, sample_far):
        for number in (at(*draw(free, seed, reach)) for seed in seeds):
            if number is None or not low - CLOSE <= number <= high + CLOSE:
                return True
    return False
