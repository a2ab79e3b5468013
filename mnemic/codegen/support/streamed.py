"""Fused forms over kept pairs: what grows lies in the device's memory, and is seen by blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from . import tuned
from .configuration import WARPS, Choices, Configuration, power_of_two
from .fused import PRECISIONS, Held, Place, Row, Span, parameters

States = dict[str, Tensor]


BUDGET = {False: 170, True: 100}
"""Entries a thread, of a form and of its gradient, which has more beside its passes: offline
compilation for sm_90 shows no spilled registers up to about here."""

LIMIT = 240
"""Entries a thread beyond which a kernel is refused: more would lie in memory than on chip."""

CUTS = tuple(
    Configuration(rows, block, 8)
    for rows, block in ((64, 64), (64, 32), (32, 32), (16, 32), (16, 16))
)
"""Rows a chunk and pairs a block, the best first."""

CHOICES = Choices((16, 32, 64), (16, 32, 64, 128), WARPS, (1,))
"""What the tuner may try. Pairs may be written inside the loop that reads them, so that no load is
taken before its turn: one stage."""


@dataclass(frozen=True)
class Kept:
    """A state with an entry a pair, [M, n, …]: its name, the sizes of the axes after n.

    ``rows`` is the argument whose rows are the new entries, empty where the kernel makes them.
    ``wide`` entries are float64 numbers of which only differences count: at the end they are told
    relative to the last.
    """

    name: str
    sizes: tuple[str, ...]
    rows: str
    wide: bool = False


@dataclass(frozen=True)
class Streamed:
    """The generated kernels of a form over kept pairs, and what they take.

    ``alone``: each chunk has a program of its own, since all pairs are known from the start.
    """

    forward: Any
    backward: Any
    """The kernel of the gradient, or ``None``."""
    rows: tuple[Row, ...]
    kept: tuple[Kept, ...]
    states: tuple[Held, ...]
    """States of a fixed size beside the pairs."""
    sizes: tuple[str, ...]
    gradients: tuple[str, ...]
    value: str
    alone: bool
    alive: tuple[tuple[int, int], ...]
    """Tiles of rows, and of a block of pairs, that live at once: in the form, in its gradient."""
    steps: int
    before: Callable[..., dict[str, Tensor]]
    taken: tuple[str, ...]


def refused(
    kernel: Streamed, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> str | None:  # fmt: skip
    """Why a kernel is not for these arguments, or None."""
    if gradient and kernel.backward is None:
        return "its kernel has no gradient"
    sizes: dict[str, int] = {}
    for row in kernel.rows:
        if row.name in rows:
            sizes |= dict(zip(row.sizes, rows[row.name].shape[3:], strict=True))
    for kept in kernel.kept:
        sizes |= dict(zip(kept.sizes, states[kept.name].shape[2:], strict=True))
    for state in kernel.states:
        sizes |= dict(zip(state.sizes, states[state.name].shape[1:], strict=True))
    if weight(kernel, sizes, CUTS[-1], gradient=gradient) <= LIMIT:
        like = next(rows[row.name] for row in kernel.rows if row.name in rows)
        question = asked(sizes, like, states[kernel.kept[0].name].shape[1], gradient=gradient)
        return tuned.failed(question, like.device)
    shown = " and ".join(str(size) for size in sorted(set(sizes.values())))
    return f"its kernel does not fit on chip at sizes of {shown}"


def asked(sizes: dict[str, int], like: Tensor, past: int, *, gradient: bool) -> tuned.Question:
    """What a cut is chosen for; how many pairs are there is a size of its own."""
    return tuned.Question.of("pairs", {**sizes, "n": power_of_two(past)}, like, gradient=gradient)


def run(
    kernel: Streamed, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """One batch through a kernel: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
    given = {name: rows[name] for name in kernel.taken}
    given |= kernel.before(**{n: given[n] for n in parameters(kernel.before)})
    names = [kept.name for kept in kernel.kept] + [state.name for state in kernel.states]
    tensors = [given[row.name] for row in kernel.rows] + [states[name] for name in names]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        out, *end = _Differentiable.apply(kernel, place, *tensors)
    else:
        out, end, _ = Launch.of(kernel, tensors, place, gradient=False).forward(tensors)
    found = dict(zip(names, end, strict=True))
    for kept in kernel.kept:
        if kept.wide:
            x = found[kept.name]
            found[kept.name] = (x - x[:, -1:]).to(states[kept.name].dtype)
    return out, found


class _Differentiable(torch.autograd.Function):
    """A kernel with its gradient, which reads the pairs as they lie at the end."""

    @staticmethod
    def forward(ctx: Any, kernel: Streamed, place: Place, *tensors: Tensor) -> Any:
        launch = Launch.of(kernel, list(tensors), place, gradient=False)
        out, end, pairs = launch.forward(list(tensors))
        ctx.launch = Launch.of(kernel, list(tensors), place, gradient=True)
        ctx.types = [x.dtype for x in tensors]
        rows = [x.contiguous() for x in tensors[: len(kernel.rows)]]
        ctx.save_for_backward(*rows, *pairs)
        return out, *end

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        launch: Launch = ctx.launch
        kernel, saved = launch.kernel, list(ctx.saved_tensors)
        count = len(kernel.rows)
        d_rows, d_pairs = launch.backward(saved[:count], saved[count:], grads[0], list(grads[1:]))
        given = [d_rows.get(row.name) for row in kernel.rows] + d_pairs
        typed = [None if x is None else x.to(t) for x, t in zip(given, ctx.types, strict=True)]
        return None, None, *typed


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel over a span."""

    kernel: Streamed
    span: Span
    cut: Configuration
    sizes: dict[str, int]

    @classmethod
    def of(
        cls, kernel: Streamed, tensors: list[Tensor], place: Place, *, gradient: bool
    ) -> "Launch":  # fmt: skip
        """A launch over all rows, cut as the model says."""
        sizes = sizes_of(kernel, tensors)
        past = tensors[len(kernel.rows)].shape[1]
        cut = tuned.chosen(
            asked(sizes, tensors[0], past, gradient=gradient), tensors[0].device,
            lambda: chosen(kernel, sizes, gradient=gradient), lambda: CHOICES,
            tunable=place.wanted is None,
        )  # fmt: skip
        span = place.span(tensors[0].shape[1], cut.rows, kernel.steps)
        return cls(kernel, span, cut, sizes)

    def forward(self, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The output, the states at the end, and the pairs as kernels read them."""
        kernel, span = self.kernel, self.span
        count = len(kernel.rows)
        rows = [x.contiguous() for x in tensors[:count]]
        states = tensors[count:]
        real = _real(rows[0].dtype)
        named = {row.name: x for row, x in zip(kernel.rows, rows, strict=True)}
        pairs, ends = [], []
        for kept, start in zip(kernel.kept, states, strict=False):
            pair, end = self._pairs(kept, start, named.get(kept.rows), real)
            pairs.append(pair)
            ends.append(end)
        starts = [x.to(real).contiguous() for x in states[len(pairs) :]]
        after = [torch.empty_like(x) for x in starts]
        batch, heads = rows[0].shape[0], rows[0].shape[2]
        out = rows[0].new_empty(batch, span.length, heads, self.sizes[kernel.value])
        pointers = [*rows, *pairs, *(x for two in zip(starts, after, strict=True) for x in two)]
        kernel.forward[(batch * heads, span.chunks if kernel.alone else 1)](
            *pointers, out, *self.numbers(heads, pairs), **self.constants(rows[0].dtype),
        )  # fmt: skip
        return out, [*ends, *after], pairs

    def _pairs(
        self, kept: Kept, start: Tensor, rows: Tensor | None, real: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The pairs before and after these rows as kernels read them, and as a state."""
        if rows is None:
            size = start.shape[1] + self.span.length
            whole = start.new_empty(start.shape[0], size, *start.shape[2:], dtype=real)
            whole[:, : start.shape[1]] = start
            return whole, whole
        new = rows.transpose(1, 2).flatten(0, 1)
        end = torch.cat([start.to(torch.float64 if kept.wide else real), new], 1)
        exact = kept.wide or new.dtype == real
        return (end if exact else torch.cat([start.to(new.dtype), new], 1)), end

    def backward(
        self, rows: list[Tensor], pairs: list[Tensor], d_out: Tensor, d_ends: list[Tensor]
    ) -> tuple[States, list[Tensor]]:
        """The gradients of the span's rows, and of the pairs before it."""
        kernel, span = self.kernel, self.span
        batch, heads = rows[0].shape[0], rows[0].shape[2]
        real = _real(rows[0].dtype)
        d_pairs = [x.to(real, copy=True).contiguous() for x in d_ends]
        found = {}
        for row, x in zip(kernel.rows, rows, strict=True):
            if row.name in kernel.gradients:
                found[row.name] = torch.empty(x.shape, dtype=real, device=x.device)
        pointers = [*rows, d_out.contiguous(), *pairs, *d_pairs]
        kernel.backward[(batch * heads, 1)](
            *pointers, *(found[n] for n in kernel.gradients), *self.numbers(heads, pairs),
            **self.constants(rows[0].dtype),
        )  # fmt: skip
        return found, [x[:, : x.shape[1] - span.length] for x in d_pairs]

    # -- sizes ------------------------------------------------------------------------------

    def numbers(self, heads: int, pairs: list[Tensor]) -> list[int]:
        """The kernel's numbers, in its order."""
        span, room = self.span, pairs[0].shape[1]
        return [
            span.total, span.length, heads, span.position, span.first, span.chunks,
            room - span.length, room,
        ]  # fmt: skip

    def constants(self, dtype: torch.dtype) -> dict[str, Any]:
        """Block sizes, types, and how a program is spread over the device."""
        import triton.language as tl

        found: dict[str, Any] = {}
        for name, size in self.sizes.items():
            found |= {name: size, f"B{name}": max(16, power_of_two(size))}
        found["C"] = max(16, power_of_two(self.span.rows))
        found |= {"BN": self.cut.block, "ROWS": self.span.rows, "STEPS": self.kernel.steps}
        found["PRECISION"] = PRECISIONS[dtype]
        found["REAL"] = tl.float64 if dtype == torch.float64 else tl.float32
        return found | {"num_warps": self.cut.warps, "num_stages": self.cut.stages}


def sizes_of(kernel: Streamed, tensors: list[Tensor]) -> dict[str, int]:
    """The size of each axis by name: of rows, pairs and states, in that order."""
    found: dict[str, int] = {}
    count = len(kernel.rows)
    for row, x in zip(kernel.rows, tensors[:count], strict=True):
        found |= dict(zip(row.sizes, x.shape[3:], strict=True))
    for kept, x in zip(kernel.kept, tensors[count:], strict=False):
        found |= dict(zip(kept.sizes, x.shape[2:], strict=True))
    for state, x in zip(kernel.states, tensors[count + len(kernel.kept) :], strict=True):
        found |= dict(zip(state.sizes, x.shape[1:], strict=True))
    return {name: found[name] for name in kernel.sizes}


def chosen(kernel: Streamed, sizes: dict[str, int], *, gradient: bool) -> Configuration:
    """The best cut whose tiles fit into registers, or the smallest there is."""
    most = BUDGET[gradient]
    fitting = (cut for cut in CUTS if weight(kernel, sizes, cut, gradient=gradient) <= most)
    return next(fitting, CUTS[-1])


def weight(kernel: Streamed, sizes: dict[str, int], cut: Configuration, *, gradient: bool) -> int:
    """Entries a thread that live at once, by the model."""
    rows, pairs = kernel.alive[-1 if gradient else 0]
    pairs += any(kept.wide for kept in kernel.kept)  # differences of float64
    wide = max(power_of_two(size) for size in sizes.values())
    tiles = rows * cut.rows * wide + pairs * cut.block * max(wide, cut.rows) + 4 * cut.rows**2
    tiles += sum(prod(power_of_two(sizes[name]) for name in state.sizes) for state in kernel.states)
    return tiles // (32 * cut.warps)


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
