"""Plans → the source of a module: header, forms, operator."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen import chunk, emit, moments, recurrent
from mnemic.codegen.builder import Builder
from mnemic.codegen.describe import signature
from mnemic.codegen.fuse import fuse
from mnemic.codegen.links import linked
from mnemic.codegen.plan import Plan
from mnemic.compiler import symbols as sym
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Rule

HEADER = '''"""{title}

{text}
Written by mnemic {version} from the spec {name} ({hash}).
"""
# ruff: noqa
import math

import torch
import torch.nn.functional as F

from .support import ops
from .support.operator import Operator
from .support.ops import TINY, norm
from .support.signature import Coefficient, Signature, State

'''


@dataclass(frozen=True)
class Plans:
    """The plans of a rule's forms."""

    recurrent: Plan
    chunk: Plan | None
    start: Plan | None


def plans(rule: Rule) -> Plans:
    """Rule → plans: one a form."""
    builder: Any = moments if rule.moments is not None else None
    token = (builder or recurrent).build(rule) if builder is None else moments.recurrent(rule)
    whole = None
    if "chunk" in rule.structure.forms:
        whole = chunk.build(rule) if rule.moments is None else moments.chunk(rule)
        fuse(whole)
    return Plans(token, whole, start_plan(rule, token))


def start_plan(rule: Rule, token: Plan) -> Plan | None:
    """The memory at a document's start, where it is not zero: link(0), or uniform."""
    states = token.states()
    if rule.moments is not None:
        return None
    retained = rule.retained
    if retained.mode == "dual" and "anchor" not in states:
        return None
    b = Builder(rule, ())
    dual = b.plan.given("A", ("v", "k"))
    if retained.mode == "dual":
        b.plan.output = linked(b, dual, retained.link, "W")
    elif retained.mode == "multiplicative" or retained.link.normaliser == "root":
        flat = Link(sp.Integer(0) * sym.a, "softmax", retained.link.over, retained.link.scale)
        b.plan.output = _uniform(b, dual, flat)
    else:
        b.plan.output = _mirrored(b, dual, rule)
    return b.plan


def _uniform(b: Builder, dual: str, link: Link) -> str:
    from mnemic.codegen.links import scale_of

    return b.call("W", ("v", "k"), "simplex", dual, *scale_of(b, link, dual), over=link.over)


def _mirrored(b: Builder, dual: str, rule: Rule) -> str:
    """(∇R)⁻¹(0)."""
    from mnemic.compiler.retention import invert

    entry = invert(rule.retained.mirror, rule.retained.link.domain)
    if entry is None:
        link = Link(None, slope=rule.retained.mirror, domain=rule.retained.link.domain)
        return linked(b, dual, link, "W")
    return b.map("W", entry, {"a": dual})


def source(rule: Rule, *, version: str, spec_hash: str, text: str, numbers: dict[str, str]) -> str:
    """The module's source, deterministic to the byte."""
    found = plans(rule)
    title = rule.problem.spec.title or rule.name
    parts = [HEADER.format(title=title, text=text, version=version, name=rule.name, hash=spec_hash)]
    functions = {**found.recurrent.functions, **(found.chunk.functions if found.chunk else {})}
    for function in functions.values():
        parts.append("\n" + function.replace("  {error}", "") + "\n")
    parts.append("\n" + emit.scalar_loop(
        found.recurrent, numbers, "Token by token: arguments [T, M, ...], states [M, ...].",
        "recurrent",
    ))  # fmt: skip
    if found.chunk is not None:
        parts.append("\n\n" + emit.chunk_loop(
            found.chunk, numbers, "Chunkwise: arguments [N, M, C, ...], states [M, ...].", "chunk"
        ))  # fmt: skip
    if found.start is not None:
        parts.append("\n\n" + emit.function(found.start, "start", "The memory at the start."))
    parts.append("\n\n" + _operator(rule, found))
    return "".join(parts)


def _operator(rule: Rule, found: Plans) -> str:
    described = signature(rule, found.recurrent)
    lines = ["SIGNATURE = Signature("]
    for name, value in vars(described).items():
        lines += _field(name, value)
    lines += [")", ""]
    chunk_name = "chunk" if found.chunk is not None else "None"
    start_name = "start" if found.start is not None else "None"
    lines.append(f"rule = Operator(SIGNATURE, recurrent, {chunk_name}, {start_name})")
    return "\n".join(lines) + "\n"


def _field(name: str, value: Any) -> list[str]:
    if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
        rows = [f"        {_repr(item)}," for item in value]
        return [f"    {name}=(", *rows, "    ),"]
    return [f"    {name}={value!r},"]


def _repr(item: Any) -> str:
    return repr(item).replace("=-inf", "=-math.inf").replace("=inf", "=math.inf")
