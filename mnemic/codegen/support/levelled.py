"""Fused forms of a tree of levels: each level is a memory, and the output is their sum.

A chunk whose rows are a power of two that divides its position is read and written as a whole by
the levels above it; the rest of a sequence goes token by token, all levels side by side.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import fused
from .calls import parameters
from .configuration import Configuration
from .fused import Kernel
from .launch import Launch
from .levels import aligned_pieces
from .narrower import fewer_rows, settled
from .place import Place

States = dict[str, Tensor]

FEWEST = 16
"""Rows of a chunk at least: below that tokens go one by one."""


@dataclass(frozen=True)
class Levelled:
    """The generated kernels of a tree: reads within a chunk, and one level, by token and by chunk.

    ``weights`` names the weights of the levels, [B, R, H, L].
    """

    own: Kernel
    token: Kernel
    chunk: Kernel
    weights: str

    def anywhere(self, *, gradient: bool) -> bool:
        """Return whether it runs sequences that stand anywhere in their documents: no, its levels
        follow their position."""
        return False

    def refused(
        self, rows: Mapping[str, Tensor], states: States, *, gradient: bool
    ) -> str | None:  # fmt: skip
        """Return why the kernels do not take these arguments, or None."""
        return refused(self, rows, states, gradient=gradient)

    def run(
        self, rows: Mapping[str, Tensor], states: States, place: Place
    ) -> tuple[Tensor, States]:  # fmt: skip
        """Run one batch: rows [B, R, H, …], states [M, …] → [B, R, H, d_v], states."""
        return run(self, rows, states, place)


@dataclass(frozen=True)
class Piece:
    """Tokens in aligned chunks of ``rows`` (or single tokens, 1), from ``first`` to ``last``."""

    first: int
    last: int
    rows: int


def run(
    kernel: Levelled, rows: Mapping[str, Tensor], states: States, place: Place
) -> tuple[Tensor, States]:
    """Run one batch: rows [B, R, H, …], states [M, l, d_v, d_k] → [B, R, H, d_v], states."""
    given = {name: rows[name] for name in kernel.own.taken}
    given |= kernel.own.before(**{n: given[n] for n in parameters(kernel.own.before)})
    ((name, buckets),) = states.items()
    tokens, position = rows["q"].shape[1], place.position
    held = _halves(buckets, position)
    outs = []
    for piece in _pieces(position, tokens, _rows(kernel, given, place)):
        part = {n: x[:, piece.first : piece.last] for n, x in rows.items() if x.ndim >= 3}
        weights = given[kernel.weights][:, piece.first : piece.last]
        run_piece = _tokens if piece.rows == 1 else _chunks
        y, held = run_piece(kernel, part, weights, held, position + piece.first, piece.rows)
        outs.append(y)
    full = _digits(position + tokens, held).to(held.dtype)
    return torch.cat(outs, 1), {name: held * full[:, None, None]}


def _pieces(position: int, tokens: int, most: int) -> Iterator[Piece]:
    """Yield aligned chunks as large as possible; below ``FEWEST`` rows tokens go singly."""
    single: int | None = None
    for first, size, count in aligned_pieces(position, tokens, most, tokens):
        if size < FEWEST:
            single = first if single is None else single
            continue
        if single is not None:
            yield Piece(single, first, 1)
            single = None
        yield Piece(first, first + size * count, size)
    if single is not None:
        yield Piece(single, tokens, 1)


def _rows(kernel: Levelled, given: Mapping[str, Tensor], place: Place) -> int:
    """Return the most rows of a chunk, by the model of live tiles; fewer if kernels spill."""
    tensors = [given[row.name] for row in kernel.own.rows]
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    sizes, like = fused.sizes_of(kernel.own, tensors, []), tensors[kernel.own.plain]
    question = fused.asked(kernel.own, sizes, like, gradient=gradient)
    wanted = replace(place, wanted=place.wanted or fused.MOST)

    def settle(cut: Configuration, _: object) -> Configuration:
        return _settled(kernel.own, tensors, sizes, cut, gradient=gradient)

    chosen = fused.chosen_of(kernel.own, sizes, question, like, wanted, int(like.shape[0]), settle)
    return max(1, min(chosen.rows, wanted.wanted or fused.MOST))


def _settled(
    own: Kernel, rows: list[Tensor], sizes: dict[str, int], cut: Configuration, *, gradient: bool
) -> Configuration:  # fmt: skip
    """Return a cut, or one of fewer rows, if the kernel of a chunk's own rows spills registers
    however else it is cut."""

    def spilled(tried: Configuration) -> int:
        part = [x[:, : tried.rows] for x in rows]
        numbers = Place(wanted=tried.rows).numbers()
        launch = Launch.of(own, part, [], None, None, numbers, gradient=gradient, dry=True)
        return launch.spilled(gradient=gradient)

    if torch.compiler.is_compiling():
        return cut
    what = f"chunk of {own.name}" + " with gradients" * gradient
    alike = (own.forward, *(x.dtype for x in rows), rows[0].shape[2])
    return settled(
        cut, (fewer_rows,), spilled, what=what, sizes=sizes, alike=alike, device=rows[0].device
    )


def refused(
    kernel: Levelled, rows: Mapping[str, Tensor], states: States, *, gradient: bool
) -> str | None:  # fmt: skip
    """Return why the kernels do not take these arguments, or None."""
    (buckets,) = states.values()
    one: States = {"W": buckets[:, 0]}
    kernels = (kernel.own, kernel.chunk, kernel.token)
    found = (fused.refused(part, rows, one, gradient=gradient) for part in kernels)
    return next((reason for reason in found if reason is not None), None)


# -- pieces ----------------------------------------------------------------------------------


def _chunks(
    kernel: Levelled, rows: States, weights: Tensor, held: Tensor, position: int, size: int
) -> tuple[Tensor, Tensor]:
    """Run aligned chunks: each level above their rows, and what a chunk reads of itself."""
    low = size.bit_length() - 1
    count = held.shape[1] - low
    shared = {n: _Shared.apply(x, 1 + count) for n, x in rows.items()}
    folded = {n: x[0].reshape(-1, size, *x[0].shape[2:]) for n, x in shared.items()}
    y, _ = fused.run(kernel.own, folded, {}, Place(wanted=size))
    total = _wide(y.reshape(*weights.shape[:2], *y.shape[2:]))
    found = [torch.zeros_like(held[:, i]) for i in range(low)]  # a whole chunk is in no such bucket
    for i in range(low, held.shape[1]):
        part = {n: x[1 + i - low] for n, x in shared.items()}
        part |= _flags(weights, position, i)
        y, end = fused.run(kernel.chunk, part, {"W": held[:, i]}, Place(wanted=size))
        total = total + y
        found.append(end["W"])
    return total.to(y.dtype), torch.stack(found, 1)


def _tokens(
    kernel: Levelled, rows: States, weights: Tensor, held: Tensor, position: int, size: int
) -> tuple[Tensor, Tensor]:
    """Run tokens one by one, levels side by side as a batch."""
    batch, tokens, heads = weights.shape[:3]
    memories, levels = held.shape[:2]
    folded = {n: x.reshape(batch * tokens, 1, *x.shape[2:]) for n, x in rows.items()}
    own, _ = fused.run(kernel.own, folded, {}, Place(wanted=size))
    own = own.reshape(batch, tokens, heads, -1)
    part = {n: x.repeat(levels, *[1] * (x.ndim - 1)) for n, x in rows.items()}
    each = [_flags(weights, position, i) for i in range(levels)]
    part |= {n: torch.cat([flags[n] for flags in each]) for n in each[0]}
    start = held.transpose(0, 1).flatten(0, 1)
    y, end = fused.run(kernel.token, part, {"W": start}, Place())
    total = _wide(own) + _wide(y).unflatten(0, (levels, batch)).sum(0)
    return total.to(own.dtype), end["W"].unflatten(0, (levels, memories)).transpose(0, 1)


def _flags(weights: Tensor, position: int, level: int) -> States:
    """Return for each token whether it keeps a level, writes to it, reads it, [B, R, H] each.

    Tokens of an aligned chunk write and read alike; its last one says if the level is emptied.
    """
    at = position + torch.arange(weights.shape[1], device=weights.device)
    second = (at >> level & 1).to(weights.dtype)[None, :, None]
    ends = ((at + 1) % (2 << level) == 0).to(weights.dtype)[None, :, None]
    like = weights[..., 0]
    seen = weights[..., level + 1] * second if level + 1 < weights.shape[-1] else 0.0 * like
    return {
        "level_keeps": (1.0 - ends).expand_as(like),
        "level_writes": (1.0 - second).expand_as(like),
        "level_seen": seen,
    }


# -- states ----------------------------------------------------------------------------------


def _digits(number: int, held: Tensor) -> Tensor:
    """Return the binary digits of a number, one a level, [l]."""
    return torch.tensor([number >> i & 1 for i in range(held.shape[1])], device=held.device)


def _halves(buckets: Tensor, position: int) -> Tensor:
    """Return what each level holds of its half block: its bucket, or all below it: [M, l, V, K]."""
    full = _digits(position, buckets).to(buckets.dtype)
    here = buckets * full[:, None, None]
    below = here.cumsum(1) - here
    return here + below * (1.0 - full)[:, None, None]


def _wide(x: Tensor) -> Tensor:
    """Return x in float32 if it has 16 bits, so that parts are summed in float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class _Shared(torch.autograd.Function):
    """One tensor under several names, whose gradients are summed in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        ctx.set_materialize_grads(False)
        return tuple(x.view_as(x) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        total: Tensor | None = None
        for x in grads:
            if x is not None:
                total = _wide(x) if total is None else total + x
        return None if total is None else total.to(ctx.dtype), None
