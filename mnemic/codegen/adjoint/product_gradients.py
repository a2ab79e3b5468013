"""The gradients of a matrix product: two products."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.plan import Call, Product


def through_product(at: At) -> None:
    """Pull back Z = X Y: dX = dZ Yᵀ and dY = Xᵀ dZ, with what is transposed told by flips."""
    op = at.quantity.op
    assert isinstance(op, Product)
    left, right, fl, fr = op.left, op.right, op.flip_left, op.flip_right
    strict = _inverted(at, left)
    if strict and not (fl or fr):
        _through_solution(at, strict, left, right)
        return
    if fl:
        at.give_product(left, right, at.d, "lr" if fr else "r")
    else:
        at.give_product(left, at.d, right, "" if fr else "r")
    if fr:
        at.give_product(right, at.d, left, "lr" if fl else "l")
    else:
        at.give_product(right, left, at.d, "" if fl else "l")


def _inverted(at: At, name: str) -> str:
    """Return L of a quantity that is (I + L)⁻¹, else an empty name."""
    match at.plan[name].op:
        case Call("unit_lower_inverse", (strict,)):
            return strict
        case _:
            return ""


def _through_solution(at: At, strict: str, inverse: str, right: str) -> None:
    """Pull back Z = T Y, T = (I + L)⁻¹: dY = Tᵀ dZ, dL = −dY Zᵀ, strictly lower; T gets none."""
    if not at.wants(right, strict):
        return
    d = at.product(f"d_{right}_of_{at.out}", at.axes(right), inverse, at.d, "l")
    at.give(right, d)
    if at.wants(strict):
        axes = at.axes(strict)
        both = at.product(f"{at.d}_both", axes, d, at.out, "r")
        turned = at.map(f"{at.d}_turned", axes, "-x", x=(both, axes))
        at.give_call(strict, "strictly_lower", turned)
