"""A memory read as it stands: no key, no value, no step."""

from collections.abc import Callable, Mapping

from torch import Tensor

from . import layout
from .arguments import check_reading, fail
from .run import Call, Run, States, parameters
from .signature import Signature

Reader = Callable[..., Tensor]


class Reading(Run):
    """Queries of a batch with one position, read at the states that they came with.

    A complex decay stands at the angle that it had; a coefficient is the query's own, and so is
    its position.
    """

    def __init__(
        self, call: Call, reader: Reader, vectors: dict[str, Tensor], state: States
    ) -> None:
        if call.signature.phase:
            k = vectors["k"]
            vectors = {**vectors, "phase": k.new_zeros(*k.shape[:2], *k.shape[-2:])}
        super().__init__(call, vectors, state)
        self.reader = reader
        self.wanted = parameters(reader)

    def _windowed(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        return rows

    def _stepped(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        self._indices(rows)
        return rows

    def read(self) -> Tensor:
        """M(W, φ(q)), [B, T, H, d_v]."""
        if not self.tokens:
            return self.like.new_zeros(self.batch, 0, self.heads, self.like.shape[-1])
        names = parameters(self.reader)
        states = {n: s for n, s in self._states().items() if n in names}
        rows = {n: layout.to_time(x) for n, x in self.rows.items() if n in names}
        out = layout.from_time(self.reader(**rows, **states), self.batch)
        if self.signature.diagonal:
            return out[..., 0].unflatten(2, (self.heads, self.width))
        return out


def readable(
    signature: Signature, q: Tensor, state: Mapping[str, Tensor], heads: int | None,
    value_dim: int | None, coefficients: Mapping[str, Tensor], needed: tuple[str, ...],
) -> dict[str, Tensor]:  # fmt: skip
    """q, the coefficients, and keys and values of zero, which give a run its shapes."""
    found_heads, found_width = _sizes(signature, q, state)
    heads, value_dim = found_heads or heads, found_width or value_dim
    if heads is None or value_dim is None:
        raise fail(signature, "state: an empty one tells no sizes; give heads and value_dim too")
    steps = (signature.steps,) if signature.steps > 1 else ()
    shape = (*q.shape[:2], *steps, heads)
    k, v = q.new_zeros(*shape, q.shape[-1]), q.new_zeros(*shape, value_dim)
    check_reading(signature, q, k, v, coefficients, needed)
    return {"q": q, "k": k, "v": v, **coefficients}


def _sizes(
    signature: Signature, q: Tensor, state: Mapping[str, Tensor]
) -> tuple[int | None, int | None]:
    """The heads H and d_v that a state tells."""
    matrices = [s.name for s in signature.states if s.axes == "vk" and s.name in state]
    if not matrices:
        return None, q.shape[-1] if signature.diagonal else None
    matrix = state[matrices[0]]
    return matrix.shape[1], q.shape[-1] if signature.diagonal else matrix.shape[-2]
