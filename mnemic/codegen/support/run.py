"""The run of one batch through a form: its initial states, its pieces, its final states."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from . import kept, layout, levels, room, scanned, versions
from .arguments import fail
from .calls import Closes, Form, States, parameters
from .given import Given, turned
from .launched import Form as Fused
from .launched import fainter, form_of, tracked
from .lengths import FAINTEST
from .norms import of_one_type
from .place import Place
from .signature import State
from .sizes import eval_size
from .transforms import host_reads

FEWEST = 4
"""Rows below which ``auto`` takes the recurrent form: with four rows the chunk form is as fast for
linear memories and two to five times as fast for those of layers."""


PIECE = 512
"""Tokens taken at a time where no gradient is asked for: what they need stays in the cache."""


class Run(Given):
    """A batch that runs through a form: initial states, pieces, final states."""

    # -- states -----------------------------------------------------------------------------

    def _states(self) -> States:
        """Return the forms' initial states, [M, …]: given ones, ``params``, or as declared."""
        found = {}
        self._fits()
        for state in self.signature.states:
            shape = self._shape(state) if state.name in self.wanted else None
            if shape is None:
                continue
            given = self.given.get(state.name)
            if given is not None:
                found[state.name] = self._read_state(state.name, given, shape)
            elif state.begins and state.of in self.params:
                found[state.name] = self._param(state.of)
            elif state.kept:
                found[state.name] = self.like.new_full(shape, state.identity)
            elif state.identity:
                eye = torch.eye(shape[-1], dtype=self.like.dtype, device=self.like.device)
                found[state.name] = (state.identity * eye).expand(shape)
            else:
                found[state.name] = self.like.new_zeros(shape)
        return self._started(found)

    def _fits(self) -> None:
        """Refuse states that exceed memory; token by token, q's gradient keeps all of them."""
        if torch.compiler.is_compiling():
            return
        shapes = [self._shape(s) for s in self.signature.states if s.name in self.wanted]
        held = self.like.element_size() * sum(math.prod(x) for x in shapes if x is not None)
        q = self.rows.get("q")
        every = q is not None and q.requires_grad and torch.is_grad_enabled()
        every = every and self._chosen() == "recurrent" and self.signature.anchor == 1
        copies = max(self.tokens, 1) if every and self.like.device.type == "cpu" else 1
        room.check(self.signature, held, copies, self.like.device)

    def _kept(self) -> int:
        """Count the pairs that are kept already."""
        given = [self.given[s.name] for s in kept.names(self.signature) if s.name in self.given]
        return given[0].shape[kept.LEAD] if given else 0

    def _shape(self, state: State) -> tuple[int, ...] | None:
        """Return the shape [M, …] of a forms' state; ``None`` for one that forms do not have."""
        if state.of:
            return (self.memories, *self._of(state))
        value = 1 if self.signature.diagonal else self.like.shape[-1]
        sizes = {"v": value, "k": self._features(), "n": self._kept()}
        if state.side:
            sizes["v"] = self._side(state.side)
        if self.signature.levels:
            sizes["l"] = levels.needed(self.position, self.tokens)
        if not set(state.axes) <= sizes.keys():
            return None
        return (self.memories, *(sizes[letter] for letter in state.axes))

    def _of(self, state: State) -> tuple[int, ...]:
        """Return the shape of a parameter's state: the matrix's, its rows' or its columns'."""
        matrices = [s.name for s in self.signature.states if s.of == state.of and s.axes == "vk"]
        given = [self.given[name] for name in matrices if name in self.given]
        like = given[0] if given else self.params[state.of]  # the operator has checked
        rows, columns = like.shape[-2:]
        return {"vk": (rows, columns), "v": (rows,), "k": (columns,)}[state.axes]

    def _side(self, side: str) -> int:
        """Return a hidden width, as the parameters (or the states that go with them) tell it."""
        for p in self.signature.params:
            if side in (p.rows, p.columns):
                shape = self._of(State("", "vk", "", of=p.name))
                return shape[0] if side == p.rows else shape[1]
        raise AssertionError(side)

    def _param(self, name: str) -> Tensor:
        """Return a parameter [H, …] as the start of every memory, [M, …]."""
        x = self.params[name].to(self.like)
        if self.groups > 1:
            x = x.repeat_interleave(self.groups, 0)
        return x.expand(self.sequences, *x.shape).reshape(self.memories, *x.shape[1:])

    def _read_state(self, name: str, given: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self.signature.levels and given.ndim == 5:
            given = given[:, :, : shape[1]]
        if given.numel() != math.prod(shape):
            shown = f"{list(given.shape)}, expected {self._outer_shape(shape)}"
            raise fail(self.signature, f"initial_state['{name}']: read shape {shown}")
        return given.to(self.like).reshape(shape)

    def _outer_shape(self, shape: tuple[int, ...]) -> list[int]:
        if self.signature.diagonal:
            return [self.sequences, self.heads // self.groups, self.width, *shape[2:]]
        return [self.sequences, self.heads // self.groups, *shape[1:]]

    def _started(self, found: States) -> States:
        """Add missing states that follow from the dual: the memory at the start, and at anchors."""
        start = self.call.operator.start
        if start is None:
            return found
        named = {f"{name}_start": self._param(name) for name in self.params}
        named |= found
        names = parameters(start)
        missing = [name for name in self.wanted if name not in self.given]
        if not any(name in missing for name in self.signature.started):
            return found
        rows = [n for n in names if n not in named]
        if rows and not self.tokens:
            shown = ", ".join(rows)
            raise fail(self.signature, f"with T = 0 there is no token to take {shown} from, which "
                       "the state's start needs: give initial_state")  # fmt: skip
        first = {n: self._first(self.rows[n]) for n in rows}
        started = start(**{n: named[n] for n in names if n in named}, **first)
        return found | {name: x for name, x in started.items() if name in missing}

    def _first(self, x: Tensor) -> Tensor:
        """Return what stands at the first token of each sequence, [M, …]."""
        if self.documents is None:
            return layout.to_time(x[:, :1])[0]
        return self.documents.first(x, self.steps).flatten(0, 1)

    def _features(self) -> int:
        size = 1 if self.signature.diagonal else self.width
        count = int(eval_size(self.signature.features, size))
        return count * (2 if self.signature.phase and not self.signature.complex else 1)

    def _final(self, states: States) -> States:
        found, most = {}, self.signature.levels
        for name, x in kept.trimmed(self.signature, states, self._kept()).items():
            shape = (self.sequences, self.heads)
            whole = (
                x.reshape(*shape, self.width, *x.shape[2:])
                if self.signature.diagonal
                else (x.reshape(*shape, *x.shape[1:]))
            )
            found[name] = levels.padded(whole, most) if most and whole.ndim == 5 else whole
        found.update(self.tails)
        if self.groups > 1:
            found = {n: x[:, :: self.groups] for n, x in found.items()}
        if any(s.name == "position" for s in self.signature.states):
            found["position"] = self._after()
        return found

    def _after(self) -> Tensor:
        """Count the tokens of each document up to the end of these."""
        if self.documents is not None:
            lengths = self.documents.lengths
        else:
            lengths = torch.full((self.batch,), self.tokens, device=self.like.device)
        return lengths if self.positions is None else self.positions.reshape(-1) + lengths

    @property
    def anchored(self) -> bool:
        """Whether the result depends on how many tokens came before, as intervals then end."""
        return self.signature.anchor > 1 and self.positions is not None

    # -- pieces -----------------------------------------------------------------------------

    def result(self) -> tuple[Tensor, States]:
        """Return the output and the final state."""
        fused = self.call.form == "triton"
        endless = scanned.unknown(self.tokens)
        if endless and fused and not scanned.refused(self.signature):
            endless = False  # a launch is the same at every length
        elif endless and torch.compiler.is_exporting():
            scanned.refuse(self.signature)
        elif endless:
            self.tokens, endless = scanned.fixed(self.tokens), False
        apart = self.anchored and torch.compiler.is_compiling() and not fused
        endless = endless or (apart and self.tokens != 0)
        states = self._states()
        if self.signature.levels:
            states = levels.with_tokens(states, self.position)
        if endless:
            out, states = scanned.scanned(self, states)
            return self._by_channel(out), self._final(states)
        form = self._chosen()
        if self.tokens == 0:
            out = self.like.new_zeros(self.batch, 0, self.heads, self.like.shape[-1])
            return out, self._final(states)
        if form == "triton" and (reason := self._refused(states)) is not None:
            return self._instead(reason)
        run = {"recurrent": self._recurrent, "triton": self._fused}.get(form, self._chunks)
        out, states = run(states)
        return self._by_channel(out), self._final(states)

    def _by_channel(self, out: Tensor) -> Tensor:
        """Return an output as operators do: a diagonal memory's heads as channels again."""
        if self.signature.diagonal:
            out = out[..., 0].unflatten(2, (self.heads, self.width))
        return turned(out, self.angle) if self.signature.complex else out

    def before(self, nothing: dict[str, Tensor]) -> States:
        """Return the state before these tokens; ``nothing`` are the arguments without a token."""
        return Run(self.call, nothing, self.given)._final(self._states())

    def _chosen(self) -> str:
        if self.call.form != "auto":
            return self.call.form
        few = self.tokens * self.steps < FEWEST or "chunk" not in self.signature.forms
        return "recurrent" if few else "chunk"

    def _recurrent(self, states: States) -> tuple[Tensor, States]:
        rows = self.token_rows()
        arguments = {n: layout.to_time(x) if x.ndim >= 3 else x for n, x in rows.items()}
        if "ends" in parameters(self.call.operator.recurrent):
            arguments["ends"] = self._ends(0, 1, self.tokens)

        def closes(row: int, every: int) -> bool:
            token, step = divmod(row, self.steps)
            return step == self.steps - 1 and (self.position + token + 1) % every == 0

        y, states = _call(self.call.operator.recurrent, arguments, states, closes)
        out = layout.from_time(y, self.batch, self.heads * self.folds)
        return out[:, self.steps - 1 :: self.steps], states

    def _fused(self, states: States) -> tuple[Tensor, States]:
        y, states = self._kernel().run(self._fused_rows(), states, self._place())
        return y[:, self.steps - 1 :: self.steps], states

    def _refused(self, states: States) -> str | None:
        """Return why no kernel can take these arguments, or ``None``."""
        if (reason := self._faint()) is not None:
            return reason
        rows = self._fused_rows()
        gradient = tracked((*rows.values(), *states.values()))
        return self._kernel().refused(rows, states, gradient=gradient)

    def _faint(self) -> str | None:
        """Return why the chunk kernel would lose precision with these weights, or ``None``."""
        most, weights = self.signature.most_chunk, self.rows.get("log_gamma")
        if not most or weights is None or self.call.short(self.tokens):
            return None
        if not host_reads():
            return "how fast weights fade is not known while a call is traced"
        if not fainter(weights.detach(), most):
            return None
        return (
            f"weights leave less than {FAINTEST} of the past over {most} tokens, and its kernel "
            "divides by that in float32"
        )

    def _kernel(self) -> Fused:
        assert self.call.operator.kernels is not None
        return form_of(self.call.operator.kernels(), short=self.call.short(self.tokens))

    def _fused_rows(self) -> dict[str, Tensor]:
        return self.rows if self.signature.window == 1 else self._weighted(self.rows)

    def _place(self) -> Place:
        """Return where these rows lie in their documents, in the form that kernels take."""
        anchor, told = self.signature.anchor, self.documents
        wanted = self._bounded(self.call.chunk_size)
        place = Place(anchor, wanted)
        if self.signature.levels:
            return replace(place, position=self.position)
        if kept.names(self.signature):
            return replace(place, position=self.position if anchor > 1 else 0)
        if told is not None:
            place = replace(place, bounds=told.ends, longest=told.longest)
        if anchor == 1:
            return place
        if self.positions is None:
            nowhere = torch.zeros(self.sequences, dtype=torch.int64, device=self.like.device)
            return replace(place, positions=nowhere)
        return replace(place, positions=self.positions.reshape(-1).contiguous())

    def _instead(self, reason: str) -> tuple[Tensor, States]:
        """Run PyTorch's form instead of a kernel that cannot take these arguments; it runs
        documents, and rows at different positions, one group at a time."""
        form = "chunk" if self.call.operator.chunk is not None else "recurrent"
        versions.replaced(self.signature.name, reason, f"PyTorch's {form} form runs instead")
        vectors = of_one_type(self.vectors, self.like)
        call = self.call.of(form)
        if self.documents is not None:
            return call.documents(vectors, self.state, self.documents.ends)
        return call.batch(vectors, self.state)

    def _with_windows(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        width = self.signature.window
        if width == 1:
            return rows
        names = [n for n in ("k", "v", *self.signature.keys) if n in rows]
        found = dict(rows)
        for name in names:
            found[name] = layout.windows(rows[name], width)
        return self._weighted(found)

    def _weighted(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the window weights, zero where the window reaches before the document."""
        found = dict(rows)
        live = self._seen(rows["live"])
        if self.signature.token_weights:
            found["gamma"] = self._seen(rows["gamma"]) * live
        else:
            found["gamma"] = rows["gamma"] * live if "gamma" in rows else live
        return found

    def _seen(self, x: Tensor) -> Tensor:
        """Return each token's window, [B, T, H, c, …]."""
        width = self.signature.window
        found = layout.windows(x, width)
        return found if self.documents is None else self.documents.own(found, width - 1)

    def _pieces(self) -> list[tuple[int, int, int]]:
        """Return the pieces of a sequence, each (first token, tokens a chunk, chunks)."""
        every = self.signature.anchor
        size = self.chunk_tokens()
        if self.signature.levels:
            most = self.tokens if torch.is_grad_enabled() else max(1, PIECE // size)
            return levels.aligned_pieces(self.position, self.tokens, size, most)
        pieces = []
        at = 0
        if every > 1 and self.position % every:
            at = min(every - self.position % every, self.tokens)
            pieces.append((0, at, 1))
        whole = (self.tokens - at) // size
        most = whole if torch.is_grad_enabled() else max(1, PIECE // size)
        for _ in range(0, whole, max(1, most)):
            count = min(most, (self.tokens - at) // size)
            pieces.append((at, size, count))
            at += count * size
        if at < self.tokens:
            pieces.append((at, self.tokens - at, 1))
        return pieces

    def chunk_tokens(self) -> int:
        """Return the tokens of a chunk."""
        if self.signature.anchor > 1:
            return self.signature.anchor
        wanted = self.call.chunk_size or self.signature.chunk or self.tokens * self.steps
        return max(1, (self._bounded(wanted) or wanted) // self.steps)

    def _bounded(self, rows: int | None) -> int | None:
        """Return the rows of a chunk, limited to the most that the rule allows."""
        most = self.signature.most_chunk
        return min(rows or most, most) if most else rows

    def _chunks(self, states: States) -> tuple[Tensor, States]:
        outs = []
        form = self.call.operator.chunk
        assert form is not None
        rows = self.chunk_rows()
        for first, size, count in self._pieces():
            arguments = self._cut(rows, first, size, count)
            y, states = _call(form, arguments, states, self._closes(first, size))
            outs.append(layout.from_chunks(y, self.batch, self.heads * self.folds))
        out = torch.cat(outs, 1)
        return out[:, self.steps - 1 :: self.steps], states

    def _closes(self, first: int, size: int) -> Closes:
        def closes(chunk: int, every: int) -> bool:
            return (self.position + first + (chunk + 1) * size) % every == 0

        return closes

    def token_rows(self) -> dict[str, Tensor]:
        """Return the arguments as the recurrent form takes them, [B, T, H, …]."""
        return self._with_windows(self.rows)

    def chunk_rows(self) -> dict[str, Tensor]:
        """Return the chunk form's arguments before any cut, [B, T, H, …], some behind a tail."""
        if self.signature.window == 1 or not self.signature.banded:
            return self._with_windows(self.rows)
        return self._weighted(self.rows)

    def _cut(self, rows: dict[str, Tensor], first: int, size: int, count: int) -> dict[str, Tensor]:
        width, found = self.signature.window, {}
        low, high = first * self.steps, (first + size * count) * self.steps
        tailed = ("k", "v", *self.signature.keys) if self.signature.banded else ()
        for name, x in rows.items():
            if x.ndim < 3:
                found[name] = x
            elif name in tailed:
                piece = x[:, low : high + width - 1]
                found[name] = layout.overlapping(piece, size, width)
            elif name != "live":
                found[name] = layout.to_chunks(x[:, low:high], size * self.steps)
        form = self.call.operator.chunk
        if form is not None and "ends" in parameters(form):
            found["ends"] = self._ends(first, size, count)
        return found

    def _ends(self, first: int, size: int, count: int) -> Tensor:
        """Return the document's tokens at the end of each of ``count`` chunks, [count]."""
        return self.position + first + size * torch.arange(1, count + 1)


def _call(form: Form, rows: States, states: States, closes: Closes) -> tuple[Tensor, States]:
    named = {n: rows[n] for n in parameters(form) if n in rows}
    return form(**named, **states, closes=closes)
