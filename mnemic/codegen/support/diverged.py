"""What is said where a rule's numbers have left the range of their dtype."""

from torch import Tensor

from .pickled import Pickled
from .signature import Signature


class Diverged(Pickled, ValueError):
    """Finite arguments gave an output that is not finite: the memory grew without bound."""


def check_output(signature: Signature, out: Tensor) -> None:
    """Raise ``Diverged``, naming the first token, where an output [B, T, H, d_v] is not finite."""
    wrong = ~out.detach().isfinite().all(-1)
    if not bool(wrong.any()):
        return
    token = int(wrong.any(-1).any(0).nonzero()[0])
    row, head = (int(x) for x in wrong[:, token].nonzero()[0])
    dtype = str(out.dtype).removeprefix("torch.")
    raise Diverged(
        f"{signature.name}: the output is not finite from token {token} on (row {row}, head "
        f"{head}), though all arguments are: the memory, or a step towards it, has left the range "
        f"of {dtype}. `mnemic derive` tells under Stability which rates and errors keep it "
        "bounded; make v, k or the rate smaller, or ask for optimizer.rate: {normalized: true} "
        "or method: implicit, where the spec allows it"
    )
