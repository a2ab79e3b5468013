"""The checks behind ``mnemic verify``: every form against the recurrence in float64.

A form passes in a dtype if, in every case and for the output, the final state and the gradient of
every argument, parameter and initial state,

    error ≤ factor · (error of the recurrence in that dtype) + floor,

errors being relative to 1 + the largest entry, on the same rounded arguments. Cases: lengths around
a chunk and a prime one, logarithms of decays from 0 to −88, carried states, arguments that are not
contiguous, packed documents.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from . import buffers, verified, verify_step, versions
from .sequence import SequenceLayer

Tensors = dict[str, Tensor]

FACTORS = {torch.float64: 10.0, torch.float32: 10.0, torch.bfloat16: 1.1, torch.float16: 1.1}
FLOORS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-3, torch.float16: 3e-4}
PRODUCTS = {torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
"""Added to the floor of the fused form: its products round their operands to the dtype (three TF32
products for float32), which the recurrence, in float32 inside, does not."""

DECAYS = (0.0, -1e-9, -6.0, -20.0, -88.0)
ROWS = 64
"""A multiple of the rows a chunk that any form takes unless told."""
STEP = "step"
"""What the record calls the kernel of a layer's token."""
NARROWEST = 4
"""Channels of a head at least."""
HOPELESS = 0.05
"""Error of the recurrence itself in a dtype beyond which there is nothing to compare with."""


@dataclass(frozen=True)
class Case:
    """Arguments that a form is tried on, in float64."""

    name: str
    arguments: Tensors
    params: Tensors
    state: Tensors
    options: Mapping[str, Any] = field(default_factory=dict)
    apart: bool = False
    """Whether the arguments are handed over as views that are not contiguous."""


@dataclass(frozen=True)
class Finding:
    """One part of one case: its error, and what is allowed (None: nothing to compare with)."""

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
class Plan:
    """What is tried: the device, the forms and dtypes, sizes, rows a chunk (None: as the rule)."""

    device: torch.device
    forms: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    width: int
    batch: int = 2
    heads: int = 2
    chunk: int | None = None
    value: int | None = None
    """The width of values, where it is another than that of keys."""


def plan(rule: Any, device: torch.device) -> Plan:
    """What this machine can try: on the CPU the fused form only where Triton interprets it."""
    others = tuple(form for form in rule.forms if form not in ("recurrent", "triton"))
    if device.type == "cuda":
        fused = ("triton",) if "triton" in rule.forms else ()
        short = (torch.bfloat16,) if torch.cuda.is_bf16_supported() else ()
        dtypes = (torch.float32, torch.float16, *short)
        return Plan(device, (*fused, *others), dtypes, 64)
    if versions.interpreting():
        fused = ("triton",) if "triton" in rule.forms else ()
        return Plan(device, fused, (torch.float64, torch.float32), 16, 1, 1, 16)
    return Plan(device, others, (torch.float32, torch.bfloat16, torch.float16), 16)


# -- cases -------------------------------------------------------------------------------------


def cases(layer_type: type[SequenceLayer], wanted: Plan) -> Iterator[Case]:
    """Every case of a rule, with the arguments that its layer gives it."""
    rule = layer_type.rule
    size = wanted.chunk or ROWS
    chunk = rule.signature.anchor if rule.signature.anchor > 1 else size
    longest = 2 * chunk + 3
    whole, params = drawn(layer_type, wanted, longest)
    for tokens in dict.fromkeys((1, chunk - 1, chunk, chunk + 1, _prime(longest))):
        if tokens:
            yield Case(f"T = {tokens}", cut(whole, 0, tokens), params, {})
    decays = [c.name for c in rule.signature.coefficients if c.high == 0 and "log_" in c.name]
    some = cut(whole, 0, chunk + 1)
    for value in DECAYS if decays else ():
        steep = {n: torch.full_like(x, value) if n in decays else x for n, x in some.items()}
        yield Case(f"log decay {value:g}", steep, params, {})
    first, rest = cut(whole, 0, 5), cut(whole, 5, chunk + 6)
    state = rule(**first, params=params, form="recurrent", output_final_state=True)[1]
    yield Case("from a state", rest, params, {n: x.detach() for n, x in state.items()})
    yield Case("not contiguous", some, params, {}, apart=True)
    packed = {n: x[:1] for n, x in whole.items()}
    ends = torch.tensor([0, 1, chunk, longest], device=wanted.device)
    yield Case("documents", packed, params, {}, {"cu_seqlens": ends})


def drawn(layer_type: type[SequenceLayer], wanted: Plan, tokens: int) -> tuple[Tensors, Tensors]:
    """Arguments and parameters of a layer as it starts, in float64."""
    layer = made(layer_type, wanted, wanted.width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        x = torch.randn(wanted.batch, tokens, layer.dim, dtype=torch.float64)
    with torch.no_grad():
        arguments, params = layer.arguments(x), layer.params()
    place = wanted.device
    found = ({n: t.detach().to(place).contiguous() for n, t in arguments.items()},
             {n: t.detach().to(place) for n, t in params.items()})  # fmt: skip
    return found


def made(layer_type: type[SequenceLayer], wanted: Plan, width: int) -> Any:
    """A layer as it starts, in float64: d_k = width, and d_v too unless the plan says otherwise."""
    groups = layer_type.grouped()
    value = (wanted.value or width) if width == wanted.width else width
    options: Any = {"heads": wanted.heads * groups, "key_dim": width}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return layer_type(16 * groups, **options, value_dim=value).double()


def cut(arguments: Tensors, low: int, high: int) -> Tensors:
    """Some of the tokens."""
    return {name: x[:, low:high] for name, x in arguments.items()}


def _prime(most: int) -> int:
    """The largest prime that is no more."""
    return next(n for n in range(most, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))


# -- runs --------------------------------------------------------------------------------------


def everything(rule: Any, case: Case, form: str, dtype: torch.dtype, rounding: torch.dtype,
               chunk: int | None) -> Tensors:  # fmt: skip
    """Output, final state and every gradient of one run, by name.

    Arguments are rounded to ``rounding`` first and then handed over as ``dtype``; the gradients go
    through the output and the final state.
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
    for (name, x), slope in zip(leaves.items(), slopes, strict=True):
        found[f"gradient of {name}"] = _meant(x, torch.zeros_like(x) if slope is None else slope)
    return found


def _apart(x: Tensor) -> Tensor:
    """The same numbers, with another order of axes and every other place empty."""
    wide = torch.stack([x, x], -1).transpose(1, 2).contiguous().transpose(1, 2)
    return wide.detach()[..., 0]


def _weighed(x: Tensor, rounding: torch.dtype) -> Tensor:
    """A number that every entry enters with a weight of its own."""
    weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64, device=x.device))
    return (x * weights.to(rounding).to(x.dtype).reshape(x.shape)).sum()


def _meant(x: Tensor, slope: Tensor) -> Tensor:
    """Of a symmetric matrix only the symmetric part of a gradient has a meaning."""
    square = x.ndim > 2 and x.shape[-1] == x.shape[-2] and x.shape[-1] > 1
    if square and torch.equal(x, x.mT):
        return (slope + slope.mT) / 2
    return slope


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference relative to 1 + the largest entry."""
    if expected.numel() == 0:
        return 0.0
    apart = (found.double() - expected.double()).abs().max()
    return float(apart / (1 + expected.double().abs().max()))


# -- findings ----------------------------------------------------------------------------------


def findings(layer_type: type[SequenceLayer], wanted: Plan) -> Iterator[Finding]:
    """Every form in every dtype on every case, and the layer's step."""
    for case in cases(layer_type, wanted):
        for dtype in wanted.dtypes:
            yield from _of(layer_type.rule, case, dtype, wanted)
    if stepped(layer_type, wanted):
        for dtype in wanted.dtypes:
            yield from _steps(layer_type, wanted, dtype)


def stepped(layer_type: type[SequenceLayer], wanted: Plan) -> bool:
    """Whether the layer's token has a kernel that runs, or is interpreted, here."""
    runs = wanted.device.type == "cuda" or versions.interpreting()
    return runs and verify_step.checkable(made(layer_type, wanted, wanted.width))


def _steps(layer_type: type[SequenceLayer], wanted: Plan, dtype: torch.dtype) -> Iterator[Finding]:
    """The layer's step, of heads of the width, or of half of it while they do not fit."""
    name, width = str(dtype).removeprefix("torch."), wanted.width
    tries: list[verify_step.Tried] = []
    while not tries and width >= NARROWEST:
        layer, width = made(layer_type, wanted, width), width // 2
        try:
            with buffers.watched():
                tries = list(verify_step.tried(layer, dtype, wanted.device, wanted.batch))
        except failures() as raised:
            told = f"{type(raised).__name__}: {raised}"
            yield Finding(STEP, name, "tokens", "run", float("nan"), None, told)
            return
    for one in tries:
        floor = FLOORS[dtype] + PRODUCTS.get(dtype, 0.0)
        for part, x in one.exact.items():
            plain = error(one.eager[part], x)
            allowed = FACTORS[dtype] * plain + floor if plain < HOPELESS else None
            yield Finding(
                STEP, name, f"tokens, {one.way}", part, error(one.found[part], x), allowed
            )


def _of(rule: Any, case: Case, dtype: torch.dtype, wanted: Plan) -> Iterator[Finding]:
    exact = everything(rule, case, "recurrent", torch.float64, dtype, None)
    eager = everything(rule, case, "recurrent", dtype, dtype, None)
    plain = {part: error(x, exact[part]) for part, x in eager.items()}
    name = str(dtype).removeprefix("torch.")
    for form in wanted.forms:
        try:
            with buffers.watched():
                found = everything(rule, case, form, dtype, dtype, wanted.chunk)
                if wanted.device.type == "cuda":
                    torch.cuda.synchronize(wanted.device)
        except failures() as raised:
            told = f"{type(raised).__name__}: {raised}"
            yield Finding(form, name, case.name, "run", float("nan"), None, told)
            continue
        for part, x in exact.items():
            most = allowed(form, dtype, plain[part])
            yield Finding(form, name, case.name, part, error(found[part], x), most)


def allowed(form: str, dtype: torch.dtype, plain: float) -> float | None:
    """The error that a form may have where the recurrence in its dtype has ``plain``, or None."""
    floor = FLOORS[dtype] + (PRODUCTS.get(dtype, 0.0) if form == "triton" else 0.0)
    return FACTORS[dtype] * plain + floor if plain < HOPELESS else None


def failures() -> tuple[type[Exception], ...]:
    """What a kernel that does not compile, fit or run raises."""
    if versions.installed() is None:
        return (RuntimeError,)
    errors: Any = __import__("triton.errors", fromlist=["TritonError"])
    return (RuntimeError, errors.TritonError)


def run(
    layer_type: type[SequenceLayer], *, device: str | None = None, rule_hash: str = "",
    told: Callable[[Finding], None] | None = None, keep: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Verify a compiled folder's rule on a device, write its record, and return the entry."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    wanted = plan(layer_type.rule, place)
    listed = []
    for finding in findings(layer_type, wanted):
        listed.append(finding)
        if told is not None:
            told(finding)
    entry = {
        "rule": layer_type.rule.name,
        "hash": rule_hash,
        "setting": verified.setting(place),
        "interpreted": place.type != "cuda" and versions.interpreting(),
        "date": datetime.now(tz=UTC).date().isoformat(),
        "sizes": {"B": wanted.batch, "H": wanted.heads, "d": wanted.width, "chunk": wanted.chunk},
        "forms": {
            form: _by_dtype(form, listed)
            for form in dict.fromkeys((*wanted.forms, *(finding.form for finding in listed)))
        },
        "passed": all(finding.passed for finding in listed),
    }
    if keep:
        verified.store(entry)
    return entry


def _by_dtype(form: str, listed: list[Finding]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dtype in dict.fromkeys(f.dtype for f in listed if f.form == form):
        mine = [f for f in listed if f.form == form and f.dtype == dtype]
        wrong = [f for f in mine if not f.passed]
        found[dtype] = {
            "passed": bool(mine) and not wrong,
            "errors": {part: _worst(mine, part) for part in dict.fromkeys(f.part for f in mine)},
            "wrong": [_told(f) for f in wrong],
            "not compared": sum(f.allowed is None and not f.told for f in mine),
        }
    return found


def _worst(listed: list[Finding], part: str) -> float | None:
    """The largest error of a part, or None where one is no number."""
    errors = [f.error for f in listed if f.part == part]
    return max(errors) if all(map(math.isfinite, errors)) else None


def _told(finding: Finding) -> str:
    """A failure in words."""
    where = f"{finding.case}, {finding.part}"
    if finding.told:
        return f"{where}: {finding.told}"
    return f"{where}: error {finding.error:.1e}, allowed {finding.allowed:.1e}"
