"""Documents packed into rows of equal length, with the beginnings of documents marked."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from mnemic.errors import UsageError

NOT_SCORED = -100


class Packed(Dataset[dict[str, Tensor]]):
    """Rows of ``length`` tokens, documents one after another, each with its end.

    A row has ``input_ids``, ``position_ids`` that restart at 0 with each document (where a model
    resets its states), and ``labels``, in which a document's first token is not scored.

    Args:
        tokens: all documents' tokens, one after another.
        first: where documents begin, rising from 0.
        length: of a row.
        rest: whether a shorter last row is filled up, with labels that are not scored.
    """

    def __init__(self, tokens: Tensor, first: Tensor, length: int, *, rest: bool = False) -> None:
        self.tokens, self.first, self.length = tokens, first, length
        whole, over = divmod(len(tokens), length)
        self.rows = whole + int(rest and over > 1)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        start = index * self.length
        ids = self.tokens[start : start + self.length].long()
        time = torch.arange(start, start + len(ids))
        document = torch.searchsorted(self.first, time, right=True) - 1
        position = time - self.first[document].clamp(min=start)
        labels = ids.masked_fill(position == 0, NOT_SCORED)
        short = self.length - len(ids)
        if short:
            behind = torch.arange(short) + position[-1] + 1
            position = torch.cat([position, behind])
            ids = torch.cat([ids, ids.new_zeros(short)])
            labels = torch.cat([labels, labels.new_full((short,), NOT_SCORED)])
        return {"input_ids": ids, "position_ids": position, "labels": labels}


class Share(Dataset[dict[str, Tensor]]):
    """The rows of one of several processes: disjoint shares of equal size.

    If no row is left for a process, its last row is the first of all, and not scored.

    Args:
        rows: all of them, at least one.
        index: of the process, below ``processes``.
        processes: how many there are.
    """

    def __init__(self, rows: Packed, index: int, processes: int) -> None:
        self.rows, self.index, self.processes = rows, index, processes

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.processes)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        place = index * self.processes + self.index
        if place < len(self.rows):
            return self.rows[place]
        row = self.rows[0]
        return {**row, "labels": torch.full_like(row["labels"], NOT_SCORED)}


def pack(
    texts: Iterable[str], tokenizer: Any, length: int, *, rest: bool = False, name: str = "--data"
) -> Packed:
    """Return documents as tokens in rows; each ends with the tokenizer's end of documents.

    Args:
        texts: the documents.
        tokenizer: of transformers.
        length: of a row.
        rest: as for `Packed`.
        name: of the documents, for messages.

    Raises:
        UsageError: not one whole row (or two tokens, with ``rest``).
    """
    pieces, starts, count = [], [], 0
    for ids in _encoded(texts, tokenizer):
        pieces.append(torch.tensor([*ids, tokenizer.eos_token_id], dtype=torch.int32))
        starts.append(count)
        count += len(pieces[-1])
    tokens = torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.int32)
    found = Packed(tokens, torch.tensor(starts), length, rest=rest)
    if not len(found):
        needed = 2 if rest else f"--length {length}"
        raise UsageError(f"{name}: {count} tokens, at least {needed} are needed")
    return found


def _encoded(texts: Iterable[str], tokenizer: Any, batch: int = 1000) -> Iterator[list[int]]:
    held: list[str] = []
    for text in texts:
        held.append(text)
        if len(held) == batch:
            yield from tokenizer(held, add_special_tokens=False, verbose=False)["input_ids"]
            held = []
    if held:
        yield from tokenizer(held, add_special_tokens=False, verbose=False)["input_ids"]


def together(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return rows as one batch."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
