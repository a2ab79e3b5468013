"""Kernel launches as operators of torch: opaque nodes of a graph, with shapes for fakes.

Each kernel registers two operators when its module is imported, ``forward`` and ``backward``, so
that torch.compile, FakeTensorMode and torch.export see through a call up to the launch. Names hold
a digest of the generated code; if the same code is loaded again in a process, a number is appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor

from .verified import digest

SPACE = "mnemic"

ROWS = "Tensor[] rows, Tensor[] {states}, Tensor? positions, Tensor? bounds, SymInt[] numbers"
FORWARD = f"({ROWS.format(states='states')}, bool keep) -> Tensor[]"
BACKWARD = f"({ROWS.format(states='kept')}, Tensor[] ends) -> Tensor[]"

TWICE = (
    "gradients of fused kernels have no derivative of their own: for second derivatives call the "
    'rule with form="recurrent", or form="chunk" where it has one'
)
"""What is said to who differentiates twice."""

CODE = digest()
"""The digest of this code at the time it was imported."""

_libraries: list[torch.library.Library] = []
"""Operators live as long as their library."""


class Named(Protocol):
    """An argument by row."""

    @property
    def name(self) -> str:
        """The argument's name."""


class Kernel(Protocol):
    """What an operator needs to know of a kernel."""

    @property
    def backward(self) -> Any:
        """The kernel of the gradient, or ``None``."""

    @property
    def rows(self) -> Sequence[Named]:
        """The kernel's arguments by row."""

    @property
    def gradients(self) -> tuple[str, ...]:
        """The names of the arguments by row that have a gradient."""


class Launches(Protocol):
    """What an operator does, and its twin that makes results of the right shapes only."""

    @property
    def kernel(self) -> Kernel:
        """What is launched."""

    def forward(
        self, rows: list[Tensor], states: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], *, keep: bool, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the output, the end states, and (with ``keep``) what the gradient needs."""

    def backward(
        self, rows: list[Tensor], kept: list[Tensor], positions: Tensor | None,
        bounds: Tensor | None, numbers: list[int], ends: list[Tensor], *, dry: bool,
    ) -> list[Tensor]:  # fmt: skip
        """Return the gradients of rows that have one, then of the states before."""

    def saved(self, rows: list[Tensor], output: list[Tensor]) -> list[Tensor]:
        """Return the ``kept`` of ``backward``, from the results of ``forward`` with ``keep``."""


@dataclass(frozen=True)
class Operators:
    """The overloads of a kernel's operators."""

    forward: Any
    backward: Any


def registered(name: str, launches: Launches) -> Operators:
    """Register the operators of a kernel's launches, under a name that is free in this process."""
    library = torch.library.Library(SPACE, "FRAGMENT")
    _libraries.append(library)
    name = _free(f"{name}_{CODE[:16]}")
    forward, backward = f"{name}_forward", f"{name}_backward"
    library.define(forward + FORWARD)
    library.define(backward + BACKWARD)
    library.impl(forward, _forward(launches, dry=False), "CompositeExplicitAutograd")
    library.impl(backward, _backward(launches, dry=False), "CompositeExplicitAutograd")
    fakes = ((forward, _forward(launches, dry=True)), (backward, _backward(launches, dry=True)))
    for operator, fake in fakes:
        torch.library.register_fake(f"{SPACE}::{operator}", fake, lib=library)
    space = getattr(torch.ops, SPACE)
    found = Operators(getattr(space, forward).default, getattr(space, backward).default)
    if launches.kernel.backward is not None:
        _differentiate(f"{SPACE}::{forward}", launches, found, library)
    torch.library.register_autograd(f"{SPACE}::{backward}", _refuse, lib=library)
    return found


def _refuse(ctx: Any, *grads: Any) -> Any:
    """Raise where a gradient is differentiated once more: without this it would count as zero."""
    raise NotImplementedError(TWICE)


def _free(name: str) -> str:
    """Return a name that is not taken: with a number behind it, if need be."""
    space = getattr(torch.ops, SPACE)
    tries = (name if number == 0 else f"{name}_{number}" for number in count())
    return next(n for n in tries if not hasattr(space, f"{n}_forward"))


def _forward(launches: Launches, *, dry: bool) -> Any:
    def forward(
        rows: list[Tensor], states: list[Tensor], positions: Tensor | None, bounds: Tensor | None,
        numbers: list[int], keep: bool,
    ) -> list[Tensor]:  # fmt: skip
        return launches.forward(rows, states, positions, bounds, numbers, keep=keep, dry=dry)

    return forward


def _backward(launches: Launches, *, dry: bool) -> Any:
    def backward(
        rows: list[Tensor], kept: list[Tensor], positions: Tensor | None, bounds: Tensor | None,
        numbers: list[int], ends: list[Tensor],
    ) -> list[Tensor]:  # fmt: skip
        return launches.backward(rows, kept, positions, bounds, numbers, ends, dry=dry)

    return backward


def _differentiate(
    name: str, launches: Launches, operators: Operators, library: torch.library.Library
) -> None:
    """Tell torch the gradient of ``forward``: the operator ``backward`` on what was kept."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
        rows, states, positions, bounds, numbers, _ = inputs
        ends = 1 + len(states)
        kept = launches.saved(rows, output)
        ctx.mark_non_differentiable(*output[ends:])
        ctx.set_materialize_grads(False)
        ctx.like = [(x.shape, x.dtype) for x in output[:ends]]
        ctx.rows, ctx.numbers, ctx.types = len(rows), numbers, [x.dtype for x in states]
        ctx.save_for_backward(*rows, *kept, positions, bounds)

    differentiated = [row.name in launches.kernel.gradients for row in launches.kernel.rows]

    def gradient(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
        *saved, positions, bounds = ctx.saved_tensors
        rows, kept = saved[: ctx.rows], saved[ctx.rows :]
        ends = [
            rows[0].new_zeros(shape, dtype=dtype) if x is None else x.contiguous()
            for x, (shape, dtype) in zip(grads, ctx.like, strict=False)
        ]
        found = iter(operators.backward(rows, kept, positions, bounds, ctx.numbers, ends))
        own = [next(found) if told else None for told in differentiated]
        before = [x.to(dtype) for x, dtype in zip(found, ctx.types, strict=True)]
        return own, before, None, None, None, None

    torch.library.register_autograd(name, gradient, setup_context=keep, lib=library)
