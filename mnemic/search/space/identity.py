"""The identity of a point: its derived rule, with the ranges of its coefficients."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from mnemic.compiler.compare.canonical import canonical, identified
from mnemic.compiler.rule import Moments, Rule
from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.spec import Spec
from mnemic.dsl.starts import start_of


def identity(rule: Rule) -> str:
    """Return the SHA-256 of everything that a layer depends on, however the spec is spelled.

    It covers the canonical form of the rule, in which coefficients have no names; each
    coefficient's origin, the axes over which it varies, its range and its start; and the parts of
    a spec that no equation shows: the block, separate projections of keys, the initial memory.
    """
    spec = rule.problem.spec
    declared = {scalar.name: scalar.declared for scalar in rule.scalars}
    form = identified(canonical(rule), lambda symbol: _facts(str(symbol), declared))
    return sha256("\n".join([form, _unseen(spec, rule)]).encode()).hexdigest()


def facts(rule: Rule) -> str:
    """Return the origins of a rule's coefficients, and what no equation shows, as one text.

    Rules that differ only in names of coefficients are one point if these texts agree too.
    """
    declared = {scalar.name: scalar.declared for scalar in rule.scalars}
    told = sorted(_facts(name, declared) for name in declared)
    return "\n".join([*told, _unseen(rule.problem.spec, rule)])


def _facts(symbol: str, declared: dict[str, Coefficient]) -> str:
    """Return the origin of a coefficient; ``symbol`` is its name, perhaps with an index."""
    fits = [name for name in declared if symbol.startswith(name)]
    name = max(fits, key=len, default="")
    if not name:
        return "free"
    told = declared[name]
    activation, start = start_of(name)
    chosen = (told.origin, told.per, told.activation or activation)
    return json.dumps([*chosen, start if told.init is None else told.init])


def _unseen(spec: Spec, rule: Rule) -> str:
    """Return the parts of a spec that no equation shows, as a text."""
    own = [role for role, key in dict(spec.keys).items() if key is not None and key.own]
    parts: dict[str, Any] = {
        "block": _plain(spec.block),
        "own": own,
        "memory": _plain(spec.memory),
        "solver": _plain(spec.optimizer.solver) if isinstance(rule, Moments) else None,
        "features": None if rule.problem.features is not None else _plain(spec.features),
    }
    return json.dumps(parts, sort_keys=True)


def _plain(entry: Any) -> Any:
    return entry.model_dump(mode="json", by_alias=True)
