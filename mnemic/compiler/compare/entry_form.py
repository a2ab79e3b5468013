"""A rule written out entry by entry: states, functions kept whole, output."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

HOLDERS = tuple(sp.Symbol(f"hold{i}", real=True) for i in range(9))
"""Place holders for the arguments of a function kept whole."""


NOUGHT = sp.Integer(0)
_SINE = sp.sin(sp.Wild("angle"))


@dataclass(frozen=True)
class State:
    """A carried quantity: its symbols, what they become, and what they start as."""

    name: str
    symbols: tuple[Any, ...]
    after: tuple[Any, ...]
    start: Any = NOUGHT


@dataclass(frozen=True)
class Whole:
    """A symbol that stands for a function of entries that is not a polynomial (a Huber error)."""

    symbol: Any
    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Form:
    """A rule for small concrete sizes.

    ``functions`` gives those of ``wholes`` as expressions in ``HOLDERS``, ``features`` φ(x) or κ;
    ``tags`` are facts that no equation here shows (the interval of an anchor, a seed). ``ranges``
    tells between which numbers coefficients lie, by name.
    """

    states: tuple[State, ...]
    output: tuple[Any, ...]
    wholes: tuple[Whole, ...] = ()
    functions: tuple[tuple[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    inputs: tuple[Any, ...] = ()
    parameters: frozenset[Any] = field(default=frozenset())
    features: tuple[tuple[str, Any], ...] = ()
    ranges: tuple[tuple[str, tuple[float, float]], ...] = field(default=(), compare=False)

    def entries(self) -> tuple[Any, ...]:
        """Return every expression but those of the functions, in a fixed order."""
        found = [a for whole in self.wholes for a in whole.arguments]
        found += [e for state in self.states for e in (*state.after, state.start)]
        return (*found, *self.output)

    @property
    def data(self) -> frozenset[Any]:
        """The symbols of states, inputs and functions' values; all others are coefficients."""
        carried = [s for state in self.states for s in state.symbols]
        return frozenset([*carried, *self.inputs, *(w.symbol for w in self.wholes), *HOLDERS])

    @property
    def coefficients(self) -> tuple[Any, ...]:
        """The coefficients that the form depends on, sorted by name."""
        every = [*self.entries(), *(expr for _, expr in self.functions)]
        free = frozenset[Any]().union(*(e.free_symbols for e in every))
        return tuple(sorted(free - self.data - self.parameters, key=str))

    @property
    def reach(self) -> dict[Any, tuple[float, float]]:
        """The range of each coefficient that has one."""
        told = dict(self.ranges)
        return {s: told[family(s)] for s in self.coefficients if family(s) in told}

    def skeleton(self) -> tuple[Any, ...]:
        """Return what two forms must share before their entries are compared at all."""
        shapes = tuple((s.name, len(s.symbols)) for s in self.states)
        wholes = tuple((str(w.symbol), w.function, len(w.arguments)) for w in self.wholes)
        names = tuple(n for n, _ in (*self.functions, *self.features))
        return shapes, len(self.output), wholes, names, self.tags

    def mapped(self, change: Callable[[Any], Any]) -> "Form":
        """Return the form with ``change`` applied to every expression."""
        return replace(
            self,
            states=tuple(
                State(s.name, s.symbols, tuple(map(change, s.after)), change(s.start))
                for s in self.states
            ),
            output=tuple(map(change, self.output)),
            wholes=tuple(
                Whole(w.symbol, w.function, tuple(map(change, w.arguments))) for w in self.wholes
            ),
            functions=tuple((n, change(e)) for n, e in self.functions),
        )

    def text(self) -> str:
        """Return the form as text, the same for equal forms."""
        features = (f"{name} = {expr}" for name, expr in self.features)
        lines = [f"# {tag}" for tag in sorted((*self.tags, *features))]
        lines += [f"{name} := {expr}" for name, expr in self.functions]
        for w in self.wholes:
            lines.append(f"{w.symbol} = {w.function}({', '.join(map(str, w.arguments))})")
        for state in self.states:
            lines.append(f"{state.name} starts at {state.start}")
            pairs = zip(state.symbols, state.after, strict=True)
            lines += [f"{symbol} <- {expr}" for symbol, expr in pairs]
        return "\n".join([*lines, *(f"out {expr}" for expr in self.output)])

    def __str__(self) -> str:
        return self.text()


def family(symbol: Any) -> str:
    """Return the name of the coefficient, or of the vector, whose entry a symbol is.

    >>> family("eta_0__1")
    'eta'
    """
    return re.sub(r"(_\d+)*(__\d+)?$", "", str(symbol))


def tidy_entry(expr: Any) -> Any:
    """Return an entry in canonical shape: expanded, or a ratio of expanded polynomials."""
    expr = sp.expand(expr)
    if expr.has(sp.sin):
        expr = sp.expand(expr.replace(_SINE**2, 1 - sp.cos(*_SINE.args) ** 2))
    if expr.has(sp.Piecewise, sp.Max, sp.Abs, sp.sign):
        return expr
    if any(p.exp.is_negative for p in expr.atoms(sp.Pow)):
        top, bottom = sp.fraction(sp.cancel(sp.together(expr)))
        return sp.expand(top) / sp.expand(bottom)
    return expr


def pruned(form: Form) -> Form:
    """Return a form without the states and functions that its output never sees."""
    needs: dict[Any, frozenset[Any]] = {}
    for whole in form.wholes:
        needs[whole.symbol] = _free(whole.arguments)
    for state in form.states:
        for symbol in state.symbols:
            needs[symbol] = _free(state.after) | frozenset(state.symbols)
    reached: set[Any] = set()
    front = set(_free(form.output))
    while front:
        symbol = front.pop()
        if symbol not in reached:
            reached.add(symbol)
            front |= needs.get(symbol, frozenset())
    wholes = tuple(w for w in form.wholes if w.symbol in reached)
    used = {w.function for w in wholes}
    return replace(
        form,
        states=tuple(s for s in form.states if reached & set(s.symbols)),
        wholes=wholes,
        functions=tuple((n, e) for n, e in form.functions if n in used),
    )


def _free(expressions: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset[Any]().union(*(e.free_symbols for e in expressions))
