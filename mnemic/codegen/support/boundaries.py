"""States after chosen tokens of a call, so that a prefix can be kept, or continued from."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from . import kept
from .arguments import fail
from .indices import check as check_indices
from .indices import check_range
from .signature import Signature

States = dict[str, Tensor]
Part = Callable[[int, int, States], tuple[Tensor, States]]
"""The tokens from one number to another, behind a state → their output, and the state after."""
Packed = Callable[[Tensor, Tensor, States], tuple[Tensor, States]]
"""Tokens by their places [n], the ends of documents, a state each → the output, states after."""


def checked(
    signature: Signature, at: Sequence[int] | Tensor, tokens: int, *, packed: bool
) -> tuple[int, ...]:
    """Return the token counts after which the caller asks for states.

    Raises ``ArgumentError`` unless they are whole, rise and lie between 0 (1 in packed documents,
    where no document has the state before all) and ``tokens``.
    """
    found = at.tolist() if isinstance(at, Tensor) else at
    least = 1 if packed else 0
    whole = isinstance(found, (Sequence, range)) and not isinstance(found, str)
    whole = whole and all(isinstance(n, int) and not isinstance(n, bool) for n in found)
    ends = tuple(found) if whole else ()
    rising = all(a < b for a, b in pairwise(ends))
    if not whole or not rising or (ends and not least <= ends[0] <= ends[-1] <= tokens):
        shown = list(ends) if ends else found
        need = f"numbers of tokens that rise, from {least} to T = {tokens}, are needed"
        raise fail(signature, f"states_at: read {shown}, {need}")
    return ends


def in_parts(
    run: Part, signature: Signature, ends: tuple[int, ...], tokens: int, state: States
) -> tuple[Tensor, States, States]:  # fmt: skip
    """Run a batch in parts, each up to the next of ``ends``, and the last one to the last token.

    Returns the output, the final state, and the states after the ends, [B, n, …].
    """
    outs, found = [], []
    for low, high in pairwise((0, *ends, tokens)):
        y, state = run(low, high, state)
        outs.append(y)
        found.append(state)
    return torch.cat(outs, 1), state, stacked(signature, found[:-1])


def of_documents(
    run: Packed, signature: Signature, at: tuple[int, ...], bounds: list[int], state: States,
    device: torch.device,
) -> tuple[Tensor, States, States]:  # fmt: skip
    """Run packed documents up to the ends in them, the next parts of all documents at once.

    A state belongs to the document of the token before it. Returns the output, the states after all
    documents, and those after the ends, [1, n, …].
    """
    cuts = [[n for n in at if low < n <= high] for low, high in pairwise(bounds)]
    rounds = max(map(len, cuts), default=0) + 1
    outs, order = [], []
    found: dict[int, States] = {}
    for number in range(rounds):
        parts = []
        for (low, high), own in zip(pairwise(bounds), cuts, strict=True):
            edges = [low, *own, high]
            parts.append((edges[min(number, len(own) + 1)], edges[min(number + 1, len(own) + 1)]))
        places = torch.cat([torch.arange(low, high, device=device) for low, high in parts])
        lengths = torch.tensor([0, *(high - low for low, high in parts)])
        y, state = run(places, lengths.cumsum(0), state)
        outs.append(y)
        order.append(places)
        for document, own in enumerate(cuts):
            if number < len(own):
                found[own[number]] = {n: x[document : document + 1] for n, x in state.items()}
    out = torch.cat(outs, 1)[:, torch.argsort(torch.cat(order))]
    return out, state, stacked(signature, [found[n] for n in at])


def stacked(signature: Signature, states: Sequence[States]) -> States:
    """Stack states [B, …] to [B, n, …]; kept pairs are padded to the longest."""
    if not states:
        return {}
    count, joined = len(states), kept.joined(signature, states)
    return {n: x.unflatten(0, (count, -1)).transpose(0, 1) for n, x in joined.items()}


def chosen(signature: Signature, states: States, index: Tensor) -> States:
    """Pick one of the states [B, n, …] for each row, by its index [B]: → [B, …].

    Raises ``ArgumentError`` unless every row has an index from 0 to n − 1.
    """
    like = next(iter(states.values()), None)
    check_indices(signature, "index", index, None if like is None else like.shape[0])
    if like is not None:
        last = like.shape[1] - 1
        check_range(signature, "index", index, (index >= 0) & (index <= last),
                    f"numbers of states from 0 to {last} are allowed")  # fmt: skip
    rows = torch.arange(index.shape[0], device=index.device)
    return {name: x[rows, index] for name, x in states.items()}
