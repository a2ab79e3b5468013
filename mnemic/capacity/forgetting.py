"""The influence of token i on the read-out at t, by autograd, beside the derived decay."""

from dataclasses import asdict, dataclass
from typing import Any

import sympy as sp
import torch
from torch import Tensor

from mnemic.bench.started import Tensors
from mnemic.capacity.inputs import of_layer
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.rule import Rule
from mnemic.pipeline import Compiled, derive

PROBES = 4
"""Random directions of each read-out, over which the sizes of Jacobians are means."""
TINY = 1e-300
"""What a decay of zero counts as."""


@dataclass(frozen=True)
class Influence:
    """``measured[t][i]``: the size of ∂y_t/∂v_i; ``decay[t][i]``: Π α over the tokens in between.

    ``decay`` is None where the rule has no decay. Entries with i > t are zero: a rule is causal.
    """

    spec: str
    measured: tuple[tuple[float, ...], ...]
    decay: tuple[tuple[float, ...], ...] | None

    def by_age(self) -> tuple[tuple[float, ...], tuple[float, ...] | None]:
        """Return the mean by age t − i, of what is measured and of the decay, 1 at age 0."""
        return _ages(self.measured), None if self.decay is None else _ages(self.decay)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, with the means by age."""
        measured, decay = self.by_age()
        return {**asdict(self), "by_age": {"measured": measured, "decay": decay}}


def influence(compiled: Compiled, x: Tensor, seed: int = 0) -> Influence:
    """Measure how each value moves each later read-out over inputs x [1, T, dim] of one head.

    The size of a Jacobian is estimated as ‖Jᵀ p‖ for random directions p, the same for all tokens.
    """
    given, params = of_layer(compiled, x, seed)
    v = given["v"].clone().requires_grad_()
    out, _ = compiled(**{**given, "v": v}, **({"params": params} if params else {}))
    return Influence(compiled.spec.name, _sizes(out[0, :, 0], v, seed), _decay(compiled, given))


def _sizes(out: Tensor, v: Tensor, seed: int) -> tuple[tuple[float, ...], ...]:
    rng = torch.Generator().manual_seed(seed)
    probes = torch.randn(PROBES, out.shape[-1], generator=rng, dtype=out.dtype)
    rows = []
    for t in range(len(out)):
        squares = torch.zeros(len(out), dtype=out.dtype)
        for probe in probes:
            (grad,) = torch.autograd.grad(out[t] @ probe, v, retain_graph=True)
            squares += grad[0].reshape(len(out), -1).square().sum(-1) / PROBES
        rows.append(tuple(squares.sqrt().tolist()))
    return tuple(rows)


def _decay(compiled: Compiled, given: Tensors) -> tuple[tuple[float, ...], ...] | None:
    """Compute Π_{i<s≤t} α_s, of channels the mean; None where the rule derives no decay."""
    rule = derive(compiled.spec)
    decay = sp.sympify(getattr(rule, "decay", 1) * getattr(rule, "row_decay", 1))
    if decay == 1:
        return None
    names = _named(rule, given)
    if {str(s) for s in decay.free_symbols} - set(names):
        return None
    alpha = evaluate(decay, {s: names[str(s)] for s in decay.free_symbols})
    length = given["q"].shape[1]
    logs = alpha.expand(length, *alpha.shape[1:]).reshape(length, -1).clamp(min=TINY).log()
    total = logs.cumsum(0)
    kept = (total[:, None] - total[None]).exp().mean(-1).tril()
    return tuple(tuple(row) for row in kept.tolist())


def _named(rule: Rule, given: Tensors) -> dict[str, Tensor]:
    """Return the rule's symbols as numbers [T, channels] of the one head."""
    length = given["q"].shape[1]
    places = torch.arange(length, dtype=torch.float64)[:, None]
    named = {str(TIME): places, str(HEAD): torch.zeros(1, 1), str(HEADS): torch.ones(1, 1)}
    for scalar in rule.scalars:
        if scalar.argument in given:
            x = given[scalar.argument][0].detach().double().reshape(length, -1)
            named[str(scalar.symbol)] = x.exp() if scalar.logarithmic else x
    return named


def _ages(table: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    sums = []
    for age in range(len(table)):
        found = [table[t][t - age] for t in range(age, len(table))]
        sums.append(sum(found) / len(found))
    first = sums[0] or 1.0
    return tuple(x / first for x in sums)
