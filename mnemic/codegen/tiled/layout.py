"""How a plan lies on tiles: the sizes of its axes, what is loaded, and what may be split."""

from dataclasses import dataclass

from mnemic.codegen.plan import Call, Given, Plan, Quantity
from mnemic.codegen.tiled.axes import Axes, NoTiles, Place, joined
from mnemic.codegen.tiled.functions import CHUNK, ROW_LOCAL, TOKEN

MATRIX = ("v", "k")
"""A memory's axes, which a tile holds the other way round."""

ROWS = "C"
"""The size of the rows' axis."""


@dataclass(frozen=True)
class Row:
    """An argument by row: its name, the sizes of its other axes, and what fills rows that are not
    there: zero, or (for coefficients that are no logarithms) the last one."""

    name: str
    sizes: tuple[str, ...]
    fill: str
    before: tuple[Quantity, ...] = ()


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
    before: tuple[Quantity, ...]
    """What PyTorch computes for every token before the kernel."""
    split: str
    """The size whose axis may be cut into blocks, one a program; empty where there is none."""

    def sizes(self, name: str) -> tuple[str, ...]:
        """The size of each axis of a quantity."""
        return tuple(self.names.get(place, "") for place in self.axes.classes(name))

    def stored(self, name: str) -> tuple[str, ...]:
        """The axes of a quantity as its tile has them."""
        axes = self.plan.axes(name)
        return axes[::-1] if axes == MATRIX else axes

    @property
    def channels(self) -> tuple[str, ...]:
        """The sizes that are not the rows'."""
        found = [s for row in self.rows for s in row.sizes]
        found += [s for state in self.states for s in state.sizes]
        return tuple(dict.fromkeys(s for s in found if s != ROWS))


def layout(plan: Plan, logarithms: frozenset[str], *, chunked: bool) -> Layout:
    """Lay a plan out on tiles.

    ``logarithms`` are the arguments that are logarithms. Raises ``NoTiles`` where it cannot be.
    """
    table = CHUNK if chunked else TOKEN
    whole = plan.ordered()
    before = _outside(plan, set(table))
    outside = {q.name for q in before}
    tiles = tuple(q for q in whole if q.name not in outside)
    loaded = _loaded(plan, tiles, outside)
    axes = joined(plan, table, tiles)
    first = (loaded[0], 0)
    lead = 1 if chunked else 0
    for name in loaded[1:] if chunked else ():
        axes.join(first, (name, 0))
    names: dict[Place, str] = {axes.find(first): ROWS} if chunked else {}
    for name in (*loaded, *plan.states()):
        skip = lead if name in loaded else 0
        for i, letter in list(enumerate(plan.axes(name)))[skip:]:
            _name(names, axes.find((name, i)), letter)
    rows = tuple(
        Row(n, tuple(names[axes.find((n, i))] for i in range(lead, len(plan.axes(n)))),
            "zero" if n in logarithms or len(plan.axes(n)) > lead else "last")
        for n in loaded
    )  # fmt: skip
    states = tuple(
        Held(s, tuple(names[p] for p in axes.classes(s))) for s in plan.states()
    )
    output = axes.classes(plan.output)
    if len(output) != lead + 1:
        raise NoTiles("an output that is not a row of values")
    value = output[-1]
    split = "" if axes.is_reduced(value) else names.get(value, "")
    found = Layout(plan, axes, chunked, names, rows, states, tiles, before, split)
    _check(found)
    return found


def _name(names: dict[Place, str], place: Place, letter: str) -> None:
    if place in names:
        return
    taken, name, count = set(names.values()), letter.upper(), 1
    while name in taken:
        count += 1
        name = f"{letter.upper()}{count}"
    names[place] = name


def _outside(plan: Plan, known: set[str]) -> tuple[Quantity, ...]:
    """Functions of single tokens that no tile computes, and what they read of the arguments."""
    late: set[str] = set()
    for quantity in plan.phases().before:
        match quantity.op:
            case Call(function=function) if function not in known and function in ROW_LOCAL:
                late |= _behind(plan, quantity.name)
    return tuple(q for q in plan.ordered() if q.name in late)


def _behind(plan: Plan, name: str) -> set[str]:
    found = {name}
    for read in plan[name].reads():
        if not isinstance(plan[read].op, Given):
            found |= _behind(plan, read)
    return found


def _loaded(plan: Plan, tiles: tuple[Quantity, ...], outside: set[str]) -> list[str]:
    """Arguments and outside quantities that tiles read, in the order of their declaration."""
    read = {n for q in tiles for n in q.reads()} | {plan.output}
    return [
        q.name for q in plan.ordered()
        if q.name in read and (q.op == Given() or q.name in outside)
    ]  # fmt: skip


def _check(found: Layout) -> None:
    for quantity in found.tiles:
        if len(quantity.axes) > 2:
            raise NoTiles(f"a quantity of {len(quantity.axes)} axes ({quantity.name})")
    for name in (*found.names.values(),):
        if name.startswith(("R", "L", "N")):
            raise NoTiles("windows, levels or kept pairs")
