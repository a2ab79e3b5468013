"""Fused forms: a generated Triton kernel over a whole sequence, and its gradient."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import buffers
from .configuration import Configuration, configured

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
    """An argument by row, [B, R, H, …]: its name and the sizes of the axes after H."""

    name: str
    sizes: tuple[str, ...]


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


def power_of_two(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()


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
    chosen = configured(kernel, sizes, gradient=gradient, most=place.wanted or MOST)
    span = place.span(tensors[0].shape[1], chosen.rows, kernel.steps)
    if gradient:
        out, *end = _Differentiable.apply(kernel, span, chosen, *tensors)
    else:
        launch = Launch(kernel, span, chosen)
        out, found, _ = launch.forward(*launch.parted(tensors))
        end = list(found.values())
    return out, {state.name: x for state, x in zip(kernel.states, end, strict=True)}


def sizes_of(kernel: Kernel, tensors: list[Tensor]) -> dict[str, int]:
    """The size of each axis by name, in the kernel's order: of rows, then of states."""
    found: dict[str, int] = {}
    count = len(kernel.rows)
    for row, x in zip(kernel.rows, tensors[:count], strict=True):
        found |= dict(zip(row.sizes, x.shape[3:], strict=True))
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
        outs, starts, end = [], [], states
        for piece in span.pieces(PIECE[kernel.chunked], kernel.steps):
            starts.append(end)
            out, end, _ = Launch(kernel, piece, chosen).forward(rows, end)
            outs.append(out)
        ctx.kernel, ctx.span, ctx.chosen = kernel, span, chosen
        ctx.dtypes = [x.dtype for x in tensors]
        ctx.pieces = len(starts)
        ctx.save_for_backward(*rows, *(x for start in starts for x in start.values()))
        return torch.cat(outs, 1), *end.values()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        kernel: Kernel = ctx.kernel
        count, names = len(kernel.rows), [state.name for state in kernel.states]
        rows = list(ctx.saved_tensors[:count])
        kept = list(ctx.saved_tensors[count:])
        d_out = grads[0].contiguous()
        d_states = dict(zip(names, grads[1:], strict=True))
        parts: dict[str, list[Tensor]] = {name: [] for name in kernel.gradients}
        pieces = list(ctx.span.pieces(PIECE[kernel.chunked], kernel.steps))
        for number, piece in reversed(list(enumerate(pieces))):
            start = dict(zip(names, kept[number * len(names) :], strict=False))
            launch = Launch(kernel, piece, ctx.chosen)
            _, _, before = launch.forward(rows, start, kept=True, read=False)
            found, d_states = launch.backward(rows, d_out, before, d_states)
            for name, x in found.items():
                parts[name].append(x)
        whole = {name: torch.cat(x[::-1], 1) for name, x in parts.items()}
        given = [whole.get(row.name) for row in kernel.rows] + [d_states[n] for n in names]
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

    def forward(
        self, rows: list[Tensor], states: States, *, kept: bool = False, read: bool = True
    ) -> tuple[Tensor, States, States]:
        """The output, the states at the end, and (if kept) at every chunk's start."""
        kernel, span = self.kernel, self.span
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
        shape = (batch, span.length if read else 0, heads, sizes[kernel.value])
        out = buffers.empty(shape, rows[0])
        pointers = [*map(buffers.guarded, rows), out]
        for state in kernel.states:
            pointers += [buffers.guarded(start[state.name]), end[state.name], keeps[state.name]]
        constants = self.constants(sizes, rows[0].dtype)
        grid = self.grid(batch, heads, self.blocks(sizes, constants))
        kernel.forward[grid](
            *pointers, *self.numbers(heads), **constants, KEEP=kept, READ=read, **self.options()
        )
        return out, end, keeps

    def backward(
        self, rows: list[Tensor], d_out: Tensor, kept: States, d_states: States
    ) -> tuple[States, States]:
        """The gradients of the span's rows, and of the states before it."""
        kernel, span = self.kernel, self.span
        batch, heads = rows[0].shape[0], rows[0].shape[2]
        real = _real(rows[0].dtype)
        first = {name: x[:, 0] for name, x in kept.items()}
        sizes = sizes_of(kernel, [*rows, *first.values()])
        constants = self.constants(sizes, rows[0].dtype)
        blocks = self.blocks(sizes, constants)
        start = {s.name: self._parts(s, d_states[s.name].to(real), blocks) for s in kernel.states}
        end = {name: buffers.empty(tuple(x.shape), x) for name, x in start.items()}
        found = {}
        for row, x in zip(kernel.rows, rows, strict=True):
            if row.name in kernel.gradients:
                parts = () if self._splits(row.sizes) else (blocks,)
                shape = (*parts, batch, span.length, *x.shape[2:])
                found[row.name] = buffers.empty(shape, x, real)
        given = [*rows, d_out, *(kept[s.name] for s in kernel.states)]
        pointers = [buffers.guarded(x) for x in given]
        for state in kernel.states:
            pointers += [buffers.guarded(start[state.name]), end[state.name]]
        pointers += [found[name] for name in kernel.gradients]
        kernel.backward[self.grid(batch, heads, blocks)](
            *pointers, *self.numbers(heads), **constants, **self.options()
        )
        for row in kernel.rows:
            if row.name in found and not self._splits(row.sizes):
                found[row.name] = found[row.name].sum(0)
        return found, {s.name: self._joined(s, end[s.name], blocks) for s in kernel.states}

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
        least = 16 if self.kernel.chunked else 1
        for name, size in sizes.items():
            block = max(least, power_of_two(size))
            if name == self.kernel.split:
                block = min(block, self.chosen.block)
            found |= {name: size, f"B{name}": block}
        found["C"] = max(16, power_of_two(self.span.rows))
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
