"""The arguments with which a layer calls its rule at the start of training."""

import torch
from torch import Tensor

from mnemic.codegen.support.seeded import seeded
from mnemic.pipeline import Compiled

Tensors = dict[str, Tensor]


def arguments(
    compiled: Compiled, x: Tensor, *, heads: int, seed: int = 0
) -> tuple[Tensors, Tensors]:
    """Return vectors and coefficients [1, T, heads, …], float64, and a deep memory's parameters.

    The layer is as it starts: its projections drawn with ``seed``, its coefficients where they
    begin, so keys and gates are those of a first training step on x [1, T, dim]. Of a hybrid it is
    the memory's part.
    """
    with seeded(seed):
        layer = compiled.layer(x.shape[-1], heads=heads).double()
    with torch.no_grad():
        found = {name: t.detach() for name, t in layer.arguments(x).items()}
        return found, {name: t.detach() for name, t in layer.params().items()}
