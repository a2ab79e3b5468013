"""How a plan is laid out on tiles: the sizes of its axes, what is loaded, and what may be split."""

from dataclasses import dataclass, field

from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.operation import CHUNK, TOKEN
from mnemic.codegen.plan import MEMORIES, Plan, Quantity
from mnemic.codegen.tiled.axes import Axes, NoTiles, Place, joined
from mnemic.codegen.tiled.windows import BAND, SHARED, SLOTS, TAIL, Windows
from mnemic.codegen.tiled.windows import ROWS as PLAIN

ROWS = "C"
"""The size of the rows' axis."""

SOURCES = "SOURCES"
"""The size of the axis of rows that windows read."""

TALL = (ROWS, SOURCES)
"""Sizes along which a chunk's rows lie."""

Stored = tuple[tuple[tuple[str, ...], int], ...]
"""What a kernel stores and loads again: rows along one axis, or matrices of two, how many."""

CLOSES = "closes_"
"""What tells whether an interval of so many tokens ends with a chunk."""


def at(size: str) -> str:
    """Name the places along an axis."""
    return "t" if size == ROWS else f"at_{size}"


def turned(axes: tuple[str, ...]) -> bool:
    """Return whether a tile holds a quantity with these axes transposed."""
    return axes in MEMORIES


@dataclass(frozen=True)
class Row:
    """An argument by row: its name, the sizes of its other axes, the fill for missing rows, and its
    view.

    Missing rows are zero; those of coefficients that are no logarithms repeat the last row.
    """

    name: str
    sizes: tuple[str, ...]
    fill: str
    view: str = PLAIN


@dataclass(frozen=True)
class Held:
    """A state: its name and the sizes of its axes."""

    name: str
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A plan on tiles."""

    plan: Plan
    axes: Axes
    chunked: bool
    names: dict[Place, str]
    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    tiles: tuple[Quantity, ...]
    split: str
    """The size whose axis may be cut into blocks, one a program; empty where there is none."""
    given: tuple[Held, ...] = ()
    """Memories that are arguments: what stood at a chunk's start."""
    windows: Windows = Windows()
    known: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False, compare=False)
    """Sizes that were asked for."""

    def sizes(self, name: str) -> tuple[str, ...]:
        """Return the size of each axis of a quantity, empty for one that has no name."""
        if name not in self.known:
            axes = self.axes.classes(name)
            self.known[name] = tuple(self.names.get(place, "") for place in axes)
        return self.known[name]

    @property
    def value(self) -> str:
        """The size of the output's channels."""
        return self.sizes(self.plan.output)[-1]

    @property
    def channels(self) -> tuple[str, ...]:
        """The sizes that are not the rows'."""
        found = [s for row in self.rows for s in row.sizes]
        found += [s for state in (*self.states, *self.given) for s in state.sizes]
        return tuple(dict.fromkeys(s for s in found if s not in TALL))

    @property
    def sourced(self) -> bool:
        """Whether windows are read as rows of their own."""
        return any(row.view in (TAIL, SLOTS, BAND) for row in self.rows)

    @property
    def shared(self) -> bool:
        """Whether windows are read of rows that begin before a sequence's first."""
        return any(row.view in SHARED for row in self.rows)


def layout(
    plan: Plan, logarithms: frozenset[str], *, chunked: bool, output: str,
    given: tuple[str, ...] = (), like: Layout | None = None, windows: Windows = Windows(),
) -> Layout:  # fmt: skip
    """Lay a plan out on tiles.

    ``logarithms`` are the arguments that are logarithms; ``output`` is the quantity whose
    channels are the values; ``given`` are arguments that are memories, not rows. Values may be cut
    into blocks where nothing sums or mixes along them. The names of sizes, and the cut, are those
    of ``like``, if given: the layout of the form whose gradient this is.
    Raises ``NoTiles`` where it cannot be laid out.
    """
    tiles = plan.ordered()
    axes = joined(plan, CHUNK if chunked else TOKEN, tiles)
    loaded = [n for n in plan.arguments() if n not in given and not n.startswith(CLOSES)]
    lead = 1 if chunked else 0
    views = {n: windows.view(plan.axes(n)) for n in loaded}
    skips = {n: lead + (views[n] == BAND) for n in loaded}
    names = leading(axes, loaded, views) if chunked else {}
    _take(names, axes, like, {n: skips.get(n, 0) for n in (*loaded, *given)})
    for name in (*loaded, *given, *plan.states()):
        for i, letter in list(enumerate(plan.axes(name)))[skips.get(name, 0) :]:
            _name(names, axes.find((name, i)), letter)
    rows = tuple(
        Row(n, tuple(names[axes.find((n, i))] for i in range(skips[n], len(plan.axes(n)))),
            "zero" if n in logarithms or len(plan.axes(n)) > lead else "last", views[n])
        for n in loaded
    )  # fmt: skip
    states, memories = (
        tuple(Held(s, tuple(names[p] for p in axes.classes(s))) for s in group)
        for group in (plan.states(), given)
    )
    classes = axes.classes(output)
    if len(classes) != lead + 1:
        raise NoTiles("an output that is not a row of values")
    value = classes[-1]
    cuts = not axes.is_reduced(value) if like is None else bool(like.split)
    found = Layout(
        plan, axes, chunked, names, rows, states, tiles, names.get(value, "") if cuts else "",
        memories, windows,
    )  # fmt: skip
    _check(found)
    return found


def leading(axes: Axes, loaded: list[str], views: dict[str, str]) -> dict[Place, str]:
    """Name the rows' axes: a chunk's tokens, and (with windows) what its tokens read."""
    places: dict[str, list[Place]] = {ROWS: [], SOURCES: []}
    for name in loaded:
        places[SOURCES if views[name] in (TAIL, SLOTS) else ROWS].append((name, 0))
        if views[name] == BAND:
            places[SOURCES].append((name, 1))
    names: dict[Place, str] = {}
    for group in places.values():
        for place in group[1:]:
            axes.join(group[0], place)
    for size, group in places.items():
        if group and names.setdefault(axes.find(group[0]), size) != size:
            raise NoTiles("rows and windows that are one axis")
    return names


def _take(names: dict[Place, str], axes: Axes, like: Layout | None, known: dict[str, int]) -> None:
    """Name sizes as another layout does; ``known`` tells how many axes lead."""
    entries: tuple[Row | Held, ...] = () if like is None else (*like.rows, *like.states)
    for entry in entries:
        for i, size in enumerate(entry.sizes):
            if entry.name in known:
                names[axes.find((entry.name, known[entry.name] + i))] = size


def _name(names: dict[Place, str], place: Place, letter: str) -> None:
    if place in names:
        return
    taken, name, count = set(names.values()), letter.upper(), 1
    while name in taken:
        count += 1
        name = f"{letter.upper()}{count}"
    names[place] = name


LOCALS = frozenset((
    "tl", "tiles", "triton", "ops", "math", "torch", "chunk", "chunks", "done", "low", "live",
    "row", "origin", "memory", "part", "own", "behind", "t", "total", "begin", "length", "heads",
    "position", "first", "C", "ROWS", "STEPS", "KEEP", "READ", "PRECISION", "REAL", "LEAN", "some",
    "at_tail", "at_seen", "at_behind", "SOURCES", "live_SOURCES", "new_error", "curve",
    "curve_slope", "curve_distance", "simplex_sums", "simplex_shares",
))  # fmt: skip
"""Names that kernels use themselves."""


def _check(found: Layout) -> None:
    defined = {name for name, o in OPERATIONS.items() if o.tile and o.tile.in_module}
    taken = (
        LOCALS
        | defined
        | {f"{part}{size}" for size in found.channels for part in ("", "B", "at_", "in_")}
    )
    held = [state.name for state in (*found.states, *found.given)]
    taken |= {f"{part}_{name}" for name in held for part in ("start", "end", "kept")}
    taken |= {f"{part}_{row.name}" for row in found.rows for part in ("rows", "grad")}
    for name in (*(q.name for q in found.tiles), *(row.name for row in found.rows)):
        if name in taken:
            raise NoTiles(f"the name {name}, which kernels use themselves")
    for quantity in found.tiles:
        if len(quantity.axes) > 2:
            raise NoTiles(f"a quantity of {len(quantity.axes)} axes")
    for name in (*found.names.values(),):
        if name.startswith("N" if found.windows.width > 1 else ("R", "N")):
            raise NoTiles("windows or kept pairs")
