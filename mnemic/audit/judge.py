"""Judge a printed line: by numbers, by algebra, under changes of coefficients.

A line is computed with several draws of short decimals, and so is the solution of the problem that
the paper states. Both must depend on every number that they read, in some draw, and both branches
of every condition must occur: a comparison of two zeros says nothing.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from mnemic.audit import algebra, changes
from mnemic.audit.draws import SQUARE, WIDE, Sizes, coefficients, draw, shape_of
from mnemic.audit.entry import Equation, Paper
from mnemic.audit.lines import conditions, lines, reads, shortfall, values, variables
from mnemic.audit.terms import differing_term
from mnemic.audit.verdict import Verdict, Witness

DRAWS, MOST, STEPS = 6, 40, 5
"""Draws of the data; the most that are tried until all branches are met; draws of coefficients."""

CLOSE: Final = 1e-9
CLOSE_TO_LEAST: Final = 1e-5
"""How close both sides must be; where a minimiser is found in numbers, not in closed form."""


class Vacuous(Exception):
    """A comparison that says nothing."""


def judge(paper: Paper, line: Equation) -> Verdict:
    """Return the verdict on one printed line."""
    if line.no_rule is not None:
        return Verdict(paper, line, "no rule", reason=line.no_rule)
    if line.unjudged is not None:
        return Verdict(paper, line, "not judged", reason=line.unjudged)
    assert line.rule is not None
    try:
        found = _Comparison(line, line.rule)
        return _judged(paper, line, found)
    except (Vacuous, KeyError, ValueError, RuntimeError, TypeError) as error:
        why = f"reads {error}, which nothing gives" if isinstance(error, KeyError) else str(error)
        return Verdict(paper, line, "not judged", reason=why, fails=(why,))


def _judged(paper: Paper, line: Equation, found: "_Comparison") -> Verdict:
    if found.same:
        shown = algebra.proved(line, found.rule, found.names)
        excess = ("a line that agrees needs no correction",) if line.corrected else ()
        return Verdict(paper, line, "agrees", algebra=shown, fails=excess)
    change = found.change()
    if change is not None:
        excess = ("a line that agrees needs no correction",) if line.corrected else ()
        return Verdict(paper, line, "agrees under", change=str(change), fails=excess)
    corrected, fails = _correction(line)
    return Verdict(
        paper, line, "differs", term=differing_term(line, found.draws, found.solutions),
        corrected=corrected, witness=found.witness(), fails=fails,
    )  # fmt: skip


def _correction(line: Equation) -> tuple[str | None, tuple[str, ...]]:
    """Return how the corrected line agrees, and what is wrong with it."""
    if line.corrected is None:
        return None, ("the line differs and the entry gives no corrected line",)
    found = _Comparison(line, line.corrected)
    if found.same:
        shown = algebra.proved(line, line.corrected, found.names)
        return "by algebra and numbers" if shown else "by numbers", ()
    change = found.change()
    if change is not None:
        return f"under {change}", ()
    return None, ("the corrected line does not agree either",)


class _Comparison:
    """A text beside the solution of its line's problem, at several draws."""

    def __init__(self, line: Equation, rule: str) -> None:
        assert line.problem is not None
        self.line, self.rule, self.problem = line, rule, line.problem
        self.names = reads(rule) | reads(line.problem)
        self.compared = tuple(
            name for name in dict(lines(rule)) if name in dict(lines(line.problem))
        )
        if not self.compared:
            raise ValueError("the line and its problem assign no name in common")
        least = "argmin" in line.problem or "argmin" in rule
        self.close = CLOSE_TO_LEAST if least else CLOSE
        self.sizes = self._fitting()
        self.draws = self._met()
        self.solutions = [self._side(self.problem, d) for d in self.draws]
        self.lines = [self._side(rule, d) for d in self.draws]
        self._hangs_on_all()

    @property
    def same(self) -> bool:
        """Whether both sides are equal at every draw."""
        return all(
            _error(a[n], b[n]) < self.close
            for a, b in zip(self.lines, self.solutions, strict=True) for n in self.compared
        )  # fmt: skip

    def _draw(self, seed: int) -> dict[str, Any]:
        return draw(self.names, self.line, self.sizes, seed)

    def _fitting(self) -> Sizes:
        """Return sizes at which both sides have values: keys and values of two sizes, if so."""
        for sizes in (WIDE, SQUARE):
            try:
                given = draw(self.names, self.line, sizes, 0)
                shapes = [self._side(text, given) for text in (self.rule, self.problem)]
            except RuntimeError:
                if sizes is SQUARE:
                    raise
                continue
            if all(shapes[0][n].shape == shapes[1][n].shape for n in self.compared):
                return sizes
        raise ValueError("the line and its problem have values of different shapes")

    def _side(self, text: str, given: Mapping[str, Any]) -> dict[str, Any]:
        found = values(text, given)
        return {name: found[name] for name in self.compared}

    def _met(self) -> list[dict[str, Any]]:
        """Return draws that meet both branches of every condition, each side finite."""
        met: list[dict[str, Any]] = []
        seen: dict[int, set[bool]] = {}
        for seed in range(MOST):
            given = self._draw(seed)
            decided = self._decided(given)
            new = any(not branches <= seen.get(i, set()) for i, branches in decided.items())
            if new or len(met) < DRAWS:
                met.append(given)
                for i, branches in decided.items():
                    seen.setdefault(i, set()).update(branches)
            if len(met) >= DRAWS and all(len(branches) == 2 for branches in seen.values()):
                return met
        raise Vacuous("a condition has the same answer in every draw")

    def _decided(self, given: Mapping[str, Any]) -> dict[int, set[bool]]:
        from mnemic.compiler.published import evaluate

        tests = [(t, text) for text in (self.rule, self.problem) for t in conditions(text)]
        if not tests:
            return {}
        sides = {text: {**given, **values(text, given)} for text in (self.rule, self.problem)}
        for text in sides:  # a state that is assigned anew is still the old one in a condition
            sides[text] |= {n: given[n] for n in given}
        return {
            i: {bool(x) for x in evaluate(test, sides[text]).flatten()}
            for i, (test, text) in enumerate(tests)
        }

    def _hangs_on_all(self) -> None:
        """Raise Vacuous for a name in the line on which a side does not depend, in any draw.

        A name that only the problem reads may drop out: then this is what the line claims.
        """
        for text in (self.rule, self.problem):
            still = variables(text) | {*self.line.values}
            for name in sorted((reads(text) & reads(self.rule)) - still):
                if not any(self._moves(text, name, seed) for seed in range(len(self.draws))):
                    raise Vacuous(f"{name} makes no difference in any draw")
        if not any(bool(x[n].abs().max() > 1e-6) for x in self.lines for n in self.compared):
            raise Vacuous("the line is zero in every draw")

    def _moves(self, text: str, name: str, index: int) -> bool:
        """Return whether another draw's value of a name changes what a text gives."""
        given = self.draws[index]
        before = (self.lines if text == self.rule else self.solutions)[index]
        other = next((d[name] for d in self.draws if not _equal(d[name], given[name])), None)
        if other is None:
            return False
        after = self._side(text, {**given, name: other})
        return any(_error(before[n], after[n]) > 1e-6 for n in self.compared)

    def change(self) -> changes.Change | None:
        """Return a change of the problem's coefficients under which both sides are one."""
        movable = coefficients(reads(self.problem), self.line)
        free = coefficients(self.names, self.line)
        states = self._states()
        weights = tuple(n for n in sorted(reads(self.problem)) if self._weighs(n))
        scales = (*states, *weights)
        drawn: list[dict[str, float]] = []
        misses = []
        for seed in range(STEPS):
            own = draw(free, self.line, self.sizes, 100 + seed)
            drawn.append({**{n: float(own[n]) for n in free}, **dict.fromkeys(scales, 1.0)})
            misses.append(self._miss({n: own[n] for n in free}, scales))
        names = (*movable, *scales)
        found = changes.find(names, drawn, misses, frozenset(states), frozenset(weights))
        return found if found is not None and self._confirmed(found, scales) else None

    def _weighs(self, name: str) -> bool:
        """Return whether a name is a weight of the pairs, which all may be scaled at once."""
        return name.endswith("_i") and shape_of(name, self.line) == "scalar"

    def _states(self) -> tuple[str, ...]:
        """Return states beside the memory, which a line may keep at another scale or sign."""
        kept = [n for n in self.compared if n in self.names and shape_of(n, self.line) != "scalar"]
        return tuple(n for n in kept if n != "W" and "W" in self.compared)

    def _miss(self, own: Mapping[str, Any], scales: tuple[str, ...]) -> changes.Solution:
        """Return what is left between both sides, as a function of changed coefficients."""

        @cache
        def printed(seed: int) -> dict[str, Any]:
            return self._side(self.rule, {**self._draw(seed), **own})

        def miss(changed: Mapping[str, float], seed: int) -> np.ndarray:
            given = {**self._draw(seed), **own}
            given |= {n: changed[n] for n in changed if n not in scales}
            given |= {n: _times(changed[n], given[n]) for n in scales}
            at = {n: (changed[n] if n in scales else 1) * x for n, x in printed(seed).items()}
            left = [x.flatten().numpy() for x in shortfall(self.problem, at, given)]
            whole: np.ndarray = np.concatenate(left)
            return np.where(np.isfinite(whole), whole, 1e6)

        return miss

    def _confirmed(self, change: changes.Change, scales: tuple[str, ...]) -> bool:
        """Return whether both sides are one at every draw, once coefficients are changed."""
        for given, printed in zip(self.draws, self.lines, strict=True):
            old = {n: float(x) for n, x in given.items() if not isinstance(x, list) and x.ndim == 0}
            new = change.at(old)
            scaled = {n: _times(new[n], given[n]) for n in new if n in scales}
            plain = {n: x for n, x in new.items() if n not in scales}
            found = self._side(self.problem, {**given, **plain, **scaled})
            if any(_error(found[n] / (new[n] if n in scaled else 1.0), printed[n]) > self.close
                   for n in self.compared):  # fmt: skip
                return False
        return True

    def witness(self) -> Witness:
        """Return the numbers of the draw at which both sides are furthest apart."""
        apart = [
            (max(_error(a[n], b[n]) for n in self.compared), i)
            for i, (a, b) in enumerate(zip(self.lines, self.solutions, strict=True))
        ]
        worst = max(apart)[1]
        name = max(self.compared, key=lambda n: _error(self.lines[worst][n],
                                                       self.solutions[worst][n]))  # fmt: skip
        needed = self.names - variables(self.problem) - variables(self.rule)
        return Witness(
            {n: _plain(self.draws[worst][n]) for n in sorted(needed) if n in self.draws[worst]},
            name, _plain(self.lines[worst][name]), _plain(self.solutions[worst][name]),
        )  # fmt: skip


def _error(a: Any, b: Any) -> float:
    """Return the largest difference, in units of the larger size; infinite where one is none."""
    if a.shape != b.shape:
        return float("inf")
    gap = float((a - b).abs().max()) / (1.0 + float(b.abs().max()))
    return float("inf") if math.isnan(gap) else gap


def _times(scale: float, value: Any) -> Any:
    return [scale * x for x in value] if isinstance(value, list) else scale * value


def _equal(a: Any, b: Any) -> bool:
    both = zip(a, b, strict=True) if isinstance(a, list) else ((a, b),)
    return all(bool((x == y).all()) for x, y in both)


def _plain(value: Any) -> Any:
    """Return a value as numbers: a column as a list, a matrix as a list of rows."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    rounded = np.round(value.detach().numpy(), 10)
    if rounded.ndim == 2 and rounded.shape[1] == 1:
        rounded = rounded[:, 0]
    return rounded.tolist()
