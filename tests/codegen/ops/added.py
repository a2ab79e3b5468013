"""An operation that the package does not have, as one would add it: its object and its tile."""

import triton
import triton.language as tl
from torch import Tensor

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import EVERYWHERE, Operation, Sample, Tile


def softened(x: Tensor) -> Tensor:
    """x / (1 + |x|) entry by entry."""
    return x / (1 + x.abs())


@triton.jit
def softened_tile(x):
    """The same of a tile."""
    return x / (1 + tl.abs(x))


def adjoint(at: At) -> None:
    """dx = d / (1 + |x|)²."""
    (x,) = at.arguments
    at.give_map(x, "d/(1 + Abs(x))**2", d=at.d, x=x)


SOFTENED = Operation(
    "softened", "* -> *", adjoint=adjoint, tile=Tile(EVERYWHERE), lane="tiles.softened({0})",
    sample=Sample("tk -> tk"),
)  # fmt: skip


def difference() -> float:
    """How far the tile is from PyTorch's function, where Triton interprets."""
    import tiled

    from mnemic.codegen import ops as operations
    from mnemic.codegen.support import ops, tiles

    operations.add(SOFTENED)
    ops.softened, tiles.softened = softened, softened_tile  # type: ignore[attr-defined]
    return tiled.difference("softened", "chunk", False)
