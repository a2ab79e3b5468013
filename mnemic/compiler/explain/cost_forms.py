"""FLOPs and traffic of each structural class, the parts read off the rule."""

from typing import Any

import sympy as sp
from sympy.codegen.cfunctions import log2

from mnemic.compiler.explain.cost_kernels import kept_decoding, kept_state, kept_training
from mnemic.compiler.explain.cost_layers import layered_decode, layered_state, layered_train
from mnemic.compiler.explain.cost_symbols import B, C, D, K, N, S, T, V
from mnemic.compiler.rule import (
    Fit,
    KeyValuePairs,
    Layers,
    LeastSquares,
    Levels,
    Linear,
    Moments,
    Rule,
)

ZERO = sp.Integer(0)

GROWS = "the state grows with T"


def state_size(rule: Rule) -> Any:
    """Return how many numbers are carried from one token to the next."""
    match rule:
        case KeyValuePairs():
            count = C - 1 if rule.window > 1 else T
            each = K + V + (1 if rule.decay != 1 else 0)
            return count * each + (T**2 if rule.fit.kind == "interpolation" else 0)
        case Moments():
            return D**2 + D * V
        case Layers():
            return layered_state(rule) + _tail(rule)
        case Linear() | Levels() if rule.kernels is not None:
            return kept_state(rule)
        case Linear() | Levels():
            return _linear_state(rule)


def _tail(rule: Rule) -> Any:
    """Count the numbers kept of a window's past tokens; no keys where all keys are kept anyway."""
    keys = K if rule.kernels is None else ZERO
    return (C - 1) * (keys + V + int(rule.gamma == "token")) if rule.window > 1 else 0


def _linear_state(rule: Linear | Levels) -> Any:
    memory = matrix(rule)
    sees = not (rule.error.constant and rule.network.linear)
    copies = 1 + (rule.momentum is not None) + (rule.anchor > 1 and sees)
    spec = rule.problem.spec
    normaliser = {"none": 0, "sum": D, "max1": D + 1}[spec.readout.normalizer]
    slots = K * D if slotted(rule) else 0
    copies = copies * (rule.levels if isinstance(rule, Levels) else 1)
    return copies * memory + _tail(rule) + normaliser + slots + (K if rule.phase else 0)


def moved_keys(rule: Rule) -> Any:
    """Return how many numbers of stored keys a token moves."""
    if not isinstance(rule, KeyValuePairs) or rule.fit.carry is None:
        return ZERO
    return K * (C - 1 if rule.window > 1 else T)


def buckets(rule: Rule) -> Any:
    """Return how many memories T tokens may fill: one a binary digit of T, or one."""
    return log2(T) if isinstance(rule, Levels) else sp.Integer(1)


def matrix(rule: Rule) -> Any:
    """Return how many numbers one memory has: W, or the vector of a diagonal memory."""
    return D if rule.diagonal else D * V


def slotted(rule: Rule) -> bool:
    """Return whether a companion memory of keys, with d_k for d_v, is kept too."""
    return bool(getattr(rule.problem.spec.memory, "slots", None))


def train(rule: Rule) -> tuple[Any, Any]:
    """Return forward FLOPs a token, and the bytes moved beyond q, k, v and y."""
    states = S * state_size(rule) / B
    match rule:
        case KeyValuePairs():
            return _fitted(rule), ZERO
        case Moments():
            return _second_order(rule.solution), states
        case _ if rule.structure.kind == "sequential":
            return decode_flops(rule), ZERO
        case Layers():
            return layered_train(rule), states if rule.kernels is None else ZERO
        case Linear() | Levels() if rule.kernels is not None:
            return kept_training(rule), ZERO
        case Linear() | Levels():
            flops = _chunked(rule) + (_every_bucket(rule) if isinstance(rule, Levels) else 0)
            return flops + (flops.subs(V, K) if slotted(rule) else 0), states


def _iterations(rule: Rule) -> int:
    return rule.problem.spec.optimizer.solver.most


def _fitted(rule: KeyValuePairs) -> Any:
    """Count attention; for a line two more products an iteration, or a system formed and solved."""
    if rule.fit.kind == "interpolation":
        return 2 * T * K + 2 * T * V + T**2 + T**2 / 3
    once = _attention(rule) + _moves(rule)
    if rule.fit.kind == "mean":
        return once
    product = _attention(rule).subs({K: 2 * K, V: 0})
    if steps := _iterations(rule):
        return 2 * once + steps * product
    return 2 * once + K * product / 2 + sp.Rational(2, 3) * K**3


def _moves(rule: KeyValuePairs) -> Any:
    """Count the FLOPs of moving stored keys: W Kᵀ, its triangular solve, the correction of Q Kᵀ,
    and one matrix for each block in between."""
    if rule.fit.carry is None:
        return ZERO
    seen = 2 * C if rule.window > 1 else T
    return seen * (K + 2 * B + K**2 / B)


def _attention(rule: Rule) -> Any:
    """Count two products over the past, half of which a causal mask leaves out."""
    return 2 * C * (K + V) if rule.window > 1 else T * (K + V)


def _chunked(rule: Rule) -> Any:
    """Count read, update and products inside a chunk; each key with an error solves for it."""
    width = B * (D + (1 if rule.diagonal else V))
    whole = matrix(rule)
    momentum = 4 * whole + 2 * B if rule.momentum is not None else ZERO
    if rule.structure.kind == "additive":
        window = 2 * B * C if rule.window > 1 else ZERO
        return N * (2 * whole + 2 * width) + 2 * whole + window + momentum
    if rule.structure.kind == "frozen":
        return 6 * whole + 2 * width + momentum + _link(rule)
    keys = C if rule.shared_rows else N
    return keys * (4 * whole + 4 * width) + 2 * whole + momentum


def _every_bucket(rule: Rule) -> Any:
    """Count reads of the filled buckets, on average half of those above the chunk's own. A rule
    that erases also multiplies each bucket by two matrices of the chunk's keys."""
    filled = log2(T / B) / 2
    read = 2 * (filled - 1) * matrix(rule)
    if rule.error.constant:
        return read
    return read + 4 * filled * matrix(rule) + 2 * B * (D + B)


def _link(rule: Rule) -> Any:
    return ZERO if rule.retained.link.identity else 4 * matrix(rule)


def _second_order(solution: LeastSquares) -> Any:
    if solution.steps or solution.iterations:
        return N * (2 * D**2 + 4 * B * D) + 2 * D**2 + 4 * D * V + 2 * B * (D + V)
    if not solution.inverted:
        return 2 * B * D**2 + D**3 / 3 + 4 * D**2 + 4 * D * V + 2 * B * (D + V)
    cholesky = B**2 / 3
    return 4 * D**2 + 6 * D * V + B * (5 * D + 3 * V) + cholesky


def decode_flops(rule: Rule) -> Any:
    """Return FLOPs of one token of the recurrence."""
    match rule:
        case KeyValuePairs():
            return _decoded(rule)
        case Moments(solution=solution):
            solve = N * 2 * D**2 if solution.steps else _solve_once(solution)
            return solve + 2 * D**2 + 4 * D * V + 2 * D * V
        case Layers():
            return N * layered_decode(rule)
        case Linear() | Levels() if rule.kernels is not None:
            return kept_decoding(rule)
        case Linear() | Levels():
            return _linear_decoding(rule)


def _linear_decoding(rule: Linear | Levels) -> Any:
    whole = matrix(rule)
    keys = C if rule.window > 1 else N
    each = 2 * whole if rule.error.constant else 4 * whole
    decay = whole if rule.decay != 1 or rule.row_decay != 1 else ZERO
    momentum = 2 * whole if rule.momentum is not None else ZERO
    flops = keys * each + 2 * whole + decay + momentum + _link(rule)
    flops = flops * buckets(rule)
    return flops + (flops.subs(V, K) if slotted(rule) else 0)


def _decoded(rule: KeyValuePairs) -> Any:
    """Count one query: every stored pair read, and what is solved."""
    count = C if rule.window > 1 else T
    if rule.fit.kind == "interpolation":
        return 2 * T**2 + 4 * T * K + 4 * T * V
    moves = 4 * moved_keys(rule)
    once = 2 * count * (K + V)
    if rule.fit.kind == "mean":
        return once + moves
    return moves + 2 * once + 2 * count * K**2 + sp.Rational(2, 3) * K**3


def _solve_once(solution: LeastSquares) -> Any:
    """Count one query: a rank-one update of the inverse, or a Cholesky factor."""
    return 6 * D**2 if solution.inverted else D**3 / 3 + 2 * D**2


def notes(rule: Rule) -> tuple[str, ...]:
    """Say what the cost expressions leave out."""
    found = [GROWS] if rule.kernels is not None else []
    match rule:
        case KeyValuePairs(fit=Fit(kind="interpolation")):
            found.append(f"{GROWS}, as T²")
        case KeyValuePairs(window=1):
            found.append(GROWS)
    if isinstance(rule, KeyValuePairs) and rule.fit.kind == "linear" and _iterations(rule):
        found.append("every iteration of the conjugate gradients is counted; most end sooner")
    if any(s.per == "key" and s.name == "alpha" for s in rule.scalars):
        found.append("a channel decay adds (b/16)·D exponentials a token inside a chunk")
    if rule.structure.algebra == "residual":
        found.append("the residuals' system is counted as the delta rule's; e comes on top")
    if isinstance(rule, Moments) and rule.solution.iterations:
        found.append("n is the most iterations of conjugate gradients; a chunk takes what it needs")
    if rule.structure.algebra == "sequential":
        found.append("training runs the recurrence: T steps one after another")
    if rule.retained.link.expr is None and not rule.retained.link.identity:
        found.append("each entry of the link is a root found numerically")
    if rule.structure.refused:
        found.append("an estimate: the rule is not compiled yet")
    return tuple(found)
