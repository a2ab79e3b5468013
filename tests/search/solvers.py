"""Perfect players of the tasks, written from the tasks' words: token in, answer out.

Each sees one token at a time and says what it would answer there (None for nothing); none of
them sees a target. A `Guess` is a player without the skill, who knows what answers look like.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

Player = Iterator[int | None]


def _kind(task: Any, token: int) -> str:
    """The letter that a token's word begins with."""
    return task.word(token)[0]


def mqar(task: Any, tokens: list[int]) -> Player:
    known: dict[int, int] = {}
    before = None
    for token in tokens:
        if _kind(task, token) == "v" and before is not None:
            known[before] = token
        yield known.get(token)
        before = token if _kind(task, token) == "k" else None


def fuzzy_recall(task: Any, tokens: list[int]) -> Player:
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    key: tuple[int, ...] = ()
    value: tuple[int, ...] = ()
    for token in tokens:
        kind = _kind(task, token)
        if kind == "k":
            if value:
                known.setdefault(key, value)
                key, value = (), ()
            key += (token,)
        elif kind == "v":
            value += (token,)
        whole = known.get(key, ()) if len(key) == task.options.key_size else ()
        rest = whole[len(value) :]
        yield rest[0] if rest else None


def selective_copying(task: Any, tokens: list[int]) -> Player:
    kept: list[int] = []
    copying = False
    for token in tokens:
        word = task.word(token)
        if word.startswith("s"):
            kept.append(token)
        yield kept.pop(0) if copying else None
        copying = copying or word == "copy"


def compression(task: Any, tokens: list[int]) -> Player:
    """No causal task: each place answers after the end, when all was seen."""
    yield from tokens


def memorisation(task: Any, tokens: list[int]) -> Player:
    before = None
    for token in tokens:
        yield facts(task)[before] if task.word(token) == "?" else None
        before = token


@cache
def facts(task: Any) -> dict[int, int]:
    """Learned from the training stream, as a model would."""
    seen = task.batch(task.generator(0, "train"), 2 * task.vocabulary, "train")
    found = {}
    for inputs, targets in zip(seen.inputs.tolist(), seen.targets.tolist(), strict=True):
        for before, answer in zip(inputs, targets[1:], strict=False):
            if answer >= 0:
                found[before] = answer
    return found


def swaps(task: Any, tokens: list[int]) -> Player:
    order = list(range(task.options.elements))
    for token in tokens:
        i, j = (int(place) - 1 for place in task.word(token).strip("()").split())
        order[i], order[j] = order[j], order[i]
        yield order[0]


def reachability(task: Any, tokens: list[int]) -> Player:
    """Walks up from each node; the answer is whether the first node is on the way."""
    parents: dict[str, str] = {}
    pairs = task.options.tokens == "pair"
    label = None
    for token in tokens:
        word = task.word(token)
        if not pairs and label is None:
            label = word
            yield None
            continue
        node, parent = (
            (word.replace(" root", f"<{word.split()[0]}").split("<"))
            if pairs
            else (
                label,
                word,
            )
        )
        label = None
        parents[node] = parent
        first = next(iter(parents))
        at = node
        while at != first and parents[at] != at:
            at = parents[at]
        yield int(at == first) if node != first else None


def needles(task: Any, tokens: list[int]) -> Player:
    """Keeps the digits after the first mark; says them from the second mark's key on."""
    kept: list[int] = []
    marks, since = 0, 0
    for token in tokens:
        since += 1
        if task.word(token) == "key":
            marks, since = marks + 1, 0
        said = since - 1  # digits after the mark and its key
        if marks == 1 and 1 <= said <= task.options.digits:
            kept.append(token)
        yield kept[said] if marks == 2 and 0 <= said < len(kept) else None


def repeat_previous(task: Any, tokens: list[int]) -> Player:
    """Keeps the last ones in a queue."""
    kept: list[int] = []
    for token in tokens:
        kept.append(token)
        yield kept.pop(0) if len(kept) == task.options.back else None


PLAYERS: dict[str, Callable[[Any, list[int]], Player]] = {
    "mqar": mqar,
    "recall": mqar,
    "noisy-recall": mqar,
    "fuzzy-recall": fuzzy_recall,
    "selective-copying": selective_copying,
    "compression": compression,
    "memorisation": memorisation,
    "swaps": swaps,
    "reachability": reachability,
    "needles": needles,
    "repeat-previous": repeat_previous,
}

Guess = Callable[[Any, list[int], int, random.Random], int]


def _of_kind(kind: str) -> Guess:
    """Any token of the vocabulary whose word begins so."""

    def guess(task: Any, tokens: list[int], t: int, rng: random.Random) -> int:
        return rng.choice([x for x in range(task.vocabulary) if _kind(task, x) == kind])

    return guess


def _seen_value(task: Any, tokens: list[int], t: int, rng: random.Random) -> int:
    return rng.choice([x for x in tokens if _kind(task, x) == "v"])


def _but_the_end(task: Any, tokens: list[int], t: int, rng: random.Random) -> int:
    return tokens[t] if t == len(tokens) - 1 else _of_kind("s")(task, tokens, t, rng)


GUESSES: dict[str, Guess] = {
    "mqar": _seen_value,
    "recall": _of_kind("v"),
    "noisy-recall": _of_kind("v"),
    "fuzzy-recall": _of_kind("v"),
    "selective-copying": _of_kind("s"),
    "compression": _but_the_end,
    "memorisation": _of_kind("v"),
    "swaps": lambda task, tokens, t, rng: 0,
    "reachability": lambda task, tokens, t, rng: 0,
    "repeat-previous": _of_kind("s"),
    "needles": lambda task, tokens, t, rng: rng.randrange(task.options.base),
}
