"""One batch through a form: the arguments as rows, the pieces, the states."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from . import kept, layout, levels, versions
from .arguments import fail
from .signature import Signature, State
from .sizes import eval_size

Form = Callable[..., tuple[Tensor, dict[str, Tensor]]]
States = dict[str, Tensor]
Closes = Callable[[int, int], bool]
"""Whether an interval of so many tokens (the second) ends with a row or chunk (the first)."""

FEWEST = 16
"""Tokens below which ``auto`` takes the recurrent form."""


PIECE = 512
"""Tokens taken at a time where no gradient is asked for: what they need stays in the cache."""


class Forms(Protocol):
    """The generated forms of a rule."""

    @property
    def recurrent(self) -> Form:
        """Token by token."""

    @property
    def chunk(self) -> Form | None:
        """Chunkwise."""

    @property
    def kernels(self) -> Callable[[], Any] | None:
        """The module of fused kernels, imported when first asked for."""

    @property
    def start(self) -> Callable[..., dict[str, Tensor]] | None:
        """States at a document's start that are not zero, from those that are given."""


class Call(Protocol):
    """One call's choices."""

    @property
    def operator(self) -> Forms:
        """The rule's forms."""

    @property
    def signature(self) -> Signature:
        """What the rule takes and carries."""

    @property
    def form(self) -> str:
        """recurrent, chunk or auto."""

    @property
    def chunk_size(self) -> int | None:
        """Rows a chunk, if chosen."""

    @property
    def params(self) -> Mapping[str, Tensor]:
        """The initial duals of a deep memory, [H, …]."""


class Run:
    """A batch with one position: the arguments as rows, the pieces, the states."""

    def __init__(self, call: Call, vectors: dict[str, Tensor], state: States) -> None:
        self.call, self.signature = call, call.signature
        self.given = state = kept.own(call.signature, state)
        self.params = call.params
        self.wanted = tuple(s.name for s in self.signature.states)
        q, k = vectors["q"], vectors["k"]
        self.batch, self.tokens, self.q_heads, self.width = q.shape
        self.groups = self.q_heads // k.shape[-2]
        if self.groups > 1:
            repeated = {
                n: x.repeat_interleave(self.groups, 1) for n, x in state.items() if x.ndim > 1
            }
            self.given = {**state, **repeated}
        self.heads = self.q_heads
        self.like = _real(vectors["v"])
        position = state.get("position")
        self.position = 0 if position is None else int(position.reshape(-1)[0])
        self._fits_levels()
        self.steps = self.signature.steps * self.signature.inner
        self.tails: States = {}
        rows = self._grouped(vectors)
        rows = self._windowed(rows)
        self.rows = self._folded(self._stepped(self._turned(rows)))
        self.folds = self.width if self.signature.diagonal else 1
        self.memories = self.batch * self.heads * self.folds

    def _fits_levels(self) -> None:
        """A tree of L levels holds 2^(L − 1) tokens."""
        count, most = self.signature.levels, self.position + self.tokens
        if count and most > 1 << (count - 1):
            room = f"{count} levels hold {1 << (count - 1)} tokens of a document"
            hint = f"write readout: {{max_levels: {(most - 1).bit_length() + 1}}} in the spec"
            raise fail(self.signature, f"levels: {room}, read {most}; {hint}")

    # -- arguments as rows ------------------------------------------------------------------

    def _grouped(self, vectors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Repeat keys' heads for grouped queries."""
        if self.groups == 1:
            return dict(vectors)
        axis = {name: self._head_axis(name) for name in vectors}
        return {
            name: x if name == "q" else x.repeat_interleave(self.groups, axis[name])
            for name, x in vectors.items()
        }

    def _head_axis(self, name: str) -> int:
        return 3 if self.signature.steps > 1 and self._micro(name) else 2

    def _micro(self, name: str) -> bool:
        if name in ("k", "v", *self.signature.keys):
            return True
        return any(c.name == name and c.micro for c in self.signature.coefficients)

    def _windowed(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put the window's tail before keys, values and token weights."""
        width = self.signature.window
        if width == 1:
            return rows
        live = torch.ones_like(rows["k"][..., 0])
        rows["live"] = live
        named = ["k", "v", *self.signature.keys, "live"]
        named += ["gamma"] if self.signature.token_weights else []
        carried = {s.name for s in self.signature.states}
        for name in named:
            x = rows[name]
            tail = self._tail(name, x, width - 1)
            rows[name] = torch.cat([tail.transpose(1, 2).to(x), x], 1)
            if f"{name}_tail" in carried:
                self.tails[f"{name}_tail"] = rows[name][:, self.tokens :].transpose(1, 2)
        return rows

    def _tail(self, name: str, x: Tensor, count: int) -> Tensor:
        """The last tokens' x, [B, H, c − 1, …]: of kept keys, or carried for the window alone."""
        found = self.given.get("K" if name == "k" and self.signature.keeps_keys else f"{name}_tail")
        if found is None:
            return x.new_zeros(self.batch, self.heads, count, *x.shape[3:])
        found = found[:, :, max(0, found.shape[2] - count) :]
        missing = count - found.shape[2]  # a document that is shorter than the window
        return torch.nn.functional.pad(found, (*[0, 0] * (found.ndim - 3), missing, 0))

    def _stepped(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Several steps a token as rows of their own; a decay acts before the first."""
        self._indices(rows)
        if self.steps == 1:
            return rows
        micro, inner = self.signature.steps, self.signature.inner
        found = {}
        for name, x in rows.items():
            if x.ndim < 3:
                found[name] = x
            elif name in self.signature.once:
                fill = 0.0 if name.startswith("log_") else 1.0
                found[name] = layout.spread(x, self.steps, fill)
            elif micro > 1 and self._micro(name):
                found[name] = x.flatten(1, 2).repeat_interleave(inner, 1)
            else:
                found[name] = x.repeat_interleave(self.steps, 1)
        return found

    def _indices(self, rows: dict[str, Tensor]) -> None:
        like = self.like
        shape = (self.batch, self.tokens, self.heads)
        heads = torch.arange(self.heads, dtype=like.dtype, device=like.device)
        heads = heads.div(self.groups, rounding_mode="floor")  # the head of k, not of q
        time = torch.arange(self.tokens, dtype=like.dtype, device=like.device) + self.position
        rows["h_index"] = heads.expand(shape)
        rows["t_index"] = time[None, :, None].expand(shape)
        rows["zero"] = torch.zeros((), dtype=like.dtype, device=like.device).expand(shape)
        rows["H_index"] = rows["zero"] + self.heads // self.groups

    def _turned(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """The cumulative angle of a complex decay."""
        if not self.signature.phase:
            return rows
        phase = rows.pop("phase")
        carried = self.given.get("angle", phase.new_zeros(phase.shape[0], *phase.shape[2:]))
        turns = torch.cat([carried[:, None], phase], 1).double().cumsum(1)  # long sums lose digits
        angle = torch.remainder(turns, 2 * math.pi).to(phase.dtype)
        self.tails["angle"], angle = angle[:, -1], angle[:, 1:]
        rows["angle"] = angle
        for coefficient in self.signature.coefficients:
            # both halves of a turned key share their channel's value
            if coefficient.axes == "K" and coefficient.parameter in rows:
                rows[coefficient.parameter] = torch.cat([rows[coefficient.parameter]] * 2, -1)
        return rows

    def _folded(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """A diagonal memory's channels as heads of size one."""
        if not self.signature.diagonal:
            return rows
        vectors = ("q", "k", "v", "angle", *self.signature.keys)
        found = {}
        for name, x in rows.items():
            if x.ndim < 3:
                found[name] = x
                continue
            channelled = x.ndim > 3 and (name != "gamma" or self.signature.window == 1)
            folded = layout.fold_channels(x, self.width, channelled)
            found[name] = folded[..., None] if name in vectors else folded
        return found

    # -- states -----------------------------------------------------------------------------

    def _states(self) -> States:
        """The forms' states, [M, …]; what is missing starts at ``params``, or zero in the dual."""
        found = {}
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

    def _kept(self) -> int:
        """How many pairs are kept already."""
        given = [self.given[s.name] for s in kept.names(self.signature) if s.name in self.given]
        return given[0].shape[kept.LEAD] if given else 0

    def _shape(self, state: State) -> tuple[int, ...] | None:
        """[M, …] of a state of the forms; ``None`` for those that only this module carries."""
        if state.of:
            return (self.memories, *self._of(state))
        value = 1 if self.signature.diagonal else self.like.shape[-1]
        sizes = {"v": value, "k": self._features(), "n": self._kept()}
        if state.side:
            sizes["v"] = self._side(state.side)
        sizes["l"] = levels.needed(self.position, self.tokens)
        if not set(state.axes) <= sizes.keys():
            return None
        return (self.memories, *(sizes[letter] for letter in state.axes))

    def _of(self, state: State) -> tuple[int, ...]:
        """The shape of a state that goes with a parameter: of its matrix, its rows or columns."""
        matrices = [s.name for s in self.signature.states if s.of == state.of and s.axes == "vk"]
        given = [self.given[name] for name in matrices if name in self.given]
        like = given[0] if given else self.params[state.of]  # the operator has checked
        rows, columns = like.shape[-2:]
        return {"vk": (rows, columns), "v": (rows,), "k": (columns,)}[state.axes]

    def _side(self, side: str) -> int:
        """A hidden width, which the parameters (or the states that go with them) tell."""
        for p in self.signature.params:
            if side in (p.rows, p.columns):
                shape = self._of(State("", "vk", "", of=p.name))
                return shape[0] if side == p.rows else shape[1]
        raise AssertionError(side)

    def _param(self, name: str) -> Tensor:
        """A parameter [H, …] as the start of every memory, [M, …]."""
        x = self.params[name].to(self.like)
        if self.groups > 1:
            x = x.repeat_interleave(self.groups, 0)
        return x.expand(self.batch, *x.shape).reshape(self.memories, *x.shape[1:])

    def _read_state(self, name: str, given: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self.signature.levels and given.ndim == 5:
            given = given[:, :, : shape[1]]
        if given.numel() != math.prod(shape):
            shown = f"{list(given.shape)}, expected {self._outer_shape(shape)}"
            raise fail(self.signature, f"initial_state['{name}']: read shape {shown}")
        return given.to(self.like).reshape(shape)

    def _outer_shape(self, shape: tuple[int, ...]) -> list[int]:
        if self.signature.diagonal:
            return [self.batch, self.heads // self.groups, self.width, *shape[2:]]
        return [self.batch, self.heads // self.groups, *shape[1:]]

    def _started(self, found: States) -> States:
        """What follows from the dual: the memory at the start, and at anchors."""
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
            raise fail(self.signature, f"no token gives the start of the state its {shown}")
        first = {n: layout.to_time(self.rows[n][:, :1])[0] for n in rows}
        started = start(**{n: named[n] for n in names if n in named}, **first)
        return found | {name: x for name, x in started.items() if name in missing}

    def _features(self) -> int:
        size = 1 if self.signature.diagonal else self.width
        count = int(eval_size(self.signature.features, size))
        return count * (2 if self.signature.phase else 1)

    def _final(self, states: States) -> States:
        found, most = {}, self.signature.levels
        for name, x in kept.trimmed(self.signature, states).items():
            shape = (self.batch, self.heads)
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
            found["position"] = torch.full(
                (self.batch,), self.position + self.tokens, device=self.like.device
            )
        return found

    # -- pieces -----------------------------------------------------------------------------

    def result(self) -> tuple[Tensor, States]:
        """The output and the final state."""
        states = self._states()
        if self.signature.levels:
            states = levels.with_tokens(states, self.position)
        form = self._chosen()
        if self.tokens == 0:
            out = self.like.new_zeros(self.batch, 0, self.heads, self.like.shape[-1])
            return out, self._final(states)
        run = {"recurrent": self._recurrent, "triton": self._fused}.get(form, self._chunks)
        out, states = run(states)
        if self.signature.diagonal:
            out = out[..., 0].unflatten(2, (self.heads, self.width))
        return out, self._final(states)

    def before(self, nothing: dict[str, Tensor]) -> States:
        """The state before these tokens; ``nothing`` are the arguments without a token."""
        return Run(self.call, nothing, self.given)._final(self._states())

    def _chosen(self) -> str:
        if self.call.form != "auto":
            return self.call.form
        short = self.tokens * self.steps < FEWEST
        return "recurrent" if short or "chunk" not in self.signature.forms else "chunk"

    def _recurrent(self, states: States) -> tuple[Tensor, States]:
        rows = self._with_windows(self.rows)
        arguments = {n: layout.to_time(x) if x.ndim >= 3 else x for n, x in rows.items()}
        arguments["ends"] = self._ends(0, 1, self.tokens)

        def closes(row: int, every: int) -> bool:
            token, step = divmod(row, self.steps)
            return step == self.steps - 1 and (self.position + token + 1) % every == 0

        y, states = _call(self.call.operator.recurrent, arguments, states, closes)
        out = layout.from_time(y, self.batch)
        return out[:, self.steps - 1 :: self.steps], states

    def _fused(self, states: States) -> tuple[Tensor, States]:
        from . import fused, streamed  # their kernels need Triton

        assert self.call.operator.kernels is not None
        kernels = self.call.operator.kernels()
        short = self.tokens * self.steps < FEWEST
        kernel = kernels.TOKEN if short or kernels.CHUNK is None else kernels.CHUNK
        if kernel is None:
            kernel = kernels.CHUNK
        if isinstance(kernel, streamed.Streamed):
            tracked = self._tracked(states)
            reason = streamed.refused(kernel, self.rows, states, gradient=tracked)
            if reason is not None:
                return self._instead(states, reason)
        place = fused.Place(self.position, self.signature.anchor, self.call.chunk_size)
        given = self.rows if self.signature.window == 1 else self._weighted(self.rows)
        run_kernel = streamed.run if isinstance(kernel, streamed.Streamed) else fused.run
        y, states = run_kernel(kernel, given, states, place)
        return y[:, self.steps - 1 :: self.steps], states

    def _instead(self, states: States, reason: str) -> tuple[Tensor, States]:
        """PyTorch's form where there is no kernel for these arguments."""
        form = "chunk" if self.call.operator.chunk is not None else "recurrent"
        versions.announce(f"{self.signature.name}: {reason}; PyTorch's {form} form runs instead")
        short = (torch.float16, torch.bfloat16)
        self.rows = {n: x.float() if x.dtype in short else x for n, x in self.rows.items()}
        return self._chunks(states) if form == "chunk" else self._recurrent(states)

    def _tracked(self, states: States) -> bool:
        """Whether a gradient may be asked for."""
        given = (*self.rows.values(), *states.values())
        return torch.is_grad_enabled() and any(x.requires_grad for x in given)

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
        """Window weights, zero where the window reaches before the document."""
        width = self.signature.window
        found = dict(rows)
        live = layout.windows(rows["live"], width)
        if self.signature.token_weights:
            found["gamma"] = layout.windows(rows["gamma"], width) * live
        else:
            found["gamma"] = rows["gamma"] * live if "gamma" in rows else live
        return found

    def _pieces(self) -> list[tuple[int, int, int]]:
        """(first token, tokens a chunk, chunks)."""
        every = self.signature.anchor
        size = self._size()
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

    def _size(self) -> int:
        if self.signature.anchor > 1:
            return self.signature.anchor
        wanted = self.call.chunk_size or self.signature.chunk or self.tokens * self.steps
        return max(1, wanted // self.steps)

    def _chunks(self, states: States) -> tuple[Tensor, States]:
        outs = []
        form = self.call.operator.chunk
        assert form is not None
        rows = self.rows if self.signature.window == 1 else self._chunk_windows()
        for first, size, count in self._pieces():
            arguments = self._cut(rows, first, size, count)
            y, states = _call(form, arguments, states, self._closes(first, size))
            outs.append(layout.from_chunks(y, self.batch))
        out = torch.cat(outs, 1)
        return out[:, self.steps - 1 :: self.steps], states

    def _closes(self, first: int, size: int) -> Closes:
        def closes(chunk: int, every: int) -> bool:
            return (self.position + first + (chunk + 1) * size) % every == 0

        return closes

    def _chunk_windows(self) -> dict[str, Tensor]:
        if not self.signature.banded:
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
        found["ends"] = self._ends(first, size, count)
        return found

    def _ends(self, first: int, size: int, count: int) -> Tensor:
        """The tokens of the document when each of so many chunks is done."""
        return self.position + first + size * torch.arange(1, count + 1)


def _real(x: Tensor) -> Tensor:
    """What states are like: float32 beside arguments of 16 bits."""
    short = x.dtype in (torch.float16, torch.bfloat16)
    return torch.empty(x.shape, dtype=torch.float32, device=x.device) if short else x


@cache
def parameters(form: Callable[..., object]) -> tuple[str, ...]:
    """The names of what a generated function takes."""
    return tuple(inspect.signature(form).parameters)


def _call(form: Form, rows: States, states: States, closes: Closes) -> tuple[Tensor, States]:
    named = {n: rows[n] for n in parameters(form) if n in rows}
    return form(**named, **states, closes=closes)
