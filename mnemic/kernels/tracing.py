"""Bytes and products that kernels really ask for, counted where Triton interprets them.

    with tracing() as traced:
        rule(q, k, v, form="triton", **coefficients)      # a process with TRITON_INTERPRET=1
    traced.loaded, traced.stored, traced.products

Every load counts, masked entries excepted, also one that a cache would answer; so the figures are
what the kernels ask for, no less than what reaches the memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mnemic.codegen.support.versions import interpreting
from mnemic.errors import UsageError


@dataclass
class Traced:
    """Bytes loaded and stored, and operations of matrix products (two a multiplication)."""

    loaded: int = 0
    stored: int = 0
    products: int = 0

    @property
    def moved(self) -> int:
        """Bytes both ways."""
        return self.loaded + self.stored


@contextmanager
def tracing() -> Iterator[Traced]:
    """Count what kernels interpreted inside ask for.

    Raises ``UsageError`` where Triton does not interpret.
    """
    if not interpreting():
        raise UsageError("kernels: counted where Triton interprets (TRITON_INTERPRET=1)")
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    traced = Traced()
    plain = (Builder.create_masked_load, Builder.create_masked_store, Builder.create_dot)
    Builder.create_masked_load = _after(plain[0], lambda *given: _loaded(traced, *given))
    Builder.create_masked_store = _after(plain[1], lambda *given: _stored(traced, *given))
    Builder.create_dot = _after(plain[2], lambda *given: _multiplied(traced, *given))
    try:
        yield traced
    finally:
        Builder.create_masked_load, Builder.create_masked_store, Builder.create_dot = plain


def _after(plain: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    def noted(self: Any, *given: Any) -> Any:
        note(*given)
        return plain(self, *given)

    return noted


def _loaded(traced: Traced, places: Any, mask: Any, *_: Any) -> None:
    traced.loaded += int(mask.data.sum()) * (places.get_element_ty().primitive_bitwidth // 8)


def _stored(traced: Traced, places: Any, value: Any, mask: Any, *_: Any) -> None:
    traced.stored += int(mask.data.sum()) * (places.get_element_ty().primitive_bitwidth // 8)


def _multiplied(traced: Traced, one: Any, other: Any, *_: Any) -> None:
    traced.products += 2 * one.data.size * other.data.shape[-1]
