"""The checks behind ``mnemic verify``: every form against the recurrence in float64.

Every form that this machine can run, in every dtype that it has, on every case (``cases``), and the
layer's step; what a form may be off by is told in ``compared``.
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from . import buffers, interpreted, verified, verify_step, versions
from .cases import Case, Plan, cases, made, plans
from .compared import Own, allowed, error, everything, known, moved
from .launched import form_of
from .sequence import SequenceLayer

STEP = "step"
"""What the record calls the kernel of a layer's token."""
NARROWEST = 4
"""Channels of a head at least."""


@dataclass(frozen=True)
class Finding:
    """The error of one result in one case, and the allowed one (None: nothing to compare with)."""

    form: str
    dtype: str
    case: str
    part: str
    error: float
    allowed: float | None
    told: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is within what is allowed; NaN is not."""
        return not self.told and (self.allowed is None or self.error <= self.allowed)


@dataclass(frozen=True)
class Trial:
    """Every form in one dtype on one case, or the layer's step in that dtype."""

    name: str
    findings: Callable[[], Iterator[Finding]]


def trials(layer_type: type[SequenceLayer], *several: Plan) -> Iterator[Trial]:
    """Yield everything to try, plan by plan and in each dtype by dtype, so that if time runs out
    each case of the first plan has been tried."""
    for wanted in several:
        yield from _trials(layer_type, wanted)


def _trials(layer_type: type[SequenceLayer], wanted: Plan) -> Iterator[Trial]:
    listed = list(cases(layer_type, wanted))
    steps = not wanted.tokens and stepped(layer_type, wanted)
    for dtype in wanted.dtypes:
        name = str(dtype).removeprefix("torch.")
        for case in listed:
            yield Trial(f"{name}, {case.name}", partial(_of, layer_type.rule, case, dtype, wanted))
        if steps:
            yield Trial(f"{name}, {STEP}", partial(_steps, layer_type, wanted, dtype))


def stepped(layer_type: type[SequenceLayer], wanted: Plan) -> bool:
    """Return whether the layer's token has a kernel that runs, or is interpreted, here."""
    runs = wanted.device.type == "cuda" or versions.interpreting()
    return (
        runs
        and versions.installed() is not None
        and verify_step.checkable(made(layer_type, wanted, wanted.width))
    )


def _steps(layer_type: type[SequenceLayer], wanted: Plan, dtype: torch.dtype) -> Iterator[Finding]:
    """Yield findings of the layer's step by each of its kernels: with memories in registers, and
    looped over by blocks; for heads of the full width, or halved until they fit."""
    for along in (False, True):
        yield from _step(layer_type, wanted, dtype, along=along)


def _step(
    layer_type: type[SequenceLayer], wanted: Plan, dtype: torch.dtype, *, along: bool
) -> Iterator[Finding]:
    name, width = str(dtype).removeprefix("torch."), wanted.width
    tries: list[verify_step.Tried] = []
    while not tries and width >= NARROWEST:
        layer, width = made(layer_type, wanted, width), width // 2
        try:
            with buffers.watched():
                tries = list(
                    verify_step.tried(layer, dtype, wanted.device, wanted.batch, along=along)
                )
        except versions.failures() as raised:
            told = f"{type(raised).__name__}: {raised}"
            yield Finding(STEP, name, "tokens", "run", float("nan"), None, told)
            return
    for one in tries:
        for part, x in one.exact.items():
            found = error(one.found[part], x)
            most = allowed("triton", dtype, Own(error(one.eager[part], x)), found)
            yield Finding(STEP, name, f"tokens, {one.way}", part, found, most)


def _of(rule: Any, case: Case, dtype: torch.dtype, wanted: Plan) -> Iterator[Finding]:
    def recurrent(real: torch.dtype, given: Case = case) -> dict[str, torch.Tensor]:
        return everything(rule, given, "recurrent", real, dtype, None)

    def off(draw: int, step: float) -> dict[str, torch.Tensor]:
        return recurrent(torch.float64, moved(case, rule.signature.vectors, dtype, draw, step))

    name = str(dtype).removeprefix("torch.")
    ways = _ways(rule, case, wanted)
    try:
        exact, own = known(recurrent, dtype, off, rule.signature.tolerance)
    except ValueError:  # the rule takes no such arguments, as weights that forget the ridge
        yield from (Finding(form, name, where, "refused", 0.0, None) for form, _, where in ways)
        return
    for form, way, where in ways:
        try:
            with buffers.watched(), interpreted.products(), way:
                found = everything(rule, case, form, dtype, dtype, wanted.chunk)
                if wanted.device.type == "cuda":
                    torch.cuda.synchronize(wanted.device)
        except versions.failures() as raised:
            told = f"{type(raised).__name__}: {raised}"
            yield Finding(form, name, where, "run", float("nan"), None, told)
            continue
        for part, x in exact.items():
            apart = error(found[part], x)
            most = allowed(form, dtype, own[part], apart)
            yield Finding(form, name, where, part, apart, most)


def _ways(
    rule: Any, case: Case, wanted: Plan
) -> Iterator[tuple[str, AbstractContextManager[Any], str]]:
    """Yield how each form is tried: a fused one with memories in registers, and looped over by
    blocks; each with every degree of leanness, if one length is tried; and in several kernels."""
    for form in wanted.forms:
        if form != "triton":
            yield form, nullcontext(), case.name
            continue
        kernel = _kernel(rule, short=not wanted.tokens)
        twin = getattr(kernel, "swept", None)
        for always in (False, True) if _has(rule, "swept") else (None,):
            where = f"{case.name}, block by block" if always else case.name
            yield form, _cut_so(always, {}), where
            tried = kernel if not always or twin is None else twin
            for lean in _leans(tried, wanted):
                cut = {**wanted.cut, "lean": lean, "stages": 1}
                yield form, _cut_so(always, cut), f"{where}, lean {lean}"
        if _has(rule, "divided") and case.tokens > 1:
            way = _cut_so(False, wanted.cut if wanted.tokens else {}, several=True)
            yield form, way, f"{case.name}, in several kernels"


def _leans(kernel: Any, wanted: Plan) -> Iterable[int]:
    """Return the degrees of leanness that are tried besides the model's choice."""
    most = getattr(kernel, "leans", None)
    if not wanted.tokens or most is None or not (most or wanted.cut):
        return ()
    return range(most + 1)


@contextmanager
def _cut_so(
    always: bool | None, changes: Mapping[str, int], *, several: bool = False
) -> Iterator[None]:
    """Force in this context how kernels loop over blocks of memories (``None``: as chosen) and the
    fields ``changes`` of their cuts, and whether forms run in ``several`` kernels."""
    from .fused import in_several, recut, sweeping  # its kernels need Triton

    with ExitStack() as ways:
        ways.enter_context(in_several(always=several))
        if always is not None:
            ways.enter_context(sweeping(always=always))
        if changes:
            ways.enter_context(recut(**changes))
        yield


def _kernel(rule: Any, *, short: bool) -> Any:
    """Return the kernel that sequences run through, or ``None``."""
    module = rule.kernels() if rule.kernels is not None else None
    return None if module is None else form_of(module, short=short)


def _has(rule: Any, other: str) -> bool:
    """Return whether a rule's kernels have an alternative, such as ``swept`` or ``divided``."""
    module = rule.kernels() if rule.kernels is not None else None
    return any(getattr(getattr(module, n, None), other, None) for n in ("CHUNK", "TOKEN"))


@dataclass(frozen=True)
class Found:
    """The findings of some of the trials, and the names of trials for which there was no time."""

    findings: tuple[Finding, ...]
    left: tuple[str, ...]


def run(
    layer_type: type[SequenceLayer], *, device: str | None = None, rule_hash: str = "",
    told: Callable[[Finding], None] | None = None, keep: bool = True, seconds: float | None = None,
    trying: Callable[[str], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Verify a compiled folder's rule on a device, write its record, and return the entry.

    After ``seconds`` no further trial is begun; those are in the entry as left out (on a GPU, where
    a record decides what is run, all are made). ``told`` hears
    of each finding, ``trying`` in words of each trial before it.
    """
    found = share(layer_type, device=device, told=told, seconds=seconds, trying=trying)
    return recorded(layer_type, [found], device=device, rule_hash=rule_hash, keep=keep)


def share(
    layer_type: type[SequenceLayer], *, device: str | None = None, number: int = 0, of: int = 1,
    told: Callable[[Finding], None] | None = None, seconds: float | None = None,
    trying: Callable[[str], None] | None = None,
) -> Found:  # fmt: skip
    """Make every ``of``-th trial, from the ``number``-th: what one process of several does."""
    place = _place(device)
    late = math.inf if seconds is None or place.type == "cuda" else seconds
    planned = list(trials(layer_type, *plans(layer_type.rule, place)))[number::of]
    began = time.monotonic()
    listed: list[Finding] = []
    left = []
    for count, trial in enumerate(planned, 1):
        passed = time.monotonic() - began
        if listed and passed > late:
            left.append(trial.name)
            continue
        if trying is not None:
            trying(f"{trial.name} ({count} of {len(planned)}, {passed:.0f} s)")
        for finding in trial.findings():
            listed.append(finding)
            if told is not None:
                told(finding)
    return Found(tuple(listed), tuple(left))


def recorded(
    layer_type: type[SequenceLayer], shares: Iterable[Found], *, device: str | None = None,
    rule_hash: str = "", keep: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return the entry of all shares of the trials, written beside the code with ``keep``."""
    place, shares = _place(device), list(shares)
    wanted, *larger = plans(layer_type.rule, place)
    listed = [finding for found in shares for finding in found.findings]
    forms = {
        form: _by_dtype(form, listed)
        for form in dict.fromkeys((*wanted.forms, *(finding.form for finding in listed)))
    }
    entry = {
        "rule": layer_type.rule.name,
        "hash": rule_hash,
        "setting": verified.setting(place),
        "interpreted": place.type != "cuda" and versions.interpreting(),
        "date": datetime.now(tz=UTC).date().isoformat(),
        "sizes": {"B": wanted.batch, "H": wanted.heads, "d": wanted.width, "chunk": wanted.chunk},
        "larger": [{"B": p.batch, "T": p.tokens, "H": p.heads, "d": p.width} for p in larger],
        "forms": forms,
        "left out": [name for found in shares for name in found.left],
        "passed": all(map(_passed, forms.values())),
    }
    if keep:
        verified.store(entry)
    return entry


def _place(device: str | None) -> torch.device:
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def spoken(name: str, every: float = 5.0) -> Callable[[str], None]:
    """Return a function that says on standard error every few seconds what is being tried."""
    last = -math.inf

    def trying(words: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= every:
            last = now
            print(f"mnemic: verifying {name}: {words}", file=sys.stderr, flush=True)

    return trying


def _by_dtype(form: str, listed: list[Finding]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dtype in dict.fromkeys(f.dtype for f in listed if f.form == form):
        mine = [f for f in listed if f.form == form and f.dtype == dtype]
        wrong = [f for f in mine if not f.passed]
        found[dtype] = {
            "passed": any(f.allowed is not None for f in mine) and not wrong,
            "errors": {part: _worst(mine, part) for part in dict.fromkeys(f.part for f in mine)},
            "wrong": [_told(f) for f in wrong],
            "not compared": sum(f.allowed is None and not f.told for f in mine),
        }
    return found


def outcome(told: dict[str, Any]) -> str:
    """Say in words how a form came out in a dtype."""
    if told["passed"]:
        return "passed"
    return "FAILED" if told["wrong"] else "nothing could be compared"


def _passed(by_dtype: dict[str, Any]) -> bool:
    """Return whether nothing of a form is wrong, and it was compared in one dtype at least."""
    found = by_dtype.values()
    return not any(one["wrong"] for one in found) and any(one["passed"] for one in found)


def _worst(listed: list[Finding], part: str) -> float | None:
    """Return the largest error of a part, or ``None`` where one is no number."""
    errors = [f.error for f in listed if f.part == part]
    return max(errors) if all(map(math.isfinite, errors)) else None


def _told(finding: Finding) -> str:
    """Put a failure into words."""
    where = f"{finding.case}, {finding.part}"
    if finding.told:
        return f"{where}: {finding.told}"
    return f"{where}: error {finding.error:.1e}, allowed {finding.allowed:.1e}"
