"""One run of a form on a case, and how far it may be from the recurrence in float64.

A form passes in a dtype if for the output, the final state and the gradient of every argument,
parameter and initial state

    error ≤ factor · (error of the recurrence in that dtype) + floor,

errors being relative to 1 + the largest entry, on the same rounded arguments. The fused form's
products round their operands to 16 bits, which the recurrence, in float32 inside, does not. What a
problem makes of such roundings its recurrence in float32 tells, whose own roundings are smaller by
2^(24 − p), p being the bits of the dtype: 2^(24 − p) times that error is added for the fused form.
What jumps (a sign of an error, a threshold) shows nothing there; so a fused form that is further
off may be ``BEYOND`` times as far off, plus the floor, as the recurrence in float64 is on vectors
and states that are themselves off by one rounding, the worst of ``DRAWS`` draws; where that is
``MAGNIFIED``, a smaller error says nothing.

The recurrence solves its systems directly. Another form may stop an iteration once the residual
‖b − A x‖ is below τ ‖b‖, the spec's own tolerance: then x solves A x = b′ for a b′ that is off by
no more than τ ‖b‖, and what an error of that size in the vectors that b is made of does to a
problem is measured in the same way, on vectors each number of which is off by τ, up or down or not
at all. A form that is further off may be ``BEYOND`` times as far off as the worst draw of these.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from .cases import Case

Tensors = dict[str, Tensor]

FACTORS = {torch.float64: 10.0, torch.float32: 10.0, torch.bfloat16: 1.1, torch.float16: 1.1}
FLOORS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-3, torch.float16: 3e-4}
PRODUCTS = {torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Added to the floor of the fused form, for operands that are rounded to the dtype (float32: three
TF32 products)."""

COARSER = {torch.bfloat16: 2.0**16, torch.float16: 2.0**13}
"""2^(24 − p), p the bits of its significand: how much coarser than float32 it rounds."""

HOPELESS = 0.05
"""Error of the recurrence itself in a dtype beyond which there is nothing to compare with."""

MAGNIFIED = 0.25
"""Error beyond which there is nothing to compare with, of what a problem makes of operands that are
rounded to the dtype: in float32, or on moved vectors."""

DRAWS, BEYOND = 6, 2.0
"""How often vectors are moved, and how much further off than the worst of it a form may be: it
rounds more than its arguments, and solves for gradients, too."""

Moves = Callable[[int, float], Tensors]
"""A run of the recurrence in float64 on the vectors of a draw, each number off by such a part."""


@dataclass(frozen=True)
class Own:
    """The recurrence's own errors: in the dtype, in float32 where that has 16 bits, and in float64
    on vectors that are off by a rounding, or by a solver's tolerance (computed on demand)."""

    plain: float
    single: float = 0.0
    moved: Callable[[], float] = lambda: 0.0
    stopped: Callable[[], float] = lambda: 0.0


def known(
    run: Callable[[torch.dtype], Tensors], dtype: torch.dtype,
    drawn: Moves = lambda draw, step: {}, tolerance: float = 0.0,
) -> tuple[Tensors, dict[str, Own]]:  # fmt: skip
    """Return what is exact, and what the recurrence (``run``, in a dtype) is off by, where the
    solver of another form stops at a ``tolerance``."""
    exact, eager = run(torch.float64), run(dtype)
    single = run(torch.float32) if dtype in COARSER else {}
    draws = cache(lambda step: [drawn(draw, step) for draw in range(DRAWS)])

    def worst(part: str, step: float) -> float:
        every = draws(step) if step else []
        found = [error(one.get(part, exact[part]), exact[part]) for one in every]
        return max(filter(math.isfinite, found), default=0.0)

    def own(part: str, x: Tensor) -> Own:
        moved, stopped = (partial(worst, part, y) for y in (rounding(dtype), tolerance))
        plain = error(eager[part], x)
        if dtype not in COARSER:
            return Own(plain, stopped=stopped)
        return Own(plain, error(single[part], x), moved, stopped)

    return exact, {part: own(part, x) for part, x in exact.items()}


def rounding(dtype: torch.dtype) -> float:
    """Return by what part of itself a number of 16 bits is off, half a place; 0 for others."""
    return 2.0**-24 * COARSER.get(dtype, 0.0)


def moved(
    case: Case, vectors: tuple[str, ...], dtype: torch.dtype, draw: int, step: float | None = None
) -> Case:
    """Return a case whose vectors, parameters and states are rounded to the dtype and then
    perturbed: each number by ``step`` of itself, or by one rounding, up or down or not at all; what
    is symmetric stays symmetric."""
    generator = torch.Generator().manual_seed(draw)
    part = rounding(dtype) if step is None else step

    def near(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        turns = torch.randint(-1, 2, x.shape, generator=generator).to(x.device).double()
        if _symmetric(x):
            turns = turns.triu() + turns.triu(1).mT
        rounded = x.detach().to(dtype).double()
        return (rounded * (1 + part * turns)).to(x.dtype)

    return replace(
        case,
        arguments={n: near(x) if n in vectors else x for n, x in case.arguments.items()},
        params={n: near(x) for n, x in case.params.items()},
        state={n: near(x) for n, x in case.state.items()},
    )


def everything(rule: Any, case: Case, form: str, dtype: torch.dtype, rounding: torch.dtype,
               chunk: int | None) -> Tensors:  # fmt: skip
    """Return output, final state and every gradient of one run, by name.

    Arguments are rounded to ``rounding`` first and then handed over as ``dtype``; the gradients go
    through the output and the final state. Of a coefficient that is the same at every token the
    gradient is the sum over tokens: which of them a form reads it off is its own affair.
    """

    def leaf(x: Tensor) -> Tensor:
        found = x.detach().to(rounding).to(dtype) if x.is_floating_point() else x.detach()
        found = _apart(found) if case.apart and x.ndim > 2 else found.clone()
        return found.requires_grad_(x.is_floating_point())

    arguments = {n: leaf(x) for n, x in case.arguments.items()}
    params = {n: leaf(x) for n, x in case.params.items()}
    state = {n: leaf(x) for n, x in case.state.items()}
    options = dict(case.options) | ({"chunk_size": chunk} if chunk and form != "recurrent" else {})
    out, final = rule(
        **arguments, params=params, initial_state=state, output_final_state=True, form=form,
        **options,
    )  # fmt: skip
    ends = {"output": out} | {f"state {n}": x for n, x in final.items() if x.is_floating_point()}
    loss = torch.stack([_weighed(x, rounding).double() for x in ends.values()]).sum()
    leaves = arguments | {f"params.{n}": x for n, x in params.items()}
    leaves |= {f"initial {n}": x for n, x in state.items() if x.requires_grad}
    slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = {n: x.detach() for n, x in ends.items()}
    same = {c.name for c in rule.signature.coefficients if c.same}
    for (name, x), slope in zip(leaves.items(), slopes, strict=True):
        own = torch.zeros_like(x) if slope is None else slope
        found[f"gradient of {name}"] = own.sum(1) if name in same else _meant(x, own)
    return found


def _apart(x: Tensor) -> Tensor:
    """Return the same numbers, not contiguous: other axis order, every other place unused."""
    wide = torch.stack([x, x], -1).transpose(1, 2).contiguous().transpose(1, 2)
    return wide.detach()[..., 0]


def _weighed(x: Tensor, rounding: torch.dtype) -> Tensor:
    """Add up the entries, each with a weight of its own."""
    weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64, device=x.device))
    return (x * weights.to(rounding).to(x.dtype).reshape(x.shape)).sum()


def _meant(x: Tensor, slope: Tensor) -> Tensor:
    """Return the meaningful part of a gradient: for a symmetric matrix, the symmetric part."""
    return (slope + slope.mT) / 2 if _symmetric(x) else slope


def _symmetric(x: Tensor) -> bool:
    square = x.ndim > 2 and x.shape[-1] == x.shape[-2] and x.shape[-1] > 1
    return square and torch.equal(x, x.mT)


def error(found: Tensor, expected: Tensor) -> float:
    """Measure the largest difference relative to 1 + the largest entry, NaN if one is no number."""
    if expected.numel() == 0:
        return 0.0
    apart = (found.double() - expected.double()).abs().max()
    relative = float(apart / (1 + expected.double().abs().max()))
    return relative if math.isfinite(relative) else math.nan


def allowed(form: str, dtype: torch.dtype, own: Own, found: float = 0.0) -> float | None:
    """Return the error that a form, ``found`` to have one, may have where the recurrence has its
    own, or None where that says nothing; what is no number is never right where the recurrence has
    one."""
    floor, magnified = FLOORS[dtype], 0.0
    if form == "triton":
        floor += PRODUCTS.get(dtype, 0.0)
        magnified = COARSER.get(dtype, 0.0) * own.single
    if not (own.plain < HOPELESS and magnified < MAGNIFIED):
        return math.inf if math.isnan(found) and math.isfinite(own.plain) else None
    most = FACTORS[dtype] * own.plain + magnified + floor
    fused = form == "triton" and dtype in COARSER
    for off in (own.stopped, own.moved) if fused else (own.stopped,):
        if not most < found < math.inf:
            return most
        jumped = off()
        most = max(most, BEYOND * jumped + floor)
        if jumped >= MAGNIFIED and found <= most:
            return None
    return most
