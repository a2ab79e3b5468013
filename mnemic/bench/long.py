"""A long run: 65,536 tokens of text in float32 and bfloat16 against float64, coefficients as a
layer starts them.

Keys, values and coefficients are what the spec's layer gives its rule at the start of training,
computed in float64 and rounded to each precision; float64 then runs on the rounded numbers, so that
the error is the rule's own arithmetic.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mnemic.bench.started import Tensors, arguments
from mnemic.bench.text import embedded, text
from mnemic.pipeline import Compiled

LENGTH = 65_536
DIM, HEADS = 16, 1
TAIL = 1024
"""Tokens at the end over which an error is told, and of each window that the worst is taken of."""
KEPT = {1: 8, 2: 16}
"""The divisor of the tokens, by the power of T with which a state grows."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ALLOWED = {"float32": 1e-2, "bfloat16": 2e-2}
"""The relative error from which a run counts as failed: rounding that grew instead of fading."""


@dataclass(frozen=True)
class Precision:
    """The result of a run in one precision, compared with float64.

    Args:
        finite: no infinity and no NaN in outputs and states.
        last: relative RMS error over the last ``TAIL`` tokens.
        worst: the largest relative RMS error of all windows of so many tokens.
        state: the largest entry of the final state.
    """

    finite: bool
    last: float
    worst: float
    state: float


@dataclass(frozen=True)
class LongRun:
    """The long run of one spec, in every precision."""

    name: str
    form: str
    length: int
    place: str
    warned: bool
    seconds: float
    largest: float
    precisions: dict[str, Precision]

    @property
    def passed(self) -> bool:
        """Whether every precision stayed finite and its errors did not grow."""
        return all(p.finite and p.worst <= ALLOWED[n] for n, p in self.precisions.items())

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {**asdict(self), "passed": self.passed}


def run(compiled: Compiled, length: int = LENGTH) -> LongRun:
    """Run a spec over a long text in every precision.

    A memory that keeps every token runs over fewer tokens (``KEPT``), since its time grows with
    their square. Features and trees of levels with a maximum length get no longer text.

    Raises:
        EnvironmentFailed: this Python came without its sources.
    """
    from mnemic.compiler.explain.stability import stability

    length = max(length // KEPT.get(growth(compiled), 1), TAIL)
    length = min(length, compiled.spec.features.longest or length)
    length = compiled.operator.signature.at_most(length)
    began = time.perf_counter()
    x = embedded(text(length), DIM)
    given, params = arguments(compiled, x, heads=HEADS)
    form = "chunk" if "chunk" in compiled.operator.forms else "recurrent"
    call = _caller(compiled, form)
    wanted, found = _reference(call, given, params), {}
    for index, (name, dtype) in enumerate(PRECISIONS.items()):
        out, state = call(_rounded(given, dtype), _rounded(params, dtype))
        found[name] = _compared(out.double(), state, wanted[index : index + 1])
    known = stability(compiled.rule)
    return LongRun(
        compiled.spec.name, form, length, known.place,
        known.warning is not None, time.perf_counter() - began, float(wanted.abs().max()), found,
    )  # fmt: skip


def growth(compiled: Compiled) -> int:
    """Return the power of T with which a state grows; 0 for one of fixed size."""
    from mnemic.compiler.explain.cost import cost
    from mnemic.compiler.explain.cost_symbols import T

    state = cost(compiled.rule).state
    return int(state.as_poly(T).degree()) if state.has(T) and state.is_polynomial(T) else 0


Call = Callable[[Tensors, Tensors], tuple[Tensor, Tensors]]


def _caller(compiled: Compiled, form: str) -> Call:
    def call(given: Tensors, params: Tensors) -> tuple[Tensor, Tensors]:
        options = {"params": params} if params else {}
        with torch.no_grad():
            found: tuple[Tensor, Tensors] = compiled(
                **given, **options, form=form, output_final_state=True
            )
        return found

    return call


def _rounded(tensors: Tensors, dtype: torch.dtype) -> Tensors:
    return {name: x.to(dtype) for name, x in tensors.items()}


def _reference(call: Call, given: Tensors, params: Tensors) -> Tensor:
    """Compute outputs in float64 from numbers rounded to each precision, in one batch if it can."""
    rounded = [_rounded(given, dtype) for dtype in PRECISIONS.values()]
    if params:
        own = [_rounded(params, dtype) for dtype in PRECISIONS.values()]
        runs = zip(rounded, own, strict=True)
        return torch.cat([call(_wide(g), _wide(p))[0] for g, p in runs])
    rows = {n: torch.cat([r[n].double() for r in rounded]) for n in given}
    return call(rows, {})[0]


def _wide(tensors: Tensors) -> Tensors:
    return _rounded(tensors, torch.float64)


def _compared(out: Tensor, state: Tensors, wanted: Tensor) -> Precision:
    width = min(TAIL, wanted.shape[1])
    windows = (z.unfold(1, width, width) for z in (out - wanted, wanted))
    apart, size = (z.square().mean((0, 2, 3, 4)).sqrt() for z in windows)
    errors = apart / size.clamp_min(1e-12)
    states = [s.double() for s in state.values() if s.is_floating_point()]
    finite = all(bool(z.isfinite().all()) for z in (out, wanted, *states))
    largest = max((float(s.abs().max()) for s in states), default=0.0)
    return Precision(finite, float(errors[-1]), float(errors.max()), largest)
