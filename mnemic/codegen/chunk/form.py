"""The chunk form: a chunk's coefficients as one matrix, its errors by one triangular system.

With written rows u_s = −η e_s the dual after row t is

    A_t = reach_t ∘ A_0 + carry_t S_0 + Σ_{s ≤ t} mix_ts u_s r_sᵀ

and predictions read it one row earlier, so that the errors of a
chunk solve ŷ = base + L (−η e(ŷ)) with L strictly lower triangular.
"""

from mnemic.codegen.builder import Builder
from mnemic.codegen.chunk.following import carry
from mnemic.codegen.chunk.parts import Chunk, rows_of_roles, takes_band
from mnemic.codegen.chunk.reads import read_out
from mnemic.codegen.coefficients import coefficients
from mnemic.codegen.plan import Plan
from mnemic.codegen.states import declare
from mnemic.codegen.systems import solve
from mnemic.compiler.kernelised import folded
from mnemic.compiler.rule import Rule


def build(rule: Rule) -> Plan:
    """The plan of one chunk."""
    rule = folded(rule)
    banded = takes_band(rule)
    slot = ("r",) if rule.window > 1 and not banded else ()
    b = Builder(rule, ("t",), slot=slot, flat=bool(slot))
    b.vector_rows = ("s",) if banded else None
    b.declare_vectors()
    (carried,) = declare(b)
    c = coefficients(b, banded)
    parts = Chunk(b, carried.states, rows_of_roles(b), c)
    sources = solve(parts.b, parts.states, parts.roles, parts.c)
    carry(parts, sources)
    read_out(parts, sources)
    return b.plan
