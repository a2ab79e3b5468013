"""Prove printed lines symbolically: with 2 × 2 matrices whose entries are symbols.

Two lines are equal if for each entry the difference, over one denominator and expanded, is zero. A
minimiser is not solved for; instead the printed line must make the gradient of the stated objective
zero.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import sympy

from mnemic.audit.draws import Sizes, shape_of
from mnemic.audit.entry import Equation
from mnemic.audit.lines import lines
from mnemic.dsl.expressions import Apply, Name, Node, Number
from mnemic.dsl.functions import CONSTANTS

SMALL: Final = Sizes(2, 2)
ITEMS, HIDDEN, LARGEST = 2, 2, 4_000
"""Pairs in a sum, units of a hidden layer, and the most operations of a difference."""


class Unproved(Exception):
    """Raised for a line that the algebra cannot handle; it is judged by numbers alone."""


def proved(line: Equation, rule: str, names: frozenset[str]) -> bool:
    """Return whether algebra shows that a text solves the line's problem.

    ``False`` says that it shows nothing, never that the two differ.
    """
    try:
        return _proved(line, rule, names)
    except (Unproved, ValueError, TypeError, sympy.matrices.exceptions.ShapeError):
        return False


def _proved(line: Equation, rule: str, names: frozenset[str]) -> bool:
    assert line.problem is not None
    given = {name: symbols(name, line) for name in names}
    found = assigned(rule, given)
    stated = lines(line.problem)
    checked = 0
    known: dict[str, Any] = {}
    for name, tree in stated:
        match tree:
            case Apply("argmin", (body, Name(variable))) if name in found:
                seen = {**given, **known, variable: found[name]}
                if not _stationary(body, variable, seen):
                    return False
                known[name] = found[name]
                checked += 1
            case Apply("argmin", (body, Name(variable), size)) if name in found:
                seen = {**given, **known, variable: found[name]}
                total = sum(_entries(found[name])) - evaluate(size, {**given, **known})
                if not _zero(total) or not _level(body, variable, seen):
                    return False
                known[name] = found[name]
                checked += 1
            case _:
                known[name] = evaluate(tree, {**given, **known})
                if name in found:
                    if not all(map(_zero, _entries(_minus(known[name], found[name])))):
                        return False
                    checked += 1
    return checked > 0


def _stationary(body: Node, variable: str, seen: Mapping[str, Any]) -> bool:
    """Return whether an objective's gradient is zero at the value of its variable."""
    return all(map(_zero, _slopes(body, variable, seen)))


def _level(body: Node, variable: str, seen: Mapping[str, Any]) -> bool:
    """Return whether all entries of a gradient are equal, as with a multiplier for the sum."""
    first, *others = _slopes(body, variable, seen)
    return all(_zero(sympy.expand_log(entry - first, force=True)) for entry in others)


def _slopes(body: Node, variable: str, seen: Mapping[str, Any]) -> list[Any]:
    free = _fresh(seen[variable])
    slope = derivative(evaluate(body, {**seen, variable: free}), free)
    at = dict(zip(_entries(free), _entries(seen[variable]), strict=True))
    return [entry.subs(at) for entry in _entries(slope)]


def _fresh(like: Any) -> Any:
    if not isinstance(like, sympy.MatrixBase):
        return sympy.Symbol("X_", real=True)
    return sympy.Matrix(*like.shape, lambda i, j: sympy.Symbol(f"X_{i}{j}", real=True))


def symbols(name: str, line: Equation) -> Any:
    """Return the symbols of a name: a number's, a matrix', or one set for each item of a sum."""
    if name in line.values:
        return sympy.nsimplify(line.values[name])
    if name.endswith("_i"):
        return [_symbols(f"{name}{n}", name, line) for n in range(ITEMS)]
    return _symbols(name, name, line)


def _symbols(label: str, name: str, line: Equation) -> Any:
    domain = line.domains.get(name, line.domains.get(name.removesuffix("_i"), ""))
    kind = shape_of(name, line)
    positive = domain in ("positive", "unit", "simplex", "above one") or kind == "scalar"
    shape = SMALL.of(kind)
    if not shape:
        return sympy.Symbol(label, positive=positive and domain != "any", real=True)
    rows, columns = (min(n, HIDDEN) for n in shape)
    if domain == "strictly lower":
        return sympy.Matrix(rows, columns, lambda i, j: sympy.Symbol(f"{label}_{i}{j}", real=True)
                            if j < i else 0)  # fmt: skip
    symmetric = domain in ("symmetric", "definite")
    return sympy.Matrix(rows, columns, lambda i, j: sympy.Symbol(
        f"{label}_{max(i, j)}{min(i, j)}" if symmetric else f"{label}_{i}{j}",
        positive=positive or None, real=True))  # fmt: skip


def assigned(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a text assigns, in symbols."""
    known: dict[str, Any] = {}
    for name, tree in lines(text):
        known[name] = evaluate(tree, {**given, **known})
    return known


def evaluate(tree: Node, seen: Mapping[str, Any]) -> Any:
    """Return the value of a tree in symbols; raise Unproved for what has none here."""
    match tree:
        case Number(value):
            return sympy.nsimplify(value, rational=True)
        case Name("I"):
            return sympy.eye(SMALL.keys)
        case Name(name):
            return seen[name] if name in seen else sympy.nsimplify(CONSTANTS[name])
        case Apply("sum_i", (body,)):
            return reduce(_plus, (evaluate(body, _item(seen, n)) for n in range(ITEMS)))
        case Apply("gradient", (body, Name(name))):
            slope = _slopes(body, name, seen)
            like = seen[name]
            return sympy.Matrix(*like.shape, slope) if _entries(like) != [like] else slope[0]
        case Apply("where", (Apply(word, (x, y)), a, b)) if word in _RELATIONS:
            return _chosen(word)(*(evaluate(part, seen) for part in (x, y, a, b)))
        case Apply(word, arguments) if word in _FUNCTIONS:
            return _FUNCTIONS[word](*(evaluate(a, seen) for a in arguments))
    raise Unproved


def _item(seen: Mapping[str, Any], n: int) -> dict[str, Any]:
    return {k: v[n] if k.endswith("_i") and isinstance(v, list) else v for k, v in seen.items()}


def derivative(body: Any, free: Any) -> Any:
    """Return the derivative of a number in each entry of a matrix of symbols."""
    (whole,) = _entries(body)
    if not isinstance(free, sympy.MatrixBase):
        return sympy.diff(whole, free)
    return free.applyfunc(lambda x: sympy.diff(whole, x))


def _entries(value: Any) -> list[Any]:
    return list(value) if isinstance(value, sympy.MatrixBase) else [value]


def _zero(difference: Any) -> bool:
    if difference == 0:
        return True
    if sympy.count_ops(difference) > LARGEST:
        raise Unproved
    numerator, _ = sympy.fraction(sympy.together(difference))
    return bool(sympy.expand(sympy.powsimp(sympy.expand(numerator))) == 0)


def _entrywise(act: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of numbers as one of matrices, with a single row or column repeated."""

    def on(*values: Any) -> Any:
        grids = [v for v in values if isinstance(v, sympy.MatrixBase)]
        if not grids:
            return act(*values)
        rows, columns = max(g.rows for g in grids), max(g.cols for g in grids)
        if any(g.rows not in (1, rows) or g.cols not in (1, columns) for g in grids):
            raise Unproved
        return sympy.Matrix(rows, columns, lambda i, j: act(*(_at(v, i, j) for v in values)))

    return on


def _at(value: Any, i: int, j: int) -> Any:
    if not isinstance(value, sympy.MatrixBase):
        return value
    return value[i if value.rows > 1 else 0, j if value.cols > 1 else 0]


_plus = _entrywise(lambda a, b: a + b)
_minus = _entrywise(lambda a, b: a - b)
_times = _entrywise(lambda a, b: a * b)
_RELATIONS: Final = {
    "lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge, "eq": sympy.Eq,
}  # fmt: skip


def _chosen(word: str) -> Callable[..., Any]:
    """Return ``where`` with a comparison of its first two arguments, entry by entry."""
    relation = _RELATIONS[word]
    return _entrywise(lambda x, y, a, b: sympy.Piecewise((a, relation(x, y)), (b, True)))


def _norm(x: Any, p: Any = 2) -> Any:
    if p == 2:
        return sympy.sqrt(sum(entry**2 for entry in _entries(x)))
    return sum(sympy.Abs(entry) ** p for entry in _entries(x)) ** (1 / sympy.nsimplify(p))


def _softmax(x: Any) -> Any:
    grown = x.applyfunc(sympy.exp)
    return grown / sum(_entries(grown))


def _over_all(act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: act(_entries(x))


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": _plus, "sub": _minus, "mul": _times, "matmul": lambda a, b: a * b,
    "div": _entrywise(lambda a, b: a / b), "pow": _entrywise(lambda a, b: a**b),
    "neg": lambda x: -x, "transpose": lambda x: x.T, "diag": lambda x: sympy.diag(*x),
    "outer": lambda a, b: a * b.T, "norm": _norm, "softmax": _softmax, "inv": lambda x: x.inv(),
    "total": _over_all(sum), "trace": lambda x: x.trace(),
    "inner": lambda a, b: sum(_entries(_times(a, b))),
    "exp": _entrywise(sympy.exp), "log": _entrywise(sympy.log), "sqrt": _entrywise(sympy.sqrt),
    "abs": _entrywise(sympy.Abs), "sign": _entrywise(sympy.sign),
    "square": _entrywise(lambda x: x**2), "tanh": _entrywise(sympy.tanh),
    "sigmoid": _entrywise(lambda x: 1 / (1 + sympy.exp(-x))),
    "logit": _entrywise(lambda x: sympy.log(x / (1 - x))),
}  # fmt: skip
