"""Fused forms: a generated Triton kernel over a whole sequence, and its gradient."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import buffers, tuned
from .configuration import (
    Configuration,
    Tiles,
    Work,
    choices,
    configured,
    least_entries,
    power_of_two,
)
from .limits import limits

States = dict[str, Tensor]

PRECISIONS = {
    torch.float64: "fp64",
    torch.float32: "tf32x3",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""What operands products take, by the arguments' type."""

LANES = 128
"""Memories of single numbers a program."""

MOST = 64
"""Rows a chunk at most, unless the caller says fewer."""


@dataclass(frozen=True)
class Row:
    """An argument by row, [B, R, H, …]: its name, the sizes of the axes after H, and its view.

    In the views ``tail``, ``slots`` and ``window`` of keys and values c − 1 rows stand before the
    first; a ``window`` has its slots as first size. ``band`` and ``slots`` of weights are [c].
    """

    name: str
    sizes: tuple[str, ...]
    view: str = "rows"

    @property
    def shared(self) -> bool:
        """Whether several windows see the same entries."""
        return self.view in ("tail", "window") or (self.view == "slots" and bool(self.sizes))

    @property
    def own(self) -> tuple[str, ...]:
        """The sizes of the axes after H that are channels, where there are such."""
        return self.sizes[1:] if self.view == "window" else self.sizes


@dataclass(frozen=True)
class Held:
    """A state, [M, …]: its name and the sizes of the axes after M."""

    name: str
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """The generated kernels of a form and what they take.

    ``value`` is the size of the output's channels; ``split`` the size whose axis may be cut into
    blocks, one a program (no entry of the state depends on another block's), or empty.
    """

    forward: Any
    backward: Any
    """The kernel of the gradient, or ``None``."""
    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    gradients: tuple[str, ...]
    """The rows that have a gradient."""
    value: str
    split: str
    chunked: bool
    steps: int
    before: Callable[..., dict[str, Tensor]]
    """What PyTorch computes of the arguments first."""
    taken: tuple[str, ...]
    """The operator's arguments by row that ``before`` or the kernel reads."""
    lanes: bool = False
    """Whether memories are single numbers, a block of them a program."""
    window: int = 1
    """How many tokens a row sees."""
    slots: bool = False
    """Whether a chunk's windows are taken one after another."""
    products: bool = True
    """Whether it multiplies matrices, whose tiles have at least 16 rows and columns."""
    alive: tuple[tuple[Tiles, ...], ...] = ()
    """The fullest moments of a chunk, of the form and of its gradient: tiles by their sizes."""

    @property
    def name(self) -> str:
        """Which form's it is."""
        return "chunk" if self.chunked else "token"

    def fits(self, rows: int) -> int:
        """How many rows a chunk has, where what it reads is to have at most so many."""
        if not self.chunked or self.window == 1:
            return rows
        return max(1, rows // self.window if self.slots else max(rows - self.window + 1, rows // 4))

    def sources(self, rows: int) -> int:
        """The size of the tile of what the windows of a chunk's rows read."""
        if self.slots:
            return max(2 * max(16, power_of_two(rows)), power_of_two(rows * self.window))
        return max(16, power_of_two(rows + self.window - 1))


@dataclass(frozen=True)
class Span:
    """Some rows of a sequence: where they lie, and how they are cut into chunks.

    Of ``total`` rows those from ``begin`` on, ``length`` of them; ``position`` tokens of the
    document came before; the first chunk has ``first`` rows, the others ``rows``.
    """

    total: int
    begin: int
    length: int
    position: int
    first: int
    rows: int

    @property
    def chunks(self) -> int:
        """How many chunks the rows make."""
        return 0 if self.length == 0 else 1 + max(0, -((self.first - self.length) // self.rows))

    def pieces(self, chunks: int, steps: int) -> Iterator["Span"]:
        """The same rows, so many chunks at a time."""
        at = 0
        while at < self.length:
            first = self.first if at == 0 else self.rows
            size = min(first + (chunks - 1) * self.rows, self.length - at)
            yield replace(
                self, begin=self.begin + at, length=size, first=first,
                position=self.position + at // steps,
            )  # fmt: skip
            at += size


PIECE = {True: 16, False: 64}
"""Chunks (or tokens) whose states are held at once for a gradient."""


@dataclass(frozen=True)
class Place:
    """Where a sequence lies: tokens of its document before it, the interval at whose ends its
    memory moves (1 where there is none), and how many tokens a chunk the caller wants."""

    position: int
    anchor: int
    wanted: int | None

    def span(self, length: int, rows: int, steps: int) -> Span:
        """The whole sequence in chunks of at most so many rows."""
        most = max(1, min(rows, self.wanted or rows) // steps)
        tokens = most
        if self.anchor > 1:
            tokens = max(n for n in range(1, most + 1) if self.anchor % n == 0)
        first = tokens - self.position % tokens if self.anchor > 1 else tokens
        return Span(length, 0, length, self.position, first * steps, tokens * steps)


def run(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """One batch through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states.

    Products of arguments of 16 bits have operands of 16 bits; sums, states and everything else
    are float32 (float64 where the arguments are).
    """
    given = {name: rows[name] for name in kernel.taken}
    given |= kernel.before(**{n: given[n] for n in parameters(kernel.before)})
    tensors = [given[row.name] for row in kernel.rows]
    tensors += [states[state.name] for state in kernel.states]
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    sizes = sizes_of(kernel, tensors)
    question, like = asked(kernel, rows, states, gradient=gradient)
    chosen = chosen_of(kernel, sizes, question, like, place.wanted)
    span = place.span(tensors[0].shape[1], kernel.fits(chosen.rows), kernel.steps)
    if gradient:
        out, *end = _Differentiable.apply(kernel, span, chosen, *tensors)
    else:
        launch = Launch(kernel, span, chosen)
        given_rows, start = launch.parted(tensors)
        out = launch.output(given_rows, start)
        found, _ = launch.forward(given_rows, start, out)
        end = list(found.values())
    return out, {state.name: x for state, x in zip(kernel.states, end, strict=True)}


LIMIT = 600
"""Entries a thread, by the model's count, beyond which a kernel is refused at its smallest cut:
more than twice what registers hold."""


def refused(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> str | None:  # fmt: skip
    """Why a kernel is not for these arguments, or None."""
    if gradient and kernel.backward is None:
        return "its kernel has no gradient"
    given = tuple(row for row in kernel.rows if row.name in rows)
    tensors = [rows[row.name] for row in given] + [states[state.name] for state in kernel.states]
    sizes = sizes_of(replace(kernel, rows=given), tensors)
    found = least_entries(kernel, sizes, gradient=gradient)
    if found > LIMIT:
        shown = ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
        return (
            f"its kernel does not fit on chip: at {shown} a thread would hold {found} numbers, "
            f"and {LIMIT} are the limit"
        )
    question, like = asked(kernel, rows, states, gradient=gradient)
    return tuned.failed(question, like.device)


def asked(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> tuple[tuned.Question, Tensor]:  # fmt: skip
    """What a cut is chosen for, and the argument by row that tells of the others."""
    like = rows["q"] if "q" in rows else rows[kernel.taken[0]]
    sizes: dict[str, int] = {}
    for state in kernel.states:
        sizes |= dict(zip(state.sizes, states[state.name].shape[1:], strict=True))
    return tuned.Question.of(kernel.name, sizes, like, gradient=gradient), like


def chosen_of(
    kernel: Kernel, sizes: dict[str, int], question: tuned.Question, like: Tensor,
    wanted: int | None,
) -> Configuration:  # fmt: skip
    """How a kernel is cut for arguments like these: as measured, or as the model says."""
    work = Work(like.shape[0] * like.shape[2], like.shape[1], like.element_size())
    return tuned.chosen(
        question, like.device,
        lambda: configured(
            kernel, sizes, limits(like.device), work, gradient=question.gradient,
            most=wanted or MOST,
        ),
        lambda: choices(kernel, sizes, MOST), tunable=wanted is None,
    )  # fmt: skip


def sizes_of(kernel: Kernel, tensors: list[Tensor]) -> dict[str, int]:
    """The size of each axis by name, in the kernel's order: of rows, then of states."""
    found: dict[str, int] = {}
    count = len(kernel.rows)
    for row, x in zip(kernel.rows, tensors[:count], strict=True):
        if row.view == "window":
            found[row.sizes[0]] = kernel.window
        if row.own:
            found |= dict(zip(row.own, x.shape[3:], strict=True))
    for state, x in zip(kernel.states, tensors[count:], strict=True):
        found |= dict(zip(state.sizes, x.shape[1:], strict=True))
    return found


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of what a function takes."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


class _Differentiable(torch.autograd.Function):
    """A kernel with its gradient: states are kept by piece, and made anew inside it."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, span: Span, chosen: Configuration, *tensors: Tensor
    ) -> Any:
        whole = Launch(kernel, span, chosen)
        rows, states = whole.parted(list(tensors))
        rows = [x.contiguous() for x in rows]
        starts, end, out = [], states, whole.output(rows, states)
        for piece in span.pieces(PIECE[kernel.chunked], kernel.steps):
            starts.append(end)
            end, _ = Launch(kernel, piece, chosen).forward(rows, end, out)
        ctx.kernel, ctx.span, ctx.chosen = kernel, span, chosen
        ctx.dtypes = [x.dtype for x in tensors]
        ctx.pieces = len(starts)
        ctx.save_for_backward(*rows, *(x for start in starts for x in start.values()))
        return out, *end.values()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        kernel: Kernel = ctx.kernel
        count, names = len(kernel.rows), [state.name for state in kernel.states]
        rows = list(ctx.saved_tensors[:count])
        kept = list(ctx.saved_tensors[count:])
        d_out = grads[0].contiguous()
        d_states = dict(zip(names, grads[1:], strict=True))
        whole = Launch(kernel, ctx.span, ctx.chosen)
        found = whole.gradients(rows, dict(zip(names, kept, strict=False)))
        pieces = list(ctx.span.pieces(PIECE[kernel.chunked], kernel.steps))
        for number, piece in reversed(list(enumerate(pieces))):
            start = dict(zip(names, kept[number * len(names) :], strict=False))
            launch = Launch(kernel, piece, ctx.chosen)
            _, before = launch.forward(rows, start, None)
            d_states = launch.backward(rows, d_out, before, d_states, found)
        totals = whole.joined(found)
        given = [totals.get(row.name) for row in kernel.rows] + [d_states[n] for n in names]
        typed = [None if x is None else x.to(t) for x, t in zip(given, ctx.dtypes, strict=True)]
        return None, None, None, *typed


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel over a span."""

    kernel: Kernel
    span: Span
    chosen: Configuration

    def parted(self, tensors: list[Tensor]) -> tuple[list[Tensor], States]:
        """Rows and states of what was given in one list."""
        count = len(self.kernel.rows)
        names = [state.name for state in self.kernel.states]
        return tensors[:count], dict(zip(names, tensors[count:], strict=True))

    def output(self, rows: list[Tensor], states: States) -> Tensor:
        """Where the output of the whole sequence goes."""
        like = rows[0]
        channels = sizes_of(self.kernel, [*rows, *states.values()])[self.kernel.value]
        return buffers.empty((like.shape[0], self.span.total, like.shape[2], channels), like)

    def gradients(self, rows: list[Tensor], states: States) -> States:
        """Where the gradients of the whole sequence's rows go: a part for each block of values."""
        real, sizes = _real(rows[0].dtype), sizes_of(self.kernel, [*rows, *states.values()])
        blocks = self.blocks(sizes, self.constants(sizes, rows[0].dtype))
        found = {}
        for row, x in zip(self.kernel.rows, rows, strict=True):
            if row.name in self.kernel.gradients:
                parts = () if self._splits(row.sizes) else (blocks,)
                made = buffers.empty((*parts, *x.shape), x, real)
                found[row.name] = made.zero_() if row.shared else made
        return found

    def joined(self, found: States) -> States:
        """The gradients of rows, the blocks' parts summed."""
        split = {row.name: self._splits(row.sizes) for row in self.kernel.rows}
        return {name: x if split[name] else x.sum(0) for name, x in found.items()}

    def forward(
        self, rows: list[Tensor], states: States, out: Tensor | None
    ) -> tuple[States, States]:
        """The states at the end, and the output in ``out``; without that, every chunk's start."""
        kernel, span, kept = self.kernel, self.span, out is None
        rows = [x.contiguous() for x in rows]
        real = _real(rows[0].dtype)
        start = {s.name: states[s.name].to(real).contiguous() for s in kernel.states}
        sizes = sizes_of(kernel, [*rows, *start.values()])
        end = {name: buffers.empty(tuple(x.shape), x) for name, x in start.items()}
        count = span.chunks if kernel.chunked else span.length
        keeps = {
            name: buffers.empty((x.shape[0], count if kept else 0, *x.shape[1:]), x)
            for name, x in start.items()
        }
        batch, heads = rows[0].shape[0], rows[0].shape[2]
        output = buffers.empty((0,), rows[0]) if out is None else out
        pointers = [*map(buffers.guarded, rows), output]
        for state in kernel.states:
            pointers += [buffers.guarded(start[state.name]), end[state.name], keeps[state.name]]
        constants = self.constants(sizes, rows[0].dtype)
        grid = self.grid(batch, heads, self.blocks(sizes, constants))
        kernel.forward[grid](
            *pointers, *self.numbers(heads), **constants, KEEP=kept, READ=not kept, **self.options()
        )
        return end, keeps

    def backward(
        self, rows: list[Tensor], d_out: Tensor, kept: States, d_states: States, found: States
    ) -> States:
        """The gradients of the states before the span; those of its rows in ``found``."""
        kernel = self.kernel
        batch, heads = rows[0].shape[0], rows[0].shape[2]
        real = _real(rows[0].dtype)
        sizes = sizes_of(kernel, [*rows, *(x[:, 0] for x in kept.values())])
        constants = self.constants(sizes, rows[0].dtype)
        blocks = self.blocks(sizes, constants)
        start = {s.name: self._parts(s, d_states[s.name].to(real), blocks) for s in kernel.states}
        end = {name: buffers.empty(tuple(x.shape), x) for name, x in start.items()}
        given = [*rows, d_out, *(kept[s.name] for s in kernel.states)]
        pointers = [buffers.guarded(x) for x in given]
        for state in kernel.states:
            pointers += [buffers.guarded(start[state.name]), end[state.name]]
        pointers += [found[name] for name in kernel.gradients]
        kernel.backward[self.grid(batch, heads, blocks)](
            *pointers, *self.numbers(heads), **constants, **self.options()
        )
        return {s.name: self._joined(s, end[s.name], blocks) for s in kernel.states}

    # -- sizes ------------------------------------------------------------------------------

    def numbers(self, heads: int) -> list[int]:
        """The kernel's numbers, in its order."""
        span = self.span
        if self.kernel.lanes:
            return [span.total, span.begin, span.length, heads]
        return [span.total, span.begin, span.length, heads, span.position, span.first, span.chunks]

    def constants(self, sizes: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
        """Block sizes and types."""
        import triton.language as tl

        real = tl.float64 if dtype == torch.float64 else tl.float32
        if self.kernel.lanes:
            return {"LANES": LANES, "REAL": real}
        found: dict[str, Any] = {}
        least = 16 if self.kernel.chunked or self.kernel.products else 1
        for name, size in sizes.items():
            block = max(least, power_of_two(size))
            if name == self.kernel.split:
                block = min(block, self.chosen.block)
            found |= {name: size, f"B{name}": block}
        found["C"] = max(16, power_of_two(self.span.rows))
        if any(row.view in ("tail", "slots", "band") for row in self.kernel.rows):
            found["SOURCES"] = self.kernel.sources(self.span.rows)
        found |= {"ROWS": self.span.rows, "STEPS": self.kernel.steps}
        found["PRECISION"] = PRECISIONS[dtype]
        found["REAL"] = real
        return found

    def options(self) -> dict[str, int]:
        """How a program is spread over the device."""
        return {"num_warps": self.chosen.warps, "num_stages": self.chosen.stages}

    def grid(self, batch: int, heads: int, blocks: int) -> tuple[int, int]:
        """Programs: of memories and blocks of their values, or of blocks of lanes."""
        if self.kernel.lanes:
            return batch, -(-heads // LANES)
        return batch * heads, blocks

    def blocks(self, sizes: dict[str, int], constants: dict[str, Any]) -> int:
        """How many programs share a memory."""
        split = self.kernel.split
        return -(-sizes[split] // constants[f"B{split}"]) if split else 1

    # -- parts of blocks --------------------------------------------------------------------

    def _splits(self, sizes: tuple[str, ...]) -> bool:
        """Whether each block has its own entries of something of these sizes."""
        return not self.kernel.split or self.kernel.split in sizes

    def _parts(self, state: Held, x: Tensor, blocks: int) -> Tensor:
        """A gradient that all blocks share, given to the first of them."""
        if self._splits(state.sizes):
            return x.contiguous()
        parts = x.new_zeros(blocks, *x.shape)
        parts[0] = x
        return parts

    def _joined(self, state: Held, x: Tensor, blocks: int) -> Tensor:
        return x if self._splits(state.sizes) else x.sum(0)


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
