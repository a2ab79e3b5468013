"""The kernel that sums what chunks add to rows of windows, which several chunks see."""

from collections.abc import Iterable
from dataclasses import replace

from mnemic.codegen.tiled.divided.tile_lines import head
from mnemic.codegen.tiled.kernel import overlaps, store_row
from mnemic.codegen.tiled.layout import SOURCES, Layout, Row
from mnemic.codegen.tiled.windows import TAIL

SUMS = "The gradients of rows that windows share: the sums of tiles [P, SOURCES, ...] onto them."

BLOCKS = """\
    seen = length + {before}
    for block in tl.range(tl.program_id(1), tl.cdiv(seen, C), tl.num_programs(1)):
        at_seen = at_tail + tl.cast(block * C, tl.int64) * heads
        live = seen - block * C
"""


def overlapping(lay: Layout, names: Iterable[str]) -> tuple[Row, ...]:
    """Return the arguments among these to whose rows several chunks add."""
    return tuple(row for row in lay.rows if row.name in names and overlaps(row))


def sums_kernel(lay: Layout, rows: tuple[Row, ...], name: str) -> str:
    """Write the kernel that sums each chunk's gradients of some arguments onto their rows, a block
    of rows a program."""
    pointers = [f"{part}_{row.name}" for part in ("tile", "grad") for row in rows]
    own = replace(lay, rows=rows, states=(), given=(), split="")
    lines = head(own, pointers, name, SUMS)
    lines += BLOCKS.format(before=lay.windows.width - 1).splitlines()
    for row in rows:
        (size,) = row.sizes
        verb = "sum_seen_rows" if row.view == TAIL else "sum_seen_slots"
        where = "slot, heads, memory % heads, block * C + t, first, length"
        what = f"ROWS, {lay.windows.width}, {SOURCES}, at_{size}, {size}, REAL"
        lines.append(f"        d_{row.name} = tiles.{verb}(tile_{row.name}, {where}, {what})")
        store = store_row(own, f"grad_{row.name}", f"d_{row.name}", row.sizes)
        lines.append(f"        {store.replace(', row,', ', at_seen,', 1)}")
    return "\n".join(lines) + "\n"
