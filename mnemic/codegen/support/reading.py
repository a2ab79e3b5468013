"""A memory read as it stands: no key, no value, no step."""

from collections.abc import Callable, Mapping

from torch import Tensor

from . import layout
from .arguments import check_params, check_reading, fail
from .calls import Call, States, parameters
from .run import Run
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
        self.reader = reader
        if call.signature.phase:
            k = vectors["k"]
            vectors = {**vectors, "phase": k.new_zeros(*k.shape[:2], *k.shape[-2:])}
        super().__init__(call, vectors, state)
        names = parameters(reader)
        if not any(n in self.signature.started and n not in self.given for n in names):
            self.wanted = names  # else all that a start is made of

    def _windowed(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        return rows

    def _stepped(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        self._indices(rows)
        return rows

    def read(self) -> Tensor:
        """Return M(W, φ(q)), [B, T, H, d_v]."""
        if not self.tokens:
            return self.like.new_zeros(self.batch, 0, self.heads, self.like.shape[-1])
        names = parameters(self.reader)
        rows = {n: layout.to_time(x) for n, x in self.rows.items() if n in names}
        states = {n: s for n, s in self._states().items() if n in names}
        out = layout.from_time(self.reader(**rows, **states), self.batch, self.heads * self.folds)
        return self._by_channel(out)


def readable(
    signature: Signature, q: Tensor, state: Mapping[str, Tensor], sizes: tuple[int, int] | None,
    params: Mapping[str, Tensor], coefficients: Mapping[str, Tensor], needed: tuple[str, ...],
) -> dict[str, Tensor]:  # fmt: skip
    """Return q, the coefficients, and keys and values of zero, which give a run its shapes."""
    found = sizes or _sizes(signature, q, state, params)
    if found is None:
        raise fail(signature, "state: an empty one tells no sizes; give sizes=(heads, d_v) too")
    steps = (signature.steps,) if signature.steps > 1 else ()
    shape = (*q.shape[:2], *steps, found[0])
    k, v = q.new_zeros(*shape, q.shape[-1]), q.new_zeros(*shape, found[1])
    check_reading(signature, q, k, v, coefficients, needed)
    check_params(signature, params, state, q, k, v)
    return {"q": q, "k": k, "v": v, **coefficients}


def _sizes(
    signature: Signature, q: Tensor, state: Mapping[str, Tensor], params: Mapping[str, Tensor]
) -> tuple[int, int] | None:
    """Return H and d_v as parameters, else the state, tell them; ``None`` if neither does."""
    last = [p.name for p in signature.params if p.rows == "v"]
    for name in last:
        if name in params:
            return params[name].shape[0], params[name].shape[1]
    for told in signature.states:
        matrix = told.axes in ("vk", "lvk", "nv") and (not told.of or told.of in last)
        if told.name in state and matrix:
            x = state[told.name]
            width = x.shape[-1 if told.kept else -2]
            channels = q.shape[-1] * (2 if signature.complex else 1)
            return x.shape[1], channels if signature.diagonal else width
    return None
