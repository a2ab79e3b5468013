"""A form divided at pairs that are made of earlier pairs, and its gradient.

Where a row's new pair depends on the pairs before it (a delta rule behind a kernel),

    uₜ = f(row t, Σ_(i<t) g(row t, pair i)),

only the making of pairs is sequential. What the output reads of them, it reads when all are there:
a program a chunk. The making itself goes by parts of some chunks, as a triangular system is solved
by blocks: what earlier pairs give to the sums of a part is summed by a program a chunk; then one
program a memory goes on with these sums through the part, whose own pairs are few.

In the gradient, d u of all pairs comes first: from the output's reads, which are shared out as if
u were an argument; then from later rows, part by part from the last one, where d of the pairs
before a part is a plain sum over its rows. With d u known, everything else is shared out as well.
Whether a form may be divided so is read off its plans.
"""

from dataclasses import dataclass, replace

import networkx as nx

from mnemic.codegen.plan import Given, Plan
from mnemic.codegen.streamed.behind import split_into_entries
from mnemic.codegen.streamed.pair_layout import Streams, streams, with_rows
from mnemic.codegen.streamed.pair_passes import Passes, reads_behind
from mnemic.codegen.streamed.shared_out import (
    Added,
    SharedOut,
    copied,
    laid,
    leave,
    shared_out,
    summed,
)
from mnemic.codegen.tiled.gradient_plan import given_back, ordered, output_of, reversed_of
from mnemic.codegen.tiled.layout import ROWS, Held, Row
from mnemic.codegen.tiled.windows import ROWS as PLAIN


@dataclass(frozen=True)
class Divided:
    """The two plans of a form, laid out alike: one makes pairs, one reads them."""

    making: Streams
    reading: Streams
    sums: tuple[Held, ...]
    """The sums over pairs that parts begin with."""
    made: dict[str, str]
    """States whose pairs are made, and of which rows."""
    logarithms: frozenset[str]


@dataclass(frozen=True)
class DividedGradient:
    """The parts of a divided form's gradient, in the order of their launches."""

    reading: SharedOut
    """The gradient of what the output reads, pairs being arguments."""
    before: Streams | None
    """What gives ``making`` the sums over pairs that it needs; ``None`` where it needs none."""
    given: tuple[Held, ...]
    """The sums over pairs that ``before`` gives."""
    making: Streams
    """The gradients of made pairs, from those of later rows."""
    handed: tuple[Held, ...]
    """What the kernel of ``making`` stores of a chunk's rows for that of ``earlier``."""
    earlier: Added
    """What a part's rows add to the gradients of made pairs before them."""
    rest: SharedOut
    """The gradients of everything else, those of made pairs being known."""


def divided(
    found: Streams, known: frozenset[str], logarithms: frozenset[str]
) -> Divided | None:  # fmt: skip
    """Divide a form's plan; ``None`` where no pairs are made of earlier ones, or more than one pass
    over these is needed for it."""
    plan = found.plan
    made = {s: growth.rows for s, growth in found.growth.items() if s not in known}
    plain = all(g.kept == s and g.rows and not g.tail for s, g in found.growth.items())
    rows = all(row.view == PLAIN for row in found.lay.rows)
    if not (made and plain and rows) or found.lay.states or plan.closed or _span(plan):
        return None
    if plan.output in made.values():
        return None
    making, reading = copied(plan), copied(plan)
    making.output = ""
    making.keep(making.needed())
    for name in made.values():
        reading.rewrite(replace(reading[name], op=Given()))
    reading.keep(reading.needed())
    first = _laid_out(making, found, logarithms, next(iter(made.values())), {})
    passes = Passes(first)
    sums = [q for q in passes.needed(tuple(made.values())) if passes.sums(q)]
    if not sums or any(passes.core(q) for q in sums):
        return None
    held = tuple(Held(q.name, first.lay.sizes(q.name)[1:]) for q in sums)
    if any(first.lay.sizes(q.name)[0] != ROWS for q in sums):
        return None
    second = _laid_out(reading, found, logarithms, reading.output, made)
    return Divided(first, second, held, made, logarithms)


def _span(plan: Plan) -> bool:
    """Return whether a window ends: its pairs are few."""
    ops = (plan[end].op for end in plan.following.values())
    return any(dict(getattr(op, "options", ())).get("span", 0) for op in ops)


def _laid_out(
    plan: Plan, found: Streams, logarithms: frozenset[str], output: str, made: dict[str, str]
) -> Streams:  # fmt: skip
    """Lay a part of a form out as the whole, whose arguments it takes; rows of ``made`` pairs are
    where these lie."""
    part = streams(plan, logarithms, output=output, like=found, windows=found.lay.windows)
    states = {rows: state for state, rows in made.items()}
    own = tuple((row, states[row.name]) for row in part.lay.rows if row.name in states)
    return replace(with_rows(part, found.lay.rows), own=own)


# -- the gradient --------------------------------------------------------------------------------


def divided_gradient(form: Divided, known: dict[str, str]) -> DividedGradient | None:
    """Divide the gradient of a divided form; ``None`` where a part would wait for another."""
    reading = _of_reading(form, known)
    if reading is None:
        return None
    back = reversed_of(form.making.plan)
    back = replace(back, plan=split_into_entries(back.plan))
    made = {back.carried[state] for state in form.made}
    under = streams(
        back.plan, form.logarithms, output=next(iter(made)), given=back.states, like=form.making,
        windows=form.making.lay.windows,
    )  # fmt: skip
    under = with_rows(under, ordered(form.making.lay.rows, under.lay.rows))
    back = given_back(back, form.making.lay.rows)
    under = _with_known(under, made)
    earlier = summed(replace(under, kept=tuple(h for h in under.kept if h.name in made)))
    others = tuple(h for h in under.kept if h.name not in made)
    read = (*under.read, *(h for h in under.kept if h.name in made))
    rest = shared_out(replace(under, kept=others, read=read), back, known)
    if earlier is None or rest is None:
        return None
    making = _of_making(under, earlier, made)
    if making is None:
        return None
    before, given, scan = making
    names = {held.name for held in given}
    handed = tuple(held for held in earlier.handed if held.name not in names)
    earlier = replace(earlier, handed=(*given, *handed))
    return DividedGradient(reading, before, given, scan, handed, earlier, rest)


def _of_reading(form: Divided, known: dict[str, str]) -> SharedOut | None:
    """Return the gradient of what the output reads."""
    back = reversed_of(form.reading.plan)
    back = replace(back, plan=split_into_entries(back.plan))
    like = replace(form.reading, lay=replace(
        form.reading.lay, rows=(*form.reading.lay.rows, *(row for row, _ in form.reading.own)),
    ))  # fmt: skip
    under = streams(
        back.plan, form.logarithms, output=output_of(back), given=back.states, like=like,
        windows=like.lay.windows,
    )  # fmt: skip
    rows = ordered(form.reading.lay.rows, under.lay.rows)
    under = replace(with_rows(under, rows), own=form.reading.own)
    back = given_back(back, like.lay.rows)
    return shared_out(under, back, known | form.made)


def _with_known(under: Streams, made: set[str]) -> Streams:
    """Take a chunk's own entries of made pairs' gradients for known."""
    plan, own = copied(under.plan), []
    for quantity in plan.ordered():
        if reads_behind(quantity) and quantity.reads()[0] in made:
            sizes = under.lay.sizes(quantity.name)
            own.append((Row(quantity.name, sizes[1:], "zero"), quantity.reads()[0]))
            plan.rewrite(replace(quantity, op=Given()))
    return replace(laid(under, plan), own=tuple(own))


def _of_making(
    under: Streams, earlier: Added, made: set[str]
) -> tuple[Streams | None, tuple[Held, ...], Streams] | None:  # fmt: skip
    """Return the gradients of made pairs as a plan that goes from the last chunk to the first, and
    what is to be summed over pairs before; ``None`` where sums over pairs wait for gradients."""
    plan = copied(under.plan)
    plan.following = {name: end for name, end in plan.following.items() if name in made}
    plan.results = {tile.name: tile.name for tile in earlier.handed}
    plan.keep(plan.needed() | made)
    kept = tuple(h for h in under.kept if h.name in made)
    scan = replace(laid(under, plan), kept=kept)
    passes = Passes(scan)
    ends = (*plan.following.values(), *plan.results)
    sums = [q for q in passes.needed(ends) if passes.sums(q)]
    reached = {n for row, _ in under.own for n in nx.descendants(plan.graph, row.name)}
    if any(q.name in reached for q in sums):
        return None
    given = tuple(Held(q.name, scan.lay.sizes(q.name)[1:]) for q in sums)
    if any(scan.lay.sizes(q.name)[0] != ROWS for q in sums):
        return None
    if not given:
        return None, (), scan
    before = copied(under.plan)
    leave(before, {held.name: held.name for held in given})
    for quantity in sums:
        plan.rewrite(replace(quantity, op=Given()))
    return replace(laid(under, before), kept=()), given, replace(laid(under, plan), kept=kept)
