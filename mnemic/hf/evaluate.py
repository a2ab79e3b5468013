"""Evaluate a saved model: bits per byte, loss by position in the text, and recall of passages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mnemic.errors import UsageError
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.models.files import replacing

COPIED = 16
"""Tokens of a passage that is repeated."""


@dataclass(frozen=True)
class Span:
    """A range of positions, from ``first`` up to ``last``, and the mean loss there in bits."""

    first: int
    last: int
    bits: float


@dataclass(frozen=True)
class Copied:
    """How well the repetition of a passage after ``distance`` tokens is predicted.

    Args:
        distance: tokens from the passage's end to its repetition.
        bits: bits per token of the repetition; equal to ``first`` if nothing is remembered.
        first: bits per token of the passage's first occurrence.
        exact: the share of the repetition's tokens that the model ranks first.
    """

    distance: int
    bits: float
    first: float
    exact: float


@torch.no_grad()
def by_position(
    model: MnemicForCausalLM, tokens: Sequence[Tensor], length: int, batch: int = 4
) -> tuple[Span, ...]:
    """Return the loss by position, in spans that double: 1, 2-3, 4-7, … up to ``length``.

    Args:
        model: to evaluate.
        tokens: of documents; those of at least ``length`` tokens count, cut into such windows.
        length: tokens of a window, at least 2.
        batch: windows at a time.

    Raises:
        UsageError: no document is that long.
    """
    rows = [row for x in tokens for row in x[: len(x) // length * length].view(-1, length)]
    if not rows:
        longest = max(map(len, tokens), default=0)
        raise UsageError(f"--length {length}: the longest document has {longest} tokens")
    nats = torch.zeros(length - 1, dtype=torch.float64)
    for some in torch.stack(rows).split(batch):
        logits = model(some, use_cache=False).logits[:, :-1].float()
        each = F.cross_entropy(logits.transpose(1, 2), some[:, 1:], reduction="none")
        nats += each.double().sum(0)
    bits = nats / len(rows) / math.log(2)
    firsts = [1 << i for i in range(length.bit_length()) if 1 << i < length]
    return tuple(
        Span(a, min(2 * a, length) - 1, bits[a - 1 : min(2 * a, length) - 1].mean().item())
        for a in firsts
    )


@torch.no_grad()
def by_distance(
    model: MnemicForCausalLM, tokens: Tensor, distances: Sequence[int], rows: int = 8
) -> tuple[Copied, ...]:
    """Return how well passages are predicted when they recur after other text.

    A row is a passage of 16 tokens, other text of the given length, and the passage once more: the
    repetition is predicted well if the passage can still be read from the states.

    Args:
        model: to evaluate.
        tokens: of a text, one after another.
        distances: tokens between a passage and its repetition.
        rows: for each distance.

    Raises:
        UsageError: a text that is too short.
    """
    generator, found = torch.Generator().manual_seed(0), []
    for distance in distances:
        room = len(tokens) - 2 * COPIED - distance
        if room < 1:
            raise UsageError(f"--distance {distance}: the text has {len(tokens)} tokens")
        starts = torch.randint(room, (rows,), generator=generator).tolist()
        whole = torch.stack([tokens[i : i + COPIED + distance] for i in starts])
        whole = torch.cat([whole, whole[:, :COPIED]], 1)
        logits = model(whole, use_cache=False).logits[:, :-1].float()
        each = F.cross_entropy(logits.transpose(1, 2), whole[:, 1:], reduction="none")
        again = slice(-COPIED + 1, None)  # its first token cannot be foreseen
        right = logits[:, again].argmax(-1) == whole[:, again]
        bits, first = (each[:, s].mean().item() / math.log(2) for s in (again, slice(COPIED - 1)))
        found.append(Copied(distance, bits, first, right.double().mean().item()))
    return tuple(found)


def encoded(texts: Sequence[str], tokenizer: Any) -> list[Tensor]:
    """Return documents as tokens."""
    found = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [torch.tensor(ids, dtype=torch.long) for ids in found]


def draw(path: Path, spans: Sequence[Span], copies: Sequence[Copied], title: str) -> None:
    """Draw loss by position and by distance into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot([span.first for span in spans], [span.bits for span in spans], marker=".")
    left.set(xlabel="position", ylabel="bits a token", xscale="log")
    distances = [copied.distance for copied in copies]
    right.plot(distances, [copied.first for copied in copies], marker=".", label="first time")
    right.plot(distances, [copied.bits for copied in copies], marker=".", label="repeated")
    right.set(xlabel="distance of the repetition", ylabel="bits a token", xscale="log")
    right.legend()
    figure.suptitle(title)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=120, metadata={"Software": "mnemic"})
