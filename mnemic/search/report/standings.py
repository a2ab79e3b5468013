"""The leaderboard as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mnemic.compiler.compare.differing_entries import short
from mnemic.search.report.claims import CLAIMS, claimed
from mnemic.search.report.entries import Entry, alike
from mnemic.search.report.telling import Telling, telling
from mnemic.search.report.ties import first_group
from mnemic.search.report.times import NONE, step_time
from mnemic.search.space.space import Space
from mnemic.search.study.scores import Interval

OWN: Final = "in its own block"
TEST: Final = (
    "(t tests with variances estimated from all specs together, corrected by Bonferroni for all "
    "comparisons with the best)"
)

TOLD: Final = (
    "How the mean skills of specs are spread. Reliability is the part of their variance that does "
    "not come from seeds (0: all of it does, 1: none does). A task that all specs solve, or none, "
    "only dilutes the mean."
)


def table(space: Space, entries: Sequence[Entry], packaged: Sequence[Entry] = ()) -> str:
    """Return Markdown: specs within the budget, those over it, and those that failed or partly so.

    ``packaged`` are the same specs, each in its own block: if any was measured, they get a column
    of their own beside those in the space's block.
    """
    beside = {one.name: one.skill for one in packaged if one.whole} or None
    tasks = list(space.settings.tasks)
    within = sorted((e for e in entries if e.whole and not e.over), key=_by_skill)
    beyond = sorted((e for e in entries if e.whole and e.over), key=_by_skill)
    partly = [e for e in entries if e.runs and e.failed]
    failed = [e for e in entries if not e.runs]
    first = first_group({e.name: e.seeds for e in within})
    head = ["", "spec", "mean skill", *([] if beside is None else [OWN]), *tasks]
    head += ["parameters", "state, bytes", "ms a step"]
    head += ["learning rate"] if space.settings.rates else []
    if space.settings.rungs[0].untrained is not None:
        head.append(f"{space.settings.rungs[0].untrained}, untrained error")
    lines = [_line(head), _line(["---"] * len(head))]
    places = {e.name: "1=" if e.name in first and len(first) > 1 else str(i)
              for i, e in enumerate(within, 1)}  # fmt: skip
    lines += [_line(_row(places[e.name], e, tasks, space, beside)) for e in within]
    parts = ["\n".join(lines), _ties(within, first), _copies(within), _unswept(entries)]
    if beyond:
        rows = [_line([*head, "over"]), _line(["---"] * (len(head) + 1))]
        rows += [_line([*_row("", e, tasks, space, beside), ", ".join(e.over)]) for e in beyond]
        parts.append("## Over the budget\n\n" + "\n".join(rows))
    if partly:
        rows = [_line([*head, "why not"]), _line(["---"] * (len(head) + 1))]
        rows += [_line([*_row("", e, tasks, space, beside), _reasons(e)]) for e in partly]
        parts.append("## Not on every task\n\n" + "\n".join(rows))
    if failed:
        lines = [f"- {e.name}: {e.why or _reasons(e)}" for e in failed]
        parts.append("## Not run\n\n" + "\n".join(lines))
    parts += [_told_by_tasks(tasks, within), _claims(space)]
    return f"{_title(space)}\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _ties(within: Sequence[Entry], first: Sequence[str]) -> str:
    """Say which specs are not significantly below the best."""
    if len(within) < 2:
        return ""
    if min(len(e.seeds) for e in within) < 2:
        return "One seed tells nothing apart: specs are simply ordered by their means."
    if len(first) == 1:
        return f"{first[0]} is above every other spec with 95 % confidence {TEST}."
    return (
        f"`1=` marks the specs that are not told apart from the best with 95 % confidence {TEST}: "
        f"{', '.join(first)}. The order among them means nothing."
    )


def _copies(entries: Sequence[Entry]) -> str:
    """Say which specs are the same rule here, as those that differ only by their own blocks."""
    groups = alike(entries)
    if not groups:
        return ""
    told = "; ".join(", ".join(group) for group in groups)
    return f"These are the same rule in this block and were trained once: {told}."


def _unswept(entries: Sequence[Entry]) -> str:
    """Say for which specs the sweep had fewer learning rates than for others."""
    names = ", ".join(entry.name for entry in entries if entry.unswept)
    if not names:
        return ""
    return f"A learning rate was left out, since a run with it failed: {names}; `--again` tries it."


def tell_tasks(tasks: Sequence[str], entries: Sequence[Entry]) -> dict[str, Telling]:
    """Return how well each task separates specs; tasks with few specs or one seed are left out."""
    found = {}
    for task in tasks:
        skills = {e.name: [run.skill for run in e.runs if run.task == task] for e in entries}
        if (told := telling(skills)) is not None:
            found[task] = told
    return found


def _told_by_tasks(tasks: Sequence[str], entries: Sequence[Entry]) -> str:
    found = tell_tasks(tasks, entries)
    if not found:
        return ""
    head = ["task", "lowest", "nine in ten at least", "half at least", "one in ten at least",
            "highest", "reliability", ""]  # fmt: skip
    rows = [
        [task, *(f"{x:.3f}" for x in (o.lowest, o.low, o.middle, o.high, o.highest)),
         f"{o.reliability:.2f}", o.fault]
        for task, o in found.items()
    ]  # fmt: skip
    lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
    return f"## What each task tells\n\n{TOLD}\n\n" + "\n".join(lines)


def _title(space: Space) -> str:
    rung, settings = space.settings.rungs[-1], space.settings
    sizes = ", ".join(
        f"{name} ({rung.sizes.get(name) or entry.rung or 'published'})"
        for name, entry in settings.tasks.items()
    )
    return (
        f"# Leaderboard: {space.name}\n\n"
        f"Each spec on each task: {_count(settings.model.layers, 'layer')} of "
        f"{settings.model.dim}, {rung.steps} steps of {settings.training.batch} sequences, "
        f"{_count(rung.seeds, 'seed')}; {sizes}. "
        "Skill is the score scaled so that chance is 0 and the best possible is 1; ± is half of "
        "the 95 % confidence interval over seeds. Brackets show the accuracy in percent that a "
        "paper reports for the system in the published setting, with larger models trained longer. "
        "Milliseconds per step are medians, on a machine that may have had other work. Made by "
        f"`mnemic leaderboard` from the space `{space.name}`; with few steps and seeds the order "
        "of neighbours means little."
        + _block(space) + _rates(space)
    )  # fmt: skip


def _block(space: Space) -> str:
    block = space.document.data.get("block")
    if not block:
        return ""
    told = ", ".join(f"{name} {short(value)}" for name, value in block.items())
    return f" Every spec is in the same block: {told}."


def _rates(space: Space) -> str:
    rates = ", ".join(f"{rate:g}" for rate in space.settings.rates)
    return rates and (
        f" Each spec has the one of the learning rates {rates} that did best in a sweep by "
        "successive halving, on a seed of its own."
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _row(
    place: str, entry: Entry, tasks: Sequence[str], space: Space,
    beside: Mapping[str, Interval | None] | None,
) -> list[str]:  # fmt: skip
    assert entry.look is not None
    skills = [_cell(entry, task) for task in tasks]
    own = [] if beside is None else [str(beside.get(entry.name) or NONE)]
    row = [place, entry.name, str(entry.skill or NONE), *own, *skills]
    row += [f"{entry.look.parameters:,}", f"{entry.look.state_bytes:,}", step_time(entry.runs)]
    if space.settings.rates:
        row.append(NONE if entry.rate is None else f"{entry.rate:g}")
    error = entry.look.error
    return row if error is None else [*row, f"{error:.3f}"]


def _cell(entry: Entry, task: str) -> str:
    paper = claimed(entry.name, task)
    found = str(entry.tasks[task]) if task in entry.tasks else NONE
    return found + (f" [{paper:g}]" if paper is not None else "")


def _reasons(entry: Entry) -> str:
    """Say why tasks were not run, each reason once with its tasks."""
    found: dict[str, list[str]] = {}
    for task, why in entry.failed.items():
        found.setdefault(why, []).append(task)
    return "; ".join(f"{', '.join(tasks)}: {why}" for why, tasks in found.items())


def _claims(space: Space) -> str:
    untrained = {rung.untrained for rung in space.settings.rungs}
    about = [c for c in CLAIMS if c.task in space.settings.tasks or c.task in untrained]
    if not about:
        return ""
    lines = [f"- {c.task}: {c.text} ({c.source})." for c in about]
    return "## What the papers claim\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _by_skill(entry: Entry) -> float:
    assert entry.skill is not None
    return -entry.skill.mean
