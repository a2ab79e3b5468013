"""Counts of the costly operations in one iteration of a kernel, by which the model compares
kernels."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mnemic.codegen.adjoint.reverse import differentiated
from mnemic.codegen.plan import Call, Fused, Product, Quantity
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import TALL, Layout


@dataclass(frozen=True)
class Count:
    """How many products (by sizes), solves and functions of squares a kernel's turn has."""

    products: tuple[tuple[tuple[str, str, str], int], ...]
    solves: int
    squares: int

    def printed(self) -> str:
        """Write it as data of the module."""
        return f"Body({self.products!r}, {self.solves}, {self.squares})"


def counted(lay: Layout, quantities: Iterable[Quantity]) -> Count:
    """Count products by their sizes, and functions of two axes."""
    products: Counter[tuple[str, str, str]] = Counter()
    solves = squares = 0
    for quantity in quantities:
        match quantity.op:
            case Product() | Fused():
                products[_sizes(lay, quantity)] += 1
            case Call() if heavy(quantity):
                solves += 1
            case Call():
                squares += _square(lay, quantity)
    return Count(tuple(sorted(products.items())), solves, squares)


def _square(lay: Layout, quantity: Quantity) -> bool:
    """Return whether a function makes rows against rows of single numbers, or goes along rows of
    channels; masks and sums are cheap beside those."""
    own, read = lay.sizes(quantity.name), differentiated(quantity)
    if len(own) < 2 or not read:
        return False
    whole = any(len(lay.sizes(name)) > 1 for name in read)
    return whole != (set(own) <= set(TALL))


def _sizes(lay: Layout, quantity: Quantity) -> tuple[str, str, str]:
    op = quantity.op.product if isinstance(quantity.op, Fused) else quantity.op
    assert isinstance(op, Product)
    rows, columns = lay.sizes(quantity.name)
    return rows, columns, lay.sizes(op.left)[0 if op.flip_left else 1]
