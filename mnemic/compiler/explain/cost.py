"""Costs of one head: state, FLOPs and bytes a token, in training and in decoding.

Expressions in T, d_k, d_v, D, b (chunk), c (window), n (steps a token), m (hidden width) and s
(bytes a number). Products count twice, masks are dense, elementwise
work on vectors is left out. Training is the forward pass; the backward is some two or three more.
"""

from dataclasses import dataclass, fields
from typing import Any

import sympy as sp

from mnemic.compiler.explain.cost_forms import decode_flops, moved_keys, notes, state_size, train
from mnemic.compiler.explain.cost_kernels import kept_moved
from mnemic.compiler.explain.cost_layers import width
from mnemic.compiler.explain.cost_symbols import B, C, D, K, M, N, S, T, V
from mnemic.compiler.rule import KeyValuePairs, Layers, Moments, Rule
from mnemic.dsl.features import Cosine, Dpfp, Polynomial, Random, Taylor
from mnemic.dsl.memory import Linear

CHUNK = 64
"""The chunk that ``evaluate`` takes unless told."""


@dataclass(frozen=True)
class Cost:
    """Numbers kept, and FLOPs and bytes a token and head.

    ``features`` is D as an expression of d_k, ``fixed`` holds the sizes that the rule itself fixes
    (c, n, and the chunk of an anchor); ``notes`` say what the expressions leave out.
    """

    state: Any
    train_flops: Any
    train_bytes: Any
    decode_flops: Any
    decode_bytes: Any
    features: Any
    fixed: tuple[tuple[str, Any], ...]
    notes: tuple[str, ...] = ()

    def evaluate(self, **sizes: float) -> dict[str, float]:
        """Return the costs at sizes: ``d_k``, ``d_v`` and, where they enter, ``T``, ``b``, ``s``.

        ``D``, c, n and m follow from the rule unless given; b is 64 and s is 2 unless given.

        Raises KeyError naming a size that is missing, TypeError for one that is unknown.
        """
        known = {str(x): x for x in (T, K, V, D, B, C, N, M, S)}
        if unknown := sizes.keys() - known.keys():
            raise TypeError(f"unknown size {min(unknown)!r}, known: {', '.join(sorted(known))}")
        given = {"b": CHUNK, "s": 2, **dict(self.fixed), **sizes}
        table = {known[name]: sp.sympify(x) for name, x in given.items()}
        return {name: _number(expr, self.features, table) for name, expr in self.rows()}

    def rows(self) -> tuple[tuple[str, Any], ...]:
        """Return the five expressions by name."""
        names = [f.name for f in fields(self)][:5]
        return tuple((name, getattr(self, name)) for name in names)


def _number(expr: Any, features: Any, table: dict[Any, Any]) -> float:
    value = expr
    for _ in range(3):
        value = value.subs({D: features} if D not in table else {}).subs(table)
    if missing := sorted(map(str, value.free_symbols)):
        raise KeyError(missing[0])
    return float(value)


def feature_size(rule: Rule) -> Any:
    """Return D as an expression of d_k."""
    memory = rule.problem.spec.memory
    if isinstance(memory, Linear) and memory.slots:
        return sp.Integer(memory.slots)
    size = _plain_size(rule)
    return 2 * size if rule.phase else size


def _plain_size(rule: Rule) -> Any:
    match rule.problem.spec.features:
        case Polynomial(mode="power", degree=p):
            return K**p
        case Polynomial(degree=p) | Taylor(order=p):
            return sp.expand_func(sp.binomial(K + p, p))
        case Dpfp(nu=nu):
            return 2 * nu * K
        case Cosine():
            return 2 * K
        case Random(features=m):
            return sp.Integer(m)
    return K


def cost(rule: Rule) -> Cost:
    """Return the costs that follow from a rule's structure."""
    state = state_size(rule)
    flops, moved = train(rule)
    io = S * (2 * K + 2 * V)
    touched = 2 * S * state
    kept = rule.kernels is not None and not isinstance(rule, Layers)
    if kept or isinstance(rule, KeyValuePairs):
        touched = S * state + S * (K + V) + S * (kept_moved(rule) + moved_keys(rule))
    once = {N: 1} if _steps(rule) == 1 else {}
    parts = (state, flops, io + moved, decode_flops(rule), io + touched)
    numbers, train_flops, train_bytes, decode, decode_bytes = (
        sp.expand(sp.sympify(part).subs(once)) for part in parts
    )
    return Cost(
        numbers, train_flops, train_bytes, decode, decode_bytes,
        feature_size(rule), _fixed(rule), notes(rule),
    )  # fmt: skip


def _fixed(rule: Rule) -> tuple[tuple[str, Any], ...]:
    found: list[tuple[str, Any]] = [("c", rule.window), ("n", _steps(rule))]
    if rule.intervals:
        found.append(("b", rule.intervals[0]))
    if (hidden := width(rule)) is not None:
        found.append(("m", hidden))
    return tuple(found)


def _steps(rule: Rule) -> int:
    if isinstance(rule, Moments):
        return max(rule.solution.steps, rule.solution.iterations, 1)
    optimizer = rule.problem.spec.optimizer
    return optimizer.micro_steps * optimizer.inner_steps
