"""Kept pairs: states that grow with the sequence, padded where rows have different lengths."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from .arguments import fail
from .signature import Signature, State

LEAD = 2
"""B and H stand before a state's own axes."""

States = dict[str, Tensor]


def append(kept: Tensor, x: Tensor, *, span: int = 0) -> Tensor:
    """Append a pair: [M, n, …], [M, …] → [M, n + 1, …]; the last ``span`` of them if given."""
    return append_rows(kept, x[:, None], span=span)


def append_rows(kept: Tensor, x: Tensor, *, span: int = 0) -> Tensor:
    """Append a chunk's pairs: [M, n, …], [M, C, …] → [M, n + C, …]; with ``span`` those seen."""
    if span:
        kept = kept[:, max(0, kept.shape[1] - span + 1) :]
    return torch.cat([kept, x], 1)


def recent(kept: Tensor, *, span: int) -> Tensor:
    """Return the pairs that a window still needs, the last span − 1; all where ``span`` is 0."""
    return kept[:, max(0, kept.shape[1] - span + 1) :] if span else kept


def names(signature: Signature) -> tuple[State, ...]:
    """Return the states that have an entry for each kept pair."""
    return tuple(s for s in signature.states if s.kept)


def own(signature: Signature, state: Mapping[str, Tensor]) -> States:
    """Return a state without padding, with its position, inferred from its pairs where missing.

    Raises ``ArgumentError`` where keys or values are missing, or hold fewer pairs than the position
    counts; one number a pair (a weight's logarithm) is zero where it is missing.
    """
    kept, found = names(signature), dict(state)
    given = [s for s in kept if s.name in found]
    if not kept or not given:
        return _begun(signature, kept, found)
    missing = [s.name for s in kept if s.name not in found and s.axes != "n"]
    if missing:
        raise fail(signature, f"initial_state: kept pairs without their {', '.join(missing)}")
    least = min(_present(signature, s, found[s.name]) for s in given)
    if torch.compiler.is_compiling():
        return _whole(signature, found, least)
    if "position" not in found:
        like = found[given[0].name]
        told = least // signature.steps
        found["position"] = torch.full((like.shape[0],), told, device=like.device)
    position = found["position"].reshape(-1)
    count = _count(signature, int(position[0])) if position.numel() else least
    if least < count:
        shown = f"{least} pairs, the position tells {count}"
        raise fail(signature, f"initial_state: read {shown}")
    for s in given:
        for axis, letter in enumerate(s.axes, LEAD):
            if letter == "n":
                found[s.name] = found[s.name].narrow(axis, 0, count)
    return found


def _whole(signature: Signature, found: States, pairs: int) -> States:
    """Return a state without padding, for compiled calls: the device asserts that it has none."""
    steps = signature.steps
    if "position" not in found:
        like = found[next(s.name for s in names(signature) if s.name in found)]
        found["position"] = torch.full((like.shape[0],), pairs // steps, device=like.device)
        return found
    counts = found["position"] * steps
    if signature.span:
        counts = counts.clamp(max=signature.span - 1)
    torch._assert_async((counts == pairs).all(), "compiled calls take no padded pairs")
    return found


def _begun(signature: Signature, kept: tuple[State, ...], found: States) -> States:
    position = found.get("position")
    if kept and position is not None and bool((position > 0).any()):
        listed = ", ".join(s.name for s in kept)
        raise fail(signature, f"initial_state: a position without the kept pairs ({listed})")
    return found


def _present(signature: Signature, state: State, x: Tensor) -> int:
    if x.ndim != LEAD + len(state.axes):
        axes = ", ".join({"n": "n", "k": "d_k", "v": "d_v"}[letter] for letter in state.axes)
        shown = f"{list(x.shape)}, expected [B, H, {axes}]"
        raise fail(signature, f"initial_state['{state.name}']: read shape {shown}")
    return min(x.shape[i] for i, letter in enumerate(state.axes, LEAD) if letter == "n")


def _count(signature: Signature, position: int) -> int:
    """Return how many pairs a row has kept after ``position`` tokens."""
    count = position * signature.steps
    return min(count, signature.span - 1) if signature.span else count


def trimmed(signature: Signature, states: States, before: int) -> States:
    """Trim the forms' states [M, n, …] to what a window still needs, with one pair for each key.

    The inner steps of a token each write rows to the same key; of the pairs added after the first
    ``before`` ones these rows are summed, which gives the same read-out.
    """
    found = dict(states)
    for s in names(signature):
        found[s.name] = recent(found[s.name], span=signature.span)
        if signature.inner > 1:
            found[s.name] = _merged(s, found[s.name], before, signature.inner)
    return found


def _merged(state: State, x: Tensor, before: int, inner: int) -> Tensor:
    """Merge each ``inner`` new entries into one: of keys the first, of anything else the sum."""
    new = x[:, before:].unflatten(1, (-1, inner))
    new = new[:, :, 0] if state.axes.endswith("k") else new.sum(2)
    return torch.cat([x[:, :before], new], 1)


def joined(signature: Signature, states: Sequence[Mapping[str, Tensor]]) -> States:
    """Join states of several rows into one, the kept pairs of shorter ones padded with zeros."""
    found = {}
    axes = {s.name: s.axes for s in names(signature)}
    for name in states[0]:
        parts = [s[name] for s in states]
        own = name.rpartition(".")[2]  # a hybrid says whose state it is
        if own in axes:
            parts = _padded(parts, axes[own])
        found[name] = torch.cat(parts)
    return found


def _padded(parts: Sequence[Tensor], axes: str) -> list[Tensor]:
    """Pad every part with zeros to as many entries along each axis n as the longest has."""
    grown = list(parts)
    for axis, letter in enumerate(axes, LEAD):
        if letter != "n":
            continue
        most = max(x.shape[axis] for x in grown)
        for i, x in enumerate(grown):
            behind = 2 * (x.ndim - 1 - axis)
            grown[i] = pad(x, (*[0] * behind, 0, most - x.shape[axis]))
    return grown
