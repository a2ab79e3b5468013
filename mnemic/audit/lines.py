"""The assignments of a text, with earlier names expanded inside gradients and minimisers."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from mnemic.compiler.published import assignments, evaluate
from mnemic.dsl.expressions import Apply, Name, Node
from mnemic.dsl.functions import CONSTANTS

EXTREMES: Final = ("gradient", "argmin", "root", "expect")
Line = tuple[str, Node]


@cache
def lines(text: str) -> tuple[Line, ...]:
    """Return names and trees; inside gradient, argmin and root earlier names are expanded.

    So a loss may have a name of its own: ``L = norm(W @ k - v)**2; G = gradient(L, W)``.
    """
    known: dict[str, Node] = {}
    found = []
    for name, tree in assignments(text):
        whole = _written_out(tree, known)
        found.append((name, whole))
        known[name] = whole
    return tuple(found)


def _written_out(tree: Node, known: Mapping[str, Node]) -> Node:
    match tree:
        case Apply(function, (body, Name(variable), *rest)) if function in EXTREMES:
            return Apply(function, (_in(variable, body, known), Name(variable), *rest))
        case Apply(function, arguments):
            return Apply(function, tuple(_written_out(a, known) for a in arguments))
    return tree


def _in(variable: str, tree: Node, known: Mapping[str, Node]) -> Node:
    """Expand those names in a tree that depend on a variable; the variable itself stays."""
    match tree:
        case Name(name) if name != variable and name in known:
            others = {n: value for n, value in known.items() if n != name}
            whole = _in(variable, known[name], others)
            return whole if variable in _names(whole) else tree
        case Apply(function, (body, Name(inner), *rest)) if function in EXTREMES:
            seen = {n: value for n, value in known.items() if n != inner}
            whole = body if inner == variable else _in(variable, body, seen)
            whole = _in(inner, whole, known)
            return Apply(function, (whole, Name(inner), *rest))
        case Apply(function, arguments):
            return Apply(function, tuple(_in(variable, a, known) for a in arguments))
    return tree


def shortfall(text: str, at: Mapping[str, Any], environment: Mapping[str, Any]) -> list[Any]:
    """Return how far given values are from solving a problem: nothing but zeros where they do.

    For a minimiser it is the objective's gradient at the given value, without minimising; on a
    simplex it is the gradient's deviation from its mean, and the error of the sum. For any other
    line it is the difference. Where a given entry is exactly zero an objective may have a kink, so
    the gradient's entry there is left out: a zero shortfall must be confirmed by `values`.
    """
    from mnemic.compiler.extremes import gradient

    assigned: dict[str, Any] = {}
    left = []
    for name, tree in lines(text):
        seen = {**environment, **assigned}
        match tree:
            case Apply("argmin", (body, Name(variable), *rest)) if name in at:
                slope = gradient(body, variable, {**seen, variable: at[name]})
                slope = slope * (at[name] != 0)
                left.append(slope - slope.mean() if rest else slope)
                left += [at[name].sum() - evaluate(size, seen) for size in rest]
                assigned[name] = at[name]
            case _:
                assigned[name] = evaluate(tree, seen)
                if name in at and dict(lines(text))[name] is tree:
                    left.append(assigned[name] - at[name])
    return left


def reads(text: str) -> frozenset[str]:
    """Return the names that a text reads before it assigns them, its own variables left out."""
    assigned: set[str] = set()
    found: set[str] = set()
    for name, tree in assignments(text):
        found |= _names(tree) - assigned - {*CONSTANTS, "I"}
        assigned.add(name)
    return frozenset(found)


def _names(tree: Node) -> set[str]:
    match tree:
        case Name(name):
            return {name}
        case Apply("root" | "expect", (body, Name(variable))):
            return _names(body) - {variable}
        case Apply(_, arguments):
            return set[str]().union(*map(_names, arguments))
    return set()


def variables(text: str) -> frozenset[str]:
    """Return the names that minimisers of a text vary; their drawn values are only a start."""
    return frozenset[str]().union(*(_varied(tree) for _, tree in assignments(text)))


def _varied(tree: Node) -> frozenset[str]:
    match tree:
        case Apply(function, arguments):
            own = {arguments[1].name} if function == "argmin" else set()  # type: ignore[union-attr]
            return frozenset(own).union(*map(_varied, arguments))
    return frozenset()


def values(text: str, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a text assigns, in float64."""
    assigned: dict[str, Any] = {}
    for name, tree in lines(text):
        assigned[name] = evaluate(tree, {**environment, **assigned})
    return assigned


def conditions(text: str) -> tuple[Node, ...]:
    """Return the tests of ``where`` and the pairs of ``max`` and ``min`` that a text decides by."""
    return tuple(test for _, tree in lines(text) for test in _tests(tree))


def _tests(tree: Node) -> list[Node]:
    match tree:
        case Apply("argmin" | "root" | "expect", _):
            return []  # what is searched through passes every branch
        case Apply(function, arguments):
            own = [arguments[0]] if function == "where" else []
            if function in ("max", "min") and len(arguments) == 2:
                own = [Apply("lt", arguments)]
            return own + [test for a in arguments for test in _tests(a)]
    return []
