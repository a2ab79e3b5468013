"""How a plan over kept pairs is laid out in memory and on tiles."""

from dataclasses import dataclass, field, replace

from mnemic.codegen.ops import called
from mnemic.codegen.ops.operation import PAIRS as OVER_PAIRS
from mnemic.codegen.plan import Call, Plan, Quantity
from mnemic.codegen.tiled.axes import Axes, NoTiles, Place, joined
from mnemic.codegen.tiled.layout import CLOSES, ROWS, SOURCES, Held, Layout, Row, leading
from mnemic.codegen.tiled.windows import BAND, Windows

PAIRS = "N"
"""The size of the axis of kept pairs, of which a tile holds a block."""

EARLIER, WITHIN = "before", "within"
"""The pairs that a launch of a part of the chunks goes by: those before its rows, or its own."""

RESERVED = frozenset((
    "memory", "origin", "place", "total", "length", "heads", "position", "first", "chunks",
    "before", "room", "low", "live", "row", "behind", "c", "i", "j", "t", "n", "at_N", "in_N",
    "copied", "part_from", "part_to", "since", "tile", "at_tail", "at_seen", "live_SOURCES", "C",
    "ROWS", "SOURCES", "STEPS", "PART", "PRECISION", "REAL", "BN",
    "within_kept_rows", "within_kept_operands", "tl", "tiles", "math", "ops",
))  # fmt: skip
"""Names that a kernel has for itself."""


FACTOR = (
    "a Cholesky factor of all kept pairs, a state of n² numbers whose triangular solves go through "
    "it row by row: PyTorch has the kernels"
)
"""Why a kernel regression has no kernel."""


@dataclass(frozen=True)
class Growth:
    """The next value of a state of kept pairs: what replaces the old entries, and the new ones
    after them."""

    kept: str
    """What stands for the old entries: the state itself where they stay."""
    rows: str
    """The chunk's own entries; empty for a number."""
    number: float | None = None
    tail: int = 0
    """How many of the rows belong to the last entries that are there, and are added to them."""


@dataclass(frozen=True)
class Streams:
    """A plan over kept pairs: its layout, the states in memory, and how they grow."""

    lay: Layout
    kept: tuple[Held, ...]
    """States with an entry a pair, and the sizes of their other axes."""
    read: tuple[Held, ...]
    """States among arguments with an entry a pair: what stood before the chunk."""
    begun: tuple[Held, ...]
    """States of a fixed size among arguments: what stood before the chunk."""
    growth: dict[str, Growth]
    wide: frozenset[str]
    spelled: dict[str, str] = field(default_factory=dict)
    own: tuple[tuple[Row, str], ...] = ()
    """Rows that are a state's own entries, each with that state: no arguments, but loaded from
    where its pairs lie."""

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.lay.plan

    def streams(self, name: str) -> bool:
        """Return whether a quantity has an entry for each kept pair."""
        return PAIRS in self.lay.sizes(name)

    def say(self, name: str) -> str:
        """Return a quantity's name in the kernel."""
        return self.spelled.get(name, name)

    def held(self, name: str) -> Held | None:
        """Return a state (or an argument) that lies in memory, by name; ``None`` for any other."""
        return next((h for h in (*self.kept, *self.read) if h.name == name), None)


def streams(
    plan: Plan, logarithms: frozenset[str], *, output: str, given: tuple[str, ...] = (),
    like: Streams | None = None, windows: Windows = Windows(),
) -> Streams:  # fmt: skip
    """Lay out a plan over kept pairs; ``given`` are states among the arguments.

    Sizes have the names that they have in ``like``, the layout of the form whose gradient this is.
    Raises ``NoTiles`` where it cannot be laid out.
    """
    tiles = plan.ordered()
    pairs = tuple(s for s in (*plan.states(), *given) if plan.axes(s)[:1] == ("n",))
    if any(plan.axes(s).count("n") > 1 or plan.axes(s)[0] != "n" for s in pairs):
        raise NoTiles(FACTOR)
    axes = joined(plan, OVER_PAIRS, tiles)
    loaded = [n for n in plan.arguments() if n not in given and not n.startswith(CLOSES)]
    views = {n: windows.view(plan.axes(n)) for n in loaded}
    names = leading(axes, loaded, views)
    for name in pairs[1:]:
        axes.join((pairs[0], 0), (name, 0))
    names[axes.find((pairs[0], 0))] = PAIRS
    _take(names, axes, like, {*loaded, *given})
    for name in (*loaded, *plan.states(), *given):
        for i, letter in enumerate(plan.axes(name)):
            _name(names, axes.find((name, i)), letter)
    rows = tuple(_row(plan, axes, names, n, views[n], logarithms) for n in loaded)
    states, begun = (
        tuple(Held(s, tuple(names[p] for p in axes.classes(s))) for s in group if s not in pairs)
        for group in (plan.states(), given)
    )
    channels = axes.classes(output)
    if len(channels) != 2:
        raise NoTiles("an output that is not a row of values")
    lay = Layout(plan, axes, True, names, rows, states, tiles, "", windows=windows)
    kept = tuple(Held(s, tuple(names[p] for p in axes.classes(s)[1:])) for s in pairs)
    _check(lay)
    spelled = {n: f"{n}_" for n in plan.graph if n in RESERVED or n in names.values()}
    read = tuple(h for h in kept if h.name in given)
    return Streams(lay, tuple(h for h in kept if h not in read), read, begun,
                   _growths(plan, [h.name for h in kept if h not in read]),
                   _wide(tiles), spelled)  # fmt: skip


def _row(
    plan: Plan, axes: Axes, names: dict[Place, str], name: str, view: str, logs: frozenset[str]
) -> Row:  # fmt: skip
    first, *sizes = (names[place] for place in axes.classes(name))
    if view == BAND:
        sizes = []
    if first not in (ROWS, SOURCES) or len(sizes) > 1:
        raise NoTiles(f"an argument of {len(plan.axes(name))} axes")
    return Row(name, tuple(sizes), "zero" if name in logs or sizes else "last", view)


def _take(names: dict[Place, str], axes: Axes, like: Streams | None, known: set[str]) -> None:
    """Name sizes as the layout ``like`` does, if there is one."""
    if like is None:
        return
    led: tuple[Row | Held, ...] = (*like.lay.rows, *like.kept)
    for lead, entries in ((1, led), (0, like.lay.states)):
        for entry in entries:
            for i, size in enumerate(entry.sizes, lead):
                if entry.name in known:
                    names[axes.find((entry.name, i))] = size


def _name(names: dict[Place, str], place: Place, letter: str) -> None:
    if place in names:
        return
    taken, name, count = set(names.values()), f"D{letter.upper()}", 1
    while name in taken:
        count += 1
        name = f"D{letter.upper()}{count}"
    names[place] = name


def _check(lay: Layout) -> None:
    for quantity in lay.tiles:
        if len(quantity.axes) > 2:
            raise NoTiles(f"a quantity of {len(quantity.axes)} axes")
    for name in lay.names.values():
        if name.startswith("DL" if lay.windows.width > 1 else ("DR", "DL")):
            raise NoTiles("windows or levels beside kept pairs")


def _growths(plan: Plan, kept: list[str]) -> dict[str, Growth]:
    found = {}
    for state in kept:
        following = plan.following.get(state, state)
        op, operation = plan[following].op, called(plan[following])
        by = operation.streaming.grows if operation else None
        if isinstance(op, Call) and by is not None:
            number = None if isinstance(by, str) else by
            rows = op.arguments[1] if number is None else ""
            found[state] = Growth(op.arguments[0], rows, number)
        elif isinstance(op, Call) and op.function == "grown":
            old, rows = op.arguments
            found[state] = Growth(old, rows, tail=dict(op.options)["tail"])
        else:
            found[state] = Growth(following, "")
    return found


def _wide(tiles: tuple[Quantity, ...]) -> frozenset[str]:
    wide = [q for q in tiles if (operation := called(q)) and operation.streaming.wide]
    return frozenset(name for quantity in wide for name in quantity.reads())


def with_rows(found: Streams, rows: tuple[Row, ...]) -> Streams:
    """Return a layout with other rows, in the order of another kernel's."""
    return replace(found, lay=replace(found.lay, rows=rows))
