"""The hand-written specs that the best points are compared with, if the space allows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

from mnemic.dsl.catalogue import names
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec, UsageError
from mnemic.search.space.one_block import by_hand
from mnemic.search.space.space import Space
from mnemic.search.study import work
from mnemic.search.study.budget import beyond, bounds
from mnemic.search.study.isolated import Bounds, Failure, isolated
from mnemic.search.study.side_by_side import side_by_side

ALL = "all"
"""The word for every packaged spec within the budget."""


def rivals(space: Space, logs: Path, told: Callable[[str], None], jobs: int = 1) -> Iterator[Spec]:
    """Yield each spec that ``confirm: {against: …}`` names, in the space's block.

    ``all`` stands for every packaged spec that fits the block, is within the budget and is a
    different rule there from those before it, examined ``jobs`` at a time; those left out are
    reported with the reason. A spec that is named explicitly is always taken.

    Raises:
        InvalidSpec: a spec that is named contradicts the space's block.
        UsageError: two specs have the same name.
    """
    demand_names(space)
    given = space.settings.confirm.against
    named = [name for name in given if name != ALL]
    taken = [by_hand(space, name) for name in named]
    yield from taken
    if ALL not in given:
        return
    limits = bounds(space.settings, logs / "reference.log")
    found = {name: _in_block(space, name) for name in names() if name not in named}
    stopping = Event()
    look = partial(_look, space, limits, logs, stopping)
    fit = [spec for spec in found.values() if isinstance(spec, Spec)]
    looks = dict(side_by_side(look, [*taken, *fit], jobs, stopping))
    rules = {looks[spec.name].rule: spec.name for spec in taken}
    for name, spec in found.items():
        reason = spec if isinstance(spec, str) else _why_not(looks[spec.name], rules, name)
        if isinstance(spec, str) or reason:
            told(f"{name} is left out: {reason}")
        else:
            yield spec


def demand_names(space: Space) -> None:
    """Raise UsageError if two specs that a confirmation compares with have the same name.

    Results are kept by name, so one of them would take the place of the other.
    """
    start, against = space.settings.start, space.settings.confirm.against
    known = {name: name for name in names()} if ALL in (*start, *against) else {}
    for source in dict.fromkeys((*start, *against)):
        if source == ALL or known.get(source) == source:
            continue
        name = by_hand(space, source).name
        if (other := known.setdefault(name, source)) != source:
            packaged = "a packaged spec" if other == name else other
            raise UsageError(
                f"{source}: is called {name!r}, as is {packaged}, with which a confirmation "
                "compares, too; give it another name"
            )


@dataclass(frozen=True)
class _Looked:
    """What decides whether a spec is compared: its rule's identity, and a reason against it."""

    rule: str
    over: str


def _why_not(looked: _Looked, rules: dict[str, str], name: str) -> str:
    """Return why a spec is left out, empty if it is not; its rule is then added to ``rules``."""
    if looked.over:
        return looked.over
    same = rules.setdefault(looked.rule, name)
    return "" if same == name else f"the same rule as {same} in this block"


def _in_block(space: Space, name: str) -> Spec | str:
    """Return a packaged spec in the space's block, or why the block contradicts it."""
    try:
        return by_hand(space, name)
    except InvalidSpec as error:
        return str(error).splitlines()[0]


def _look(
    space: Space, limits: dict[str, float], logs: Path, stopping: Event, spec: Spec
) -> tuple[str, _Looked]:
    """Return a spec's name, and what it is over the budget in or why it cannot be looked at."""
    settings = space.settings
    allowed = Bounds(settings.limits.seconds, settings.limits.memory)
    seen = isolated(work.look, spec, settings, None, bounds=allowed,
                    log=logs / f"{spec.name}.log", stopping=stopping)  # fmt: skip
    if stopping.is_set():
        raise KeyboardInterrupt
    if isinstance(seen, Failure):
        return spec.name, _Looked("", f"{seen.kind}: {seen.why}")
    over = beyond(seen.value.costs, limits)
    told = ", ".join(f"{part} of the budget" for part in over)
    return spec.name, _Looked(seen.value.identity, told)
