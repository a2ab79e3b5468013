"""The inputs on which ``verify`` tries a compiled rule: arguments as its layer makes them.

Lengths around a chunk and a prime one (that a tree's levels hold), logarithms of decays from 0 to
−88, carried states, arguments that are not contiguous, packed documents.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from . import versions
from .seeded import seeded
from .sequence import SequenceLayer

Tensors = dict[str, Tensor]

DECAYS = (0.0, -1e-9, -6.0, -20.0, -88.0)
BEFORE = 5
"""Tokens before a carried state."""
ROWS = 64
"""A multiple of the rows a chunk that any form takes unless told."""


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

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return int(next(iter(self.arguments.values())).shape[1])


@dataclass(frozen=True)
class Plan:
    """What to try: device, forms, dtypes, sizes, and the chunk size (``None``: the rule's own)."""

    device: torch.device
    forms: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    width: int
    batch: int = 2
    heads: int = 2
    chunk: int | None = None
    value: int | None = None
    """The width of values, where it is another than that of keys."""
    tokens: int = 0
    """The one length that is tried, from a state, where it is not those around a chunk."""
    cut: Mapping[str, int] = field(default_factory=dict)
    """How kernels with gradients are cut there, where it is not as the model says."""


def plans(rule: Any, device: torch.device) -> tuple[Plan, ...]:
    """Return the plans that this machine can try: small sizes, then sizes as large as in training.

    These need several pieces of a sequence and blocks of values. Interpreted kernels get tiny
    sizes, cut so that there are as many pieces and blocks.
    """
    small = plan(rule, device)
    if "triton" not in small.forms:
        return (small,)
    if device.type == "cuda":
        large = replace(small, forms=("triton",), width=128, batch=1, tokens=600)
    else:
        cut = {"rows": 2, "block": 16, "stages": 1}
        large = replace(
            small, forms=("triton",), dtypes=(torch.float64,), width=24, tokens=38, cut=cut
        )
    return (small, large)


def plan(rule: Any, device: torch.device) -> Plan:
    """Plan what to try here: on the CPU the fused form only where Triton interprets it."""
    others = tuple(form for form in rule.forms if form not in ("recurrent", "triton"))
    fused = ("triton",) if "triton" in rule.forms and versions.installed() else ()
    if device.type == "cuda":
        short = (torch.bfloat16,) if torch.cuda.is_bf16_supported() else ()
        dtypes = (torch.float32, torch.float16, *short)
        return Plan(device, (*fused, *others), dtypes, 64)
    if versions.interpreting():
        dtypes = (torch.float64, torch.bfloat16, torch.float16)  # these in float32 inside
        return Plan(device, fused, dtypes, 16, 1, 1, 16)
    return Plan(device, others, (torch.float32, torch.bfloat16, torch.float16), 16)


def cases(layer_type: type[SequenceLayer], wanted: Plan) -> Iterator[Case]:
    """Yield every case of a rule, with the arguments that its layer gives it; those that find the
    most faults come first."""
    rule = layer_type.rule
    if wanted.tokens:
        yield long(layer_type, wanted)
        return
    size = wanted.chunk or ROWS
    chunk = rule.signature.anchor if rule.signature.anchor > 1 else size
    longest = rule.signature.at_most(2 * chunk + 3)
    chunk = min(chunk, longest // 2)
    whole, params = drawn(layer_type, wanted, longest)
    for tokens in (1, chunk + 1):
        yield Case(f"T = {tokens}", cut(whole, 0, tokens), params, {})
    before = min(BEFORE, longest - 1)
    rest, state = continued(rule, cut(whole, 0, chunk + 6), params, before)
    yield Case("from a state", rest, params, state)
    packed = {n: x[:1] for n, x in whole.items()}
    ends = torch.tensor([0, 1, chunk, longest], device=wanted.device)
    yield Case("documents", packed, params, {}, {"cu_seqlens": ends})
    decays = [c.name for c in rule.signature.coefficients if c.high == 0 and "log_" in c.name]
    some = cut(whole, 0, chunk + 1)
    for value in DECAYS if decays else ():
        steep = {n: torch.full_like(x, value) if n in decays else x for n, x in some.items()}
        yield Case(f"log decay {value:g}", steep, params, {})
    for tokens in sorted({chunk - 1, chunk, _prime(longest)} - {0, 1, chunk + 1}):
        yield Case(f"T = {tokens}", cut(whole, 0, tokens), params, {})
    yield Case("not contiguous", some, params, {}, apart=True)


def long(layer_type: type[SequenceLayer], wanted: Plan) -> Case:
    """Return the case of a plan of one length, or of the longest that a document may have."""
    tokens = layer_type.rule.signature.at_most(BEFORE + wanted.tokens)
    whole, params = drawn(layer_type, wanted, tokens)
    rest, state = continued(layer_type.rule, whole, params, BEFORE)
    return Case(f"T = {tokens - BEFORE}, d = {wanted.width}", rest, params, state)


def continued(
    rule: Any, whole: Tensors, params: Tensors, before: int
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Return the arguments after the first ``before`` tokens, and the state that these leave."""
    with torch.no_grad():
        _, state = rule(
            **cut(whole, 0, before), params=params, form="recurrent", output_final_state=True
        )
    return cut(whole, before, whole["q"].shape[1]), {n: x.detach() for n, x in state.items()}


def drawn(layer_type: type[SequenceLayer], wanted: Plan, tokens: int) -> tuple[Tensors, Tensors]:
    """Return a freshly initialised layer's arguments and parameters, in float64."""
    layer = made(layer_type, wanted, wanted.width)
    with seeded(1):
        x = torch.randn(wanted.batch, tokens, layer.dim, dtype=torch.float64)
    with torch.no_grad():
        arguments, params = layer.arguments(x), layer.params()
    place = wanted.device
    found = ({n: t.detach().to(place).contiguous() for n, t in arguments.items()},
             {n: t.detach().to(place) for n, t in params.items()})  # fmt: skip
    return found


def made(layer_type: type[SequenceLayer], wanted: Plan, width: int) -> Any:
    """Make a new layer in float64: d_k = width, and d_v too unless the plan says otherwise."""
    groups = layer_type.grouped()
    value = (wanted.value or width) if width == wanted.width else width
    value = layer_type.rule.signature.values(width, value)
    options: Any = {"heads": wanted.heads * groups, "key_dim": width}
    with seeded(0):
        return layer_type(16 * groups, **options, value_dim=value).double()


def cut(arguments: Tensors, low: int, high: int) -> Tensors:
    """Return the tokens ``low`` to ``high`` (exclusive) of every argument."""
    return {name: x[:, low:high] for name, x in arguments.items()}


def _prime(most: int) -> int:
    """Return the largest prime that is no more than ``most``."""
    return next(n for n in range(most, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))
