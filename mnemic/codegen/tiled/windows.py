"""Windows on tiles: what a kernel loads where a token sees the last c keys, values and weights.

Keys and values are stored once a token, c − 1 of them before the first. A chunk reads them as the
rows of its tokens and the tail before them (``TAIL``, with the weights as a ``BAND``), or window
by window (``SLOTS``); a token as one window (``WINDOW``).
"""

from dataclasses import dataclass

from mnemic.codegen.ops import called
from mnemic.codegen.plan import Call, Given, Plan, Quantity, renamed_reads
from mnemic.codegen.tiled.axes import NoTiles

ROWS = "rows"
TAIL = "tail"
SLOTS = "slots"
BAND = "band"
WINDOW = "window"

SHARED = (TAIL, SLOTS, WINDOW)
"""Views in which several rows (or chunks) see the same entries."""

NAMED = {"k": "keys", "v": "values"}
"""The arguments that a window may hold, in words."""
WAYS = "under features or expressions, or in roles that differ"
NORMS = "a loss of the error's norm in a window, where a token's step has an error a pair"
"""Why there is no kernel."""


@dataclass(frozen=True)
class Windows:
    """How many tokens a window has, and whether a chunk takes it slot by slot."""

    width: int = 1
    slots: bool = False

    def view(self, axes: tuple[str, ...]) -> str:
        """Return how an argument of such axes is read."""
        if self.width == 1:
            return ROWS
        match axes:
            case ("t", "s"):
                return BAND
            case ("s", *_):
                return SLOTS if self.slots else TAIL
            case ("r", _):
                return WINDOW
            case _:
                return ROWS


def opened(plan: Plan, width: int) -> tuple[Plan, Windows]:
    """Return the plan with windows of a chunk's tokens as arguments themselves, and those windows.

    Raises ``NoTiles`` where something else is done with them.
    """
    windows = [n for n in plan.arguments() if plan.axes(n)[:2] == ("t", "r")]
    names: dict[str, str] = {}
    views: dict[str, tuple[str, ...]] = {}
    for name in windows:
        call = _only(plan, name)
        if call is not None:
            names[call.name] = name
            views[name] = call.axes
        elif len(plan.axes(name)) > 2:
            what = NAMED.get(name, f"'{name}'")
            raise NoTiles(f"a window whose {what} are read otherwise than as they are, {WAYS}")
    if any(_is_norm(plan[name]) for name in plan.needed()):
        raise NoTiles(NORMS)
    slots = any(len(plan.axes(name)) == 3 for name in windows)
    return renamed(plan, names, views), Windows(width, slots)


def _is_norm(quantity: Quantity) -> bool:
    """Return whether a quantity is the norm of each of a window's errors."""
    op = quantity.op
    return isinstance(op, Call) and op.function == "distance" and quantity.axes[:1] == ("r",)


def _only(plan: Plan, name: str) -> Quantity | None:
    """Return the quantity that opens a window, where nothing else reads it."""
    needed = plan.needed()
    found = [plan[n] for n in plan.graph.successors(name) if n in needed]
    opens = [q for q in found if (op := called(q)) and op.tile and op.tile.loaded]
    return opens[0] if len(found) == len(opens) == 1 else None


def renamed(plan: Plan, names: dict[str, str], views: dict[str, tuple[str, ...]]) -> Plan:
    """Return the plan without quantities that others stand for; ``views``: arguments' axes."""
    found = plan.emptied(names)
    for name in plan.graph:
        quantity = plan[name]
        if name in names:
            continue
        if isinstance(quantity.op, Given):
            found.given(name, views.get(name, quantity.axes), state=quantity.op.state)
        else:
            found.add(name, quantity.axes, renamed_reads(quantity.op, names), quantity.equation)
    return found
