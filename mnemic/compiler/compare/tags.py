"""Facts of a rule that its written-out entries do not show."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.coordinates import Coordinates
from mnemic.compiler.compare.opaque_functions import one_spelling
from mnemic.compiler.compare.transition import MOST_ROWS
from mnemic.compiler.kernels import Kernel, Kernels
from mnemic.compiler.numbers import same_number
from mnemic.compiler.rule import LeastSquares, Levels, Moments, Rule
from mnemic.compiler.series import kernel

S = sp.Symbol("s", real=True)


MAP, KERNEL = "φ(x)", "φ(x)·φ(y)"
"""Names of a feature map that is a function of one coordinate, and of one known by its kernel."""


def feature_functions(rule: Rule, at: Coordinates) -> tuple[tuple[str, Any], ...]:
    """Return the feature map as a function of x, or as a kernel κ(s), nothing for φ(x) = x."""
    problem = rule.problem
    if problem.kernels is not None:
        return _kernel_functions(rule, problem.kernels)
    if problem.features is not None:
        return () if _same(problem.features, sym.x) else ((MAP, one_spelling(problem.features)),)
    found = kernel(problem, S)
    if found is None:
        return ()
    shown = sp.expand(at.resolved(found))
    return () if shown == S else ((KERNEL, shown),)


@cache
def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or same_number(one, other)


def _kernel_functions(rule: Rule, kernels: Kernels) -> tuple[tuple[str, Any], ...]:
    """Return κ, or κ1 and κ2 where predictions see another than read-outs."""
    read = _named(KERNEL, kernels.read)
    if rule.error.constant or (kernels.predict == kernels.read and not kernels.read.normalised):
        plain = not kernels.read.normalised and _same(kernels.read.expr, S)
        return () if plain else (read,)
    return _named(f"{KERNEL} to predict", kernels.predict), _named(
        f"{KERNEL} to read", kernels.read
    )


def _named(name: str, kernel: Kernel) -> tuple[str, Any]:
    name += ", each row over its sum" if kernel.normalised else ""
    return name, one_spelling(kernel.expr)


def feature_tags(rule: Rule) -> tuple[str, ...]:
    """Return the spec's entry for features that neither act on each coordinate by itself nor
    have a kernel Σ a_i sⁱ."""
    problem = rule.problem
    told = problem.kernels is not None or problem.features is not None
    return () if told or kernel(problem, S) is not None else (_entry("features", rule),)


def linear_tags(rule: Rule, values: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return intervals and lengths, which one step does not show, at special ``values``."""
    found = []
    match rule:
        case Levels(levels=levels) if values.get(sym.coefficient("levels")) != 1:
            found.append(f"a weight for each level of a tree, of {levels}")
        case Moments(solution=LeastSquares(steps=steps)) if steps > MOST_ROWS:
            found.append(f"{steps} full-batch steps")
    spec = rule.problem.spec
    reads_anchor = spec.readout.memory == "anchor"
    if rule.anchor > 1 and (reads_anchor or not rule.error.constant):
        found.append(f"gradients at multiples of {rule.anchor}")
    if max(rule.window, rule.rows) > MOST_ROWS:
        found.append(f"window {rule.window}, rows {rule.rows}")
    if rule.window > 1 and rule.gamma is not None:
        found.append(f"one gate for each {rule.gamma}")
    if getattr(spec.memory, "slots", None):
        found.append("slots")
    if rule.retained.mode == "multiplicative":
        found.append("starts uniform")
    link = rule.retained.link
    if link.normaliser == "root":
        found.append(f"ζ makes the entries sum to the scale, over {link.over}")
    return tuple(found)


def opaque_tags(rule: Rule) -> tuple[str, ...]:
    """Return the parts of a spec that are compared as they are where nothing is written out."""
    names = ("memory", "weights", "keys", "readout")
    found = [_entry(name, rule) for name in names]
    if rule.problem.features is None:
        found.append(_entry("features", rule))
    optimizer, retention = rule.problem.spec.optimizer, rule.problem.spec.retention
    found.append(
        f"{optimizer.method}, ns {optimizer.ns_steps}, every {optimizer.every}, "
        f"rate {optimizer.rate_at}, anchor {rule.anchor}, window {rule.window}, rows {rule.rows}, "
        f"momentum on {rule.momentum_on}"
    )
    link = rule.retained.link
    found.append(
        f"retention {rule.retained.mode} {link.normaliser} {link.over}, "
        f"normalised {retention.normalize}"
    )
    return tuple(found)


def _entry(name: str, rule: Rule) -> str:
    data = getattr(rule.problem.spec, name).model_dump(mode="json", by_alias=True)
    return f"{name} {json.dumps(_shape(data), sort_keys=True)}"


def _shape(data: Any) -> Any:
    """Return plain data without the origins of coefficients, on which no rule depends."""
    if isinstance(data, dict):
        if "from" in data and "per" in data:
            return {"per": data["per"]}
        return {key: _shape(value) for key, value in data.items()}
    return data
