"""What a quantity does along an axis: sums, takes a maximum, searches for a root, mixes."""

from mnemic.codegen.ops import OPERATIONS, called
from mnemic.codegen.plan import Call, Fused, Map, Product, Quantity
from mnemic.codegen.tiled.axes import named
from mnemic.codegen.tiled.layout import Layout


def curved(quantity: Quantity) -> bool:
    """Return whether a quantity takes a function that is no polynomial."""
    match quantity.op:
        case Map(expr=expr):
            return not expr.is_polynomial()
        case _:
            return True


def rest(quantity: Quantity) -> bool:
    """Return whether a quantity adds further terms to a sum over blocks once that is complete."""
    return isinstance(quantity.op, Fused)


def summands(quantity: Quantity) -> tuple[str, ...]:
    """Return what a sum over blocks reads of each of them."""
    match quantity.op:
        case Fused(product=product):
            return (product.left, product.right)
        case _:
            return quantity.reads()


def summed(lay: Layout, quantity: Quantity) -> set[str]:
    """Return the sizes over which a quantity is a sum, or a maximum."""
    match quantity.op:
        case Product() as product:
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Fused(product=product):
            return {lay.sizes(product.left)[0 if product.flip_left else 1]}
        case Call(function=function):
            found = OPERATIONS[function]
            return _sizes(lay, quantity, found.sums + found.tops)
        case _:
            return set()


def tops(quantity: Quantity) -> bool:
    """Return whether a quantity is a maximum rather than a sum."""
    operation = called(quantity)
    return operation is not None and bool(operation.tops)


def searched(lay: Layout, quantity: Quantity) -> set[str]:
    """Return the sizes over which a quantity is the root of a sum."""
    operation = called(quantity)
    return _sizes(lay, quantity, operation.searches) if operation else set()


def mixed(lay: Layout, quantity: Quantity) -> set[str]:
    """Return the sizes along which a quantity's entries depend on each other."""
    operation = called(quantity)
    return _sizes(lay, quantity, operation.mixes) if operation else set()


def _sizes(lay: Layout, quantity: Quantity, letters: str) -> set[str]:
    """Return the sizes of those axes that an operation calls by these letters."""
    assert isinstance(quantity.op, Call)
    found: set[str] = set()
    if not letters:
        return found
    for argument, own in zip(quantity.op.arguments, named(lay.axes, quantity.op), strict=False):
        found |= {s for a, s in zip(own, lay.sizes(argument), strict=True) if a in letters}
    return found
