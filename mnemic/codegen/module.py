"""Plans → the source of a module: header, forms, operator, layer."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from mnemic.codegen import (
    chunk,
    emit,
    layer,
    recurrent,
    regression,
    second_order,
    slots,
    tiled,
    tree,
)
from mnemic.codegen.citations import of_slots
from mnemic.codegen.describe import feature_size, signature
from mnemic.codegen.fading import too_fast
from mnemic.codegen.fuse import fuse
from mnemic.codegen.imports import pruned
from mnemic.codegen.own_names import rename_own_coefficients
from mnemic.codegen.plan import Plan
from mnemic.codegen.reading import reading
from mnemic.codegen.repeated import repeated
from mnemic.codegen.start import start
from mnemic.codegen.step import HEADER as STEP_HEADER
from mnemic.codegen.step import Stepped, stepped
from mnemic.codegen.support.signature import Signature
from mnemic.codegen.titles import title_of
from mnemic.compiler.rule import KeyValuePairs, Layers, Levels, Linear, Moments, Rule
from mnemic.compiler.uncompiled import refuse

HEADER = '''"""{title}

{text}
Written by mnemic {version} from the spec {name} ({hash}).
"""
# ruff: noqa
import math

import torch
import torch.nn.functional as F

from .support import ops
from .support.block import Block, Learned
from .support.layer import MemoryLayer
from .support.operator import Operator
from .support.ops import TINY, norm
from .support.signature import Coefficient, Parameter, Signature, State
{imports}
'''

IMPORTED = '''
def fused_kernels():
    """The fused kernels, imported when first asked for: they need Triton."""
    from . import kernels
    return kernels

'''

SLOTS = "from .support.slots import SlotOperator\n"


Build = Callable[[], Plan]


@dataclass(frozen=True)
class Plans:
    """The plans of a rule's forms, of its start, and of its read-out alone."""

    recurrent: Plan
    chunk: Plan | None
    start: Plan | None
    read: Plan | None
    plain: Plan | None
    """The chunk form's plan before its rewrites."""


def plans(rule: Rule) -> Plans:
    """Plan each form of a rule; raise ``InvalidSpec`` for what no form computes yet."""
    refuse(rule)
    one, many = _builders(rule)
    token, whole, plain = one(), None, None
    if "chunk" in rule.structure.forms:
        whole, plain = many(), many()
        fuse(whole)
    read = tree.reading(rule) if isinstance(rule, Levels) else reading(token)
    return Plans(token, whole, start(rule, token.states()), read, plain)


def _builders(rule: Rule) -> tuple[Build, Build]:
    """Tell how a token and a chunk are planned."""
    match rule:
        case KeyValuePairs():
            return partial(regression.recurrent, rule), partial(regression.chunk, rule)
        case Moments():
            return partial(second_order.recurrent, rule), partial(second_order.chunk, rule)
        case Levels():
            return partial(tree.recurrent, rule), partial(tree.chunk, rule)
        case Linear() | Layers():
            return partial(recurrent.build, rule), partial(chunk.build, rule)


@dataclass(frozen=True)
class Printed:
    """The printed source of an operator; what it takes, which of that its forms read, and whether
    its memory can be read without a write."""

    text: str
    signature: Signature
    reads: frozenset[str]
    readable: bool
    kernels: str = ""
    """The source of the fused kernels, where there are any."""
    step: Stepped = Stepped(missing="slots")
    """The kernel of a layer's token."""


@dataclass(frozen=True)
class Source:
    """The source of a module, of its fused kernels and of its token's (empty where it has none)."""

    module: str
    kernels: str
    step: str


def source(
    rule: Rule, *, version: str, spec_hash: str, text: str, numbers: dict[str, str],
    fused: bool = True,
) -> Source:  # fmt: skip
    """Write a module and its kernels, deterministic to the byte; or PyTorch's forms alone.

    Raises ``InvalidSpec`` for a block that the rule cannot have, and for slots that are not
    compiled yet.
    """
    title = title_of(rule.problem.spec)
    slotted = slots.slots_of(rule) > 0
    head = HEADER.format(
        title=title, text=text, version=version, name=rule.name, hash=spec_hash,
        imports=(SLOTS if slotted else "") + layer.imports(rule.problem.spec.block),
    )  # fmt: skip
    found = (
        _slotted(rule, numbers) if slotted
        else _printed(rule, numbers, fused=fused)
    )  # fmt: skip
    whole = head + found.text + layer.source(
        rule, found.signature, found.reads, readable=found.readable, step=found.step.attribute
    )  # fmt: skip
    names = {"title": title, "text": text, "version": version, "name": rule.name, "hash": spec_hash}
    kernels = tiled.HEADER.format(**names) + found.kernels if found.kernels else ""
    step = STEP_HEADER.format(**names) + found.step.text if found.step.text else ""
    return Source(*(pruned(text) if text else "" for text in (whole, kernels, step)))


def _printed(
    rule: Rule, numbers: dict[str, str], prefix: str = "", *, fused: bool
) -> Printed:  # fmt: skip
    """Write the forms and operator of a rule; ``prefix`` tells them from another rule's."""
    rule = repeated(rename_own_coefficients(rule))
    found = plans(rule)
    parts: list[str] = []
    functions = {**found.recurrent.functions, **(found.chunk.functions if found.chunk else {})}
    for function in functions.values():
        parts.append("\n" + function.replace("  {error}", "") + "\n")
    parts.append("\n" + emit.loop(
        found.recurrent, numbers, "Token by token: arguments [T, M, ...], states [M, ...].",
        f"{prefix}recurrent", "token",
    ))  # fmt: skip
    if found.chunk is not None:
        parts.append("\n\n" + emit.loop(
            found.chunk, numbers, "Chunkwise: arguments [N, M, C, ...], states [M, ...].",
            f"{prefix}chunk", "chunk",
        ))  # fmt: skip
    if found.start is not None:
        doc = "The memory at the start."
        parts.append("\n\n" + emit.function(found.start, numbers, f"{prefix}start", doc))
    if found.read is not None:
        doc = "The read-out alone: queries [T, M, ...], states [M, ...], which stay as they are."
        parts.append("\n\n" + emit.reader(found.read, numbers, f"{prefix}read", doc))
    described = signature(rule, found.recurrent, found.start, found.chunk)
    text = ""
    if fused:
        text = fused_kernels(rule, found, numbers).text
    parts.append("\n\n" + _operator(found, described, prefix, fused=bool(text)))
    reads = frozenset(found.recurrent.arguments())
    step = (
        stepped(rule, found.recurrent, described, numbers)
        if fused
        else Stepped(missing="not asked for")
    )
    return Printed("".join(parts), described, reads, found.read is not None, text, step)


def fused_kernels(rule: Rule, found: Plans, numbers: dict[str, str]) -> tiled.Kernels:
    """Write the Triton kernels of a rule's forms."""
    logarithms = frozenset(s.argument for s in rule.scalars if s.logarithmic and s.argument)
    if isinstance(rule, Levels):
        return tiled.tree(_levels(rule), logarithms, numbers)
    optimizer = rule.problem.spec.optimizer
    inner = 1 if isinstance(rule, Moments) else optimizer.inner_steps
    chunked, fading = None, too_fast(rule)
    if found.chunk is not None and found.plain is not None and fading is None:
        chunked = tiled.Form(found.chunk, found.plain)
    if isinstance(rule, KeyValuePairs) and (whole := regression.elementary(rule)) is not None:
        chunked = tiled.Form(whole, whole)
    token = tiled.Form(found.recurrent, found.recurrent)
    single = rule.diagonal and feature_size(rule) == "d"
    return tiled.kernels(
        chunked, token, logarithms, optimizer.micro_steps * inner, numbers, diagonal=single,
        window=rule.window, expanded=feature_size(rule) != "d", no_chunk=fading,
    )  # fmt: skip


def _levels(rule: Levels) -> tiled.Levels:
    """Plan a tree's levels, before and after rewrites."""
    fused, plain = tree.plans(rule), tree.plans(rule)
    forms = [tiled.Form(getattr(fused, n), getattr(plain, n)) for n in ("own", "token", "chunk")]
    for form in forms:
        fuse(form.plan)
    return tiled.Levels((forms[0], forms[1], forms[2]), fused.weights)


def readable(rule: Rule) -> bool:
    """Return whether a rule's memory can be read without a write, which slots do together."""
    parts = slots.memories(rule) if slots.slots_of(rule) else (rule,)
    return all(plans(repeated(rename_own_coefficients(part))).read is not None for part in parts)


def _slotted(rule: Rule, numbers: dict[str, str]) -> Printed:
    """Write forms and operators of the slots' keys and values, and the operator that joins them."""
    of_keys, of_values = slots.memories(rule)
    keys = _printed(
        of_keys, of_slots(numbers), "keys_", fused=False
    )  # no kernel joins two memories yet
    values = _printed(of_values, numbers, "values_", fused=False)
    described = slots.signature(rule, keys.signature, values.signature)
    joined = (
        f"rule = SlotOperator(\n"
        f"    SIGNATURE, keys_rule, values_rule, by_slot={slots.by_slot(rule)}, write=written\n)\n"
    )
    parts = [
        f"{keys.text}\n{values.text}\n\n{slots.written(rule, described)}\n\n",
        f"{_data(described, 'SIGNATURE')}\n{joined}",
    ]
    reads = frozenset({"q", "k", "v", *described.keys})
    return Printed("".join(parts), described, reads, keys.readable and values.readable)


def _operator(found: Plans, described: Signature, prefix: str, *, fused: bool) -> str:
    name = f"{prefix.upper()}SIGNATURE"
    chunk_name = f"{prefix}chunk" if found.chunk is not None else "None"
    start_name = f"{prefix}start" if found.start is not None else "None"
    read_name = f"{prefix}read" if found.read is not None else "None"
    taken = [name, f"{prefix}recurrent", chunk_name, start_name, read_name]
    if fused:
        taken.append("fused_kernels")
    if found.chunk is not None and (functions := emit.parts_of(found.chunk)):
        taken.append(f"parts=({', '.join(functions)}{',' * (len(functions) == 1)})")
        taken += ["compiling=ops.compiled_parts", "keeping=ops.keep_up_to"]
    made = "\n".join(emit.wrapped_call(f"{prefix}rule = Operator(", taken, ")", 0))
    imported = f"{IMPORTED}\n" if fused else ""
    return f"{_data(described, name)}\n{imported}{made}\n"


def _data(described: Signature, name: str) -> str:
    """Write a signature as an assignment."""
    lines = [f"{name} = Signature("]
    for field, value in _particular(described).items():
        lines += _field(field, value)
    return "\n".join([*lines, ")", ""])


def _field(name: str, value: Any) -> list[str]:
    if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
        rows = [f"        {_repr(item)}," for item in value]
        return [f"    {name}=(", *rows, "    ),"]
    return [f"    {name}={value!r},"]


def _particular(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not as they are by default."""
    return {f.name: x for f in fields(item) if (x := getattr(item, f.name)) != f.default}


def _repr(item: Any) -> str:
    told = ", ".join(f"{name}={value!r}" for name, value in _particular(item).items())
    named = f"{type(item).__name__}({told})"
    return named.replace("=-inf", "=-math.inf").replace("=inf", "=math.inf")
