"""The contract that blocks and language models rely on: a sequence, a state, padding, documents."""

import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from . import kept, positions
from .arguments import check_masks, fail, one_of
from .outside import outside_graphs
from .pickled import Pickled
from .signature import Signature
from .transforms import host_reads
from .vectors import States


class SequenceLayer(Pickled, nn.Module):
    """[B, T, dim] → [B, T, dim] around ``rule``, in pieces as in one, with or without padding."""

    rule: ClassVar[Any]
    dim: int

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """A layer that is not made yet; an option of another name is refused with those there are.

        Raises ``ArgumentError``.
        """
        known = inspect.signature(cls.__init__).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            for name in options:
                one_of(cls.rule.signature, "layer", name, tuple(known)[1:])
        return super().__new__(cls)

    @property
    def signature(self) -> Signature:
        """What the rule takes and carries."""
        found: Signature = self.rule.signature
        return found

    @classmethod
    def grouped(cls) -> int:
        """Query heads for each key head."""
        raise NotImplementedError

    def arguments(self, x: Tensor) -> States:
        """What the rule takes of a sequence from its start, x [B, T, dim]."""
        raise NotImplementedError

    def params(self) -> States:
        """What a deep memory starts from, by the names of its matrices, [H, rows, columns]."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """Tokens after which the layer does the same again: its anchor's, or a segment's."""
        return int(self.rule.signature.anchor)

    def at_most(self, tokens: int) -> int:
        """So many tokens, or as many as a sequence may have."""
        return int(self.rule.signature.at_most(tokens))

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Rows of which the first ``lengths`` tokens count; all, where there are none."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        *,
        state: Mapping[str, Tensor] | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: str = "auto",
    ) -> Any:
        """The layer on a sequence.

        Args:
            x: [B, T, dim].
            state: what an earlier call gave; ``None`` starts afresh.
            output_state: whether to return ``(y, state)``.
            mask: [B, T], true at tokens; padding leaves the state alone, its output is zero, and
                whatever x holds there, NaN too, reaches neither outputs nor gradients.
            cu_seqlens: [documents + 1], the ends of documents packed into B = 1, each of which
                has a state of its own, [documents, …].
            form: of the rule: recurrent, chunk or auto.

        Returns:
            y [B, T, dim], or y and the state after the last token.

        Raises:
            ValueError: a shape that does not fit.
        """
        self._check(x, state, mask, cu_seqlens)
        state = state or {}
        if cu_seqlens is not None:
            y, after = self.packed(x, state, cu_seqlens, form)
        elif mask is None or (host_reads() and bool(mask.all())):
            y, after = self.rows(x, state, None, form)
        else:
            y, after = self._padded(x, state, mask, form, ending=output_state or host_reads())
        return (y, after) if output_state else y

    def _padded(
        self, x: Tensor, state: Mapping[str, Tensor], mask: Tensor, form: str, *, ending: bool
    ) -> tuple[Tensor, States]:
        """Rows with padding; unless they are ``ending`` at their own last tokens the state is none.

        What stands behind a row's tokens is not seen by them, so that where the state is not asked
        for, copies of the last run along, and nothing has to be read of the mask.
        """
        order, lengths = positions.live_first(mask), mask.sum(1)
        full = positions.emptied(x, mask)
        if ending:
            y, after = self.rows(positions.taken(full, order), state, lengths, form)
        else:
            copied = positions.taken(full, positions.live_alone(order, lengths))
            y, after = self.rows(copied, state, None, form)[0], {}
        return positions.put_back(y, order, mask), after

    def step(
        self, x_t: Tensor, state: Mapping[str, Tensor] | None, *, form: str = "auto"
    ) -> tuple[Tensor, States]:
        """One token: [B, dim] → [B, dim], and the new state."""
        y, after = self.forward(x_t[:, None], state=state, output_state=True, form=form)
        return y[:, 0], after

    def advance(self, x_t: Tensor, state: States, *, form: str = "auto") -> Tensor:
        """One token, the state moved on in its own tensors: [B, dim] → [B, dim].

        For loops that are captured once, such as CUDA graphs: what ``state`` holds stays where it
        is. It is whole, as an earlier call gave it. Without a gradient.

        Raises:
            ValueError: a state that grows, or that is not whole.
        """
        with torch.no_grad():
            y, after = self.step(x_t, state, form=form)
            for name, x in after.items():
                if name not in state or state[name].shape != x.shape:
                    found = list(state[name].shape) if name in state else "nothing"
                    told = f"state['{name}']: read {found}, the next has {list(x.shape)}"
                    raise fail(self.rule.signature, f"{told}; it cannot stay in place")
                state[name].copy_(x)
        return y

    def _check(
        self, x: Tensor, state: object, mask: Tensor | None, cu_seqlens: Tensor | None
    ) -> None:
        told = self.rule.signature
        if x.ndim != 3 or x.shape[2] != self.dim:
            raise fail(told, f"x: read shape {list(x.shape)}, expected [B, T, {self.dim}]")
        check_masks(told, mask, cu_seqlens, {"B": x.shape[0], "T": x.shape[1]})
        if state is not None and not isinstance(state, Mapping):
            read = type(state).__name__
            raise fail(told, f"state: read {read}, what an earlier call gave is needed")

    @outside_graphs("cu_seqlens is read, since documents run one after another at their lengths")
    def packed(
        self, x: Tensor, state: Mapping[str, Tensor], ends: Tensor, form: str
    ) -> tuple[Tensor, States]:
        """Documents packed into one row, each with a state of its own: one after another."""
        found = []
        for i, (low, high) in enumerate(pairwise(ends.tolist())):
            own = {name: s[i : i + 1] for name, s in state.items()}
            found.append(self.rows(x[:, low:high], own, None, form))
        after = kept.joined(self.rule.signature, [states for _, states in found])
        return torch.cat([y for y, _ in found], 1), after
