"""A memory of layers, or behind O, intervals or norms, as a form: its network and how it moves.

The network is written node by node, each elementwise map as one function, so that two spellings of
one activation agree and two different activations do not. The step that a token makes in a matrix
is given by its coefficients; update intervals, the map O of the step, and norms are tags.
"""

from collections.abc import Mapping
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import PARAMETERS, Coordinates
from mnemic.compiler.compare.entry_form import HOLDERS, Form, Whole, tidy_entry
from mnemic.compiler.compare.opaque_functions import (
    OWN,
    error_function,
    link_function,
    one_spelling,
)
from mnemic.compiler.compare.tags import feature_functions, feature_tags
from mnemic.compiler.network import Apply, Map, Network, node_symbol
from mnemic.compiler.rule import Layers
from mnemic.compiler.running import GRADIENT


def layers_form(rule: Layers, values: Mapping[Any, Any]) -> Form:
    """Return the form of a memory of layers."""
    at = Coordinates(rule, values)
    factor, body = error_function(at.resolved(rule.error.signal))
    functions = {"error": body, **activations(rule.network), **_averaged(rule, at)}
    link = rule.retained.link
    if not link.identity:
        functions["link"] = link_function(link, at)
    if rule.retained.mode == "prox":
        functions["mirror"] = one_spelling(at.resolved(rule.retained.mirror)).subs(sym.w, OWN)
    wholes = kept_whole(functions)
    output = tuple(sp.sympify(part) for part in _parts(rule, at, factor))
    tags = (*_tags(rule, at), *network_tags(rule.network), *feature_tags(rule))
    form = Form(
        (), (*output, *(w.symbol for w in wholes)), wholes, tuple(sorted(functions.items())),
        tuple(sorted(tags)), (), PARAMETERS, feature_functions(rule, at),
    )  # fmt: skip
    return form.mapped(tidy_entry)


def kept_whole(functions: Mapping[str, Any]) -> tuple[Whole, ...]:
    """Return a symbol for each function, so that an output can name it."""
    return tuple(Whole(sp.Symbol(f"whole_{n}", real=True), n, ()) for n in sorted(functions))


def _averaged(rule: Layers, at: Coordinates) -> dict[str, Any]:
    """Return the step of an optimizer by entry, and each average's update, as functions."""
    applied = rule.applied
    if not applied.elementwise:
        return {}
    read = {GRADIENT: HOLDERS[0]}
    for i, average in enumerate(applied.averages):
        read |= dict(zip((average.after, average.before), HOLDERS[2 * i + 1 :], strict=False))
    found = {"step": applied.valued.replace(sp.sign, _jump)}
    for i, average in enumerate(applied.averages):
        entry = average.decay * read[average.before] + average.share * average.entry
        found[f"average {i}, corrected: {average.corrected}"] = entry
    return {n: one_spelling(at.resolved(e.subs(read))) for n, e in found.items()}


def _jump(argument: Any) -> Any:
    """Return a stand-in for sign(z): random numbers seldom distinguish signs, but always z."""
    return sp.atan(7 * argument)


# -- how matrices move -------------------------------------------------------------------------


def _parts(rule: Layers, at: Coordinates, factor: Any) -> tuple[Any, ...]:
    """Return what multiplies the gradient, the step and the state."""
    inside, outside = factor, rule.gain
    if _rates_differ(rule, at):
        outside = outside * rule.rate
    else:
        inside = inside * rule.rate
    momentum = sp.Integer(0) if rule.momentum is None else rule.momentum
    parts = (outside, rule.decay, rule.row_decay, rule.seen, momentum)
    return (*_weighed(rule, at, inside), *(at.at(part, 0, 0) for part in parts))


def _weighed(rule: Layers, at: Coordinates, inside: Any) -> tuple[Any, ...]:
    """Return what multiplies a gradient: in a window with gates, for each of two keys."""
    own = at.at(inside, 0, 0)
    if rule.window == 1 or rule.gamma is None:
        return (own,)
    gamma = sym.coefficient("gamma")
    return tuple(own * at.at(gamma, 0, 0, mark) for mark in ("", "__1"))


def _rates_differ(rule: Layers, at: Coordinates) -> bool:
    """Return whether a rate outside is not one inside: O or momentum stands between."""
    if not rule.applied.outside:
        return False
    sums = rule.momentum is not None and at.resolved(rule.momentum) != 0
    held = any(m.every > 1 for m in rule.network.matrices)
    return rule.applied.kind != "identity" or sums or held


def _tags(rule: Layers, at: Coordinates) -> list[str]:
    """Write O, norms, the window, intervals and the read-out as tags."""
    matrices, spec = rule.network.matrices, rule.problem.spec
    applied, link = rule.applied, rule.retained.link
    found = [
        "O entry by entry" if applied.elementwise else f"O {applied.kind} {applied.steps}",
        f"norms {applied.normalize}" + " of centred lines" * applied.centred,
        "rate apart" if _rates_differ(rule, at) else "rate on the gradient",
        f"retention {rule.retained.mode} {link.normaliser} {link.over}",
        f"window {rule.window} {rule.gamma if rule.window > 1 else None}, rows {rule.rows}",
        f"keys {_keys(rule)}",
    ]
    acts = applied.normalize != "none" or rule.retained.mode == "prox"
    asks = spec.readout.memory == "anchor"
    sees = not (rule.error.constant and rule.network.linear)
    for m in matrices:
        own = f"{m.name} moves every {m.every}"
        if rule.anchor > m.every and (sees or asks or acts):
            own += f", anchored every {rule.anchor}"
        if m.every > 1 and rule.momentum is None:
            own += ", steps gather"
        found.append(own)
    still = min(max(rule.anchor, m.every) for m in matrices)
    where = spec.readout.memory
    found.append(f"reads {'before' if where == 'anchor' and still == 1 else where}")
    return found


def _keys(rule: Layers) -> str:
    return ", ".join(f"{role} {expr}" for role, expr in sorted(rule.problem.keys.items()))


# -- the network -------------------------------------------------------------------------------


def network_tags(network: Network) -> list[str]:
    """Describe nodes and sizes: what is a function of which."""
    widths = {name: sp.nsimplify(size) for name, size in network.widths}
    found = [f"{m.name}: {_side(m.rows, widths)} by {_side(m.columns, widths)}"
             for m in network.matrices]  # fmt: skip
    for node in network.nodes:
        match node:
            case Apply(name=name, matrix=matrix, source=source):
                found.append(f"{name} = {matrix} {source}")
            case Map(name=name, sources=sources):
                found.append(f"{name} = f({', '.join(sorted(sources))})")
            case _:
                found.append(f"{node.name} = LN({node.source})")
    return found


def _side(name: str, widths: Mapping[str, Any]) -> str:
    return f"{widths[name]} d_v" if name in widths else {"v": "d_v"}.get(name, name)


def activations(network: Network) -> dict[str, Any]:
    """Return the elementwise maps as functions of place holders, each in one spelling."""
    found = {}
    for node in network.nodes:
        if isinstance(node, Map):
            names = [node_symbol(s) for s in sorted(node.sources)]
            table = dict(zip(names, HOLDERS, strict=False))
            found[f"map {node.name}"] = _spelled(node.expr.subs(table, simultaneous=True))
    return found


def _spelled(expr: Any) -> Any:
    """Write functions that SymPy lacks in terms of its own, and hyperbolic ones as exponentials."""
    expr = expr.replace(sym.sigmoid, lambda z: 1 / (1 + sp.exp(-z)))
    expr = expr.replace(sym.softplus, lambda z: sp.log(1 + sp.exp(z)))
    expr = expr.replace(sym.normal_cdf, lambda z: (1 + sp.erf(z / sp.sqrt(2))) / 2)
    expr = expr.rewrite(sp.exp) if expr.has(sp.tanh, sp.sinh, sp.cosh) else expr
    if expr.has(sp.Max, sp.Min, sp.Piecewise):
        return one_spelling(sp.piecewise_fold(expr.rewrite(sp.Piecewise)))
    return one_spelling(expr)
