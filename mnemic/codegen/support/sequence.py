"""What blocks and language models rely on: a sequence, a state, padding, documents."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from . import boundaries, kept, kept_in, packing, pool, positions
from .arguments import check_masks, fail, not_a_tensor, one_of
from .norms import autocasts
from .outside import outside_graphs
from .owned import check_apart, owned
from .pickled import Pickled
from .placed import check_placed
from .signature import Signature
from .transforms import host_reads
from .vectors import States


class SequenceLayer(Pickled, nn.Module):
    """[B, T, dim] → [B, T, dim] around ``rule``, the same whole or in pieces, padded or not."""

    rule: ClassVar[Any]
    dim: int

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Make a layer that is not initialised yet; refuse an option with an unknown name, or
        without its name, and list those that exist.

        Raises ``ArgumentError``.
        """
        known = inspect.signature(cls.__init__).parameters
        check_placed(cls.rule.signature, "layer", cls.__init__, args)
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
        """Return the number of query heads for each key head."""
        raise NotImplementedError

    def arguments(self, x: Tensor) -> States:
        """Return what the rule takes of a sequence from its start, x [B, T, dim]."""
        raise NotImplementedError

    def params(self) -> States:
        """Return what a deep memory starts from, by its matrices' names, [H, rows, columns]."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """Tokens after which the layer's schedule repeats: an anchor interval's, or a segment's."""
        return int(self.rule.signature.anchor)

    def at_most(self, tokens: int) -> int:
        """Return ``tokens``, or the length of the longest possible sequence if that is less."""
        return int(self.rule.signature.at_most(tokens))

    def rows(
        self, x: Tensor, state: Mapping[str, Tensor], lengths: Tensor | None, form: str
    ) -> tuple[Tensor, States]:
        """Run rows of which the first ``lengths`` tokens count, all where ``lengths`` is None."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        *placed: Any,
        state: Mapping[str, Tensor] | None = None,
        output_state: bool = False,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        form: str = "auto",
        states_at: Sequence[int] | Tensor | None = None,
        state_dtype: torch.dtype | None = None,
        **unknown: Any,
    ) -> Any:
        """Run the layer on a sequence.

        Args:
            x: [B, T, dim].
            state: the state that an earlier call returned; ``None`` starts a new sequence.
            output_state: whether to return ``(y, state)``.
            mask: [B, T], true at tokens; padding leaves the state alone, its output is zero, and
                whatever x holds there, NaN too, reaches neither outputs nor gradients.
            cu_seqlens: [documents + 1], the ends of documents packed into B = 1, each of which
                has a state of its own, [documents, …].
            form: of the rule: recurrent, chunk or auto.
            states_at: rising numbers of tokens, after each of which the state is returned as well.
            state_dtype: the dtype of returned states; ``None`` leaves them as they are computed.

        Returns:
            y [B, T, dim], or y and the state after the last token; with ``states_at`` also, as the
            last item, the states after so many tokens, [B, n, …].

        Raises:
            ValueError: a shape that does not fit, an argument of another name or without its name.
        """
        self._refuse((x, *placed) if placed else (), unknown, "forward")
        self._check(x, state, mask, cu_seqlens)
        kept_in.check(self.signature, state_dtype)
        state = dict(state or {})
        between: States = {}
        if states_at is not None:
            packed = cu_seqlens is not None
            ends = boundaries.checked(self.signature, states_at, x.shape[1], packed=packed)
            y, after, between = self._bounded(x, state, ends, mask, cu_seqlens, form)
        elif cu_seqlens is not None:
            y, after = self.packed(x, state, cu_seqlens, form, ending=output_state)
        elif mask is None or (host_reads() and bool(mask.all())):
            y, after = self.rows(x, state, None, form)
        else:
            y, after = self._padded(x, state, mask, form, ending=output_state or host_reads())
        told: tuple[States, ...] = ()
        if output_state:
            after = owned(self.signature, after, state)
            told = (kept_in.rounded(self.signature, after, state_dtype),)
        if states_at is not None:
            told = (*told, kept_in.rounded(self.signature, between, state_dtype))
        return (y, *told) if told else y

    def _bounded(
        self, x: Tensor, state: States, ends: tuple[int, ...], mask: Tensor | None,
        cu_seqlens: Tensor | None, form: str,
    ) -> tuple[Tensor, States, States]:  # fmt: skip
        """Return the output, the final state, and the states after ``ends`` tokens, [B, n, …]."""

        def part(low: int, high: int, before: States) -> tuple[Tensor, States]:
            live = None if mask is None else mask[:, low:high]
            found: tuple[Tensor, States] = self.forward(
                x[:, low:high], state=before, output_state=True, mask=live, form=form
            )
            return found

        def packed(places: Tensor, bounds: Tensor, before: States) -> tuple[Tensor, States]:
            return self.packed(x.index_select(1, places), before, bounds, form)

        if cu_seqlens is not None:
            bounds = cu_seqlens.tolist()
            return boundaries.of_documents(packed, self.signature, ends, bounds, state, x.device)
        if mask is None:
            return self._parts(x, state, ends, form)
        return boundaries.in_parts(part, self.signature, ends, x.shape[1], state)

    def _parts(
        self, x: Tensor, state: States, ends: tuple[int, ...], form: str
    ) -> tuple[Tensor, States, States]:  # fmt: skip
        """Run a sequence without padding part by part; return what ``_bounded`` does."""

        def part(low: int, high: int, before: States) -> tuple[Tensor, States]:
            return self.rows(x[:, low:high], before, None, form)

        return boundaries.in_parts(part, self.signature, ends, x.shape[1], state)

    def state_at(self, states: Mapping[str, Tensor], index: Tensor) -> States:
        """Return one state for each row, [B, …], of the states [B, n, …] that ``states_at`` gave.

        ``index`` [B] selects a state for each row, from 0 to n − 1. Raises ``ValueError`` for other
        numbers.
        """
        return boundaries.chosen(self.signature, dict(states), index)

    def _padded(
        self, x: Tensor, state: Mapping[str, Tensor], mask: Tensor, form: str, *, ending: bool
    ) -> tuple[Tensor, States]:
        """Run rows with padding; without ``ending`` no state is returned.

        Tokens do not see what comes after them. So where no state is needed, the padding is
        replaced by copies of the last token, and the host need not read the mask.
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
        self, x_t: Tensor, state: Mapping[str, Tensor] | None = None, *placed: Any,
        form: str = "auto", state_dtype: torch.dtype | None = None, **unknown: Any,
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run one token: [B, dim] → [B, dim] and the new state; no state: the first token."""
        self._refuse((x_t, state, *placed) if placed else (), unknown, "step")
        self._check_token(x_t)
        y, after = self.forward(
            x_t[:, None], state=state, output_state=True, form=form, state_dtype=state_dtype
        )
        return y[:, 0], after

    def _refuse(self, given: tuple[Any, ...], unknown: Mapping[str, Any], method: str) -> None:
        """Refuse arguments of other names than a method's own, or without their names."""
        function = getattr(SequenceLayer, method)
        if given:
            check_placed(self.signature, f"layer.{method}", function, given)
        for name in unknown:
            known = inspect.signature(function).parameters.values()
            named = [p.name for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            one_of(self.signature, f"layer.{method}", name, named[1:])

    def advance(
        self, x_t: Tensor, state: States, *, indices: Tensor | None = None, form: str = "auto"
    ) -> Tensor:  # fmt: skip
        """Run one token and update the state in place: [B, dim] → [B, dim].

        For loops that are captured once, such as CUDA graphs: the tensors in ``state`` stay where
        they are. The state must be complete, as an earlier call returned it. With ``indices`` [B]
        it is a pool, and each row updates the state in its slot; −1 is a row without a sequence,
        whose output is zero. Computes no gradient.

        Raises:
            ValueError: a state that grows, or that is not complete.
        """
        self._check_token(x_t)
        if indices is not None:
            return self._advanced(x_t, state, indices, form)
        kept_in.check_kept(self.signature, state)
        check_apart(self.signature, state, self.params())
        pool.check_rows(self.signature, state, len(x_t), ": indices= names the slots of a pool")
        with torch.no_grad():
            y, after = self.step(x_t, state, form=form)
            for name, x in after.items():
                if name not in state or state[name].shape != x.shape:
                    found = list(state[name].shape) if name in state else "nothing"
                    told = f"state['{name}']: read {found}, the next has {list(x.shape)}"
                    raise fail(self.rule.signature, f"{told}; it cannot be updated in place")
                state[name].copy_(x)
        return y

    @torch.no_grad()
    def _advanced(self, x_t: Tensor, states: States, indices: Tensor, form: str) -> Tensor:
        """Run one token of the sequences whose states lie in slots of a pool."""
        pool.check(self.signature, states, indices, x_t.shape[0])
        kept_in.check_kept(self.signature, states)
        places = pool.Places.of(indices)
        if pool.idle(places):
            return torch.zeros_like(x_t)
        own = pool.taken(states, places)
        y, after = self.step(pool.rows(x_t, places), own, form=form)
        pool.put(self.signature, states, places, after)
        return y.masked_fill(~places.live[:, None], 0.0)

    def pool(self, state: Mapping[str, Tensor], slots: int, *, tokens: int = 0) -> States:
        """Return an empty pool of ``slots`` states, one a sequence, each like ``state``, which a
        call returned; where pairs are kept, a slot has room for those of ``tokens`` tokens."""
        return pool.made(self.signature, state, slots, tokens)

    def take(self, states: States, indices: Tensor) -> States:
        """Return the states in slots of a pool, [B, …]; a row with −1 gets arbitrary numbers."""
        pool.check(self.signature, states, indices)
        return pool.taken(states, pool.Places.of(indices))

    @torch.no_grad()
    def put(self, states: States, indices: Tensor, state: Mapping[str, Tensor]) -> None:
        """Write the states of rows, [B, …], into slots of a pool; −1 writes nothing."""
        pool.check(self.signature, states, indices)
        pool.check_rows(self.signature, state, len(indices), ": a slot, or −1, for every row")
        pool.put(self.signature, states, pool.Places.of(indices), state)

    def _check(self, x: Tensor, state: Any, mask: Tensor | None, cu_seqlens: Tensor | None) -> None:
        told = self.rule.signature
        if not isinstance(x, Tensor):
            raise fail(told, f"x: {not_a_tensor(x)}")
        if x.ndim != 3 or x.shape[2] != self.dim:
            raise fail(told, f"x: read shape {list(x.shape)}, expected [B, T, {self.dim}]")
        if not x.is_floating_point():
            hint = "floating-point numbers are needed, such as an embedding's of token numbers"
            raise fail(told, f"x: read {x.dtype}, {hint}")
        out = getattr(getattr(self, "memory", self), "out", None)
        own = out.weight.dtype if type(out) is nn.Linear else x.dtype
        same = own in (x.dtype, torch.int8, torch.uint8)  # weights of integers cast themselves
        if not same and not autocasts(x.device.type):
            raise fail(told, f"x: read {x.dtype}, the layer has {own}; cast one to the other, "
                       "or call the layer under torch.autocast")  # fmt: skip
        check_masks(told, mask, cu_seqlens, {"B": x.shape[0], "T": x.shape[1]})
        if state is not None and not isinstance(state, Mapping):
            read = type(state).__name__
            raise fail(told, f"state: read {read}, what an earlier call gave is needed")
        rows = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        pool.check_rows(told, state or {}, rows)

    def _check_token(self, x_t: Tensor) -> None:
        if not isinstance(x_t, Tensor):
            raise fail(self.signature, f"x_t: {not_a_tensor(x_t)}")
        if x_t.ndim != 2 or x_t.shape[1] != self.dim:
            shown = f"read shape {list(x_t.shape)}, expected [B, {self.dim}]"
            raise fail(self.signature, f"x_t: {shown}")

    @outside_graphs("cu_seqlens is read, since documents run in batches by their lengths")
    def packed(
        self, x: Tensor, state: Mapping[str, Tensor], ends: Tensor, form: str, *,
        ending: bool = True,
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run documents packed into one row, each with a state of its own if ``ending``: those of
        one length together, or without states those of one size."""
        ways = packing.by_length if ending else packing.by_size
        batches, outs, finals = list(ways(ends.tolist())), [], []
        for batch in batches:
            some = torch.tensor(batch.documents, device=x.device)
            own = {name: s[some] for name, s in state.items()}
            y, after = self.rows(x[0][batch.places(x.device)], own, None, form)
            outs.append(y)
            finals.append(after)
        if not outs:
            return x, {}
        joined = kept.joined(self.rule.signature, finals)
        order = torch.tensor([i for batch in batches for i in batch.documents], device=x.device)
        back = torch.argsort(order)
        return packing.unpacked(outs, batches), {n: s[back] for n, s in joined.items()}
