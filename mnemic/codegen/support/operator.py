"""The operator: checks, documents and masks around a rule's generated forms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from . import kept
from .arguments import check, fail, one_of
from .run import Form, Run, States
from .signature import Coefficient, Signature


@dataclass(frozen=True)
class Operator:
    """A compiled rule: ``out, state = rule(q, k, v, **coefficients)``.

    ``recurrent`` and ``chunk`` are the generated forms, ``start`` gives the memory at the start
    of a document. ``rule.coefficients`` and ``rule.state`` name what the rule takes and carries.
    """

    signature: Signature
    recurrent: Form
    chunk: Form | None
    start: Callable[..., Tensor] | None

    @property
    def name(self) -> str:
        """The system's name."""
        return self.signature.name

    @property
    def coefficients(self) -> Mapping[str, Coefficient]:
        """Each coefficient by name, with its meaning, shape and range."""
        return {c.name: c for c in self.signature.coefficients}

    @property
    def state(self) -> Mapping[str, str]:
        """Each carried state by name, with its meaning."""
        return {s.name: f"{s.meaning} {s.axes}" for s in self.signature.states}

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that this rule has."""
        return self.signature.forms

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        form: str = "auto",
        initial_state: Mapping[str, Tensor] | None = None,
        output_final_state: bool = False,
        params: Mapping[str, Tensor] | None = None,
        cu_seqlens: Tensor | None = None,
        mask: Tensor | None = None,
        chunk_size: int | None = None,
        **coefficients: Tensor,
    ) -> tuple[Tensor, States | None]:
        """Run the rule over a sequence.

        q, k [B, T, H, d_k], v [B, T, H, d_v] (k, v [B, T, n, H, ·] with n steps a token), used as
        given; coefficients as ``rule.coefficients`` says; ``form`` recurrent, chunk or auto;
        ``mask`` [B, T], False for tokens that leave the state alone; ``cu_seqlens`` [documents+1]
        for documents packed into B = 1. Returns out [B, T, H, d_v] and the final state, or None.
        Raises ``ArgumentError`` (a ValueError) for what does not fit.
        """
        check(self.signature, q, k, v, coefficients, mask, cu_seqlens)
        one_of(self.signature, "form", form, ("auto", *self.signature.forms))
        if params:
            raise fail(self.signature, f"params: this rule has none; read {', '.join(params)}")
        self._check_state(initial_state)
        call = _Call(self, form, chunk_size)
        vectors = {"q": q, "k": k, "v": v, **coefficients}
        dtype = v.dtype
        if dtype in (torch.float16, torch.bfloat16):
            vectors = {name: x.float() for name, x in vectors.items()}
        state = dict(initial_state or {})
        if cu_seqlens is not None:
            out, final = call.documents(vectors, state, cu_seqlens)
        elif mask is not None:
            out, final = call.masked(vectors, state, mask)
        else:
            out, final = call.batch(vectors, state)
        return out.to(dtype), final if output_final_state else None

    def _check_state(self, state: Mapping[str, Tensor] | None) -> None:
        names = tuple(s.name for s in self.signature.states)
        for name in state or {}:
            one_of(self.signature, "initial_state", name, names)


@dataclass(frozen=True)
class _Call:
    """One call's choices; every method takes arguments in the operator's layout."""

    operator: Operator
    form: str
    chunk_size: int | None

    @property
    def signature(self) -> Signature:
        return self.operator.signature

    # -- documents and masks ----------------------------------------------------------------

    def documents(
        self, vectors: dict[str, Tensor], state: States, ends: Tensor
    ) -> tuple[Tensor, States]:
        """Documents packed one after another, each with a state of its own."""
        outs, finals = [], []
        bounds = ends.tolist()
        for index, (low, high) in enumerate(pairwise(bounds)):
            piece = {name: x[:, low:high] for name, x in vectors.items()}
            own = {name: x[index : index + 1] for name, x in state.items()}
            out, final = self.batch(piece, own)
            outs.append(out)
            finals.append(final)
        return torch.cat(outs, 1), kept.joined(self.signature, finals)

    def masked(
        self, vectors: dict[str, Tensor], state: States, mask: Tensor
    ) -> tuple[Tensor, States]:
        """Rows of a batch without their masked tokens, whose outputs are zero."""
        outs, finals = [], []
        for row in range(mask.shape[0]):
            live = mask[row]
            piece = {name: x[row : row + 1, live] for name, x in vectors.items()}
            own = {name: x[row : row + 1] for name, x in state.items()}
            out, final = self.batch(piece, own)
            index = live.nonzero()[:, 0]
            whole = out.new_zeros(1, mask.shape[1], *out.shape[2:])
            outs.append(whole.index_copy(1, index, out))
            finals.append(final)
        return torch.cat(outs), kept.joined(self.signature, finals)

    def batch(self, vectors: dict[str, Tensor], state: States) -> tuple[Tensor, States]:
        """A plain batch; where positions differ, rows of one position are run together."""
        position = state.get("position")
        if position is None or position.unique().numel() <= 1:
            return Run(self, vectors, state).result()
        outs, finals, order = [], [], []
        for value in position.unique():
            rows = (position == value).nonzero()[:, 0]
            piece = {name: x[rows] for name, x in vectors.items()}
            out, final = Run(self, piece, {n: x[rows] for n, x in state.items()}).result()
            outs.append(out)
            finals.append(final)
            order.append(rows)
        back = torch.argsort(torch.cat(order))
        joined = kept.joined(self.signature, finals)
        return torch.cat(outs)[back], {name: x[back] for name, x in joined.items()}
