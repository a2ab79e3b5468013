"""Fused forms: a generated Triton kernel over a whole sequence, and its gradient."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

States = dict[str, Tensor]

PRECISIONS = {
    torch.float64: "fp64",
    torch.float32: "tf32x3",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""What operands products take, by the arguments' type."""


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
    """A generated kernel and what it takes.

    ``value`` is the size of the output's channels; ``split`` the size whose axis may be cut into
    blocks, one a program (no entry of the state depends on another block's), or empty.
    """

    function: Any
    rows: tuple[Row, ...]
    states: tuple[Held, ...]
    value: str
    split: str
    chunked: bool
    steps: int
    before: Callable[..., dict[str, Tensor]]
    """What PyTorch computes of the arguments first."""
    taken: tuple[str, ...]
    """The operator's arguments by row that ``before`` or the kernel reads."""


@dataclass(frozen=True)
class Span:
    """Where a sequence lies in its document, and how it is cut.

    ``position`` tokens came before; the first chunk has ``first`` rows, the others ``rows``.
    """

    position: int
    first: int
    rows: int

    def chunks(self, length: int) -> int:
        """How many chunks so many rows make."""
        return 0 if length == 0 else 1 + max(0, -((self.first - length) // self.rows))


TOKENS = 64
"""Tokens a chunk, unless the spec's anchor or the caller says fewer."""


def chunk_of(anchor: int, wanted: int | None, steps: int) -> int:
    """Tokens a chunk: at most 64 rows, and a divisor of the interval at which memories move."""
    most = max(1, (wanted or TOKENS) // steps)
    if anchor == 1:
        return most
    return max(n for n in range(1, most + 1) if anchor % n == 0)


def power_of_two(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()


def run(
    kernel: Kernel, rows: Mapping[str, Tensor], states: States, span: Span
) -> tuple[Tensor, States]:
    """One batch through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states.

    Arguments of 16 bits are multiplied as such; sums, states and everything else are float32.
    """
    given = {name: rows[name] for name in kernel.taken}
    given |= kernel.before(**{n: rows[n] for n in kernel.taken if n in before_takes(kernel)})
    return Launch(kernel, span).forward([given[r.name] for r in kernel.rows], states, kept=False)[:2]


def before_takes(kernel: Kernel) -> tuple[str, ...]:
    """The arguments of what PyTorch computes first."""
    code = kernel.before.__code__
    return code.co_varnames[: code.co_argcount]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel over a span."""

    kernel: Kernel
    span: Span

    def forward(
        self, rows: list[Tensor], states: States, *, kept: bool, read: bool = True
    ) -> tuple[Tensor, States, States]:
        """The output, the states at the end, and (if kept) at every chunk's start."""
        kernel = self.kernel
        rows = [x.contiguous() for x in rows]
        batch, length, heads = rows[0].shape[:3]
        sizes = self.sizes(rows, states)
        real = torch.float64 if rows[0].dtype == torch.float64 else torch.float32
        start = {s.name: states[s.name].to(real).contiguous() for s in kernel.states}
        end = {name: torch.empty_like(x) for name, x in start.items()}
        count = self.span.chunks(length) if kernel.chunked else length
        keeps = {
            name: x.new_empty(x.shape[0], count if kept else 0, *x.shape[1:])
            for name, x in start.items()
        }
        out = rows[0].new_empty(batch, length if read else 0, heads, sizes[kernel.value])
        pointers = [*rows, out]
        for state in kernel.states:
            pointers += [start[state.name], end[state.name], keeps[state.name]]
        numbers = [length, heads, self.span.position, self.span.first, count]
        constants = self.constants(sizes, rows[0].dtype)
        grid = (batch * heads, self.blocks(sizes, constants))
        kernel.function[grid](*pointers, *numbers, **constants, KEEP=kept, READ=read)
        return out, end, keeps

    def sizes(self, rows: list[Tensor], states: States) -> dict[str, int]:
        """The size of each axis by name, in the kernel's order."""
        found: dict[str, int] = {}
        for row, x in zip(self.kernel.rows, rows, strict=True):
            found |= dict(zip(row.sizes, x.shape[3:], strict=True))
        for state in self.kernel.states:
            found |= dict(zip(state.sizes, states[state.name].shape[1:], strict=True))
        return found

    def constants(self, sizes: dict[str, int], dtype: torch.dtype) -> dict[str, Any]:
        """Block sizes and types."""
        import triton.language as tl

        found: dict[str, Any] = {}
        least = 16 if self.kernel.chunked else 1
        for name, size in sizes.items():
            block = max(least, power_of_two(size))
            if name == self.kernel.split:
                block = min(block, 64)
            found |= {name: size, f"B{name}": block}
        found["C"] = max(16, power_of_two(self.span.rows))
        found |= {"ROWS": self.span.rows, "STEPS": self.kernel.steps}
        found["PRECISION"] = PRECISIONS[dtype]
        found["REAL"] = tl.float64 if dtype == torch.float64 else tl.float32
        return found

    def blocks(self, sizes: dict[str, int], constants: dict[str, Any]) -> int:
        """How many programs share a memory."""
        split = self.kernel.split
        return -(-sizes[split] // constants[f"B{split}"]) if split else 1
