"""Checks of a kernel's cut: only cuts that compute correct results are ever timed.

The reference is the recurrence in float64, with the tolerances of ``compared``: on a small seeded
problem with the shape's own channels, at lengths around its chunk and from a carried state; then at
the shape itself, where the last row of the batch is compared, in its full length.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from . import buffers, tuned, versions
from .cases import Case, Plan, cut, drawn
from .compared import Own, allowed, error, everything, known, moved
from .configuration import Configuration
from .shapes import Subject

Tensors = dict[str, Tensor]

FEWEST = 16
"""Tokens below which a call runs the kernel of single tokens."""

LONGEST = 131
"""Tokens of the small problem: two chunks of 64 and three more."""

STEADY = 128
"""Tokens up to which the errors of products of 16 bits are those that ``compared`` allows; beyond
they may grow as the root of the length, as sums of roundings do."""


@dataclass
class Trials:
    """The checks of one purpose of a subject; what they compare with is computed once."""

    subject: Subject
    purpose: str
    question: tuned.Question
    known: dict[str, tuple[Tensors, dict[str, Own]]] = field(default_factory=dict)
    """By case: what is exact, and what the recurrence is off by."""
    small: tuple[Tensors, Tensors] | None = None

    def wrong(self, configuration: Configuration) -> str:
        """Say what is wrong with a cut; empty where nothing is.

        Raises ``torch.OutOfMemoryError``, which says nothing of the cut.
        """
        try:
            with tuned.forcing(self.question, configuration):
                for case in self.cases(configuration):
                    if told := self._small(case, configuration):
                        return f"{case.name}: {told}"
                told = self._whole()
                return f"{self.subject.shape}: {told}" if told else ""
        except torch.OutOfMemoryError:
            raise
        except versions.failures() as raised:
            lines = [line.strip() for line in str(raised).splitlines() if line.strip(" ^")]
            return f"{type(raised).__name__}: {lines[-1] if lines else ''}"

    # -- a small problem --------------------------------------------------------------------

    def cases(self, configuration: Configuration) -> Iterator[Case]:
        """Yield lengths around a chunk and a state carried into one, or a decoder's tokens."""
        whole, params = self._drawn()
        rule, rows = self.subject.rule, configuration.rows
        before = self._most(6) - 1
        first = cut(whole, 0, before)
        state = rule(**first, params=params, form="recurrent", output_final_state=True)[1]
        state = {n: x.detach() for n, x in state.items()}
        if self.purpose == "decode":
            yield Case("one token", cut(whole, 0, 1), params, {})
            yield Case("one token from a state", cut(whole, before, before + 1), params, state)
            return
        lengths = (max(FEWEST, n) for n in (rows - 1, rows + 1, 2 * rows + 3))
        for tokens in dict.fromkeys(map(self._most, lengths)):
            yield Case(f"T = {tokens}", cut(whole, 0, tokens), params, {})
        last = self._most(before + max(FEWEST, rows + 1))
        carried = cut(whole, before, last)
        yield Case(f"T = {last - before} from a state", carried, params, state)

    def _most(self, tokens: int) -> int:
        """Return so many tokens, or as many as a document may have."""
        return int(self.subject.rule.signature.at_most(tokens))

    def _drawn(self) -> tuple[Tensors, Tensors]:
        if self.small is None:
            shape, place = self.subject.shape, self.subject.device
            wanted = Plan(place, (), (), shape.key, 1, 2, value=shape.value)
            self.small = drawn(self.subject.layer_type, wanted, self._most(LONGEST))
        return self.small

    def _small(self, case: Case, configuration: Configuration) -> str:
        dtype = self.subject.shape.dtype
        if case.name not in self.known:
            self.known[case.name] = self._known(case, dtype)
        exact, own = self.known[case.name]
        with tuned.recording() as seen, buffers.watched():
            found = self._run(case, "triton", dtype)
            _finish(self.subject.device)
        if not any(self._is(run, configuration) for run in seen):
            return "its kernel was not run"
        for part, x in exact.items():
            apart = error(found[part], x)
            if told := _beyond(apart, allowed("triton", dtype, own[part], apart)):
                return f"{part}: {told}"
        return ""

    def _known(self, case: Case, dtype: torch.dtype) -> tuple[Tensors, dict[str, Own]]:
        told = self.subject.rule.signature

        def off(draw: int, step: float) -> Tensors:
            return self._run(
                moved(case, told.vectors, dtype, draw, step), "recurrent", torch.float64
            )

        return known(lambda real: self._run(case, "recurrent", real), dtype, off, told.tolerance)

    def _run(self, case: Case, form: str, dtype: torch.dtype) -> Tensors:
        rounding = self.subject.shape.dtype
        if self.question.gradient:
            return everything(self.subject.rule, case, form, dtype, rounding, None)
        with torch.no_grad():
            given = [_as(x, rounding, dtype) for x in (case.arguments, case.params, case.state)]
            out, final = self.subject.rule(
                **given[0], params=given[1], initial_state=given[2], form=form,
                output_final_state=True,
            )  # fmt: skip
        ends = {f"state {n}": x for n, x in final.items() if x.is_floating_point()}
        return {"output": out, **ends}

    def _is(self, run: tuned.Run, configuration: Configuration) -> bool:
        """Return whether the kernel that ran is the one under test."""
        mine = (self.question.kernel, self.question.gradient, configuration)
        return (run.question.kernel, run.question.gradient, run.chosen) == mine

    # -- the shape itself -------------------------------------------------------------------

    def _whole(self) -> str:
        """Say what is wrong in the batch's last row, in full length, or a gradient; else ""."""
        dtype, tokens = self.subject.shape.dtype, self.subject.shape.tokens
        name = "the whole shape"
        if name not in self.known:
            self.known[name] = known(
                lambda real: self._last(None if real == dtype else real),
                dtype,
                lambda draw, step: self._last(torch.float64, (draw, step)),
                self.subject.rule.signature.tolerance,
            )
        whole, own = self.known[name]
        out, *slopes = self._results()
        if not all(bool(x.isfinite().all()) for x in slopes):
            return "a gradient that is no number"
        found = error(out[-1:], whole["output"])
        most = allowed("triton", dtype, own["output"], found)
        length = 1 if self.purpose == "decode" else tokens
        longer = math.sqrt(max(1.0, length / STEADY))
        return _beyond(found, None if most is None else most * longer)

    def _results(self) -> tuple[Tensor, ...]:
        found = self.subject.step(self.purpose)()
        _finish(self.subject.device)
        assert isinstance(found, tuple)
        return found

    def _last(self, real: torch.dtype | None, drawn: tuple[int, float] | None = None) -> Tensors:
        """Run the recurrence on the last row of the batch, in its own dtypes or another, as it is
        or moved in a draw by such a part of every number."""
        arguments, params, state = self.subject.arguments(self.purpose)
        rows = {n: x[-1:] for n, x in arguments.items()}
        case = Case("last row", rows, params, {n: x[-1:] for n, x in state.items()})
        rule, dtype = self.subject.rule, self.subject.shape.dtype
        if drawn is not None:
            case = moved(case, rule.signature.vectors, dtype, *drawn)
        given = [_as(x, None, real) for x in (case.arguments, case.params, case.state)]
        with torch.no_grad():
            out: Tensor = rule(
                **given[0], params=given[1], initial_state=given[2], form="recurrent",
                output_final_state=True,
            )[0]  # fmt: skip
        return {"output": out}


def _as(named: Tensors, rounding: torch.dtype | None, dtype: torch.dtype | None) -> Tensors:
    """Round floating tensors to one dtype and return them in another; others stay as they are."""
    found = {}
    for name, x in named.items():
        rounded = x.to(rounding) if rounding is not None and x.is_floating_point() else x
        found[name] = rounded.to(dtype) if dtype is not None and x.is_floating_point() else rounded
    return found


def _beyond(error: float, most: float | None) -> str:
    """Say how an error exceeds what is allowed, as NaN does; empty where it does not."""
    if most is None or error <= most:
        return ""
    return f"error {error:.1e}, allowed {most:.1e}"


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
