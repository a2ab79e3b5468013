"""A pool of states in slots: rows of a batch read and write theirs by index, in place.

The index ``PAD`` marks a row without a sequence. Nothing is read back from the device: such a row
uses the inputs and the slot of the first row with a sequence, and writes the same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from . import kept
from .arguments import fail, not_a_tensor
from .buffers import debugging
from .indices import check as check_indices
from .indices import check_range
from .signature import Signature

States = dict[str, Tensor]

PAD = -1
"""The index of a row without a sequence."""


@dataclass(frozen=True)
class Places:
    """Where the rows of a batch lie in a pool.

    ``live`` [B]: rows with a sequence. ``source`` [B]: the row whose inputs each row uses, itself
    or the first live one; ``target`` [B]: that row's slot.
    """

    live: Tensor
    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, indices: Tensor) -> "Places":
        """Return the places of rows in a pool, from the slot of each, [B]."""
        live = indices != PAD
        rows = torch.arange(indices.shape[0], device=indices.device)
        source = torch.where(live, rows, live.to(torch.int8).argmax(0)) if len(rows) else rows
        return cls(live, source, indices.to(torch.int64)[source].clamp(min=0))


def made(signature: Signature, state: Mapping[str, Tensor], slots: int, tokens: int) -> States:
    """Return an empty pool of so many slots for states like one, with room for the pairs of so
    many tokens where pairs are kept.

    Raises ``ArgumentError`` unless there is a slot at least, and no number below 0.
    """
    for what, number, least in (("slots", slots, 1), ("tokens", tokens, 0)):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            need = f"a whole number of at least {least} is needed"
            raise fail(signature, f"{what}: read {number!r}, {need}")
    axes = {s.name: s.axes for s in kept.names(signature)}
    room = max(tokens * signature.steps, 0)
    room = min(room, signature.span - 1) if signature.span else room
    found = {}
    for name, x in state.items():
        shape = list(x.shape[1:])
        for axis, letter in enumerate(axes.get(name.rpartition(".")[2], ""), kept.LEAD - 1):
            if letter == "n":
                shape[axis] = max(shape[axis], room)
        found[name] = x.new_zeros(slots, *shape)
    return found


def check(
    signature: Signature, pool: Mapping[str, Tensor], indices: Tensor, rows: int | None = None
) -> None:
    """Raise ``ArgumentError`` unless each of ``indices``, [rows], is a slot of its own, or PAD.

    On a device two rows of one slot are looked for in debug mode only.
    """
    like = next(iter(pool.values()), None)
    check_indices(signature, "indices", indices, rows)
    if like is None:
        raise fail(signature, "indices: the pool has no states; layer.pool makes one")
    if indices.device != like.device:
        raise fail(signature, f"indices: read device {indices.device}, states are on {like.device}")
    slots = like.shape[0]
    inside = (indices >= PAD) & (indices < slots)
    if indices.device.type == "cpu" or debugging():
        live = indices[indices != PAD]
        inside &= live.unique().numel() == live.numel()
    allowed = f"{PAD} or slots from 0 to {slots - 1} are allowed, each once"
    check_range(signature, "indices", indices, inside, allowed)


def check_rows(signature: Signature, state: Mapping[str, Tensor], rows: int, why: str = "") -> None:
    """Raise ``ArgumentError`` unless each state has so many rows; its message ends in ``why``."""
    for name, x in state.items():
        if not isinstance(x, Tensor):
            raise fail(signature, f"state['{name}']: {not_a_tensor(x)}")
        if x.ndim and x.shape[0] != rows:
            shown = f"read shape {list(x.shape)}, expected [{rows}, …]"
            raise fail(signature, f"state['{name}']: {shown}{why}")


def idle(places: Places) -> bool:
    """Return whether no row has a sequence, where that can be told without a wait."""
    if places.live.device.type != "cpu":
        return not len(places.live)
    return not bool(places.live.any())


def rows(x: Tensor, places: Places) -> Tensor:
    """Return inputs by row, [B, …], where one without a sequence repeats the first live row's."""
    found = x[places.source]
    live = places.live[places.source].reshape(-1, *[1] * (x.ndim - 1))
    return found.masked_fill(~live, 0.0)  # where there is no live row at all


def taken(pool: Mapping[str, Tensor], places: Places) -> States:
    """Read the states of rows, [B, …], from their slots."""
    return {name: x.index_select(0, places.target) for name, x in pool.items()}


def put(
    signature: Signature, pool: Mapping[str, Tensor], places: Places, state: Mapping[str, Tensor]
) -> None:
    """Write the states of rows, [B, …], into their slots; rows without a sequence write nothing.

    Raises ``ArgumentError`` where a state has no place in the pool.
    """
    some = places.live.any()
    fitted = {name: _fitted(signature, name, x, pool) for name, x in state.items()}
    for name, x in fitted.items():
        whole = pool[name]
        new = x.to(whole.dtype).index_select(0, places.source)
        if not len(new):
            continue
        new = torch.where(some, new, whole.index_select(0, places.target))
        whole.index_copy_(0, places.target, new)


def _fitted(
    signature: Signature, name: str, x: Tensor, pool: Mapping[str, Tensor]
) -> Tensor:  # fmt: skip
    """Return a state in the pool's shape, absent pairs zero; ``ArgumentError`` if none fits."""
    if name not in pool:
        told = ", ".join(pool)
        raise fail(signature, f"pool: has no '{name}', which the next state has; read {told}")
    room, needed = pool[name].shape[1:], x.shape[1:]
    if room == needed:
        return x
    axes = {s.name: s.axes for s in kept.names(signature)}.get(name.rpartition(".")[2], "")
    grows = [letter == "n" for letter in axes]
    lead = (*[False] * (kept.LEAD - 1), *grows)
    fits = len(room) == len(needed) == len(lead) and all(
        a == b or (free and b < a) for a, b, free in zip(room, needed, lead, strict=True)
    )
    if not fits:
        more = "; make the pool with more tokens" if any(grows) else ""
        shown = f"read room for {list(room)}, the next has {list(needed)}"
        raise fail(signature, f"pool['{name}']: {shown}{more}")
    whole = x.new_zeros(x.shape[0], *room)
    whole[tuple(slice(0, n) for n in x.shape)] = x
    return whole
