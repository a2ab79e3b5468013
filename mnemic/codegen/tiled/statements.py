"""Quantities as lines of Triton."""

from typing import Any

import sympy as sp

from mnemic.codegen.ops import OPERATIONS, called
from mnemic.codegen.ops.operation import Tile
from mnemic.codegen.ops.pulled import BACK
from mnemic.codegen.plan import Call, Fused, Given, Map, Product, Quantity
from mnemic.codegen.tiled.axes import NoTiles, named
from mnemic.codegen.tiled.layout import ROWS, SOURCES, TALL, Layout, turned
from mnemic.codegen.tiled.printer import UnknownFunction, print_typed


def statement(
    lay: Layout, quantity: Quantity, spelled: dict[str, str], *, apart: bool = False,
    squares: bool = False,
) -> str:  # fmt: skip
    """Write the right-hand side of a quantity; ``spelled`` renames what it reads.

    A product that makes a memory stands in a body of code of its own if ``apart``, and so do
    products of rows against rows with ``squares``.

    Raises ``NoTiles`` for a function that no tile computes.
    """
    match quantity.op:
        case Map():
            try:
                return _map(lay, quantity, quantity.op, spelled)
            except UnknownFunction as error:
                raise NoTiles(f"the function {error}") from None
        case Product():
            alone = _alone(lay, quantity, apart, squares)
            return _product(lay, quantity, quantity.op, spelled, alone)
        case Fused(addend=addend, product=product, sign=sign):
            sum_ = "+" if sign > 0 else "-"
            alone = _alone(lay, quantity, apart, squares)
            text = _product(lay, quantity, product, spelled, alone)
            return f"{spelled.get(addend, addend)} {sum_} {text}"
        case Call():
            return _call(lay, quantity, quantity.op, spelled, squares)
        case Given():
            raise AssertionError(quantity.name)


def multiplies(quantity: Quantity) -> bool:
    """Return whether a quantity is a product of matrices, or the shift of one."""
    operation = called(quantity)
    shifts = operation is not None and operation.tile is not None and bool(operation.tile.square)
    return isinstance(quantity.op, Product | Fused) or shifts


def square(lay: Layout, quantity: Quantity) -> bool:
    """Return whether all axes of a quantity are rows."""
    return set(lay.sizes(quantity.name)) <= {"", *TALL}


def _alone(lay: Layout, quantity: Quantity, apart: bool, squares: bool) -> bool:
    """Return whether a product stands in a body of code of its own."""
    memory = not {"", *TALL} & set(lay.sizes(quantity.name))
    return (apart and memory) or (squares and square(lay, quantity))


# -- elementwise -----------------------------------------------------------------------------


def _map(lay: Layout, quantity: Quantity, op: Map, spelled: dict[str, str]) -> str:
    stored = _stored(quantity.axes)
    names = {}
    for read in op.reads:
        name = spelled.get(read.quantity, read.quantity)
        names[read.symbol] = name + _index(_stored(read.axes), stored)
    text = print_typed(op.expr, names, "tl.zeros((), REAL)")
    return _masked(lay, quantity, op, stored, text)


def _stored(axes: tuple[str, ...]) -> tuple[str, ...]:
    return axes[::-1] if turned(axes) else axes


def _index(axes: tuple[str, ...], into: tuple[str, ...]) -> str:
    """Write the index that lines a tile's axes up with the result's."""
    if not axes or len(axes) == len(into):
        return ""
    return "[" + ", ".join(":" if axis in axes else "None" for axis in into) + "]"


def _masked(lay: Layout, quantity: Quantity, op: Map, stored: tuple[str, ...], text: str) -> str:
    """Write an expression that is zero in padded channels, with a mask if it would not be by
    itself."""
    sizes = dict(zip(quantity.axes, lay.sizes(quantity.name), strict=True))
    for axis, size in sizes.items():
        if size in ("", *TALL) or _vanishes(op, axis):
            continue
        index = _index((axis,), stored)
        text = f"tl.where(in_{size}{index}, {text}, 0.0)"
    return text


def _vanishes(op: Map, axis: str) -> bool:
    """Return whether an expression is zero where all that it reads along an axis is zero, without
    0/0 or 0 ∞ whatever else it reads."""
    zeros = {
        s: sp.Integer(0) for s in op.expr.free_symbols
        for read in op.reads if read.symbol == s.name and axis in read.axes
    }  # fmt: skip
    poles = [p.base for p in op.expr.atoms(sp.Pow) if p.exp.could_extract_minus_sign()]
    poles += [log.args[0] for log in op.expr.atoms(sp.log)]
    found: Any = op.expr.subs(zeros)
    at_zero = [(pole, pole.subs(zeros)) for pole in poles]
    finite = all(pole == there != 0 or there.is_nonzero for pole, there in at_zero)
    return bool(found == 0) and finite and not op.expr.has(sp.oo, -sp.oo, sp.zoo, sp.nan)


# -- products and functions ------------------------------------------------------------------


def _product(
    lay: Layout, quantity: Quantity, op: Product, spelled: dict[str, str], alone: bool
) -> str:  # fmt: skip
    left, right = _operand(lay, op.left, op.flip_left), _operand(lay, op.right, op.flip_right)
    if turned(quantity.axes):  # (L R)ᵀ = Rᵀ Lᵀ
        left, right = (right[0], not right[1]), (left[0], not left[1])
    parts = []
    for name, flipped in (left, right):
        text = spelled.get(name, name)
        parts.append(f"tiles.turned({text}, PRECISION)" if flipped else text)
    if alone:
        count = "live" if lay.chunked else "tl.num_programs(0)"  # at least one, not known before
        return f"tiles.dot_apart({parts[0]}, {parts[1]}, {count}, PRECISION)"
    return f"tiles.dot({parts[0]}, {parts[1]}, PRECISION)"


def _operand(lay: Layout, name: str, flip: bool) -> tuple[str, bool]:
    return name, flip != turned(lay.plan.axes(name))


def _call(
    lay: Layout, quantity: Quantity, op: Call, spelled: dict[str, str], squares: bool
) -> str:  # fmt: skip
    tile = OPERATIONS[op.function].tile
    assert tile is not None
    arguments = [spelled.get(a, a) for a in op.arguments]
    options = dict(op.options)
    if tile.swapped and turned(quantity.axes):
        arguments.reverse()
    if tile.text:
        return tile.text.format(*arguments, **options)
    if tile.reduces:
        return _total(lay, op, tile.reduces, arguments[0])
    arguments += [_extra(lay, op, extra) for extra in tile.extras]
    arguments += [repr(options.get(name, 1)) for name in tile.options]  # one row a token
    name = _function(op, tile, squares and square(lay, quantity))
    text = f"{'' if tile.in_module else 'tiles.'}{name}({', '.join(arguments)})"
    if tile.padded and options.get("value") != 0:
        for axis, size in zip(quantity.axes, lay.sizes(quantity.name), strict=True):
            if size not in TALL:
                index = _index((axis,), _stored(quantity.axes))
                text = f"tl.where(in_{size}{index}, {text}, 0.0)"
    return text


def _function(op: Call, tile: Tile, square: bool) -> str:
    """Return the name of the function that kernels call."""
    if op.function == BACK:
        options = dict(op.options)
        return f"{options['of']}_back_{options['place']}"
    if square and tile.square:
        return tile.square
    takes = OPERATIONS[op.function].signature().takes
    whole = takes[-1].optional and len(op.arguments) == len(takes)
    return op.function + tile.longer * whole


def _total(lay: Layout, op: Call, axis: int, argument: str) -> str:
    """Write Σ over an axis, counted from the last, of a memory (held turned round) or of rows."""
    if turned(lay.plan.axes(op.arguments[0])):
        return f"tiles.{op.function}_of_matrix({argument})"
    if axis == -1:
        return f"tiles.{op.function}({argument})"
    rows = lay.sizes(op.arguments[0])[axis]
    if lay.chunked and rows in TALL:
        live = "live" if rows == ROWS else "live_SOURCES"
        return f"tiles.{op.function}({argument}, {live})"
    return f"tl.sum({argument}, 0)"


def _extra(lay: Layout, op: Call, extra: str) -> str:
    if extra.startswith("width:"):
        return _size(lay, op, extra.removeprefix("width:"))
    if extra.startswith("inside:"):
        return f"in_{_size(lay, op, extra.removeprefix('inside:'))}"
    if extra == "live":
        return "live_SOURCES" if _size(lay, op, "t") == SOURCES else "live"
    if extra == "window":
        return str(lay.windows.width)
    return {"precision": "PRECISION", "rows": ROWS, "sources": SOURCES}[extra]


def _size(lay: Layout, op: Call, letter: str) -> str:
    """Return the size of the axis that an operation calls by this letter."""
    for argument, letters in zip(op.arguments, named(lay.axes, op), strict=False):
        if letter in letters:
            return lay.sizes(argument)[letters.index(letter)]
    raise AssertionError(op.function)
