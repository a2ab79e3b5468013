"""States that are kept in 16 bits between calls, and computed with in 32."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .arguments import fail
from .signature import Signature, State

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SHORT = (torch.bfloat16, torch.float16)
SOLVED = ("kk", "nn")
"""Axes of what systems are solved with: second moments of keys, and factors of them."""


def check(signature: Signature, dtype: torch.dtype | None) -> None:
    """Check the dtype that states are to be kept in.

    Raises ``ArgumentError`` for another dtype, and for 16 bits where a system is solved with a
    state: rounded, its matrix may have no inverse.
    """
    if dtype is None:
        return
    if dtype not in DTYPES:
        names = ", ".join(map(str, DTYPES))
        raise fail(signature, f"state_dtype: read {dtype!r}, allowed: {names}, or None")
    solved = _solved(signature)
    if dtype in SHORT and solved:
        raise fail(signature, f"state_dtype: read {dtype}, but {_singular(solved)}")


def check_kept(signature: Signature, states: Mapping[str, Tensor]) -> None:
    """Check the dtypes of states that a step writes back where they are.

    Raises ``ArgumentError`` for 16 bits where a system is solved with a state.
    """
    solved = _solved(signature)
    for name, x in states.items():
        if x.dtype in SHORT and name.rpartition(".")[2] in solved:
            raise fail(signature, f"state['{name}']: read {x.dtype}, but {_singular(solved)}")


def _solved(signature: Signature) -> list[str]:
    """Return the names of the states that systems are solved with."""
    return [s.name for s in signature.states if s.axes in SOLVED]


def _singular(solved: list[str]) -> str:
    told = f"systems are solved with {', '.join(solved)}, which may be singular when rounded"
    return f"{told}; torch.float32 is allowed"


def rounded(
    signature: Signature, states: Mapping[str, Tensor], dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Return states in a dtype: memories, keys, values and last inputs.

    Single numbers (positions, angles, logarithms and maxima of weights) stay as they are.
    """
    if dtype is None:
        return dict(states)
    alone = {s.name for s in signature.states if _number(s)}
    found = {}
    for name, x in states.items():
        own = name.rpartition(".")[2]
        stays = own in alone or not x.is_floating_point()
        found[name] = x if stays else x.to(dtype)
    return found


def _number(state: State) -> bool:
    """Return whether a state has single numbers: for a head or a pair, or an angle a channel."""
    return state.axes in ("", "n", "angle", "position")
