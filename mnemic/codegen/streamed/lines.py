"""The lines of a kernel over kept pairs: statements of rows, and of blocks of pairs."""

import re

from mnemic.codegen.emit import wrapped
from mnemic.codegen.ops import called
from mnemic.codegen.plan import Call, Quantity
from mnemic.codegen.streamed.pair_layout import PAIRS, Streams
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Held, turned
from mnemic.codegen.tiled.statements import statement

TURNED = re.compile(r"tiles\.turned\((\w+), PRECISION\)")
"""A tile that is rounded and turned, in the text of a line."""


def line(found: Streams, quantity: Quantity, numbers: dict[str, str], indent: int) -> list[str]:
    """Write a quantity's assignment, wrapped."""
    comment = cited(numbers, quantity.equation)
    return wrapped(found.say(quantity.name), value(found, quantity), comment, indent)


def exact(lines: list[str]) -> list[str]:
    """Rewrite products so that their operands are not rounded to 16 bits, turned ones neither."""
    found = [text.replace("tiles.dot(", "tiles.exact(") for text in lines]
    return [TURNED.sub(r"tl.trans(\1)", text) for text in found]


def value(found: Streams, quantity: Quantity) -> str:
    """Write the right-hand side of a quantity's assignment."""
    match quantity.op:
        case Call():
            own = _call(found, quantity, quantity.op)
            if own is not None:
                return own
    return statement(found.lay, quantity, found.spelled)


def same(quantity: Quantity) -> bool:
    """Return whether a quantity has the entries of old pairs as they are."""
    operation = called(quantity)
    return operation is not None and operation.streaming.same


def cited(numbers: dict[str, str], equation: str) -> str:
    """Return the number of an equation, or whose gradient a line is; empty where none is known."""
    plain = equation.removeprefix("gradient of ")
    told = numbers.get(plain, "")
    return told if plain == equation or not told else f"gradient of {told}"


def _call(found: Streams, quantity: Quantity, op: Call) -> str | None:
    """Write a function of kept pairs, zero beyond those that are there; ``None`` for any other."""
    names = [found.say(a) for a in op.arguments]
    streamed = found.streams(quantity.name)
    match op.function:
        case "exp_over":
            left = {a: beside(found, a, quantity) for a in op.arguments[2:]}
            text = statement(found.lay, quantity, {**found.spelled, **left})
            return f"tl.where(in_N[None, :], {text}, 0.0)" if streamed else text
        case "elapsed":
            text = f"tiles.elapsed({names[0]}, {names[1]}, REAL)"
            return f"tl.where(in_N[None, :], {text}, 0.0)" if streamed else text
        case "rows_behind":
            return own_rows(found, op.arguments[0], found.lay.sizes(quantity.name)[0])
        case _:
            return None


def beside(found: Streams, coefficients: str, quantity: Quantity) -> str:
    """Write coefficients of pairs so that they broadcast to rows against pairs."""
    wide = len(found.plan.axes(coefficients)) == len(quantity.axes)
    return found.say(coefficients) + ("" if wide else "[None, :]")


# -- memory ----------------------------------------------------------------------------------


def _type(found: Streams, name: str) -> str:
    return "tl.float64" if name in found.wide else "REAL"


def _load(found: Streams, held: Held, at: str, first: str, count: str) -> str:
    pointer, real = f"kept_{held.name}", _type(found, held.name)
    if not held.sizes:
        return f"tiles.load_logs({pointer}, {first}, 1, {at}, {count}, {real})"
    (size,) = held.sizes
    rows = f"{first}, 1, {at}, {count}, at_{size}, {size}"
    return f"tiles.load_rows({pointer}, {rows}, {real})"


def _store(held: Held, text: str, at: str, first: str, count: str) -> str:
    pointer = f"kept_{held.name}"
    if not held.sizes:
        return f"tiles.store_column({pointer}, {first}, 1, {at}, {count}, {text})"
    (size,) = held.sizes
    return f"tiles.store_rows({pointer}, {first}, 1, {at}, {count}, at_{size}, {size}, {text})"


def load_block(found: Streams, held: Held, count: str = "behind") -> str:
    """Write the load of a block of a state's pairs, zero beyond those that are there."""
    return _load(found, held, "at_N", "place", count)


def store_block(held: Held, text: str, count: str = "behind") -> str:
    """Write the store of entries in the place of a block of a state's pairs."""
    return _store(held, text, "at_N", "place", count)


def load_handed(held: Held) -> str:
    """Write the load of what another kernel has stored of a chunk's rows, all rows of the tile."""
    pointer = f"handed_{held.name}"
    if not held.sizes:
        return f"tiles.load_vector({pointer}, tile, t, C, REAL)"
    (size,) = held.sizes
    return f"tiles.load_tile({pointer}, tile, t, at_{size}, {size}, REAL)"


def store_handed(held: Held, text: str) -> str:
    """Write the store of a chunk's rows, all rows of the tile, for another kernel."""
    pointer = f"handed_{held.name}"
    if not held.sizes:
        return f"tiles.store_vector({pointer}, tile, t, C, {text})"
    (size,) = held.sizes
    return f"tiles.store_tile({pointer}, tile, t, at_{size}, {size}, {text})"


def own_rows(found: Streams, name: str, size: str) -> str:
    """Write the load of the chunk's own entries of a state, and of those before it in a window's
    reach; raise ``NoTiles`` where no state holds them."""
    held = found.held(name)
    if held is None:
        raise NoTiles("entries of kept pairs that no state holds as they are")
    if size != SOURCES:
        return _load(found, held, "t", "place + behind", "live")
    (channel,) = held.sizes
    tail = found.lay.windows.width - 1
    rows = f"place, behind - {tail}, at_SOURCES, live_SOURCES, at_{channel}, {channel}"
    return f"tiles.load_tailed(kept_{held.name}, {rows}, {_type(found, held.name)})"


def grow(held: Held, text: str, tail: int) -> str:
    """Write what adds the first ``tail`` rows to a state's last entries, and appends the others."""
    (channel,) = held.sizes
    rows = f"place, behind - {tail}, at_SOURCES, live_SOURCES, at_{channel}, {channel}"
    return f"tiles.grow_rows(kept_{held.name}, {rows}, {tail}, {text})"


def append(held: Held, text: str) -> str:
    """Write the store of the chunk's own entries behind the others of a state."""
    return _store(held, text, "t", "place + behind", "live")


def shape(found: Streams, quantity: Quantity) -> str:
    """Write the shape of a quantity's tile."""
    axes = list(zip(quantity.axes, found.lay.sizes(quantity.name), strict=True))
    if turned(quantity.axes):
        axes.reverse()
    blocks = {ROWS: "C", SOURCES: SOURCES, PAIRS: "BN"}
    inner = ", ".join(blocks.get(size, f"B{size}" if size else "C") for _, size in axes)
    return f"({inner},)" if len(axes) == 1 else f"({inner})"


def zeros(found: Streams, quantity: Quantity) -> str:
    """Write the zeros that a sum starts with."""
    return f"tl.zeros({shape(found, quantity)}, REAL)"
