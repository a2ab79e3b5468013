"""The costs of recomputing a quantity, and of storing it in one kernel for the next.

They are cycles of a multiprocessor by count, at sizes that are typical: the figures only have to
tell which of the two costs more. Both are reasoned, not measured.
"""

from math import inf, prod

from mnemic.codegen.plan import Call, Fused, Given, Map, Product, Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import ROWS, SOURCES, Layout, turned

LENGTHS = {ROWS: 64, SOURCES: 64}
CHANNELS = 128
"""How long axes are."""

PRODUCTS = 512
"""Multiplications and additions a cycle."""

DELAY = 500
"""Cycles of a product beside those: operands go through shared memory, and barriers."""

CALLED = 300
"""Cycles of a function without products: sums along rows, and barriers."""

SOLVED = 4_000
"""Cycles of a function that takes products one after another, as the inverse of a triangle."""

ENTRIES = 64
"""Entries a cycle of what is elementwise; a function of them takes four times as long."""

BYTES = 15
"""Bytes a cycle, from and to the device's memory."""

PLACES = 100
"""Cycles to begin with a load or a store."""


def length(size: str) -> int:
    """Return the assumed length of an axis of this size."""
    return LENGTHS.get(size, CHANNELS)


def entries(lay: Layout, name: str) -> int:
    """Count the entries of a quantity of one chunk."""
    return prod(length(size) for size in lay.sizes(name))


def cycles_to_compute(lay: Layout, quantity: Quantity) -> float:
    """Return the cycles to compute a quantity from what it reads; for an argument, those of its
    load."""
    own = entries(lay, quantity.name)
    match quantity.op:
        case Given():
            return PLACES + 2 * own / BYTES
        case Product() | Fused():
            product = quantity.op if isinstance(quantity.op, Product) else quantity.op.product
            summed = lay.sizes(product.left)[0 if product.flip_left else 1]
            return DELAY + own * length(summed) / PRODUCTS
        case Call() if heavy(quantity):
            return SOLVED
        case Call():
            operands = max((entries(lay, read) for read in quantity.reads()), default=0)
            return CALLED + 4 * max(own, operands) / ENTRIES
        case Map():
            return own / ENTRIES


def handed(lay: Layout, name: str, *, rounded: bool) -> float:
    """Return the cycles to store a quantity in one kernel and load it in the next, or infinity."""
    if not storable(lay, name):
        return inf
    return 2 * (PLACES + entries(lay, name) * (2 if rounded else 4) / BYTES)


def storable(lay: Layout, name: str) -> bool:
    """Return whether a kernel can store a chunk's quantity whole: its axes have names, and where
    neither is rows', it lies as memories do."""
    sizes = lay.sizes(name)
    if "" in sizes or len(sizes) > 2:
        return False
    return len(sizes) < 2 or sizes[0] in LENGTHS or turned(lay.plan.axes(name))


def rounds(lay: Layout, name: str, readers: list[Quantity]) -> bool:
    """Return whether every reader of a quantity is a matrix product, which rounds its operands
    anyway."""
    return all(_operand(quantity, name) for quantity in readers)


def _operand(quantity: Quantity, name: str) -> bool:
    match quantity.op:
        case Product():
            return True
        case Fused(addend=addend):
            return addend != name
        case _:
            return False
