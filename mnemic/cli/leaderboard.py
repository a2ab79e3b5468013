"""``mnemic leaderboard``: specs made by hand, on the same tasks with the same budget."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import echo, going_on, print_json, raw, to_stderr
from mnemic.cli.overrides import (
    BlockOption,
    Budget,
    CompileSteps,
    Device,
    Rates,
    Seeds,
    numbers,
    overridden,
)
from mnemic.cli.pages import PAGE, demand_ending, write_page
from mnemic.errors import InvalidSpec, Issue, UsageError

if TYPE_CHECKING:
    from mnemic.search.report.entries import Entry
    from mnemic.search.space.space import Space

FEWEST: Final = 3
"""Seeds of a comparison in one block."""

SpacePath = Annotated[
    str, typer.Argument(metavar="SPACE", help="A YAML file with the tasks and the budget.")
]
Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="SPEC", help="All packaged ones, if left out.",
                   autocompletion=complete_name),
]  # fmt: skip
Run = Annotated[
    Path | None,
    typer.Option("--run", help="Folder of the runs.", show_default="runs/NAME", metavar="DIR"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", "--out", metavar="FILE", help="Write the table to a Markdown file."
    ),
]
Report = Annotated[
    bool, typer.Option("--report", help="Only write the table of what was measured.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Specs that are trained at a time.")]
Own = Annotated[
    bool,
    typer.Option("--own/--no-own", help="With --block, measure each spec in its own block too."),
]
Again = Annotated[bool, typer.Option("--again", help="Try once more what failed.")]


def leaderboard(
    space: SpacePath,
    specs: Specs = None,
    run: Run = None,
    out: Out = None,
    block: BlockOption = None,
    own: Own = True,
    budget: Budget = None,
    rates: Rates = None,
    seeds: Seeds = None,
    again: Again = False,
    device: Device = None,
    compile_steps: CompileSteps = False,
    jobs: Jobs = 1,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Train specs on all tasks of a space at its last rung's budget, and rank them.

    Every spec gets the same model, batches, steps and seeds; those whose parameters or state are
    above the space's bounds are listed apart, and so are those that lack a task: a task that by
    its first steps would take longer than the space's limit is given up at once. The same command
    continues a run that was interrupted.

    With --block every memory is set into the same block, so that the rules alone differ, and each
    spec in its own block is measured beside it, unless with --no-own. --rates chooses each spec's
    learning rate from a few by successive halving. Specs that are not told apart from the best are
    marked. From ten specs on, a table says which tasks tell them apart: a task that all specs
    solve, or none does, only dilutes the mean.

    JSON: {"entries": [{"name", "look", "runs", "over", "why", "failed", "rate", "heats",
    "skill"}, ...], "first": [name, ...], "tasks": {name: {"lowest", "low", "middle", "high",
    "highest", "reliability", "fault"}}}, with --block "own": as "entries", in their own blocks.
    """
    from mnemic.dsl.catalogue import names
    from mnemic.search.report.leaderboard import IN_ONE_BLOCK, RESULTS
    from mnemic.search.report.standings import table, tell_tasks
    from mnemic.search.report.ties import first_group
    from mnemic.search.space.one_block import with_block
    from mnemic.search.space.space import load_space

    demand_ending(out, PAGE)
    read = overridden(load_space(space), budget, numbers(rates), seeds, device=device,
                      compile=compile_steps or None)  # fmt: skip
    folder = run or Path("runs") / read.name
    asked = specs or names()
    packaged: list[Entry] = []
    if block is None:
        entries = _entries(read, asked, folder, RESULTS, again, report, jobs)
    else:
        shared = with_block(read, block)
        _demand_seeds(shared)
        if specs:
            _demand_fit(shared, asked)
        entries = _entries(shared, asked, folder, IN_ONE_BLOCK, again, report, jobs)
        packaged = _entries(read, asked, folder, RESULTS, again, report or not own, jobs,
                            demand=False)  # fmt: skip
        read = shared
    text = table(read, entries, packaged)
    if out is not None:
        write_page(out, text)
    if as_json:
        within = {e.name: e.seeds for e in entries if e.whole and not e.over}
        tasks = tell_tasks(list(read.settings.tasks), [e for e in entries if e.name in within])
        told = {
            "entries": [_plain(e) for e in entries],
            "first": list(first_group(within)),
            "tasks": {name: asdict(one) | {"fault": one.fault} for name, one in tasks.items()},
        }
        print_json(told | ({"own": [_plain(e) for e in packaged]} if packaged else {}))
    elif out is None:
        raw(text)
    else:
        echo(f"wrote {out}")


def _entries(
    space: "Space", names: Sequence[str], folder: Path, results: str, again: bool, report: bool,
    jobs: int, demand: bool = True,
) -> "list[Entry]":  # fmt: skip
    """Measure the specs, or read what was measured; return the leaderboard's entries."""
    from mnemic.search.report.leaderboard import leaderboard, read_measured

    if report:
        return read_measured(space, names, folder, results)
    with going_on(folder):
        return leaderboard(
            space, names, folder, to_stderr, again, results, jobs=jobs, demand=demand
        )


def _demand_seeds(space: "Space") -> None:
    """Raise where rules would be compared on too few seeds for an interval that says anything."""
    seeds = space.settings.rungs[-1].seeds
    if seeds < FEWEST:
        raise UsageError(
            f"--block compares rules: read {seeds} seed{'s' * (seeds > 1)} a rule, needed "
            f"at least {FEWEST}; give --seeds {FEWEST}"
        )


def _demand_fit(space: "Space", names: Sequence[str]) -> None:
    """Raise where a spec that was named contradicts the space's block, with every reason."""
    from mnemic.search.space.one_block import by_hand

    issues: list[Issue] = []
    for name in names:
        try:
            by_hand(space, name)
        except InvalidSpec as error:
            issues += error.issues
    if issues:
        raise InvalidSpec(issues)


def _plain(entry: "Entry") -> dict[str, Any]:
    skill = entry.skill
    found = None if skill is None else {"mean": skill.mean, "half": skill.half}
    return {**asdict(entry), "skill": found}
