"""States that a call returns: each in memory of its own, so that it may be kept and written to."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from .arguments import fail
from .signature import Signature
from .transforms import transformed


def owned(
    signature: Signature, states: Mapping[str, Tensor], *given: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return states of which none shares memory with another, or with what a call was ``given``.

    A memory that no token has changed is the parameter that it starts from, and the memory at a
    chunk's end is also the next chunk's anchor: such states are copied. So is a view of a much
    larger tensor, which it would keep alive. In a graph, where this cannot be checked, all states
    are copied of rules for which it may be so.
    """
    if torch.compiler.is_compiling() or transformed():
        shared = bool(signature.params) or signature.anchor > 1
        return {name: x.clone() if shared else x for name, x in states.items()}
    seen = {_memory(x) for x in _of(given)}
    found = {}
    for name, x in states.items():
        held, needed = x.untyped_storage().nbytes(), x.numel() * x.element_size()
        alone = _memory(x) not in seen and needed <= held <= 2 * needed
        found[name] = x if alone else x.clone(memory_format=torch.contiguous_format)
        seen.add(_memory(found[name]))
    return found


def check_apart(
    signature: Signature, states: Mapping[str, Tensor], *given: Mapping[str, Tensor]
) -> None:
    """Check that states may be written to: none stands where another, or a parameter, stands.

    Raises ``ArgumentError`` for two that do.
    """
    if torch.compiler.is_compiling() or transformed():
        return
    seen = {_place(x): f"the layer's '{name}'" for one in given for name, x in one.items()}
    for name, x in states.items():
        place = _place(x)
        if x.numel() and place in seen:
            told = f"shares memory with {seen[place]}; a state that is updated in place needs"
            raise fail(signature, f"state['{name}']: {told} its own, as .clone() gives")
        seen[place] = f"state['{name}']"


def _of(given: tuple[Mapping[str, Tensor], ...]) -> Iterator[Tensor]:
    for one in given:
        yield from one.values()


def _memory(x: Tensor) -> int:
    """Return what tells the memory behind a tensor from any other."""
    found: int = x.untyped_storage()._cdata
    return found


def _place(x: Tensor) -> tuple[int, int]:
    """Return where a tensor begins: parts of one memory may be states of their own."""
    return _memory(x), int(x.storage_offset())
