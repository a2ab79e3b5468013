"""A divided plan as the source of its kernels."""

from mnemic.codegen.plan import Given
from mnemic.codegen.tiled.divided.tile_lines import CHUNK, EACH, compute_lines, head, store_tile
from mnemic.codegen.tiled.divided.two_kernels import Divided, Handed
from mnemic.codegen.tiled.kernel import (
    advance,
    groups,
    load_state,
    store_output,
    store_state,
    windowed,
)
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.schedule import Stage, stages

PARALLEL = "What no state reaches, a chunk a program: arguments [B, R, H, ...] -> tiles [P, ...]."
SCAN = "The rest, chunk by chunk: arguments [B, R, H, ...], tiles [P, ...], states [M, ...]."


def parallel(found: Divided, numbers: dict[str, str], name: str) -> str:
    """Write the kernel of what no carried state reaches, a chunk a program."""
    lay = found.parallel
    pointers = [*_rows(lay), *(f"tile_{tile.name}" for tile in found.handed)]
    lines = [*head(lay, pointers, name, PARALLEL), EACH, *CHUNK.splitlines(), *windowed(lay)]
    (stage,) = _given_on(lay, found.handed)
    stores = {tile.name: [store_tile(lay, tile)] for tile in found.handed}
    lines += compute_lines(lay, stage.steps, stores, numbers, 8)
    return "\n".join(lines) + "\n"


def scan(found: Divided, numbers: dict[str, str], name: str) -> str:
    """Write the kernel of what carried states reach, from the first chunk to the last."""
    lay = found.scan
    pointers = [*_rows(lay), *(f"tile_{tile.name}" for tile in found.handed), "rows_out"]
    for state in lay.states:
        pointers += [f"start_{state.name}", f"end_{state.name}", f"kept_{state.name}"]
    lines = [*head(lay, pointers, name, SCAN, "KEEP")]
    for state in lay.states:
        lines.append(f"    {state.name} = {load_state(state, f'start_{state.name}', 'memory')}")
    lines += ["    for chunk in tl.range(0, chunks):", *CHUNK.splitlines(), *windowed(lay)]
    lines.append("        if KEEP:")
    for state in lay.states:
        lines.append(f"            {store_state(state, f'kept_{state.name}', 'place', state.name)}")
    (stage,) = _scanned(lay)
    lines += compute_lines(lay, stage.steps, {}, numbers, 8)
    lines += advance(lay, numbers)
    lines.append(f"        {store_output(lay)}")
    for state in lay.states:
        lines.append(f"    {store_state(state, f'end_{state.name}', 'memory', state.name)}")
    return "\n".join(lines) + "\n"


def _rows(lay: Layout) -> list[str]:
    return [f"rows_{row.name}" for row in lay.rows]


def _given_on(lay: Layout, handed: tuple[Handed, ...]) -> list[Stage]:
    """Return one stage of what the quantities that are handed on need: all is loaded once."""
    inside = [q for q in lay.plan.ordered() if not isinstance(q.op, Given)]
    return stages(lay, inside, (tuple(tile.name for tile in handed),), lay.given)


def _scanned(lay: Layout) -> list[Stage]:
    """Return one stage of what a chunk's output and its next states need: all is loaded once."""
    inside, ends = groups(lay)
    return stages(lay, inside, (tuple(end for group in ends for end in group),), lay.given)
