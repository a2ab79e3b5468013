"""Roots that are searched for once for all rows of a chunk, and then handed out row by row.

A linear system whose coefficients are roots asks for the same ones at every row.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

Search = Callable[[], Tensor]

_answer: ContextVar[Callable[[Search], Tensor] | None] = ContextVar("answer", default=None)


def root(search: Search) -> Tensor:
    """Return what a search finds, or found before.

    Graphs of torch.compile have no variables of a context: there every row searches by itself.
    """
    if torch.compiler.is_compiling():
        return search()
    answer = _answer.get()
    return search() if answer is None else answer(search)


@contextmanager
def recorded() -> Iterator[list[Tensor]]:
    """Collect the roots, [..., C, V], that are searched for meanwhile, in order."""
    found: list[Tensor] = []

    def answer(search: Search) -> Tensor:
        found.append(search())
        return found[-1]

    with _answered(answer):
        yield found


@contextmanager
def replayed(found: list[Tensor], row: int) -> Iterator[None]:
    """Answer the same searches, of one row, with that row of what was found."""
    ahead = iter(found)
    with _answered(lambda _: next(ahead)[..., row : row + 1, :]):
        yield


@contextmanager
def _answered(answer: Callable[[Search], Tensor]) -> Iterator[None]:
    if torch.compiler.is_compiling():
        yield
        return
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)
