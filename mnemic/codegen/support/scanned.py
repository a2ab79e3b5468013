"""Forms over tokens whose number, or whose place in the document, is not known while traced.

``torch.export`` with a dynamic T traces a call for every length there is. A loop in Python has as
many turns as tokens or chunks, so ``scan`` (an operator of torch) takes its place: of chunks for
the output, of tokens for the state after them. torch.compile has a graph for each length instead,
in which a loop takes few tokens that stand anywhere: inductor (torch 2.13) fails on the gradient of
a scan, and on a scan unless ``capture_scalar_outputs`` is set before it looks at the code.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from . import kept, layout, slices
from .arguments import fail
from .calls import Form, States, parameters
from .signature import Signature

if TYPE_CHECKING:
    from .run import Run


Stepped: TypeAlias = tuple[Tensor, States]
"""An output and the states after it, named because torch.compile cannot subscript ``tuple`` where
an inner function is made."""

Carried: TypeAlias = tuple[States, Tensor]
"""What a turn of ``scan`` returns: the states carried on, then the output."""


def unknown(size: int) -> bool:
    """Return whether a size stands for every size while a call is traced."""
    if not torch.compiler.is_compiling():
        return False
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(size)


def refused(signature: Signature) -> str | None:
    """Return why a rule cannot be exported for every length at once, or ``None``."""
    if signature.levels:
        return "the levels of its tree follow from the number of tokens"
    if kept.names(signature):
        return "it keeps a pair of every token, so that its state grows with them"
    return None


def refuse(signature: Signature) -> None:
    """Raise ``ArgumentError`` where a rule cannot be exported for every length at once."""
    reason = refused(signature)
    if reason is not None:
        told = "T is not known while the call is traced (a dynamic T in torch.export)"
        hint = "give it as a number: dynamic_shapes without T"
        raise fail(signature, f"{told}, but {reason}; {hint}")


def fixed(size: int) -> int:
    """Return a size as the number that it is now, for which alone the graph holds then."""
    return len(range(size))


def scanned(run: "Run", states: States) -> tuple[Tensor, States]:
    """Return the output and the states after all tokens: of any number in torch.export, of few in
    torch.compile, wherever the rows stand."""
    y, after = _by_tokens(run, states)
    if run.call.form == "recurrent" or run.call.operator.chunk is None or run.anchored:
        return y, after
    return _by_chunks(run, states), after


def _by_chunks(run: "Run", states: States) -> Tensor:
    """Return the output of whole chunks: copies of the last token fill up, and are cut off."""
    form, size = run.call.operator.chunk, run.chunk_tokens()
    assert form is not None
    count = run.tokens // size + 2  # two at least: one alone would be a case of its own
    found = {n: _cut(run, n, x, size, count) for n, x in run.chunk_rows().items() if n != "live"}
    time = size * torch.arange(1, count + 1, device=run.like.device)[:, None]
    found |= {"_time": time, "ends": _ends(run, time[:, 0])}

    def chunk(carry: States, xs: States) -> Stepped:
        rows = {n: x[None] for n, x in xs.items() if n != "_time"}
        return _closed(form, rows, carry, xs["_time"], size, 1)

    ys, _ = _scan(chunk, form, found, states)
    y = layout.from_chunks(ys[:, 0], run.batch, run.heads * run.folds)
    last = torch.arange(run.tokens, device=y.device) * run.steps + run.steps - 1
    return y.index_select(1, last)


def _by_tokens(run: "Run", states: States) -> tuple[Tensor, States]:
    """Return the output and the states after it, token by token."""
    form, found = run.call.operator.recurrent, {}
    for name, x in run.token_rows().items():
        found[name] = layout.to_time(x).unflatten(0, (-1, run.steps)) if x.ndim >= 3 else x
    time = torch.arange(1, run.tokens + 1, device=run.like.device)[:, None]
    if run.positions is not None:
        memories = run.memories // run.sequences
        time = time + run.positions.reshape(-1).repeat_interleave(memories)
    found |= {"_time": time, "ends": _ends(run, time[:, 0])}

    def token(carry: States, xs: States) -> Stepped:
        rows = {n: x for n, x in xs.items() if n != "_time"}
        return _closed(form, rows, carry, xs["_time"], 1, run.steps)

    ys, after = _scan(token, form, found, states)
    return layout.from_time(ys[:, -1], run.batch, run.heads * run.folds), after


def _closed(
    form: Form, rows: States, states: States, time: Tensor, size: int, count: int
) -> tuple[Tensor, States]:
    """Return the output of one chunk, or of one token, and the states after it.

    ``time`` [M] or [1] tokens are done with it, ``size`` of them its own. The last of its ``count``
    rows ends each interval that divides ``size``; what others end is made beside, and taken there.
    """
    found: list[int] = []

    def told(row: int, every: int) -> bool:
        if size % every == 0:
            return row == count - 1
        found.append(every)
        return False

    y, after = form(**rows, **states, closes=told)
    intervals = sorted(set(found))
    for several in range(1, len(intervals) + 1):
        for chosen in combinations(intervals, several):
            here = torch.ones_like(time, dtype=torch.bool)
            for every in intervals:
                here = here & ((time % every == 0) == (every in chosen))
            own, ends = form(**rows, **states, closes=partial(_ends_some, chosen, size, count))
            y = torch.where(_over(here, y[0])[None], own, y)
            after = {n: torch.where(_over(here, x), ends[n], x) for n, x in after.items()}
    return y, after


def _ends_some(chosen: tuple[int, ...], size: int, count: int, row: int, every: int) -> bool:
    """Return whether a row ends an interval: a piece's last, of each or a ``chosen`` interval."""
    return row == count - 1 and (size % every == 0 or every in chosen)


def _over(here: Tensor, x: Tensor) -> Tensor:
    """Give [M] or [1] the axes of x [M, …]."""
    return here.reshape(-1, *(1 for _ in x.shape[1:]))


def _scan(
    turn: Callable[[States, States], tuple[Tensor, States]], form: Form, rows: States,
    states: States,
) -> tuple[Tensor, States]:  # fmt: skip
    """Take one turn after another, each with the states and a slice of the rows."""
    named = {n: x for n, x in rows.items() if n == "_time" or n in parameters(form)}
    same = {n: x for n, x in named.items() if not x.ndim}
    along = {n: x for n, x in named.items() if x.ndim}
    if not torch.compiler.is_exporting():
        return _looped(turn, along, same, states)
    from torch._higher_order_ops.scan import scan

    def combined(carry: States, xs: States) -> Carried:
        y, after = turn(carry, {**xs, **same})
        whole = torch.contiguous_format
        return {n: after[n].clone(memory_format=whole) for n in carry}, y.clone(memory_format=whole)

    start = {n: x.clone(memory_format=torch.contiguous_format) for n, x in states.items()}
    after, ys = scan(combined, start, along)
    return ys, after


def _looped(
    turn: Callable[[States, States], Stepped], along: States, same: States, states: States
) -> tuple[Tensor, States]:
    """Take the turns of `_scan` in Python's loop."""
    outputs = []
    for rows in slices.each(*along.values()):
        y, after = turn(states, {**dict(zip(along, rows, strict=True)), **same})
        states = {n: after[n] for n in states}
        outputs.append(y)
    return torch.stack(outputs), states


def _cut(run: "Run", name: str, x: Tensor, size: int, count: int) -> Tensor:
    """Cut [B, R, H, …] into [N, M, C, …], with the tail before each where the form takes one.

    Rows behind the last are the last again: what is computed of them is finite where that is.
    """
    if x.ndim < 3:
        return x
    tailed = run.signature.banded and name in ("k", "v", *run.signature.keys)
    wide = size * run.steps + (run.signature.window - 1 if tailed else 0)
    row = torch.arange(count, device=x.device)[:, None] * size * run.steps
    index = (row + torch.arange(wide, device=x.device)).clamp(max=x.shape[1] - 1)
    return x[:, index].movedim(1, 0).movedim(3, 2).flatten(1, 2).contiguous()


def _ends(run: "Run", done: Tensor) -> Tensor:
    """Return the document's tokens when so many of these are done."""
    return done if run.positions is None else done + run.positions.reshape(-1)[0]
