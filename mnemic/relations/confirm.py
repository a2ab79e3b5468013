"""Confirm a relation in numbers: run both rules, token by token, on the same random inputs.

The algebra works on a rule written out for two channels. Here the derived rules themselves are
interpreted in float64 with d_k = 4 and d_v = 3 over six tokens and two heads, with the outer one's
coefficients computed from the inner one's by the change that the algebra found.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp
import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.compare.changes import general
from mnemic.compiler.compare.entry_form import family
from mnemic.compiler.compare.matching import STRETCH
from mnemic.compiler.compare.special import Special, edited
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.numbers import same_number
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.reference_features import feature_map, weights_of
from mnemic.compiler.problem import HEAD, HEADS, TIME, Scalar
from mnemic.compiler.rule import Rule
from mnemic.dsl.spec import Spec
from mnemic.relations.relation import Relation
from mnemic.relations.search import Found

TOKENS, HEADS_RUN, KEYS, VALUES = 6, 2, 4, 3
EXACT = 1e-9
"""The largest relative difference of outputs that rounding explains."""
FAR = (1e5, 1e7)
"""What stands for infinity: the difference must fall with it, or be gone already."""
TERMS = (2, 8)
"""What stands for all terms of a series."""
ROLES = ("predict", "erase", "write", "carry")
Arguments = dict[str, Tensor]


class Unconfirmed(Exception):
    """A relation that cannot be run: the message says why."""


@dataclass(frozen=True)
class Run:
    """Random inputs of an inner rule, its arguments, and its natural coefficients by symbol."""

    vectors: tuple[Tensor, Tensor, Tensor]
    arguments: Arguments
    natural: dict[Any, Tensor]
    params: Arguments


def confirm(found: Found, rules: Mapping[str, Rule], seed: int = 0) -> Relation:
    """Return the relation with the largest difference of the two rules' outputs as its ``error``.

    Where the outer rule is undefined at the value itself (a write k/η at η = 0) the value is
    approached, and the relation is a limit. Raises ``Unconfirmed`` where the relation cannot be run
    or the outputs differ: by more than 1e-9 of the largest output, or for a limit by more than a
    fiftieth of the difference at a distance from the limit that is a hundred times larger.
    """
    inner, outer = rules[found.relation.inner], rules[found.relation.outer]
    reach = max(_tokens(inner), _tokens(outer))
    if found.at.edits and not any(edit.endswith("=oo") for edit in found.at.edits):
        outer = _edited(outer.problem.spec, found.at.edits, reach)
    if found.where.edits:
        inner = _edited(inner.problem.spec, found.where.edits, reach)
    tokens = max(_tokens(inner), _tokens(outer))
    run = _placed(_drawn(inner, outer, tokens, seed), inner, found.where)
    if found.at.first and not found.at.faint:
        return _to_first_order(found, inner, outer, run)
    exact = found.relation.kind != "limit"
    if exact:
        error = _miss(found, inner, outer, run, 0.0)
        if error < EXACT:
            return replace(found.relation, error=error)
        if np.isfinite(error):
            raise Unconfirmed(f"outputs differ by {error:.1e}")
    near, error = (_miss(found, inner, outer, run, far) for far in FAR)
    if not (error < EXACT or error < near / 50):
        raise Unconfirmed(f"outputs differ by {near:.1e}, then by {error:.1e} towards the limit")
    return replace(found.relation, kind="limit", error=error)


def _to_first_order(found: Found, inner: Rule, outer: Rule, run: Run) -> Relation:
    """Return the relation with the difference between what two rules learn by steps of size ε.

    Relative to what was learned it decreases in proportion to ε if they agree to first order.
    """

    def both(size: float) -> tuple[Tensor, Tensor]:
        short = _shortened(run, inner, size)
        vectors, arguments = _changed(found, inner, outer, short, 0.0)
        mine, _ = interpret(inner, *short.vectors, short.arguments)
        return mine, interpret(outer, *vectors, arguments)[0]

    rest, sizes = both(0.0), (1e-3, 1e-5)
    near, error = (
        float((a - rest[0] - b + rest[1]).abs().max() / (a - rest[0]).abs().max())
        for a, b in map(both, sizes)
    )
    if not error < near / 50:
        raise Unconfirmed(f"what is learned differs by {near:.1e}, then by {error:.1e}")
    return replace(found.relation, error=error)


def _shortened(run: Run, inner: Rule, size: float) -> Run:
    """Shorten the steps of the inner rule in a run by the factor ``size``."""
    rates = sp.sympify(inner.rate).free_symbols
    names = {s.argument for s in inner.scalars if s.symbol in rates}
    arguments = {n: x * size if n in names else x for n, x in run.arguments.items()}
    natural = {s: x * size if s in rates else x for s, x in run.natural.items()}
    return replace(run, arguments=arguments, natural=natural)


def _miss(found: Found, inner: Rule, outer: Rule, run: Run, far: float) -> float:
    """Return the largest relative difference of outputs, with ``far`` for ∞ and 1/``far`` for 0."""
    if any(edit.endswith("=oo") for edit in found.at.edits):
        outer = _edited(outer.problem.spec, _far(found.at.edits, far), TOKENS)
    mine, _ = interpret(inner, *run.vectors, run.arguments, params=run.params)
    vectors, arguments = _changed(found, inner, outer, run, far)
    try:
        if found.at.first:
            theirs = _learned(found, outer, vectors, arguments, run.params, far)
        else:
            theirs, _ = interpret(outer, *vectors, arguments, params=run.params)
    except (RuntimeError, ValueError, KeyError, IndexError) as error:
        raise Unconfirmed(f"cannot be run on the other's inputs: {error}") from error
    theirs = theirs[..., : mine.shape[-1]]
    return float((mine - theirs).abs().max() / (mine.abs().max() + 1e-300))


def _learned(
    found: Found, rule: Rule, vectors: tuple[Tensor, Tensor, Tensor], arguments: Arguments,
    params: Arguments, far: float,
) -> Tensor:  # fmt: skip
    """Return ``far`` times the change of the read-out by steps shortened by 1/``far``."""
    faint = {s.argument for s in rule.scalars if s.symbol in found.at.faint}
    small, none = (
        {name: x * factor if name in faint else x for name, x in arguments.items()}
        for factor in (1 / far, 0.0)
    )
    rest, _ = interpret(rule, *vectors, none, params=params)
    return (interpret(rule, *vectors, small, params=params)[0] - rest) * far


def _edited(spec: Spec, edits: tuple[str, ...], reach: int) -> Rule:
    """Derive the rule of a spec after edits."""
    return derive_spec(edited(spec, edits, reach))


def _far(edits: tuple[str, ...], far: float) -> tuple[str, ...]:
    """Replace infinity in edits by a number: of terms for a series, else ``far``."""
    terms = TERMS[FAR.index(far)] if far in FAR else TERMS[-1]
    return tuple(
        edit.replace("=oo", f"={terms}" if edit.startswith("features") else f"={far:.1f}")
        for edit in edits
    )


def _tokens(rule: Rule) -> int:
    """Return how many tokens to run: some more than a rule's longest interval."""
    longest = max([rule.anchor, rule.problem.spec.optimizer.every,
                   *(m.every for m in rule.network.matrices)])  # fmt: skip
    return TOKENS if longest == 1 else longest + TOKENS


def _drawn(inner: Rule, outer: Rule, tokens: int, seed: int) -> Run:
    """Draw random vectors, coefficients in (0.1, 0.9) and parameters of a rule."""
    source = torch.Generator().manual_seed(seed)
    square = inner.diagonal or inner.network.adds_input or outer.network.adds_input
    values = KEYS if square else VALUES
    values *= 2 if inner.diagonal and inner.phase else 1

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    steps = inner.problem.spec.optimizer.micro_steps
    rows = (1, tokens, steps, HEADS_RUN) if steps > 1 else (1, tokens, HEADS_RUN)
    q = draw(1, tokens, HEADS_RUN, KEYS)
    k, v = _short(draw(*rows, KEYS), source), draw(*rows, values)
    size = phi(inner, k, ()).shape[-1] if inner.kernels is None else KEYS
    widths = {"key": size, "value": values, "outer": size}
    arguments, natural = {}, {}
    for scalar in inner.scalars:
        if scalar.argument is None:
            continue
        shape = _shape(inner, scalar, rows, widths)
        x = 0.1 + 0.8 * torch.rand(*shape, generator=source, dtype=torch.float64)
        arguments[scalar.argument] = torch.log(x) if scalar.logarithmic else x
        natural[scalar.symbol] = x if scalar.per != "head" else x[..., None]
    for role in ROLES:
        if (entry := getattr(inner.problem.spec.keys, role)) is not None and entry.own:
            arguments[role] = _short(draw(*rows, KEYS), source)
    params = {}
    for m in inner.parameters:
        sides = _side(m.rows, values, size), _side(m.columns, values, size)
        params[m.name] = draw(HEADS_RUN, *sides) / 2
    return Run((q, k, v), arguments, natural, params)


def _placed(run: Run, inner: Rule, where: Special) -> Run:
    """Put the inner rule's coefficients and keys in a run at special values of its own."""
    arguments, natural, (q, k, v) = dict(run.arguments), dict(run.natural), run.vectors
    if where.unit:
        q, k = (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (q, k))
    for scalar in inner.scalars:
        for symbol, value in where.values:
            if symbol == scalar.symbol and scalar.argument is not None:
                natural[symbol] = torch.full_like(natural[symbol], float(value))
                x = torch.full_like(arguments[scalar.argument], float(value))
                x = torch.log(x).clamp(min=-700) if scalar.logarithmic else x
                arguments[scalar.argument] = x
    arguments |= {str(s): k for s, value in where.values if str(s) in ROLES and str(value) == "k"}
    return replace(run, vectors=(q, k, v), arguments=arguments, natural=natural)


def _short(x: Tensor, source: torch.Generator) -> Tensor:
    """Scale vectors to lengths in (0.5, 0.95), whose steps lie in every coefficient's range."""
    sizes = 0.5 + 0.45 * torch.rand(*x.shape[:-1], 1, generator=source, dtype=x.dtype)
    short: Tensor = sizes * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return short


def phi(rule: Rule, k: Tensor, weights: Any) -> Tensor:
    """Return the features of keys at their positions."""
    places = torch.arange(k.shape[1]).reshape(1, -1, *(1,) * (k.ndim - 3))
    if not weights:
        names = {s.symbol: torch.ones((), dtype=torch.float64) for s in rule.scalars}
        weights = weights_of(rule.problem, names)
    return feature_map(rule.problem, k, places, weights)


def _side(side: str, values: int, features: int) -> int:
    return {"d_v": values, "v": values, "D": features, "k": features}.get(side, 5)


def _shape(
    rule: Rule, scalar: Scalar, rows: tuple[int, ...], widths: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the shape of a coefficient's argument."""
    micro = len(rows) == 4 and scalar.name in ("eta", "delta")
    plain = rows if micro else (1, rows[1], HEADS_RUN)
    if scalar.name == "levels":
        return (*plain, getattr(rule, "levels", 1))
    if scalar.name == "gamma" and rule.gamma == "window":
        return (*plain, rule.window)
    if scalar.name == "phase" and scalar.per != "head":
        return (*plain, KEYS)
    return plain if scalar.per == "head" else (*plain, widths[scalar.per])


def _changed(
    found: Found, inner: Rule, outer: Rule, run: Run, far: float
) -> tuple[tuple[Tensor, Tensor, Tensor], Arguments]:
    """Return the outer rule's vectors and arguments, by the special values and the change."""
    q, k, v = run.vectors
    if found.on_features:
        q, k = phi(inner, q, ()), phi(inner, k, ())
    names = _names(inner, run)
    special = {s: _finite(x, far) for s, x in found.at.values}
    change = tuple((s, _finite(x, far)) for s, x in found.match.change)
    found = replace(found, match=replace(found.match, change=change))
    steps = outer.problem.spec.optimizer.micro_steps
    more = steps > 1 and k.ndim == 4
    tokens = k.shape[1]
    rows = (1, tokens, steps, HEADS_RUN) if steps > 1 else (1, tokens, HEADS_RUN)
    wide = phi(outer, k, ()).shape[-1] if outer.kernels is None else KEYS
    widths = {"key": wide, "value": v.shape[-1], "outer": wide}
    arguments: Arguments = {}
    for scalar in outer.scalars:
        if scalar.argument is not None:
            x = _value(scalar, _shape(outer, scalar, rows, widths), found, special, names, run)
            x = x / far if scalar.symbol in found.at.faint else x
            arguments[scalar.argument] = torch.log(x).clamp(min=-700) if scalar.logarithmic else x
    change_values = dict(change)
    v = v * _evaluate_change(found.match.scale, names)
    if STRETCH in change_values:
        q = q * _evaluate_change(change_values[STRETCH], names)
    if found.at.grown or found.at.faint:
        v = v * far
    if found.at.shrunk:
        q, v = q / far, v * far**found.at.shrunk
    if found.at.scaled is not None:
        v = v / float(special[found.at.scaled])
    if outer.diagonal and outer.phase and v.shape[-1] == KEYS:  # real numbers as complex ones
        v = torch.cat([v, torch.zeros_like(v)], -1)
    for role in ROLES:
        own = _key(role, found, names)
        arguments[role] = run.arguments.get(role, k) if own is None else own.expand_as(k)
    own = _key("k", found, names)
    k = k if own is None else own.expand_as(k)
    if more:
        k, v = (x[:, :, None].expand(-1, -1, steps, -1, -1) for x in (k, v))
        arguments |= {role: arguments[role][:, :, None].expand_as(k) for role in ROLES}
    return (q, k, v), arguments


def _key(role: str, found: Found, names: Mapping[str, Tensor]) -> Tensor | None:
    """Return the key that a change gives in terms of coefficients and k; None for a role that it
    does not change."""
    entries = [(s, x) for s, x in found.match.change if family(str(s)) == role]
    return _one(entries, names) if entries else None


def _finite(value: Any, far: float) -> Any:
    """Return a value, or one near it where it is infinite or (on the way to a limit) zero."""
    if value == sp.oo:
        return sp.Float(far)
    return sp.Float(1 / far) if far and value == 0 else value


def _names(inner: Rule, run: Run) -> dict[str, Tensor]:
    """Return what a change may be written in: coefficients, ‖φ(k)‖², the head and the step."""
    k = run.vectors[1]
    names = {str(symbol): x for symbol, x in run.natural.items()}
    names |= {"k": k, **{role: x for role, x in run.arguments.items() if role in ROLES}}
    names[str(HEAD)] = torch.arange(HEADS_RUN, dtype=torch.float64)[:, None]
    names[str(sym.d_k)] = torch.tensor(float(k.shape[-1]), dtype=torch.float64)
    names[str(HEADS)] = torch.tensor(float(HEADS_RUN), dtype=torch.float64)
    names[str(TIME)] = torch.arange(k.shape[1], dtype=torch.float64)[:, None, None]
    if inner.kernels is None:
        names[str(sym.kappa)] = phi(inner, k, ()).square().sum(-1, keepdim=True)
    return names


def _evaluate_change(value: Any, names: Mapping[str, Tensor]) -> Tensor:
    """Evaluate an expression of the change; raise Unconfirmed for a name without a value."""
    value = sp.sympify(value)
    missing = sorted(str(s) for s in value.free_symbols if str(s) not in names)
    if missing:
        raise Unconfirmed(f"{value} names {', '.join(missing)}, which has no number here")
    return evaluate(value, {s: names[str(s)] for s in value.free_symbols})


def _value(
    scalar: Scalar, shape: tuple[int, ...], found: Found, special: Mapping[Any, Any],
    names: Mapping[str, Tensor], run: Run,
) -> Tensor:  # fmt: skip
    """Return a coefficient of the outer rule in the shape of its argument."""
    entries = [(s, x) for s, x in found.match.change if family(str(s)) == scalar.name]
    if scalar.symbol in special:
        return torch.full(shape, float(special[scalar.symbol]), dtype=torch.float64)
    own = run.natural.get(scalar.symbol)
    if own is not None and all(s == x for s, x in entries):  # of features, or not changed
        own = own if scalar.per != "head" else own[..., 0]
        if own.shape == shape:
            return own
    if not entries:  # without effect at these values
        return torch.full(shape, 0.5, dtype=torch.float64)
    if (
        scalar.per == "head"
        and scalar.name != "gamma"
        and {_mark(str(s)) for s, _ in entries} > {0}
    ):
        of_steps = [[e for e in entries if _mark(str(e[0])) == j] for j in range(shape[2])]
        found_steps = [_one(step, names)[..., 0] for step in of_steps]
        return torch.stack([x.expand(1, shape[1], HEADS_RUN) for x in found_steps], 2)
    if any(_mark(str(s)) for s, _ in entries):
        raise Unconfirmed(f"{scalar.name} differs from step to step")
    x = _one(entries, names)
    narrow = len(shape) == 3 or (len(shape) == 4 and shape[2] != HEADS_RUN)
    if narrow and x.shape[-1] == 1:
        x = x[..., 0]
    return x.expand(shape).clone()


def _one(entries: list[tuple[Any, Any]], names: Mapping[str, Tensor]) -> Tensor:
    """Return the one value of a coefficient's entries, channels last; raise if they differ."""
    values = [general(s, x)[1] for s, x in entries]
    if not all(same_number(values[0], x, 2) for x in values[1:]):
        raise Unconfirmed(f"{entries[0][0]} differs from channel to channel")
    return _evaluate_change(values[0], names) + torch.zeros(1, dtype=torch.float64)


def _mark(symbol: str) -> int:
    """Parse the step within a token (or the place in a window) that a symbol is marked with."""
    found = re.search(r"__(\d+)$", symbol)
    return int(found[1]) if found else 0
