"""States at a document's start that follow from the initial duals."""

from collections.abc import Collection

import sympy as sp

from mnemic.codegen.builder import Builder
from mnemic.codegen.links import linked, scale_of, values_of
from mnemic.codegen.moves import centred
from mnemic.codegen.plan import Plan
from mnemic.codegen.states import (
    MATRIX,
    anchored,
    is_free,
    link_of,
    norm_axis,
)
from mnemic.compiler import symbols as sym
from mnemic.compiler.inverse import invert
from mnemic.compiler.network import Matrix
from mnemic.compiler.retention import Link
from mnemic.compiler.rule import Layers, Levels, Linear, Rule


def start(rule: Rule, states: Collection[str]) -> Plan | None:
    """Plan the memory at a document's start; ``None`` where every state starts at zero.

    ``states`` are those of the token's plan.
    """
    match rule:
        case Layers():
            return _of_layers(rule)
        case Linear() | Levels() if rule.kernels is None:
            return _of_one(rule, states)
    return None


def _of_one(rule: Linear | Levels, states: Collection[str]) -> Plan | None:
    """Plan the start of a single matrix: link(0), or uniform; ``None`` where it starts at zero."""
    retained = rule.retained
    if retained.mode == "dual" and "anchor" not in states:
        return None
    b = Builder(rule, ())
    dual = b.plan.given("A" if "A" in states else "W", ("v", "k"))
    b.plan.following["anchor" if "anchor" in states else "W"] = _start(b, dual)
    return b.plan


def _start(b: Builder, dual: str) -> str:
    """Plan the memory of a dual of zero."""
    retained = b.rule.retained
    if retained.mode == "dual":
        return linked(b, dual, retained.link, "W")
    if retained.mode == "multiplicative" and retained.link.normaliser == "none":
        return b.call("W_start", ("v", "k"), "filled", dual, value=1.0)
    if retained.mode == "multiplicative" or retained.link.normaliser == "root":
        flat = Link(sp.Integer(0) * sym.a, "softmax", retained.link.over, retained.link.scale)
        scale = scale_of(b, flat, dual)
        return b.call("W_start", ("v", "k"), "simplex", dual, *scale, over=flat.over)
    return _unmirrored(b, dual)


def _unmirrored(b: Builder, dual: str) -> str:
    """Plan (∇R)⁻¹(0), the memory of a dual of zero under a prox."""
    retained = b.rule.retained
    entry = invert(retained.mirror, retained.link.domain)
    if entry is None:
        link = Link(None, slope=retained.mirror, domain=retained.link.domain)
        return linked(b, dual, link, "W_start")
    return b.map("W_start", entry, {"a": dual, **values_of(b, entry, end=False)})


# -- layers ----------------------------------------------------------------------------------


def _of_layers(rule: Layers) -> Plan | None:
    """Plan held and anchored memories W_0 = link(A_0), and norms; ``None`` where none are."""
    b = Builder(rule, ())
    for matrix in rule.network.matrices:
        _matrix(b, matrix)
    return b.plan if b.plan.following else None


def _matrix(b: Builder, matrix: Matrix) -> None:
    rule, tag = b.rule, matrix.name.removeprefix("W")
    if rule.keeps_rows(matrix):
        return  # it starts without pairs
    names = [f"held{tag}"] * (matrix.every > 1) + [f"anchor{tag}"] * anchored(rule, matrix)
    if is_free(rule, matrix):
        names.append(matrix.name)
    dual = f"{matrix.name}_start"
    if names:
        plain = rule.retained.mode == "dual" and rule.retained.link.identity
        alone = len(rule.network.matrices) == 1  # no parameter: what is not given is zero
        own = plain or (is_free(rule, matrix) and alone)
        dual = matrix.name if own else f"A{tag}" if not is_free(rule, matrix) else dual
    if names or rule.applied.normalize != "none":
        b.plan.given(dual, MATRIX)
    memory = _memory(b, matrix, dual) if names else dual
    for name in names:
        b.plan.following[name] = memory
    if dual == f"A{tag}" and rule.retained.mode == "prox":
        _mirrored(b, matrix, memory)
    if rule.applied.normalize != "none":
        first = f"{matrix.name}_start"
        first = first if first in b.plan.graph else b.plan.given(first, MATRIX)
        axis = norm_axis(rule)
        first = centred(b, first)
        b.plan.following[f"norms{tag}"] = b.call(f"norms{tag}", (axis,), "norms_of", first,
                                                 axis=axis)  # fmt: skip


def _memory(b: Builder, matrix: Matrix, dual: str) -> str:
    """Plan W = link(A), or (∇R)⁻¹(A) under a prox without a constraint."""
    retained = b.rule.retained
    if retained.mode == "dual" or retained.link.normaliser != "none":
        link = link_of(b.rule, matrix, stepped=False)
        return linked(b, dual, link, f"W{matrix.name[1:]}_first")
    entry = invert(retained.mirror, retained.link.domain)
    back = Link(entry, slope=retained.mirror, domain=retained.link.domain)
    return linked(b, dual, back, f"W{matrix.name[1:]}_first")


def _mirrored(b: Builder, matrix: Matrix, memory: str) -> None:
    """Plan A_0 = ∇R(W_0), which is what was given where no constraint has moved the memory."""
    mirror = b.rule.retained.mirror
    if link_of(b.rule, matrix).normaliser != "none" and len(b.rule.network.matrices) > 1:
        name = f"A{matrix.name.removeprefix('W')}"
        b.plan.following[name] = b.map(f"{name}_first", mirror, {sym.w.name: memory}, "dual")
