"""The operator: checks, documents and masks around a rule's generated forms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import boundaries, choice, kept, kept_in, packing
from .arguments import check, check_choices, check_params, check_state, fail, one_of
from .buffers import debugging
from .calls import Form, States, parameters
from .diverged import check_output
from .documents import Documents
from .launched import TILE, form_of, tracked
from .norms import full_precision, of_one_type
from .outside import outside_graphs
from .owned import owned
from .pickled import by_name
from .placed import refusing_places
from .positions import emptied, live_alone, live_first, put_back, taken
from .reading import Reader, Reading, readable
from .run import Run
from .signature import Coefficient, Signature
from .slices import keep_what_is_saved
from .transforms import host_reads


def taking(rule: Any) -> tuple[str, ...]:
    """Return the keys and coefficients that a rule takes."""
    return (*rule.signature.keys, *rule.coefficients)


def needed_to_read(rule: Any) -> tuple[str, ...]:
    """Return the coefficients that reading a rule's memory takes."""
    found: tuple[str, ...] = rule.reading
    return found


@dataclass(frozen=True)
class Operator:
    """A compiled rule: ``out, state = rule(q, k, v, **coefficients)``.

    ``recurrent`` and ``chunk`` are the generated forms, ``start`` gives the memory at the start
    of a document, ``reader`` reads it as it stands. ``rule.coefficients`` and ``rule.state`` name
    what the rule takes and carries.
    """

    signature: Signature
    recurrent: Form
    chunk: Form | None
    start: Callable[..., States] | None
    reader: Reader | None = None
    kernels: Callable[[], Any] | None = None
    """The module of fused Triton kernels, imported when first asked for."""
    parts: tuple[Callable[..., Any], ...] = ()
    """Functions of ``chunk`` that compute a matrix for every row, which a CPU does for a few
    memories at a time."""
    compiling: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    """What runs ``parts`` under torch.compile."""
    keeping: Callable[[int], None] | None = None
    """What sets the bytes that ``parts`` keep for gradients."""

    @property
    def name(self) -> str:
        """The system's name."""
        return self.signature.name

    @property
    def coefficients(self) -> Mapping[str, Coefficient]:
        """Each coefficient by name, with its meaning, shape and range."""
        return {c.name: c for c in self.signature.coefficients}

    @property
    def params(self) -> Mapping[str, str]:
        """Each parameter of a deep memory by name, with its shape."""
        return {p.name: str(p) for p in self.signature.params}

    @property
    def state(self) -> Mapping[str, str]:
        """Each carried state by name, with its meaning."""
        return {s.name: f"{s.meaning} {s.axes}" for s in self.signature.states}

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that this rule has: in PyTorch, and ``triton`` where it has fused kernels."""
        return (*self.signature.forms, *(() if self.kernels is None else ("triton",)))

    def __repr__(self) -> str:
        told = self.signature
        taken = [str(c).partition(":")[0] for c in told.coefficients]
        names = ", ".join(("q", "k", "v", *told.keys, *taken))
        return f"<rule {self.name}: {names}; forms {', '.join(self.forms)}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return by_name(self, "rule") or super().__reduce_ex__(protocol)

    def compiled_parts(self) -> AbstractContextManager[None]:
        """Run ``parts`` under ``torch.compile`` while this context lasts, and the rest as it is.

        This compiles a few kernels, of what takes most of a chunk's time, for whole chunks and
        again for a shorter last one; ``torch.compile(layer)`` compiles each length as one graph of
        all its chunks. Only rounding differs. It holds for the whole process; a rule without
        ``parts`` runs as ever. With activation checkpointing the backward pass must lie within the
        context too::

            with layer.rule.compiled_parts():
                loss = layer(x).square().mean()
                loss.backward()
        """
        return self.compiling(self.parts)

    def keep_up_to(self, most: int) -> None:
        """Limit the bytes that ``parts`` keep for gradients; what exceeds them is recomputed.

        It holds for all calls of this rule in a process together, on a CPU and within
        `compiled_parts`; without it they keep up to 2**30 bytes, 1 GiB. Gradients are the same.

        Args:
            most: bytes, from 0 on.

        Raises:
            ArgumentError: ``most`` is not a whole number from 0 on.
        """
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise fail(
                self.signature,
                f"keep_up_to: read {most!r}, but it takes a number of bytes, from 0 on",
            )
        if self.keeping is not None:
            self.keeping(most)

    @refusing_places("rule", taking)
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
        states_at: Sequence[int] | Tensor | None = None,
        state_dtype: torch.dtype | None = None,
        **coefficients: Tensor,
    ) -> Any:
        """Run the rule over a sequence.

        q, k [B, T, H, d_k], v [B, T, H, d_v] (k, v [B, T, n, H, ·] with n steps a token), used as
        given, under autocast too; coefficients as ``rule.coefficients`` says; ``form`` recurrent,
        chunk or auto; ``mask`` [B, T], False for tokens that leave the state alone; ``cu_seqlens``
        [documents+1] for documents packed into B = 1; ``params`` the initial duals of a deep
        memory, [H, …], as ``rule.params`` says. ``states_at``: numbers of tokens that rise, after
        which states are asked for too; ``state_dtype``: what states are returned in, float32 at
        least unless told. Returns out [B, T, H, d_v] and the final state, or None; with
        ``states_at`` also the states after so many tokens, [B, n, …].
        Raises ``ArgumentError`` (a ValueError) for what does not fit; with ``MNEMIC_DEBUG=1`` also
        for numbers outside a coefficient's range, such as a decay above 1, which are not read
        otherwise, and ``Diverged`` (a ValueError) where the output is not finite.
        """
        if torch.compiler.is_dynamo_compiling():
            keep_what_is_saved()
        check(self.signature, q, k, v, coefficients, mask, cu_seqlens)
        one_of(self.signature, "form", form, ("auto", *self.forms))
        check_choices(self.signature, initial_state, params, chunk_size)
        kept_in.check(self.signature, state_dtype)
        params = params or {}
        check_params(self.signature, params, initial_state or {}, q, k, v)
        form = choice.form(self.signature, form, self.forms, v)
        if form == "triton" and not q.shape[0]:
            form = "auto"  # a launch needs a program
        call = _Call(self, form, chunk_size, params)
        vectors = {"q": q, "k": k, "v": v, **self._inside(coefficients)}
        dtype = v.dtype
        if form != "triton":
            vectors = of_one_type(vectors, v)
        state = dict(initial_state or {})
        between: States = {}
        with full_precision(v.device.type):
            if states_at is not None:
                packed = cu_seqlens is not None
                ends = boundaries.checked(self.signature, states_at, q.shape[1], packed=packed)
                out, final, between = call.bounded(vectors, state, ends, mask, cu_seqlens)
            elif cu_seqlens is not None:
                out, final = call.documents(vectors, state, cu_seqlens, ending=output_final_state)
            elif mask is not None and mask.shape[0]:
                ending = output_final_state or host_reads()
                padded = call.masked if ending else call.masked_output
                out, final = padded(vectors, state, mask)
            else:
                out, final = call.batch(vectors, state)
        if debugging() and host_reads():
            check_output(self.signature, out)
        told = None
        if output_final_state:
            final = owned(self.signature, final, vectors, initial_state or {}, params)
            told = kept_in.rounded(self.signature, final, state_dtype)
        if states_at is None:
            return out.to(dtype), told
        return out.to(dtype), told, kept_in.rounded(self.signature, between, state_dtype)

    @refusing_places("rule.begin", taking)
    def begin(
        self, q: Tensor, k: Tensor, v: Tensor, *, params: Mapping[str, Tensor] | None = None,
        **coefficients: Tensor,
    ) -> States:  # fmt: skip
        """Return the state before a document's first token, from that token's arguments, T = 1."""
        check(self.signature, q, k, v, coefficients, None, None)
        check_params(self.signature, params or {}, {}, q, k, v)
        vectors = of_one_type({"q": q, "k": k, "v": v, **self._inside(coefficients)}, v)
        params = params or {}
        with full_precision(v.device.type):
            run = Run(_Call(self, "auto", None, params), vectors, {})
            found = run.before({name: x[:, :0] for name, x in vectors.items()})
        return owned(self.signature, found, vectors, params)

    def _inside(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return arguments by their names in the forms."""
        names = {c.name: c.parameter for c in self.signature.coefficients}
        return {names.get(name, name): x for name, x in named.items()}

    @property
    def reading(self) -> tuple[str, ...]:
        """The coefficients that ``read`` takes: of the read-out, and of a start that it sees."""
        names = set(() if self.reader is None else parameters(self.reader))
        if self.start is not None and names & set(self.signature.started):
            names |= set(parameters(self.start))
        return tuple(c.name for c in self.signature.coefficients if c.parameter in names)

    @property
    def read_states(self) -> tuple[str, ...]:
        """The carried states that ``read`` needs, positions and angles too."""
        seen = () if self.reader is None else parameters(self.reader)
        return tuple(name for name in self.state if name in (*seen, "position", "angle"))

    @refusing_places("rule.read", needed_to_read)
    def read(
        self,
        q: Tensor,
        state: Mapping[str, Tensor],
        *,
        params: Mapping[str, Tensor] | None = None,
        sizes: tuple[int, int] | None = None,
        **coefficients: Tensor,
    ) -> Tensor:
        """Compute M(W, φ(q)), the memory as ``state`` has it: nothing is written, nothing decays.

        q [B, T, heads, d_k], every token of which sees the same memory; coefficients as
        ``rule.reading`` names them; ``params`` as in a call, and ``sizes`` (H, d_v), where the
        state is empty. Returns [B, T, heads, d_v]. Raises ``ArgumentError`` for what does not
        fit, and where the rule's read-out cannot be told from its write.
        """
        if self.reader is None:
            raise fail(self.signature, "read: this rule's memory cannot be read without a write")
        check_state(self.signature, state)
        given = readable(
            self.signature, q, state, sizes, params or {}, coefficients, self.reading
        )  # fmt: skip
        call, inside = _Call(self, "auto", None, params or {}), self._inside(of_one_type(given, q))
        with full_precision(q.device.type):
            return call.read(self.reader, inside, dict(state)).to(q.dtype)


@dataclass(frozen=True)
class _Call:
    """One call's choices; every method takes arguments in the operator's layout."""

    operator: Operator
    form: str
    chunk_size: int | None
    params: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def signature(self) -> Signature:
        return self.operator.signature

    def of(self, form: str) -> "_Call":
        """Return the same call through another form."""
        return replace(self, form=form)

    # -- documents and masks ----------------------------------------------------------------

    def bounded(
        self, vectors: dict[str, Tensor], state: States, ends: tuple[int, ...],
        mask: Tensor | None, documents: Tensor | None,
    ) -> tuple[Tensor, States, States]:  # fmt: skip
        """Return the output, the final state, and the states after ``ends`` tokens, [B, n, …]."""

        def part(low: int, high: int, before: States) -> tuple[Tensor, States]:
            piece = {name: x[:, low:high] for name, x in vectors.items()}
            if mask is not None and mask.shape[0]:
                return self.masked(piece, before, mask[:, low:high], vectors)
            return self._document(piece, before, vectors)

        def packed(places: Tensor, bounds: Tensor, before: States) -> tuple[Tensor, States]:
            piece = {name: x.index_select(1, places) for name, x in vectors.items()}
            return self.documents(piece, before, bounds)

        if documents is None:
            tokens = vectors["q"].shape[1]
            return boundaries.in_parts(part, self.signature, ends, tokens, state)
        bounds, device = documents.tolist(), vectors["q"].device
        return boundaries.of_documents(packed, self.signature, ends, bounds, state, device)

    def documents(
        self, vectors: dict[str, Tensor], state: States, ends: Tensor, *, ending: bool = True
    ) -> tuple[Tensor, States]:
        """Run documents packed one after another, each with its own state; without ``ending`` their
        final states are not needed."""
        told = self.signature
        if not told.levels and not kept.names(told) and self._anywhere(vectors, state):
            return self._packed(vectors, state, ends)
        return self._together(vectors, state, ends, ending=ending)

    @outside_graphs("cu_seqlens is read, since documents run in batches by their lengths")
    def _together(
        self, vectors: dict[str, Tensor], state: States, ends: Tensor, *, ending: bool
    ) -> tuple[Tensor, States]:
        """Run documents in batches: by the binary digits of their lengths, or by the lengths."""
        bounds = ends.tolist()
        if self.signature.anchor > 1 or self._told(vectors, state):
            ways = packing.by_length if ending else packing.by_size
            return self._alike(vectors, state, list(ways(bounds)))
        return self._by_digits(vectors, state, bounds)

    def _by_digits(
        self, vectors: dict[str, Tensor], state: States, bounds: list[int]
    ) -> tuple[Tensor, States]:
        """Run documents in batches by their lengths' digits, the states carried between batches."""
        device = vectors["q"].device
        states = self._started(vectors, state, bounds)
        batches, outs = list(packing.by_digits(bounds)), []
        for batch in batches:
            some = torch.tensor(batch.documents, device=device)
            places = batch.places(device)
            piece = {name: x[0][places] for name, x in vectors.items()}
            out, after = self.batch(piece, {name: x[some] for name, x in states.items()})
            outs.append(out)
            states = {name: x.index_copy(0, some, after[name]) for name, x in states.items()}
        if not outs:
            return self._nothing(vectors), states
        return packing.unpacked(outs, batches), states

    def _alike(
        self, vectors: dict[str, Tensor], state: States, batches: list[packing.Batch]
    ) -> tuple[Tensor, States]:
        """Run documents in batches, each document whole."""
        device, outs, finals, order = vectors["q"].device, [], [], []
        for batch in batches:
            some = torch.tensor(batch.documents, device=device)
            places = batch.places(device)
            piece = {name: x[0][places] for name, x in vectors.items()}
            own = {name: x[some] for name, x in state.items()}
            out, final = self._document(piece, own, _spare(vectors, len(batch.documents)))
            outs.append(out)
            finals.append(final)
            order.append(some)
        if not outs:
            return self._nothing(vectors), {}
        joined, back = kept.joined(self.signature, finals), torch.argsort(torch.cat(order))
        return packing.unpacked(outs, batches), {name: x[back] for name, x in joined.items()}

    def _started(
        self, vectors: dict[str, Tensor], state: States, bounds: list[int]
    ) -> States:  # fmt: skip
        """Return every document's state before its first token."""
        count, device = len(bounds) - 1, vectors["q"].device
        none = {name: x.expand(count, *x.shape[1:])[:, :0] for name, x in vectors.items()}
        last = max(vectors["q"].shape[1] - 1, 0)
        first = torch.tensor([min(low, last) for low in bounds[:-1]], device=device)[:, None]
        spare = vectors if not vectors["q"].shape[1] else {
            name: x[0][first] for name, x in vectors.items()
        }  # fmt: skip
        return self._document(none, state, spare)[1]

    def _nothing(self, vectors: dict[str, Tensor]) -> Tensor:
        """Return zeros for the output of all tokens, [B, T, H, d_v]."""
        return vectors["v"].new_zeros(*vectors["q"].shape[:3], vectors["v"].shape[-1])

    def _packed(
        self, vectors: dict[str, Tensor], state: States, ends: Tensor
    ) -> tuple[Tensor, States]:
        """Run all packed documents at once."""
        documents = Documents.of(ends, vectors["q"])
        return Run(self, vectors, state, documents).result()

    @outside_graphs("the mask is read, since each row's state ends at a token of its own; without "
                    "output_final_state (output_state of a layer) it is not")  # fmt: skip
    def masked(
        self, vectors: dict[str, Tensor], state: States, mask: Tensor,
        other: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run rows of a batch without their masked tokens, whose outputs are zero; a row without
        tokens reads the coefficients of its initial state from the tokens ``other``."""
        whole, counts = self._nothing(vectors), mask.sum(1)
        if not bool(mask.any()):
            none = {name: x[:, :0] for name, x in vectors.items()}
            return whole, self._document(none, state, other or vectors)[1]
        packed = {name: x[mask][None] for name, x in vectors.items()}
        ends = F.pad(counts.cumsum(0), (1, 0))
        out, final = self.documents(packed, state, ends)
        return whole.to(out.dtype).masked_scatter(_over(mask, whole), out), final

    def masked_output(
        self, vectors: dict[str, Tensor], state: States, mask: Tensor
    ) -> tuple[Tensor, States]:
        """Return masked rows' output without the final state, which needs no read of the mask.

        Copies of a row's last token replace the padding behind its tokens, which do not see them.
        """
        order = live_first(mask)
        index = live_alone(order, mask.sum(1))
        rows = {name: taken(emptied(x, mask), index) for name, x in vectors.items()}
        out, _ = self.batch(rows, state)
        return put_back(out, order, mask), {}

    def _document(
        self, vectors: dict[str, Tensor], state: States, padding: dict[str, Tensor]
    ) -> tuple[Tensor, States]:
        """Run one document; if it is empty, its start takes its coefficients from ``padding``.

        Such a coefficient is the same at every token.
        """
        tokens, spare = vectors["q"].shape[1], padding["q"].shape[1]
        if tokens or not spare or self.operator.start is None:
            return self.batch(vectors, state)
        first = {name: x[:, :1] for name, x in padding.items()}
        out = padding["v"].new_zeros(*vectors["q"].shape[:3], padding["v"].shape[-1])
        return out, Run(self, first, state).before(vectors)

    def batch(self, vectors: dict[str, Tensor], state: States) -> tuple[Tensor, States]:
        """Run a plain batch; where positions differ, rows of one position are run together."""
        if not self._told(vectors, state) or "position" not in state:
            return Run(self, vectors, state).result()
        if self.signature.anchor > 1 and self._traced(vectors["q"].shape[1]):
            return Run(self, vectors, state).result()
        return self._at_positions(vectors, state)

    def _traced(self, tokens: int) -> bool:
        """Return whether a traced graph processes token by token, whatever the rows' positions: a
        few tokens, or in torch.export any number, as it has no other way."""
        if not torch.compiler.is_compiling() or self.form == "triton":
            return False
        return torch.compiler.is_exporting() or self.short(tokens)

    @outside_graphs("the carried position is read, since it decides where chunks (or the levels of "
                    "a tree) end")  # fmt: skip
    def _at_positions(self, vectors: dict[str, Tensor], state: States) -> tuple[Tensor, States]:
        """Run the rows that stand at one position together."""
        if not _apart(state):
            return Run(self, vectors, state).result()
        outs, finals, order = [], [], []
        for rows, piece, own in _by_position(vectors, state):
            out, final = Run(self, piece, own).result()
            outs.append(out)
            finals.append(final)
            order.append(rows)
        back = torch.argsort(torch.cat(order))
        joined = kept.joined(self.signature, finals)
        return torch.cat(outs)[back], {name: x[back] for name, x in joined.items()}

    def _told(self, vectors: dict[str, Tensor], state: States) -> bool:
        """Return whether the form needs the rows' position, the same for all of them."""
        signature = self.signature
        if signature.levels:
            return True
        if kept.names(signature):
            return not torch.compiler.is_compiling()  # whose rows have all pairs there are
        return signature.anchor > 1 and not self._anywhere(vectors, state)

    def _anywhere(self, vectors: dict[str, Tensor], state: States) -> bool:
        """Return whether one launch can run rows at any positions, and packed documents."""
        if self.form != "triton" or self.operator.kernels is None:
            return False
        kernel = form_of(self.operator.kernels(), short=self.short(vectors["q"].shape[1]))
        return kernel.anywhere(gradient=tracked((*vectors.values(), *state.values())))

    def short(self, tokens: int) -> bool:
        """Return whether there are too few tokens for a chunk's kernel."""
        return tokens * self.signature.steps * self.signature.inner < TILE

    def read(self, reader: Reader, vectors: dict[str, Tensor], state: States) -> Tensor:
        """Read out a state; where positions differ, rows of one position are read together."""
        graph = torch.compiler.is_compiling() and not self.signature.levels
        if graph or not _apart(state):
            return Reading(self, reader, vectors, state).read()
        pieces = list(_by_position(vectors, state))
        outs = [Reading(self, reader, piece, own).read() for _, piece, own in pieces]
        return torch.cat(outs)[torch.argsort(torch.cat([rows for rows, _, _ in pieces]))]


def _over(mask: Tensor, x: Tensor) -> Tensor:
    """Give the mask [B, T] the axes of x [B, T, …]."""
    return mask.reshape(*mask.shape, *[1] * (x.ndim - 2))


def _spare(vectors: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """Repeat the first token for ``rows`` rows, so that a start can read its coefficients."""
    return {name: x[:, :1].expand(rows, *x[:, :1].shape[1:]) for name, x in vectors.items()}


def _apart(state: States) -> bool:
    """Return whether rows stand at different positions."""
    position = state.get("position")
    return position is not None and bool((position != position[:1]).any())


def _by_position(
    vectors: dict[str, Tensor], state: States
) -> Iterator[tuple[Tensor, dict[str, Tensor], States]]:
    """Yield the rows of a batch that stand at one position: their numbers, arguments and states."""
    for position in state["position"].unique():
        rows = (state["position"] == position).nonzero()[:, 0]
        yield rows, {n: x[rows] for n, x in vectors.items()}, {n: x[rows] for n, x in state.items()}
