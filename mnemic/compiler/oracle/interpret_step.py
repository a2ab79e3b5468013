"""One token of a rule's normal form: G, S, A, W, in this order and nothing else."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.reference_links import TINY, apply_link, from_dual, multiply
from mnemic.compiler.rule import Rule

EPSILON = 1e-5
"""LayerNorm's, in a headed memory."""

Values = dict[Any, Tensor]


@dataclass(frozen=True)
class Pairs:
    """Tokens side by side along axis 1, [B, c, H, R, F]; ``square`` is ‖φ‖², ``column`` the kept
    pair that a token writes to (behind a kernel), ``gamma`` its weight."""

    predict: Tensor
    erase: Tensor
    write: Tensor
    value: Tensor
    raw: Tensor
    square: Tensor
    column: Tensor
    gamma: Tensor

    def joined(self, newer: "Pairs") -> "Pairs":
        """These tokens and then the newer ones."""
        return Pairs(*(torch.cat([a, b], 1) for a, b in zip(_all(self), _all(newer), strict=True)))

    def last(self, count: int) -> "Pairs":
        """The last ``count`` tokens."""
        return Pairs(*(x[:, x.shape[1] - count :] for x in _all(self)))


@dataclass(frozen=True)
class Counts:
    """The coefficient that each kept pair has in the memory, the momentum, the anchor."""

    memory: Tensor
    momentum: Tensor
    anchor: Tensor


@dataclass(frozen=True)
class State:
    """The dual A, its memory W, the momentum S, the memory at the last chunk end, the tail.

    Where a kernel's rows are divided by their sums ``counts`` are kept beside, [B, H, 1, N].
    """

    dual: Tensor
    memory: Tensor
    momentum: Tensor
    anchor: Tensor
    tail: Pairs
    counts: Counts | None = None


def _all(item: Any) -> list[Any]:
    return [getattr(item, f.name) for f in fields(item)]


def chosen(mask: Tensor, new: Any, old: Any) -> Any:
    """The new state where ``mask`` [B] holds, the old one elsewhere."""
    if new is None:
        return None
    if isinstance(new, Tensor):
        return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
    if isinstance(new, tuple):
        return tuple(chosen(mask, a, b) for a, b in zip(new, old, strict=True))
    parts = (chosen(mask, a, b) for a, b in zip(_all(new), _all(old), strict=True))
    return type(new)(*parts)


def counted(memory: Tensor, counts: Tensor | None) -> Tensor:
    """W with the coefficients of its pairs as one more row, where they are kept."""
    return memory if counts is None else torch.cat([memory, counts], -2)


def read(rule: Rule, memory: Tensor, key: Tensor, raw: Tensor) -> Tensor:
    """M(W, ·) of a query, a column [B, H, d_v, 1]."""
    return _read(rule, memory, key, raw, rule.kernels is not None and rule.kernels.read.normalised)


def predict(rule: Rule, memory: Tensor, key: Tensor, raw: Tensor) -> Tensor:
    """M(W, ·) of a key."""
    over_sum = rule.kernels is not None and rule.kernels.predict.normalised
    return _read(rule, memory, key, raw, over_sum)


def _inner(rule: Rule, memory: Tensor, key: Tensor, over_sum: bool) -> Tensor:
    """W φ(x), a kernel's row of weights divided by its sum where told (0 for an empty row)."""
    y = (memory * key).sum(-1, keepdim=True)
    if rule.kernels is None or not rule.kernels.normalised:
        return y
    y, total = y[..., :-1, :], y[..., -1:, :]
    return torch.where(total == 0, 0.0, y / torch.where(total == 0, 1.0, total)) if over_sum else y


def _read(rule: Rule, memory: Tensor, key: Tensor, raw: Tensor, over_sum: bool) -> Tensor:
    y = _inner(rule, memory, key, over_sum)
    entry = rule.problem.spec.memory
    if getattr(entry, "norm", False):
        centred = y - y.mean(-2, keepdim=True)
        y = centred / torch.sqrt((centred**2).mean(-2, keepdim=True) + EPSILON)
    return y + raw if getattr(entry, "residual", False) else y


def _through_head(rule: Rule, memory: Tensor, key: Tensor, error: Tensor) -> Tensor:
    """∂ℓ/∂(Wφ) from ∂ℓ/∂ŷ: the LayerNorm's transposed Jacobian, written out."""
    if not getattr(rule.problem.spec.memory, "norm", False):
        return error
    z = _inner(rule, memory, key, rule.kernels is not None and rule.kernels.predict.normalised)
    centred = z - z.mean(-2, keepdim=True)
    size = torch.sqrt((centred**2).mean(-2, keepdim=True) + EPSILON)
    unit = centred / size
    along = unit * (error * unit).mean(-2, keepdim=True)
    return (error - error.mean(-2, keepdim=True) - along) / size


def gradient(rule: Rule, memory: Tensor, pairs: Pairs, values: Values) -> tuple[Tensor, Tensor]:
    """G = Σ γ e ∘ key, in two parts: what erases and what writes."""
    erased = torch.zeros_like(pairs.value[:, 0] * pairs.write[:, 0])
    written = erased
    for i in range(pairs.value.shape[1]):
        key, value, gamma = pairs.predict[:, i], pairs.value[:, i], pairs.gamma[:, i]
        y = torch.zeros_like(value)
        if not rule.error.constant:
            y = predict(rule, memory, key, pairs.raw[:, i])
        here = {**values, sym.y: y, sym.v: value, **sizes(y - value, pairs.square[:, i])}
        if rule.split:
            erased = erased + gamma * evaluate(rule.error.slope, here) * y * pairs.erase[:, i]
            written = written + gamma * evaluate(rule.error.offset, here) * pairs.write[:, i]
        else:
            error = evaluate(rule.error.signal, here)
            error = _through_head(rule, memory, key, error)
            written = written + gamma * error * pairs.write[:, i]
    return erased, written


def sizes(residual: Tensor, square: Tensor) -> Values:
    """n and κ, kept off zero so that 0/0 in an error signal comes out as 0."""
    norm = (residual**2).sum(-2, keepdim=True).clamp_min(TINY**2).sqrt()
    return {sym.n: norm, sym.kappa: square.clamp_min(TINY)}


def micro_step(rule: Rule, state: State, pairs: Pairs, values: Values, *, first: bool) -> State:
    """One step of the optimizer; the decoupled decay acts in the first of a token."""
    retained = rule.retained
    decay = evaluate(retained.decay, values)
    if first:
        decay = evaluate(rule.decay, values) * evaluate(rule.row_decay, values)
    erased, written = gradient(rule, _seen(rule, state, values, first), pairs, values)
    rate, gain = evaluate(rule.rate, values), evaluate(rule.gain, values)
    momentum, step = state.momentum, -rate * (erased + written)
    if rule.momentum is not None:
        theta = evaluate(rule.momentum, values)
        on_write = rule.momentum_on == "write" and rule.split
        momentum = theta * momentum - rate * (written if on_write else erased + written)
        step = momentum - rate * erased if on_write else momentum
    if retained.mode == "multiplicative":
        memory = multiply(retained, decay * state.memory, gain * step, values)
        return State(memory, memory, momentum, state.anchor, state.tail)
    dual = decay * state.dual + gain * step
    memory = apply_link(retained.link, dual, values)
    counts = _counts(rule, state.counts, pairs, values, first)
    state = State(dual, memory, momentum, state.anchor, state.tail, counts)
    return mirrored(rule, state, values) if rule.anchor == 1 else state


def _counts(
    rule: Rule, counts: Counts | None, pairs: Pairs, values: Values, first: bool
) -> Counts | None:
    """What the memory would be if every pair wrote a one."""
    if counts is None:
        return None
    decay = evaluate(rule.decay if first else rule.retained.decay, values)
    fast = pairs.column.sum(1)
    if rule.momentum is not None:
        fast = evaluate(rule.momentum, values) * counts.momentum + fast
    return Counts(decay * counts.memory + fast, fast, counts.anchor)


def mirrored(rule: Rule, state: State, values: Values) -> State:
    """Put ∇R(W) for A, where the retention acts on W itself."""
    if rule.retained.mode != "prox":
        return state
    dual = evaluate(rule.retained.mirror, {**values, sym.w: state.memory})
    return State(dual, state.memory, state.momentum, state.anchor, state.tail, state.counts)


def _seen(rule: Rule, state: State, values: Values, first: bool) -> Tensor:
    """W_ref, with the coefficients of its pairs where they are kept."""
    memory = _reference(rule, state, values, first)
    if state.counts is None:
        return memory
    if rule.anchor > 1:
        return counted(memory, state.counts.anchor)
    before = first and rule.problem.spec.retention.order == "before"
    counts = state.counts.memory
    return counted(memory, evaluate(rule.seen, values) * counts if before else counts)


def _reference(rule: Rule, state: State, values: Values, first: bool) -> Tensor:
    """W_ref: the anchor, the last memory, or (order: before) the decayed one."""
    if rule.anchor > 1:
        return state.anchor
    if not first or rule.problem.spec.retention.order == "after":
        return state.memory
    seen = evaluate(rule.seen, values) * evaluate(rule.row_decay, values)
    if rule.retained.mode == "multiplicative":
        return seen * state.memory
    if rule.retained.mode == "prox" and rule.retained.link.normaliser == "none":
        return from_dual(rule.retained, seen * state.dual, values)
    return apply_link(rule.retained.link, seen * state.dual, values)
