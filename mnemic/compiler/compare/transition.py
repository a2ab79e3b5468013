"""One token of the normal form with every entry written out: A, S and their links."""

from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare import opaque_functions
from mnemic.compiler.compare.gradient_step import Key, Matrix, Writer, gradient
from mnemic.compiler.error_signal import ErrorSignal, with_slope

MOST_ROWS = 4
"""Keys of a window or micro-steps of a token that are written out; the rest look the same."""


class Recurrence:
    """One token: the state before it, and what it becomes."""

    def __init__(self, writer: Writer, name: str = "W", momentum: str = "S") -> None:
        self.writer, self.rule, self.at = writer, writer.rule, writer.at
        resolved = self.at.resolved
        self.error = _error(resolved(self.rule.error.signal), resolved(self.rule.error.radial))
        self.before = writer.symbols(name)
        self.momentum = None if self.rule.momentum is None else writer.symbols(momentum)
        self.after: Matrix = self._run()

    @property
    def anchored(self) -> bool:
        """Whether gradients see the memory of the last chunk end."""
        return self.rule.anchor > 1

    def _run(self) -> Matrix:
        if self.rule.window > 1:
            return self._windowed()
        own = self.rule.problem.spec.optimizer.micro_steps > 1
        seen, base = self._seen(), self._retained_state()
        for index in range(min(self.rule.rows, MOST_ROWS)):
            mark = _mark(index) if own else ""
            base = base if index == 0 else self._scaled(self.rule.retained.decay, base)
            key = Key(mark, mark, self.reference(seen, _mark(index)), str(index))
            base = self._written(base, gradient(self.writer, self.error, key), mark)
            seen = base
        return self._back(base)

    def _windowed(self) -> Matrix:
        seen = self.reference(self._seen(), "")
        steps = [
            gradient(self.writer, self.error, Key(_mark(lag), "", seen, ""))
            for lag in range(min(self.rule.window, MOST_ROWS))
        ]
        taken, given = (_sum(self.writer, [s[part] for s in steps]) for part in (0, 1))
        return self._back(self._written(self._retained_state(), (taken, given), ""))

    def _seen(self) -> Matrix:
        before = self.rule.problem.spec.retention.order == "before"
        return self._scaled(self.rule.seen * (self.rule.row_decay if before else 1), self.before)

    def _scaled(self, factor: Any, state: Matrix) -> Matrix:
        writer = self.writer
        return writer.each(lambda i, j: writer.by_entry(factor, i, j) * state[i][j])

    def _retained_state(self) -> Matrix:
        state = self.before
        mode = self.rule.retained.mode
        if mode == "multiplicative":
            return self.writer.each(lambda i, j: sp.Integer(0))
        if mode == "prox":
            mirror = self.at.resolved(self.rule.retained.mirror)
            state = self._mirrored(mirror)
        return self._scaled(self.rule.decay * self.rule.row_decay, state)

    def _mirrored(self, mirror: Any) -> Matrix:
        if mirror.is_polynomial(sym.w):
            return self.writer.each(lambda i, j: mirror.subs(sym.w, self.before[i][j]))
        body = opaque_functions.one_spelling(mirror).subs(sym.w, opaque_functions.OWN)
        return self.writer.each(
            lambda i, j: self.writer.whole("mirror", body, [self.before[i][j]], f"_{i}_{j}")
        )

    def reference(self, state: Matrix, label: str) -> Matrix:
        """Return W_ref: the link of what the gradient sees, or the anchor."""
        if self.anchored:
            return self.writer.symbols("R")
        return self.linked(state, f"_ref{label}") if self.rule.retained.mode == "dual" else state

    def linked(self, state: Matrix, label: str) -> Matrix:
        """Return link(A), entry by entry; a function that is no polynomial is one symbol."""
        link = self.rule.retained.link
        if link.identity:
            return state
        body = opaque_functions.link_function(link, self.at)
        if body.is_polynomial(opaque_functions.OWN) and not body.has(*opaque_functions.GROUP):
            return self.writer.each(lambda i, j: body.subs(opaque_functions.OWN, state[i][j]))
        return self._link_whole(body, state, label, link.over)

    def _link_whole(self, body: Any, state: Matrix, label: str, over: str) -> Matrix:
        def entry(i: int, j: int) -> Any:
            group = _group(state, i, j, over) if body.has(*opaque_functions.GROUP) else []
            arguments = [state[i][j], *group]
            return self.writer.whole("link", body, arguments, f"{label}_{i}_{j}")

        return self.writer.each(entry)

    def _back(self, state: Matrix) -> Matrix:
        """Return what is carried: A, or W where the retention acts on it again and again."""
        link, mode = self.rule.retained.link, self.rule.retained.mode
        if mode == "dual":
            return state
        if mode == "prox":
            return self.linked(state, "_after")
        body = opaque_functions.link_function(link, self.at)
        ratios = self._link_whole(body, state, "_after", link.over)
        kept = self._scaled(self.rule.decay * self.rule.row_decay, self.before)
        return self.writer.each(lambda i, j: kept[i][j] * ratios[i][j])

    def _written(self, base: Matrix, step: tuple[Matrix, Matrix], mark: str) -> Matrix:
        """Return A after one gradient, keeping the new S in ``momentum``."""
        (taken, given), writer, rule = step, self.writer, self.rule
        gain = self._scaled(rule.gain, writer.each(lambda i, j: sp.Integer(1)))
        if self.momentum is None:
            return writer.each(lambda i, j: base[i][j] + gain[i][j] * (taken[i][j] + given[i][j]))
        old, on_write = self._scaled(rule.momentum, self.momentum), rule.momentum_on == "write"
        inside = given if on_write else _sum(writer, [taken, given])
        beside = taken if on_write else writer.each(lambda i, j: sp.Integer(0))
        fresh = self.momentum = _sum(writer, [old, inside])
        return writer.each(lambda i, j: base[i][j] + gain[i][j] * (fresh[i][j] + beside[i][j]))


@cache
def _error(signal: Any, radial: Any) -> ErrorSignal:
    """Return the error signal at special values, which may have made it simpler."""
    signal = sp.piecewise_fold(signal) if signal.has(sp.Piecewise) else signal
    signal = opaque_functions.hiding_kinks(sp.simplify, signal)
    return with_slope(signal, radial)


def _sum(writer: Writer, parts: list[Matrix]) -> Matrix:
    return writer.each(lambda i, j: sum((p[i][j] for p in parts), sp.Integer(0)))


def _mark(index: int) -> str:
    return "" if index == 0 else f"__{index}"


def _group(state: Matrix, row: int, column: int, over: str) -> list[Any]:
    """Return the entries that a link couples with one: all, or those of its row or column."""
    rows = [row] if over == "rows" else range(len(state))
    columns = [column] if over == "columns" else range(len(state[0]))
    found = [state[i][j] for i in rows for j in columns][:4]
    return found + [sp.Integer(0)] * (4 - len(found))
