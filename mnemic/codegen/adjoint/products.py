"""The gradients of a matrix product: two products."""

from mnemic.codegen.adjoint.at import At
from mnemic.codegen.plan import Product


def through_product(at: At) -> None:
    """Z = X Y: dX = dZ Yᵀ and dY = Xᵀ dZ, with what is transposed told by flips."""
    op = at.quantity.op
    assert isinstance(op, Product)
    left, right, fl, fr = op.left, op.right, op.flip_left, op.flip_right
    if fl:
        at.give_product(left, right, at.d, "lr" if fr else "r")
    else:
        at.give_product(left, at.d, right, "" if fr else "r")
    if fr:
        at.give_product(right, at.d, left, "lr" if fl else "l")
    else:
        at.give_product(right, left, at.d, "" if fl else "l")
