"""A compiled operator on a task of the memory alone: its error over positions, untrained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from mnemic.errors import Issue, nearest
from mnemic.search.tasks.exercise import Split
from mnemic.search.tasks.memory_task import MemoryTask, Pairs, errors
from mnemic.search.tasks.options import refuse

NO_ANSWER: Final = ("Forgotten", "Diverged")
"""What rules raise of numbers that they lost; each compiled folder has classes of its own."""


@dataclass(frozen=True)
class Outcome:
    """How a memory did on a task of the memory alone.

    Args:
        score: the mean of ``errors``; infinite where the memory diverged, had a singular system
            to solve, or forgot all that its system was made of.
        worst: the mean over positions in the sequence that went worst.
        errors: [T]: the relative error of each prediction, a mean over sequences.
        coefficients: the constants that the operator was given, by argument.
    """

    score: float
    worst: float
    errors: Tensor
    coefficients: dict[str, float]

    def between(self, low: float, high: float) -> float:
        """Return the mean error over a part of the sequence, told as shares of its length."""
        length = len(self.errors)
        return self.errors[math.floor(low * length) : math.ceil(high * length)].mean().item()


@torch.no_grad()
def evaluate(
    operator: Any,
    task: MemoryTask[Any],
    coefficients: Mapping[str, float] | None = None,
    *,
    sequences: int = 32,
    seed: int = 0,
    split: Split = "test",
    unit: bool = False,
    unit_keys: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Outcome:
    """Compute the error of M_t(k_{t+1}) against v_{t+1}, with every coefficient a constant.

    Args:
        operator: a compiled spec or its operator; keys and queries are used as they are.
        task: what to predict.
        coefficients: by the operator's own arguments (``eta``, ``log_alpha``, …), each for all
            tokens and coordinates; `midway` for those that are not told.
        sequences: how many to take the mean over, at least 1.
        seed: of the stream, and of a deep memory's initial matrices.
        split: which stream.
        unit: whether answers are scaled to the norm of the values (an output normalisation).
        unit_keys: whether keys and queries are scaled to norm 1.
        dtype: of the arithmetic.

    Raises:
        UsageError: a coefficient that the operator does not take.
    """
    rule = getattr(operator, "operator", operator)
    constants = {**midway(rule), **_known(rule, coefficients or {})}
    pairs = task.pairs(task.generator(seed, split), sequences, split)
    if unit_keys:
        pairs = Pairs(pairs.keys / pairs.keys.norm(dim=-1, keepdim=True), pairs.values)
    arguments = _arguments(rule, pairs, constants, seed)
    due = pairs.values[:, 1:]
    try:
        out = rule(**{name: _as(x, dtype) for name, x in arguments.items()})[0]
    except (torch.linalg.LinAlgError, ValueError) as error:  # type: ignore[attr-defined]
        if isinstance(error, ValueError) and type(error).__name__ not in NO_ANSWER:
            raise
        answers = torch.full_like(due, math.inf)
    else:
        answers = out[:, :, 0].double()
    if unit:
        norms = due.norm(dim=-1, keepdim=True)
        answers = norms * answers / answers.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    found = errors(answers, due).nan_to_num(math.inf, math.inf)
    return Outcome(found.mean().item(), found.mean(1).max().item(), found.mean(0), constants)


def tuned(
    operator: Any, task: MemoryTask[Any], *, draws: int = 24, sequences: int = 32, seed: int = 0,
    unit: bool = False, unit_keys: bool = False, dtype: torch.dtype = torch.float64,
) -> Outcome:  # fmt: skip
    """Evaluate with the best of some random constants, chosen on the train stream alone.

    The first draw is `midway`; the others come from each coefficient's range. The best is the
    one whose worst sequence is best, for constants at the edge of stability have a low mean
    until one sequence diverges. An operator without coefficients is evaluated at once.
    """
    rule = getattr(operator, "operator", operator)
    generator = torch.Generator().manual_seed(seed)
    told = [midway(rule)]
    if rule.coefficients:
        told += [_drawn(rule, generator) for _ in range(draws - 1)]

    def run(constants: Mapping[str, float], split: Split) -> Outcome:
        return evaluate(
            rule, task, constants, sequences=sequences, seed=seed, split=split,
            unit=unit, unit_keys=unit_keys, dtype=dtype,
        )  # fmt: skip

    tried = [run(one, "train") for one in told] if len(told) > 1 else []
    best = min(tried, key=lambda outcome: outcome.worst, default=None)
    return run(told[0] if best is None else best.coefficients, "test")


def midway(operator: Any) -> dict[str, float]:
    """Return plain constants for all coefficients: a gate nearly open, a step of 1/2, no shift."""
    return {name: _midway(c.low, c.high) for name, c in operator.coefficients.items()}


def _midway(low: float, high: float) -> float:
    """Return the middle of a finite range, a point near its one finite end, or zero."""
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    if math.isfinite(low):
        return low + 0.5
    return high - 0.01 if math.isfinite(high) else 0.0


def _drawn(operator: Any, generator: torch.Generator) -> dict[str, float]:
    """Draw a constant for each coefficient, far and wide in its range."""
    found = {}
    for name, c in operator.coefficients.items():
        uniform, normal = torch.rand(1, generator=generator), torch.randn(1, generator=generator)
        if math.isfinite(c.low) and math.isfinite(c.high):
            found[name] = c.low + (c.high - c.low) * uniform.item()
        elif math.isfinite(c.low):
            found[name] = c.low + 10 ** (5 * uniform.item() - 3)
        elif math.isfinite(c.high):
            found[name] = c.high - 10 ** (4 * uniform.item() - 4)
        else:
            found[name] = normal.item()
    return found


def _known(operator: Any, coefficients: Mapping[str, float]) -> Mapping[str, float]:
    names = tuple(operator.coefficients)
    refuse(
        [
            Issue(f"no coefficient of {operator.name}", "", name, names, nearest(name, names))
            for name in coefficients
            if name not in names
        ]
    )
    return coefficients


def _arguments(
    operator: Any, pairs: Pairs, constants: Mapping[str, float], seed: int
) -> dict[str, Any]:
    """Return all that the operator takes, for one head: q_t = k_{t+1}."""
    told = operator.signature
    q, k, v = pairs.keys[:, 1:, None], pairs.keys[:, :-1, None], pairs.values[:, :-1, None]
    if told.steps > 1:
        k, v = (x[:, :, None].expand(-1, -1, told.steps, -1, -1) for x in (k, v))
    found: dict[str, Any] = {"q": q, "k": k, "v": v, **dict.fromkeys(told.keys, k)}
    for name, c in operator.coefficients.items():
        shape = (*q.shape[:2], *told.shape(c, 1, k.shape[-1], v.shape[-1]))
        found[name] = torch.full(shape, constants[name], dtype=torch.float64)
    if told.params:
        found["params"] = _beginning(told, k.shape[-1], v.shape[-1], seed)
    return found


def _beginning(told: Any, key_dim: int, value_dim: int, seed: int) -> dict[str, Tensor]:
    """Draw the initial matrices of a deep memory for one head, as a layer draws them."""
    sides = {name: max(1, round(width * value_dim)) for name, width in told.widths}
    sides |= {"v": value_dim, "D": _features(told.features, key_dim)}
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for p in told.params:
        shape = (1, sides[p.rows], sides[p.columns])
        found[p.name] = (
            torch.randn(shape, generator=generator, dtype=torch.float64) / shape[2] ** 0.5
        )
    return found


def _features(expression: str, key_dim: int) -> int:
    from mnemic.codegen.support.sizes import eval_size

    return eval_size(expression, key_dim)


def _as(x: Any, dtype: torch.dtype) -> Any:
    return {n: y.to(dtype) for n, y in x.items()} if isinstance(x, dict) else x.to(dtype)
