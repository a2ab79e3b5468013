"""The symbols of a rule written out: entries of vectors, coefficients by channel, features."""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.rule import Rule

ROWS = 2
"""d_v of a canonical form (twice that of a diagonal memory under a phase)."""
COLUMNS = 2
"""D of a canonical form (twice that of another memory under a phase)."""
PARAMETERS = frozenset({HEAD, HEADS, TIME})
"""Symbols that are neither data nor coefficients."""

Values = Mapping[Any, Any]


class Coordinates:
    """Turns the expressions of a rule, written for one coordinate, into those of each entry.

    ``values`` substitutes special values for coefficients, or for keys of their own (``predict``).
    """

    def __init__(self, rule: Rule, values: Values) -> None:
        self.rule = rule
        self.own = {s.symbol: s.expr for s in rule.scalars}
        self.per = {s.symbol: s.per for s in rule.scalars}
        self.values = dict(values)
        self.inputs: set[Any] = set()
        self.phased = rule.phase and self.resolved(rule.problem.value("phase")) != 0
        self.complex = self.phased and rule.diagonal
        self.rows = ROWS * (2 if self.complex else 1)
        self.columns = COLUMNS * (2 if self.phased and not self.complex else 1)

    def resolved(self, expr: Any) -> Any:
        """Resolve coefficients to arguments, and put special values in."""
        expr = sp.sympify(expr)
        if not expr.free_symbols.isdisjoint(self.own):
            expr = expr.subs(self.own, simultaneous=True)
        return put(expr, self.values) if self.values else expr

    def at(self, expr: Any, row: int, column: int, step: str = "") -> Any:
        """Return the expression at an entry; ``step`` marks coefficients of another step."""
        expr = self.resolved(expr)
        table = {}
        for symbol in expr.free_symbols & set(self.per):
            index = {"key": f"_{column}", "value": f"_{row}", "outer": f"_{row}_{column}"}
            table[symbol] = like(symbol, str(symbol) + index.get(self.per[symbol], "") + step)
        return called(expr, table)

    def value(self, row: int, step: str) -> Any:
        """Return the written value's entry, complex numbers in the frame that turns with them."""
        if not self.complex:
            return self._value(row, step)
        return turned([self._value(i, step) for i in range(self.rows)], self.turns(), -1)[row]

    def _value(self, row: int, step: str) -> Any:
        expr = self.rule.problem.keys["value"].subs(sym.v, self.data("v", row, step))
        return self.at(expr, row, row % COLUMNS, step)

    def features(self, role: str, step: str) -> list[Any]:
        """Return a role's key, an expression of φ(k), whose features are ``k_0`` and ``k_1``."""
        return self.rotated([self._key(role, j, step) for j in range(COLUMNS)])

    def raw(self, name: str, step: str = "") -> list[Any]:
        """Return a key or query before φ, which a residual adds."""
        if self.rule.problem.features == sym.x:
            if name == "q":
                return [self.data("q", i) for i in range(self.rows)]
            return [self._key(name, i, step) for i in range(self.rows)]
        return [self.data(f"raw_{name}", i, step) for i in range(self.rows)]

    def queries(self) -> list[Any]:
        """Return φ(q)."""
        return self.rotated([self.data("q", j) for j in range(COLUMNS)])

    def rotated(self, plain: list[Any]) -> list[Any]:
        """Rotate each channel, as a pair, by the running sum of the phase, if there is a phase."""
        if not self.phased or self.complex:
            return plain
        pairs = [(x * sp.cos(a), x * sp.sin(a)) for x, a in zip(plain, self.turns(), strict=True)]
        return [entry for pair in pairs for entry in pair]

    def turns(self) -> list[Any]:
        """Return the running angles after this token's phase."""
        phase = self.rule.problem.value("phase")
        return [a + self.at(phase, j, j) for j, a in enumerate(self.angles())]

    def angles(self) -> list[Any]:
        """Return the symbols of the running angles."""
        return [sp.Symbol(f"angle_{j}", real=True) for j in range(COLUMNS)]

    def data(self, name: str, index: int, step: str = "") -> Any:
        """Return the symbol of an input's entry."""
        symbol = sp.Symbol(f"{name}_{index}{step}", real=True)
        self.inputs.add(symbol)
        return symbol

    def _key(self, role: str, column: int, step: str) -> Any:
        own = {sp.Symbol(r, real=True): r for r in ("predict", "erase", "write", "carry")}
        expr = self.rule.problem.keys[role].subs(self.values, simultaneous=True)
        names = {**own, sp.Symbol("k", real=True): "k", sym.v: "v"}
        found = expr.free_symbols & set(names)
        table = {s: self.data(names[s], column, step) for s in found}
        return self.at(called(expr, table), column, column, step)


def turned(parts: list[Any], angles: list[Any], sign: int) -> list[Any]:
    """Return e^{±iΩ} z as real parts before imaginary ones, z given in the same way."""
    half = len(parts) // 2
    re, im = parts[:half], parts[half:]
    cos, sin = [sp.cos(a) for a in angles], [sign * sp.sin(a) for a in angles]
    real = [c * x - s * y for c, s, x, y in zip(cos, sin, re, im, strict=True)]
    return real + [c * y + s * x for c, s, x, y in zip(cos, sin, re, im, strict=True)]


def put(expr: Any, values: Values) -> Any:
    """Substitute special values; return nan where a condition then compares an undefined number.

    SymPy raises for such a comparison: η·λ₁ < a at η = ∞, λ₁ = 0.

    >>> eta, l1 = sym.coefficient("eta"), sym.coefficient("l1")
    >>> put(sp.Piecewise((1, eta * l1 < sym.a), (0, True)), {eta: sp.oo, l1: sp.Integer(0)})
    nan
    """
    for condition in expr.atoms(sp.core.relational.Relational):
        if any(put(side, values).has(sp.nan, sp.zoo) for side in condition.args):
            return sp.nan
    return expr.subs(values, simultaneous=True)


def called(expr: Any, names: Mapping[Any, Any]) -> Any:
    """Return the expression with its symbols renamed.

    SymPy's ``subs`` looks for more than symbols, and takes three times as long; it also rewrites
    the conditions of cases, by whose spelling canonical forms are known.
    """
    if expr.has(sp.core.relational.Relational):
        return expr.subs(names, simultaneous=True)
    return expr.xreplace({old: new for old, new in names.items() if old != new})


def like(symbol: Any, name: str) -> Any:
    """Return a coefficient's symbol under another name."""
    if name == str(symbol):
        return symbol
    if symbol.is_positive:
        return sp.Symbol(name, positive=True, finite=True)
    return sp.Symbol(name, real=True, finite=True)


def matrix(name: str, rows: int, columns: int) -> list[list[Any]]:
    """Return a matrix of symbols, ``rows`` by ``columns``."""
    return [[sp.Symbol(f"{name}_{i}_{j}", real=True) for j in range(columns)] for i in range(rows)]
