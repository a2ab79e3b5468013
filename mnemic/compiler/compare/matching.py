"""One rule written as another: coefficients of B that make its canonical form that of A."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.canonical import compare_all, compare_features, joint_reach, same
from mnemic.compiler.compare.entry_form import HOLDERS, Form
from mnemic.compiler.compare.solving import Clock, Solution, simplified, solve

SCALE = sp.Symbol("rescale", real=True, nonzero=True)
"""The factor between the two values: v of B is this times v of A."""
STRETCH = sp.Symbol("longer", positive=True, finite=True)
"""The factor between two queries: q of B is this times q of A. A coefficient of B."""
MOST_GUESSES = 64


KEYS = ("predict", "erase", "write", "carry", "k")
"""Inputs that a rule may be given as functions of another's coefficients and key."""


def freed(b: Form, a: Form) -> Form:
    """Return B with those keys that A lacks as unknowns, which are solved for like coefficients."""
    used = frozenset[Any]().union(*(e.free_symbols for e in a.entries()))
    missing = {s for s in b.inputs if s not in used and str(s).rsplit("_", 1)[0] in KEYS}
    return replace(b, inputs=tuple(s for s in b.inputs if s not in missing)) if missing else b


def is_key(symbol: Any) -> bool:
    """Return whether a symbol of a form is an entry of a key."""
    return str(symbol).rsplit("_", 1)[0] in KEYS


@dataclass(frozen=True)
class Match:
    """B's coefficients (and the factor on its value) in terms of A's; ‖k‖² is ``kappa``."""

    change: tuple[tuple[Any, Any], ...]
    scale: Any
    how: str

    @property
    def renaming(self) -> bool:
        """Whether coefficients only change their names."""
        values = [value for _, value in self.change]
        return (
            self.scale == 1 and all(v.is_Symbol for v in values) and len({*values}) == len(values)
        )

    @property
    def trivial(self) -> bool:
        """Whether nothing changes at all."""
        return self.scale == 1 and all(s == v for s, v in self.change)


def match(a: Form, b: Form, clock: Clock) -> Match | None:
    """Find B's coefficients so that it does what A does; ``None`` where none were found."""
    if a.skeleton() != b.skeleton() or compare_features(a, b) != "same":
        return None
    if a.coefficients == b.coefficients and (alike := same(a, b)):
        return Match(tuple((c, c) for c in b.coefficients), sp.Integer(1), alike.how)
    shared = [c for c in b.coefficients if c in a.coefficients]
    kept = _solved(a, b, [c for c in b.coefficients if c not in shared], clock) if shared else None
    return kept or _solved(a, b, list(b.coefficients), clock)


def _solved(a: Form, b: Form, free: list[Any], clock: Clock) -> Match | None:
    """Match B to A by values of the coefficients ``free`` of B, the others keeping their names."""
    unknown = {c: sp.Symbol(f"u_{c}", **_signs(c)) for c in free}
    open_b = _put(b, unknown)
    inside = _in_functions(open_b) & set(unknown.values())
    own = {c: u for c, u in unknown.items() if is_key(c) and not str(c).startswith("k_")}
    held = sorted(inside, key=str)
    tries = product(_key_guesses(a, own), [*_guesses(a, held), *_in_ratios(a, open_b, held, clock)])
    for guess in ({**keys, **functions} for keys, functions in tries):
        if clock.out:
            return None
        tried = _put(open_b, guess)
        if not _same_functions(a, tried):
            continue
        found = _entries(a, tried, [u for u in unknown.values() if u not in guess], clock)
        if found is not None:
            values = {c: c for c in b.coefficients}
            values |= {c: {**guess, **found}.get(u, c) for c, u in unknown.items()}
            return _checked(a, b, values, found.get(SCALE, sp.Integer(1)))
    return None


def _put(form: Form, values: Solution) -> Form:
    def put(expr: Any) -> Any:
        return expr.subs(values, simultaneous=True)

    return form.mapped(put) if values else form


def _signs(symbol: Any) -> dict[str, bool]:
    return {"positive": True} if symbol.is_positive else {"real": True}


def _in_functions(form: Form) -> set[Any]:
    return set().union(*(e.free_symbols for _, e in form.functions), set())


def _guesses(a: Form, inside: list[Any]) -> list[Solution]:
    """Guess coefficients inside functions kept whole: each of A's, the same name first."""
    mine = sorted(_in_functions(a) - a.data - a.parameters, key=str)
    choices = [[c for c in mine if f"u_{c}" == str(u)] + mine for u in inside]
    every = list(product(*choices))[:MOST_GUESSES]
    return [dict(zip(inside, chosen, strict=True)) for chosen in every]


def _in_ratios(a: Form, b: Form, inside: list[Any], clock: Clock) -> list[Solution]:
    """Solve for coefficients inside functions kept whole, taking two functions of one name to
    have equal arguments and comparing what remains as entries."""
    if not inside:
        return []
    equations: list[Any] = []
    for (_, mine), (_, theirs) in zip(a.functions, b.functions, strict=True):
        one, other = mine, theirs
        while one.func == other.func and isinstance(one, sp.Function) and len(one.args) == 1:
            one, other = one.args[0], other.args[0]
        if one == other:
            continue
        ratio = sp.cancel(one / other) if not one.is_polynomial(*HOLDERS) else None
        if ratio is not None and not ratio.free_symbols & set(HOLDERS):
            equations.append(ratio - 1)
            continue
        parts = _coefficients(sp.expand(one - other), list(HOLDERS))
        if parts is None:
            return []
        equations += parts
    found = next(iter(solve(equations, inside, clock)), None) if equations else None
    return [] if found is None or set(found) != set(inside) else [found]


def _key_guesses(a: Form, own: Solution) -> list[Solution]:
    """Guess keys of B's own: A's key, or that times each coefficient of A with channels.

    Solved for outright they would come out with square roots, for what is written is a product of
    two of them.
    """
    if not own:
        return [{}]
    families = {str(c).rsplit("_", 1)[0] for c in a.coefficients if str(c)[-2:] in ("_0", "_1")}
    found = []
    for family in (None, *sorted(families)):
        guess = {}
        for symbol, unknown in own.items():
            index = str(symbol).rsplit("_", 1)[1]
            factor = [c for c in a.coefficients if str(c) == f"{family}_{index}"]
            key = sp.Symbol(f"k_{index}", real=True)
            guess[unknown] = key * factor[0] if factor else key
        found.append(guess)
    return found


def _same_functions(a: Form, b: Form) -> bool:
    pairs = ((one, other) for (_, one), (_, other) in zip(a.functions, b.functions, strict=True))
    return compare_all(pairs, joint_reach(a, b)) == "same"


def _entries(a: Form, b: Form, unknowns: list[Any], clock: Clock) -> Solution | None:
    """Solve the entries: the value as it is or rescaled, coefficients free of the keys or not."""
    values = [s for s in a.inputs if str(s).startswith("v_")]
    whole = any(w.function == "error" for w in a.wholes)
    data = sorted(a.data | b.data, key=str)
    for scale in (sp.Integer(1),) if whole or not values else (sp.Integer(1), SCALE):
        scaled = _put(b, {v: scale * v for v in values})
        pairs = list(zip(a.entries(), scaled.entries(), strict=True))
        symbols = unknowns if scale == 1 else [*unknowns, SCALE]
        for gens in (data, [s for s in data if not str(s).startswith("k_")]):
            equations = _equations(pairs, gens, clock)
            found = None if equations is None else _first(equations, symbols, data, clock)
            if found is not None:
                return found
    return None


def _first(
    equations: list[Any], symbols: list[Any], data: list[Any], clock: Clock
) -> Solution | None:
    for found in solve(equations, symbols, clock):
        free = {s: sp.Integer(1) for s in symbols if s not in found}
        settled = {u: simplified(value.subs(free)) for u, value in found.items()}
        through = {
            u: value if is_key(str(u).removeprefix("u_")) else _through_norm(value, set(data))
            for u, value in settled.items()
        }
        if None not in through.values() and through.get(SCALE, 1) != 0:
            held = {s: v for s, v in free.items() if any(e.has(s) for e in equations)}
            return {**held, **through}
    return None


def _equations(pairs: list[tuple[Any, Any]], gens: list[Any], clock: Clock) -> list[Any] | None:
    found: list[Any] = []
    for one, other in pairs:
        if clock.out:
            return None
        parts = None if one == other else _coefficients(one - other, gens)
        if parts is not None:
            found += parts
        elif one != other:
            return None
    return found


def _coefficients(difference: Any, gens: list[Any]) -> list[Any] | None:
    """Return a difference's coefficients as a polynomial of ``gens``, its denominator multiplied
    out; None where it is no polynomial of them."""
    if any(p.exp.is_negative for p in difference.atoms(sp.Pow)):
        difference = sp.fraction(sp.together(difference))[0]
    used = {g for g in gens if difference.has(g)}
    found: dict[Any, list[Any]] = {}
    for term in sp.Add.make_args(sp.expand(difference)):
        factor, power = term.as_independent(*used, as_Add=False) if used else (term, sp.Integer(1))
        if not power.is_polynomial(*used):
            return None
        found.setdefault(power, []).append(factor)
    return [sp.Add(*factors) for factors in found.values()]


def _through_norm(value: Any, data: set[Any]) -> Any | None:
    """Write a function of k's entries as one of ‖k‖² alone; return None where it is not."""
    value = simplified(value)
    if not value.free_symbols & data:
        return value
    first, last = sp.Symbol("k_0", real=True), sp.Symbol("k_1", real=True)
    found = sp.simplify(value.subs(last, sp.sqrt(sym.kappa - first**2)))
    return None if found.free_symbols & data else found


def inverse(a: Form, b: Form, found: Match, clock: Clock) -> Match | None:
    """Solve a change of B's coefficients for A's, so that A does what B does.

    Return ``None`` where the change has no inverse, or random numbers do not confirm it.
    """
    unknown = {c: sp.Symbol(f"u_{c}", **_signs(c)) for c in a.coefficients}
    if any(is_key(s) or s == STRETCH for s in (*unknown, *dict(found.change))):
        return None
    opened = [(s, sp.sympify(value).subs(unknown, simultaneous=True)) for s, value in found.change]
    for solution in solve([value - s for s, value in opened], [*unknown.values()], clock):
        if set(solution) == {*unknown.values()}:
            values = {c: solution[u] for c, u in unknown.items()}
            scale = 1 / sp.sympify(found.scale).subs(values, simultaneous=True)
            if (back := _checked(b, a, values, simplified(scale))) is not None:
                return back
    return None


def checked(a: Form, b: Form, found: Match) -> Match | None:
    """Return a match composed of two others, if B under it equals A in numbers of 30 digits."""
    put = _changed(b, a, dict(found.change), found.scale)
    pairs = [*zip(a.entries(), put.entries(), strict=True)]
    pairs += [(x, y) for (_, x), (_, y) in zip(a.functions, put.functions, strict=True)]
    return found if compare_all(pairs, joint_reach(a, put), 2) == "same" else None


def _checked(a: Form, b: Form, values: Solution, scale: Any) -> Match | None:
    """Put the change into B and compare the whole with A."""
    found = same(a, _changed(b, a, values, scale))
    return Match(tuple(values.items()), scale, found.how) if found else None


def _changed(b: Form, a: Form, values: Solution, scale: Any) -> Form:
    """Substitute a change in B: its coefficients, and the factor on the input values."""
    square = sp.Symbol("k_0", real=True) ** 2 + sp.Symbol("k_1", real=True) ** 2
    table = {c: sp.sympify(v).subs(sym.kappa, square) for c, v in values.items()}
    for v in (s for s in a.inputs if str(s).startswith("v_")):
        table[v] = v * sp.sympify(scale).subs(sym.kappa, square)
    return b.mapped(lambda e: e.subs(table, simultaneous=True))
