"""Parts that a rule can do without, and which of them to take away to come near another rule.

A part (a window, an anchor, O, a norm, a layer) is taken away by an edit of the spec. Which edits
can make one rule another follows from the two rules and their specs, part by part: a part that
both share stays; a part that the other rule lacks is taken away; where the other rule has a
different part, no edit helps and the two need not be compared at all.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from pydantic import BaseModel

from mnemic.compiler.compare.spec_numbers import VALUES, numbers, words_of
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import KeyValuePairs, Rule
from mnemic.dsl.memory import Chain, Glu, Mlp
from mnemic.dsl.spec import Spec

MOST_CHOICES = 24
"""Ways to put the numbers of one spec that are tried for another."""
NUMBERED = ("features", "bias", "retention", "memory")
"""Axes whose numbers are put elsewhere."""
Edits = tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A part of a rule: how it is read, the value that it has where absent, and its removal.

    ``edit`` is what ``edited`` takes; a part that cannot be taken away has none.
    """

    edit: str | None
    words: str
    read: Callable[[Rule], Any]
    none: Any


def _window(rule: Rule) -> Any:
    """Return the window of keys that a step sees; 1 for kept pairs, whose window is another."""
    return 1 if isinstance(rule, KeyValuePairs) else rule.window


def _orthogonal(rule: Rule) -> Any:
    """Return what stands between the gradient and the step; None for nothing."""
    applied = rule.applied
    if applied.elementwise:
        return "entry by entry", len(applied.averages)
    return None if applied.kind == "identity" else (applied.kind, applied.steps)


def _of_pairs(rule: Rule) -> Any:
    """Return the kind of regression over kept pairs, a mean and a line counting as one."""
    if not isinstance(rule, KeyValuePairs):
        return None
    return "interpolation" if rule.fit.kind == "interpolation" else "mean or line"


def _layers(rule: Rule) -> Any:
    """Describe a network of several matrices, or another memory; None for one matrix."""
    match rule.problem.spec.memory:
        case Mlp(depth=depth) as memory if depth > 1:
            return "mlp", depth, memory.expansion, memory.activation
        case Glu() as memory:  # what is left of it without its gate
            return "mlp", 2, memory.expansion, memory.activation
        case Mlp():
            return None
        case memory:
            return None if _kind(memory) == "linear" else _kind(memory)


def _of(read: Callable[[Spec], Any]) -> Callable[[Rule], Any]:
    """Return a function that reads a part of a rule from its spec, as written there."""
    return lambda rule: read(rule.problem.spec)


def _of_memory(name: str) -> Callable[[Rule], Any]:
    return _of(lambda spec: getattr(spec.memory, name, None) or False)


def _kind(entry: BaseModel) -> Any:
    return entry.model_dump(include={"kind"})["kind"]


def _dumped(entry: BaseModel) -> Any:
    return entry.model_dump(mode="json")


PARTS = (
    Part("window", "window 1", _window, 1),
    Part("micro", "one step a token", _of(lambda s: s.optimizer.micro_steps), 1),
    Part("inner", "one step a token", _of(lambda s: s.optimizer.inner_steps), 1),
    Part("plain", "O = identity", _orthogonal, None),
    Part("norms", "no norms", _of(lambda s: s.retention.normalize), "none"),
    Part("every", "every 1", _of(lambda s: s.optimizer.every), 1),
    Part("anchor", "chunk 1", _of(lambda s: s.optimizer.anchor.chunk), 1),
    Part("read", "read after the write", _of(lambda s: s.readout.memory), "after"),
    Part("gate", "no gate", _of(lambda s: isinstance(s.memory, Glu)), False),
    Part("norm", "no layer norm", _of_memory("norm"), False),
    Part("residual", "no residual", _of_memory("residual"), False),
    Part("depth", "one layer", _layers, None),
    Part("slots", "no slots", _of_memory("slots"), False),
    Part("normalizer", "no normaliser", _of(lambda s: s.readout.normalizer), "none"),
    Part("link", "W = A", _of(lambda s: s.retention.link), None),
    Part(None, "local", _of(lambda s: _dumped(s.retention.local)), None),
    Part(None, "constraint", _of(lambda s: _kind(s.retention.constraint)), None),
)
"""Every part, in the order in which they are told."""
WORDS = {part.edit: part.words for part in PARTS if part.edit} | {
    "first": "the chain's first memory alone", "reach": "window = ∞", "rate": "η = 1",
}  # fmt: skip
"""What an edit that puts no number is called."""


def edits_towards(outer: Rule, inner: Rule) -> Iterator[Edits]:
    """Return the edits of the spec of ``outer`` that may make its rule that of ``inner``; none to
    be tried where a part of the two differs that cannot be taken away.

    >>> from mnemic.compiler.derive import derive_spec
    >>> from mnemic.dsl.load import load
    >>> list(edits_towards(*(derive_spec(load(name)) for name in ("ttt-mlp", "ttt-linear"))))
    [('depth',)]
    """
    first: Edits = ()
    spec, other = (rule.problem.spec for rule in (outer, inner))
    if isinstance(spec.memory, Chain) and not isinstance(other.memory, Chain):
        outer, first = derive_spec(alone(spec)), ("first",)
    taken = _taken(outer, inner)
    if taken is None:
        return
    rate = ("rate",) if _scheduled(spec) and not _scheduled(other) else ()
    for chosen in _chosen(outer, inner):
        yield (*first, *taken, *rate, *chosen)


def words_of_edits(edits: Edits) -> Edits:
    """Return edits in words.

    >>> words_of_edits(("window", "bias.p=2"))
    ('window 1', 'p = 2')
    """
    told = (words_of((e,))[0] if "=" in e else WORDS[e] for e in edits)
    return tuple(words.replace("= oo", "= ∞") for words in told)


def alone(spec: Spec) -> Spec:
    """Return a spec with the first memory of its chain alone."""
    assert isinstance(spec.memory, Chain)
    return spec.model_copy(update={"memory": spec.memory.chain[0]})


def ungated(memory: BaseModel) -> Mlp:
    """Return a gated product W1 (σ(W2 x) ∘ W3 x) with its gate W3 x at one."""
    assert isinstance(memory, Glu)
    return Mlp(kind="mlp", depth=2, **memory.model_dump(exclude={"kind"}))


def _taken(outer: Rule, inner: Rule) -> Edits | None:
    """Return the parts to be taken from ``outer``; None where one that differs cannot be."""
    found = []
    if _of_pairs(outer) != _of_pairs(inner):
        return None
    for part in PARTS:
        mine, theirs = part.read(outer), part.read(inner)
        if mine == theirs:
            continue
        if theirs != part.none or part.edit is None:
            return None
        if part.edit == "depth" and not isinstance(outer.problem.spec.memory, Mlp | Glu):
            return None
        if part.edit == "plain" and outer.applied.elementwise:
            return None
        found.append(part.edit)
    return tuple(found)


def _scheduled(spec: Spec) -> bool:
    """Return whether the rate is an expression of the step t, which no argument gives."""
    return re.search(r"\bt\b", spec.optimizer.rate.expr or "") is not None


def _chosen(one: Rule, other: Rule) -> Iterator[Edits]:
    """Yield choices for the numbers in a rule: its own, those of another rule, or simpler ones."""
    options: list[tuple[str | None, ...]] = []
    outer, inner = one.problem.spec, other.problem.spec
    for axis in NUMBERED:
        if getattr(outer, axis) == getattr(inner, axis):
            continue
        if axis == "memory" and not isinstance(one, KeyValuePairs):
            continue
        mine, theirs = (dict(numbers(axis, getattr(s, axis))) for s in (outer, inner))
        values = sorted({*VALUES, *_written(getattr(inner, axis))})
        for path, held in mine.items():
            if path.startswith("retention.link") and inner.retention.link is None:
                continue
            if path in theirs:
                options.append((None if theirs[path] == held else f"{path}={theirs[path]:g}",))
            else:
                # a size is plainer at 0 alone, a power or a count at small whole numbers
                plainer = values if held >= 1 else (0,)
                options.append((None, *(f"{path}={x}" for x in plainer if x != held)))
    for chosen in islice(product(*options), MOST_CHOICES):
        yield tuple(edit for edit in chosen if edit)


def _written(entry: BaseModel) -> set[int]:
    """Return the whole numbers that an entry's own expressions name."""
    texts = [x for x in entry.model_dump().values() if isinstance(x, str)]
    return {int(x) for text in texts for x in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}
