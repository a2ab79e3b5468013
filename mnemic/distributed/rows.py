"""Rows that go on from an earlier part, and documents that begin within them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

States = dict[str, Tensor]


def documents(
    call: Callable[..., Any], x: Tensor, state: States | None, begins: Tensor, form: str
) -> tuple[Tensor, States]:
    """Run a layer on rows in which documents begin: [B, T, dim], and the state of each row's last.

    Args:
        call: the layer.
        x: [B, T, dim].
        state: what rows that do not begin with a document go on from; ``None`` where all do.
        begins: [B, T], true where a document begins.
        form: of the rule.
    """
    told = {"output_state": True, "form": form}
    anew = begins.any(1)
    if not bool(anew.any()):
        found: tuple[Tensor, States] = call(x, state=state, **told)
        return found
    going = begins.cumsum(1) == 0  # tokens of documents that began before
    parts, after = [], []
    if bool(going.any()) or not bool(anew.all()):
        lengths = going.sum(1)
        ended, states = call(x[going][None], state=state, cu_seqlens=_ends(lengths), **told)
        parts.append((going, ended[0]))
        after.append(states)
    started = torch.cat([begins[~going].nonzero()[:, 0], (~going).sum()[None]])
    ended, states = call(x[~going][None], cu_seqlens=started, **told)
    parts.append((~going, ended[0]))
    last = (begins.sum(1).cumsum(0) - 1).clamp(min=0)
    after.append({name: s[last] for name, s in states.items()})
    y = _put(x, parts)
    if len(after) == 1:
        return y, after[0]
    return y, {name: _either(anew, after[1][name], s) for name, s in after[0].items()}


def as_wide(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a state of this shape: kept pairs that a row has not are zeros behind its own.

    Raises:
        ValueError: it has more.
    """
    room = [wanted - own for own, wanted in zip(x.shape, shape, strict=True)]
    if min(room, default=0) < 0:
        raise ValueError(
            f"along_sequence: a state of {list(x.shape)}, {list(shape)} is expected: every process "
            "needs as many tokens"
        )
    return pad(x, [n for more in reversed(room) for n in (0, more)]) if any(room) else x


def _ends(lengths: Tensor) -> Tensor:
    return pad(lengths.cumsum(0), (1, 0))


def _put(x: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Put the tokens of each part at their places, [B, T, dim]."""
    y = torch.zeros_like(x, dtype=parts[0][1].dtype)
    for places, values in parts:
        y = y.masked_scatter(places[..., None], values)
    return y


def _either(chosen: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Take rows of x where they are chosen, else of the other: [B, …]."""
    wide = tuple(map(max, zip(x.shape, other.shape, strict=True)))
    own = chosen.reshape(-1, *[1] * (x.ndim - 1))
    return torch.where(own, as_wide(x, wide), as_wide(other, wide))
