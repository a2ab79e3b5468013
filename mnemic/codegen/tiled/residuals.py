"""The system of a chunk's residuals on tiles, and its gradient's, which goes back in time.

Both have the shape x = f(b + M x), M strictly triangular. A direction says what x, f, b and M are
and which rows come first; a solver how the rows of one block are found. What goes from block to
block is one loop.
"""

from dataclasses import dataclass

LOOP = '''@triton.jit
def {name}({arguments}, {rows}PRECISION: tl.constexpr):
    """{equation}

    {method}, products between blocks.
    """
    C: tl.constexpr = mixing.shape[0]
    B: tl.constexpr = min(tiles.BASE, C)
{before}    given = {begun}
    found = tl.zeros_like(given)
{blocks}        own = tiles.rows_of(given, block, B)
{parts}        within = {within}
{solved}        found = tiles.with_rows(found, part, block, B)
        given = {following}
    return {result}
'''

SUBSTITUTION = """        part = tl.zeros_like(own)
{steps}            at = tiles.row_of(own, i)
            one = {of_row}
            part = tiles.with_row(part, one, i)
            own += tiles.column_of(within, i) * one
"""

SWEEPS = """        part = {of_own}
        for sweep in range(1, B):
            at = own + tiles.exact(within, part, PRECISION)
            part = {of_swept}
"""


@dataclass(frozen=True)
class Direction:
    """A system x = f(b + M x): ``value`` is f, ``begun`` b, ``mixing`` M."""

    name: str
    arguments: str
    equation: str
    begun: str
    following: str
    """b + M x."""
    mixing: str
    """M, as a pattern around L or a block of it."""
    turns: str
    """The loop over ``count`` rows or blocks, each with its ``place``."""
    parts: tuple[str, ...]
    """What f reads beside its argument and the signal's rows."""
    value: str
    result: str


FORWARD = Direction(
    name="residual", arguments="mixing, base",
    equation="The root y of y = base + L e(y), L strictly lower triangular.",
    begun="base", following="base + tiles.exact(mixing, found, PRECISION)",
    mixing="{0}", parts=(), turns="{indent}for {place} in range(0, {count}):\n",
    value="error({at}{rows})", result="given",
)  # fmt: skip

BACK = Direction(
    name="residual_vjp", arguments="d, y, mixing",
    equation="g = d + Jᵀ Lᵀ g, the gradient at ``base``: the same system with time reversed.",
    begun="tl.zeros_like(d)", following="tiles.exact(tl.trans(mixing), found, PRECISION)",
    mixing="tl.trans({0})", parts=("d", "y"),
    turns="{indent}for after_{place} in range(0, {count}):\n"
          "{indent}    {place} = {count} - 1 - after_{place}\n",
    value="{d} + error_adjoint({at}, {y}{rows})", result="found",
)  # fmt: skip


@dataclass(frozen=True)
class Solver:
    """How the rows of one block are found, whose part of M is ``within``."""

    method: str
    before: str
    within: str
    solved: str


SOLVERS = {
    "substitution": Solver(
        "Rows one after another inside blocks of 16", "",
        "tiles.block_of(mixing, block, B)", SUBSTITUTION,
    ),
    "sweeps": Solver(
        "Sweeps inside blocks of 16, of which the n-th makes row n exact",
        "    blocks = tiles.diagonal_blocks(mixing, B)\n",
        "tiles.one_of(blocks, block)", SWEEPS,
    ),
}  # fmt: skip
"""Row by row, or where slopes are bounded in sweeps, in which a row that is not exact yet stays
finite."""


def functions(parameters: tuple[str, ...], *, swept: bool) -> tuple[str, str]:
    """Write ``residual`` and ``residual_vjp`` as Triton source.

    ``parameters`` are those of ``error``; rows of a block are ``swept`` or found one by one.
    """
    rows, found = parameters[1:], SOLVERS["sweeps" if swept else "substitution"]
    return _printed(FORWARD, found, rows), _printed(BACK, found, rows)


def _printed(way: Direction, solver: Solver, rows: tuple[str, ...]) -> str:
    parts = (*way.parts, *rows)
    solved = solver.solved.format(
        steps=way.turns.format(place="i", count="B", indent=8 * " "),
        of_row=_value(way, rows, "at", "tiles.row_of({0}_own, i)"),
        of_own=_value(way, rows, "own", "{0}_own"),
        of_swept=_value(way, rows, "at", "{0}_own"),
    )
    return LOOP.format(
        name=way.name, arguments=way.arguments, equation=way.equation, method=solver.method,
        rows="".join(f"{row}, " for row in rows), before=solver.before, begun=way.begun,
        blocks=way.turns.format(place="block", count="C // B", indent=4 * " "),
        parts="".join(f"        {x}_own = tiles.rows_of({x}, block, B)\n" for x in parts),
        within=way.mixing.format(solver.within), solved=solved, following=way.following,
        result=way.result,
    )  # fmt: skip


def _value(way: Direction, rows: tuple[str, ...], at: str, pick: str) -> str:
    """Write f at the argument ``at``, with ``pick`` of everything else that it reads."""
    picked = {part: pick.format(part) for part in way.parts}
    beside = "".join(f", {pick.format(row)}" for row in rows)
    return way.value.format(at=at, rows=beside, **picked)
