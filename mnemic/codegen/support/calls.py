"""The context of a run: the rule's generated forms, and the choices of the call."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from .signature import Signature

Form = Callable[..., tuple[Tensor, dict[str, Tensor]]]
States = dict[str, Tensor]
Closes = Callable[[int, int], bool]
"""Whether an interval of so many tokens (the second) ends with a row or chunk (the first)."""


class Forms(Protocol):
    """The generated forms of a rule."""

    @property
    def recurrent(self) -> Form:
        """The form that goes token by token."""

    @property
    def chunk(self) -> Form | None:
        """The form that goes chunk by chunk, where the rule has one."""

    @property
    def kernels(self) -> Callable[[], Any] | None:
        """The module of fused kernels, imported when first asked for."""

    @property
    def start(self) -> Callable[..., dict[str, Tensor]] | None:
        """Compute the states that are not zero at a document's start, from those that are given."""


class Call(Protocol):
    """The choices of one call of an operator: form, chunk size, parameters."""

    @property
    def operator(self) -> Forms:
        """The rule's forms."""

    @property
    def signature(self) -> Signature:
        """What the rule takes and carries."""

    @property
    def form(self) -> str:
        """The form that is asked for: recurrent, chunk or auto."""

    @property
    def chunk_size(self) -> int | None:
        """Rows a chunk, if chosen."""

    @property
    def params(self) -> Mapping[str, Tensor]:
        """The initial duals of a deep memory, [H, …]."""

    def short(self, tokens: int) -> bool:
        """Return whether the sequence is too short for the chunk form."""

    def of(self, form: str) -> "Call":
        """Return the same call with another form."""

    def documents(
        self, vectors: dict[str, Tensor], state: States, ends: Tensor
    ) -> tuple[Tensor, States]:
        """Run documents packed one after another, each with a state of its own."""

    def batch(self, vectors: dict[str, Tensor], state: States) -> tuple[Tensor, States]:
        """Run a plain batch, each row of it from a state of its own."""


def parameters(form: Callable[..., object]) -> tuple[str, ...]:
    """Return the parameter names of a generated function."""
    code = form.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
