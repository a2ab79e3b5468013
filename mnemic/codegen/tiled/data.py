"""The data that a module of kernels holds: what each kernel takes, and what PyTorch computes
first."""

from collections.abc import Iterable
from dataclasses import dataclass

from mnemic.codegen import emit
from mnemic.codegen.plan import Plan, Quantity
from mnemic.codegen.tiled.alive import Tiles
from mnemic.codegen.tiled.divided import Divided, GradientParts
from mnemic.codegen.tiled.divided.count import counted
from mnemic.codegen.tiled.divided.gradient_kernels import loads_of, rows_of
from mnemic.codegen.tiled.divided.sums_kernel import overlapping
from mnemic.codegen.tiled.divided.two_kernels import Handed
from mnemic.codegen.tiled.layout import SOURCES, Held, Layout, Row, Stored
from mnemic.codegen.tiled.windows import ROWS, Windows


def listed(name: str, items: Iterable[str]) -> list[str]:
    """Write one argument of a call over several lines: a tuple, an item a line."""
    return [f"    {name}=(", *(f"        {item}," for item in items), "    ),"]


def row_of(row: Row) -> str:
    """Write an argument with a row a token, as data of the module."""
    view = "" if row.view == ROWS else f", {row.view!r}"
    return f"Row({row.name!r}, {row.sizes!r}{view})"


def held_of(state: Held) -> str:
    """Write a state, as data of the module."""
    return f"Held({state.name!r}, {state.sizes!r})"


def before(
    plan: Plan, quantities: tuple[Quantity, ...], taken: tuple[str, ...], rows: tuple[Row, ...],
    name: str,
) -> str:  # fmt: skip
    """Write the function of what PyTorch computes of the arguments first, all tokens at once."""
    inside = {q.name for q in quantities}
    read = {n for q in quantities for n in q.reads()} - inside
    lines = [f"def {name}_before({', '.join(n for n in taken if n in read)}):"]
    lines.append('    """What PyTorch computes first, for every token at once."""')
    lines += emit.block(plan, quantities, 4, {})
    pairs = ", ".join(f'"{row.name}": {row.name}' for row in rows if row.name in inside)
    return "\n".join([*lines, f"    return {{{pairs}}}"]) + "\n"


@dataclass(frozen=True)
class Data:
    """What the kernels of a form take: see ``support.fused.Kernel``."""

    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    gradients: tuple[str, ...] | None
    value: str
    split: str
    chunked: bool = False
    lanes: bool = False
    windows: Windows = Windows()
    products: bool = False
    alive: tuple[tuple[Tiles, ...], ...] = ()
    along: tuple[str, ...] = ()
    scratch: tuple[Stored, ...] = ()
    """How many rows along an axis, and matrices, each of its kernels stores."""
    swept: bool = False
    """Whether there is a twin that goes along axes."""
    divided: Divided | None = None
    """The kernels that the form is divided into, where it is."""
    divided_gradient: GradientParts | None = None
    """The kernels that the form's gradient is divided into, where it is."""

    def printed(
        self, name: str, taken: tuple[str, ...], steps: int, *, before: str = ""
    ) -> str:  # fmt: skip
        """Write it as data of the module; ``taken`` are the arguments of the form, ``before`` is
        whose function PyTorch computes first, if not its own."""
        backward = "None" if self.gradients is None else f"{name}_backward"
        lines = [
            f"{name.upper()} = Kernel(",
            f"    {name}_forward,",
            f"    {backward},",
            *listed("rows", map(row_of, self.rows)),
            *listed("states", map(held_of, self.states)),
            f"    gradients={self.gradients or ()!r},",
            f"    value={self.value!r},",
            f"    split={self.split!r},",
            f"    chunked={self.chunked},",
            f"    steps={steps},",
            f"    before={before or name}_before,",
            f"    taken={taken!r},",
            *(["    lanes=True,"] if self.lanes else []),
            *(["    whole=True,"] if name == "own" else []),
            *([f"    along={self.along!r},"] if self.along else []),
            *([f"    scratch={self.scratch!r},"] if any(self.scratch) else []),
            *([f"    swept={name.upper()}_SWEPT,"] if self.swept else []),
            *(_divided(self.divided, self.divided_gradient, name) if self.divided else []),
            *_windows(self.windows),
            f"    products={self.products},",
            *_alive(self.alive),
            ")",
        ]
        return "\n".join(lines) + "\n"


def _alive(alive: tuple[tuple[Tiles, ...], ...]) -> list[str]:
    """Write the tiles that are alive at once, in the form and in its gradient, a line for each
    moment."""
    lines = ["    alive=("]
    for moments in alive:
        lines += ["        (", *(f"            {moment!r}," for moment in moments), "        ),"]
    return [*lines, "    ),"] if alive else []


def _divided(found: Divided, back: GradientParts | None, name: str) -> list[str]:
    """Write, as data of the module, the kernels of a divided form and the tiles between them."""
    bodies = {"parallel_body": found.parallel, "scan_body": found.scan, "body": found.whole}.items()
    lines = [
        "divided=Divided(",
        f"    {name}_parallel,",
        f"    {name}_scan,",
        *listed("tiles", map(tile_of, found.handed)),
        f"    parallel_rows={rows_of(found.parallel)!r},",
        f"    scan_rows={rows_of(found.scan)!r},",
        *(f"    {name}={counted(lay, lay.plan.ordered()).printed()}," for name, lay in bodies),
        *(f"    {line}" for line in (_divided_gradient(back, f"{name}_back") if back else ())),
        "),",
    ]
    return [f"    {line}" for line in lines]


def tile_of(tile: Handed) -> str:
    """Write, as data of the module, a tile that one kernel stores for the next."""
    return f"Tile({tile.name!r}, {tile.sizes!r}, {tile.rounded})"


def _divided_gradient(found: GradientParts, name: str) -> list[str]:
    """Write the kernels of a divided gradient, and what stands between them."""
    own = ("parallel", found.parallel, found.handed), ("scan", found.scan, found.scanned)
    parts = [
        f"    {part}={_part(found, lay, f'{name}_{part}', stored)},"
        for part, lay, stored in (*own, ("rest", found.rest, ())) if lay is not None
    ]  # fmt: skip
    shared = overlapping(found.whole, found.back.gradients)
    apart = [tile_of(Handed(row.name, (SOURCES, *row.sizes), False)) for row in shared]
    return [
        f"gradient={'OverlappingGradient' if apart else 'DividedGradient'}(",
        *parts,
        *(f"    {line}" for line in listed("tiles", map(tile_of, found.tiles))),
        f"    body={counted(found.whole, found.whole.plan.ordered()).printed()},",
        *([f"    sums={name}_sums,", *listed("apart", apart)] if apart else ()),
        "),",
    ]


def _part(found: GradientParts, lay: Layout, name: str, stored: tuple[Handed, ...]) -> str:
    """Write, as data of the module, one kernel of a divided gradient: its arguments by row, the
    tiles that it loads and stores, its work, and, if it loops over blocks of values, the sums over
    them."""
    stores, quantities = tuple(tile.name for tile in stored), lay.plan.ordered()
    held = [] if lay is found.scan else [q for q in quantities if found.values.begins(q)]
    sums = tuple(tuple(size or "C" for size in lay.sizes(q.name)) for q in held)
    told = f"{rows_of(lay)!r}, {loads_of(lay)!r}, {stores!r}, {counted(lay, quantities).printed()}"
    return f"{'SourcedPart' if lay.sourced else 'Part'}({name}, {told}, {sums!r})"


def _windows(windows: Windows) -> list[str]:
    if windows.width == 1:
        return []
    return [f"    window={windows.width},", f"    slots={windows.slots},"]
