"""Features of a rule that its forms do not compute yet: refused by name, never computed wrongly."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import sympy as sp

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.rule import KeyValuePairs, Layers, Levels, Moments, Rule, takes_steps
from mnemic.dsl.features import Cosine, Dpfp, Polynomial, Random, Taylor
from mnemic.dsl.readout import Readout
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, Issue

LATER = "{what} is derived but not compiled yet"

COUNTING = frozenset({HEAD, HEADS, TIME})
"""Indices that no argument carries."""

RESIZING = (Cosine, Dpfp, Polynomial, Random, Taylor)
"""Features that are not as many as the key's channels."""


def mark(rule: Rule, place: str) -> Rule:
    """Return the rule with all of it that is not compiled yet, and without forms if that is any.

    ``place`` is the spec's entry that keeps a class from having forms.
    """
    missing = rule.structure.missing
    issues = (Issue(missing, where=place),) if missing is not None else tuple(_issues(rule))
    if not issues:
        return rule
    return replace(rule, structure=replace(rule.structure, forms=(), refused=issues))


def refuse(rule: Rule) -> None:
    """Raise ``InvalidSpec`` with everything of the rule that is not compiled yet."""
    issues = rule.structure.refused
    if issues:
        raise InvalidSpec(replace(i, where=f"{rule.name} {i.where}".rstrip()) for i in issues)


def _issues(rule: Rule) -> Iterator[Issue]:
    """Yield what no form computes, each at its place; slots are two rules, with their own."""
    if getattr(_spec(rule).memory, "slots", None):
        reason = _of_slots(rule)
        yield from () if reason is None else (Issue(reason, where="memory.slots"),)
        return
    for where, what, asks in REFUSALS:
        if asks(rule):
            yield Issue(LATER.format(what=what), where=where)


def _of_slots(rule: Rule) -> str | None:
    """Return why slots of this rule are not compiled yet, or ``None``."""
    spec, keys = rule.problem.spec, rule.problem.spec.keys
    plain = rule.window == 1 and spec.optimizer.micro_steps == 1 and spec.optimizer.inner_steps == 1
    if rule.structure.kind != "additive" or not plain:
        return "slots are compiled for one additive step a token, other rules are not compiled yet"
    if rule.phase or spec.readout != Readout() or rule.row_decay != 1:
        return "slots with a phase, a row decay or a read-out of their own are not compiled yet"
    if keys.write is None or keys.value is not None or rule.problem.keys["write"].has(
        sp.Symbol("k", real=True)
    ):  # fmt: skip
        return "the write keys live in the slots: 'keys.write' of coefficients or 'own' is compiled"
    counting = sorted(str(x) for x in rule.problem.keys["write"].free_symbols & COUNTING)
    if counting:
        named = " and ".join(f"'{name}'" for name in counting)
        return f"write keys of slots that count with {named} are not compiled yet"
    return None


# -- what a rule is --------------------------------------------------------------------------


def _spec(rule: Rule) -> Spec:
    return rule.problem.spec


def _plain(rule: Rule) -> bool:
    """Return whether each token writes once, under one decay a head."""
    per = {s.symbol: s.per for s in rule.scalars}
    by_channel = any(per.get(s) in ("key", "outer") for s in rule.decay.free_symbols)
    single = rule.window == 1 and rule.momentum is None and rule.rows == 1
    return single and rule.row_decay == 1 and (rule.diagonal or not by_channel)


def _sums_weights(rule: Rule) -> bool:
    """Return whether the normaliser is Σ of decayed rates, which the forms keep as n."""
    additive = rule.structure.algebra == "additive" and not rule.diagonal
    return additive and _plain(rule) and _spec(rule).readout.memory == "after"


def _exponential(rule: Rule) -> bool:
    rate = rule.problem.scalar("eta")
    return rule.structure.algebra == "additive" and rate is not None and rate.logarithmic


def _keys_vary(rule: Rule) -> bool:
    """Return whether the vector of a role names a coefficient."""
    symbols = {s.symbol for s in rule.scalars}
    return any(expr.free_symbols & symbols for expr in rule.problem.keys.values())


def _moves_off_key(rule: Rule) -> bool:
    """Return whether a role's vector is no multiple of a key, so that no phase turns it along."""
    own = {sp.Symbol(name, real=True) for name in ("k", "predict", "erase", "write")}
    roles = (expr for role, expr in rule.problem.keys.items() if role in ROLES)
    return any(sp.expand(e.subs({k: 2 * k for k in own}) - 2 * e) != 0 for e in roles)


ROLES = ("predict", "erase", "write")


def _rows_alone(rule: Rule) -> bool:
    """Return whether nothing stands beside a row decay that a chunk would have to join it with."""
    per = {s.symbol: s.per for s in rule.scalars}
    by_row = all(per.get(s) == "value" for s in rule.row_decay.free_symbols)
    plain = rule.momentum is None and rule.window == 1 and rule.retained.link.identity
    return by_row and plain and _spec(rule).readout.memory == "after"


def _link_varies(rule: Rule) -> bool:
    """Return whether a token takes W_{t−1} = link(A_{t−1}) by a link that varies by token.

    A memory at a chunk's end is a state, so only reads of W_{t−1} at every token are concerned.
    """
    link = rule.retained.link
    if rule.retained.mode != "dual" or link.identity or not _takes_last_memory(rule):
        return False
    parts: list[Any] = [p for p in (link.expr, link.slope) if p is not None]
    if link.normaliser in ("softmax", "root", "ball"):
        parts += [rule.problem.value(str(scale), scale) for scale in _scales(rule)]
    own = frozenset().union(*(part.free_symbols for part in parts))
    moving = {s.symbol for s in rule.scalars if s.declared.origin == "input"} | {TIME}
    return bool(own & moving)


def _scales(rule: Rule) -> Iterator[Any]:
    """Yield the scale of each matrix's link: its own, or the one of all."""
    for matrix in rule.network.matrices:
        own = sym.coefficient(f"scale{matrix.name.removeprefix('W')}")
        yield rule.retained.link.scale if rule.problem.scalar(str(own)) is None else own


def _takes_last_memory(rule: Rule) -> bool:
    """Return whether tokens read or differentiate the memory that the token before has left."""
    before = rule.problem.spec.readout.memory == "before"
    return before or (rule.sees_memory and rule.anchor <= 1)


def _levels_and_more(rule: Rule) -> bool:
    """Return whether a rule has levels and tokens that write or carry more than one memory."""
    several = rule.window > 1 or takes_steps(rule) or rule.momentum is not None or rule.anchor > 1
    return isinstance(rule, Levels) and (several or rule.diagonal or _exponential(rule))


def _by_channel(rule: Rule, expr: Any) -> bool:
    """Return whether an expression differs by channel, which only the outer matrices have."""
    per = {s.symbol: s.per for s in rule.scalars}
    return any(per.get(s) in ("key", "outer", "value") for s in expr.free_symbols)


def _nests(rule: Rule) -> bool:
    """Return whether every interval is a multiple of the shorter ones."""
    return all(b % a == 0 for a, b in pairwise(rule.intervals))


REFUSALS: tuple[tuple[str, str, Callable[[Rule], bool]], ...] = (
    (
        "retention.decay",
        "a decay by channel on a memory of several layers, only one of which has these channels,",
        lambda r: (
            isinstance(r, Layers)
            and len(r.network.matrices) > 1
            and (_by_channel(r, r.decay) or r.row_decay != 1)
        ),
    ),
    (
        "optimizer.momentum",
        "momentum by channel on a memory of several layers, only one of which has these channels,",
        lambda r: (
            len(r.network.matrices) > 1 and r.momentum is not None and _by_channel(r, r.momentum)
        ),
    ),
    (
        "optimizer",
        "an interval (of the anchor, of O, of a chain) that is no multiple of a shorter one",
        lambda r: isinstance(r, Layers) and not _nests(r),
    ),
    (
        "retention.normalize",
        "normalising a memory that starts at zero, or one behind a link,",
        lambda r: (
            r.applied.normalize != "none"
            and (len(r.network.matrices) < 2 or not r.retained.link.identity)
        ),
    ),
    (
        "memory",
        "a diagonal memory behind an interval",
        lambda r: isinstance(r, Layers) and r.diagonal and not r.applied.elementwise,
    ),
    (
        "optimizer.momentum",
        "momentum on the write of a memory of layers, behind an interval or O",
        lambda r: isinstance(r, Layers) and r.split and r.momentum_on == "write",
    ),
    (
        "keys",
        "an erase key other than the write key, for a memory behind an interval or O,",
        lambda r: isinstance(r, Layers) and r.split and r.momentum_on != "write",
    ),
    (
        "readout.normalizer",
        "a normaliser of a rule that is no plain sum with one decay a head",
        lambda r: _spec(r).readout.normalizer != "none" and not _sums_weights(r),
    ),
    (
        "readout.bonus",
        "a bonus beside a window or several steps",
        lambda r: _spec(r).readout.bonus is not None and (r.window > 1 or takes_steps(r)),
    ),
    (
        "readout.memory",
        "a read-out before the token's own pair, with a method that solves over all pairs,",
        lambda r: _spec(r).readout.memory == "before" and isinstance(r, Moments),
    ),
    (
        "readout.memory",
        "a read-out before several steps",
        lambda r: _spec(r).readout.memory == "before" and takes_steps(r),
    ),
    (
        "readout.memory",
        "a read-out before a retention that acts at an anchor",
        lambda r: (
            _spec(r).readout.memory == "before" and r.retained.mode == "prox" and r.anchor > 1
        ),
    ),
    (
        "optimizer.anchor",
        "an f-divergence at an anchor",
        lambda r: r.retained.mode == "multiplicative" and r.anchor > 1,
    ),
    (
        "optimizer.rate",
        "an exponential rate of a rule with more than one write or decay a head",
        lambda r: _exponential(r) and not _plain(r),
    ),
    (
        "optimizer",
        "a window of several steps a token",
        lambda r: r.window > 1 and takes_steps(r),
    ),
    (
        "window",
        "a window of keys that depend on their position",
        lambda r: r.window > 1 and (r.phase or isinstance(_spec(r).features, Cosine)),
    ),
    (
        "keys",
        "a window of keys or values with coefficients",
        lambda r: r.window > 1 and not isinstance(r, KeyValuePairs) and _keys_vary(r),
    ),
    (
        "retention.phase",
        "a phase of features that are not as many as the key's channels",
        lambda r: r.phase and isinstance(_spec(r).features, RESIZING),
    ),
    (
        "retention.phase",
        "a phase that is a number or an expression (from: parameter learns one)",
        lambda r: r.phase and all(s.argument is None for s in r.scalars if s.name == "phase"),
    ),
    (
        "keys",
        "a key that is no multiple of k under a phase, which turns k alone,",
        lambda r: r.phase and _moves_off_key(r),
    ),
    (
        "retention.row_decay",
        "a row decay beside momentum, a window, a link or a read-out",
        lambda r: r.row_decay != 1 and "chunk" in r.structure.forms and not _rows_alone(r),
    ),
    (
        "readout.levels",
        "a tree of levels beside a window, momentum, an anchor, several steps, an exponential rate "
        "or a diagonal memory",
        _levels_and_more,
    ),
    (
        "retention",
        "a link that varies from token to token while each token sees the memory of the one before "
        "(an anchor keeps W)",
        _link_varies,
    ),
    (
        "memory",
        "a diagonal memory with a loss of the norm",
        lambda r: r.diagonal and r.error.uses_norm,
    ),
    (
        "memory",
        "a diagonal memory of features that are not elementwise",
        lambda r: r.diagonal and r.problem.features is None,
    ),
    (
        "memory",
        "a diagonal memory under a constraint",
        lambda r: r.diagonal and r.retained.link.normaliser != "none",
    ),
)
"""Each as its place in the spec, its words, and whether a rule asks for it."""
