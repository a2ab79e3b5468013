"""The gradient of a function by autograd of it alone, for those that no tile computes.

Feature maps that make more channels than they take are read before a scan, and links found by a
root, trees, local fits and attention over kept pairs run in PyTorch forward as well.
"""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import EVERYWHERE, Operation, Tile
from mnemic.codegen.plan import Call

BACK = "pulled_back"
"""A function's gradient at one argument, by the function's name and the argument's place."""


def whole(at: At) -> None:
    """Differentiate at every argument by autograd of the function alone."""
    op = at.quantity.op
    assert isinstance(op, Call)
    assert at.operation
    options = dict(op.options)
    for place, how in enumerate(at.operation.signature().arguments(len(at.arguments))):
        if not how.shape_only:
            argument = at.arguments[place]
            at.give_call(argument, BACK, at.d, *at.arguments, of=op.function, place=place,
                         **options)  # fmt: skip


# fmt: off
OPERATIONS = (
    Operation(
        BACK, "vk, vk, *... -> *", mixes="vk",
        tile=Tile(EVERYWHERE, extras=("width:v", "width:k"), in_module=True), sample=None,
    ),
)
# fmt: on
