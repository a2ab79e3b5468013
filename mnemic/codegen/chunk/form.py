"""The chunk form: a chunk's coefficients as one matrix, its errors known or by one system.

With written rows u_s = −η δ_s and their keys a_s the dual of a matrix after row t is

    A_t = reach_t ∘ A_0 + carry_t S_0 + Σ_{s ≤ t} mix_ts u_s a_sᵀ

Where the gradient sees a memory that stands still for the chunk, one pass over its keys gives every
matrix its rows and keys. Where it sees the memory of one row earlier, the errors of a chunk solve
ŷ = base + L (−η e(ŷ)) with L strictly lower triangular.
"""

from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.following import move
from mnemic.codegen.chunk.parts import (
    Chunk,
    Moved,
    Source,
    rows_of_roles,
    source_of,
    step_factor,
    takes_band,
)
from mnemic.codegen.chunk.query_reads import read_last, read_out, still_read
from mnemic.codegen.chunk.systems import solve
from mnemic.codegen.coefficients import coefficients
from mnemic.codegen.moves import read_anew
from mnemic.codegen.network_passes import as_vector
from mnemic.codegen.plan import Plan
from mnemic.codegen.states import declare
from mnemic.codegen.token_gradient import factors_of_steps
from mnemic.compiler.kernelised import folded
from mnemic.compiler.rule import Layers, Rule


def build(rule: Rule) -> Plan:
    """Return the plan of one chunk."""
    rule = rule if isinstance(rule, Layers) else folded(rule)
    b = _builder(rule)
    carried = declare(b)
    c, roles = coefficients(b, takes_band(rule)), rows_of_roles(b)
    chunks = [Chunk(b, m, roles, c) for m in carried]
    sources = _sources(chunks)
    b.unit_rate = False
    parts: list[Moved] = []
    moved: dict[int, dict[str, str]] = {}
    for p in chunks:
        part, closed = move(p, sources[p.m.matrix.name])
        parts.append(part)
        for every, memory in closed.items():
            if memory != part.last:
                moved.setdefault(every, {})[part.name] = memory
    b.plan.output = read_out(parts)
    read_anew(b, moved, lambda now, end: read_last(b, parts, now, end))
    return b.plan


def _builder(rule: Rule) -> Builder:
    banded = takes_band(rule)
    slot = ("r",) if rule.window > 1 and not banded else ()
    b = Builder(rule, ("t",), slot=slot, flat=bool(slot))
    b.vector_rows = ("s",) if banded else None
    b.unit_rate = rule.applied.outside
    b.declare_vectors()
    return b


def _sources(chunks: list[Chunk]) -> dict[str, tuple[Source, ...]]:
    """Return the rows and keys that every matrix is written with, −η taken into the rows."""
    b = chunks[0].b
    by_name = {p.m.matrix.name: p for p in chunks}
    if b.rule.sees_memory and any(p.m.still is None for p in chunks):
        return {name: solve(p) for name, p in by_name.items()}

    def apply(matrix: str, x: str, name: str, equation: str) -> str:
        m = by_name[matrix].m
        return still_read(b, m, m.still, x, name, equation)

    def back(matrix: str, x: str, name: str, equation: str) -> str:
        m = by_name[matrix].m
        return b.product(name, as_vector(b, x), x, str(m.still), equation=equation)

    steps = factors_of_steps(b, chunks[0].roles, apply, back, step_factor(b))
    return {
        name: tuple(source_of(by_name[name], s.rows, s.keys, s.through) for s in own)
        for name, own in steps.items()
    }
