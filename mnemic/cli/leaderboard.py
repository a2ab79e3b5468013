"""``mnemic leaderboard``: specs made by hand, on the same tasks with the same budget."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import echo, print_json, to_stderr

if TYPE_CHECKING:
    from mnemic.search.report.leaderboard import Entry

SpacePath = Annotated[
    str, typer.Argument(metavar="SPACE", help="A YAML file with the tasks and the budget.")
]
Specs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SPEC]...", help="All packaged ones, if left out.",
                   autocompletion=complete_name),
]  # fmt: skip
Run = Annotated[
    Path | None,
    typer.Option("--run", help="Folder of the runs.", show_default="runs/NAME", metavar="DIR"),
]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="Write the table to a Markdown file.")
]
Report = Annotated[
    bool, typer.Option("--report", help="Only write the table of what was measured.")
]
Again = Annotated[bool, typer.Option("--again", help="Try once more what failed.")]


def leaderboard(
    space: SpacePath,
    specs: Specs = None,
    run: Run = None,
    out: Out = None,
    again: Again = False,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Train specs on all tasks of a space at its last rung's budget, and rank them.

    Every spec gets the same model, batches, steps and seeds; those whose parameters or state are
    above the space's bounds are listed apart, and so are those that a task is missing of: a task
    that by its first steps would take longer than the space's limit is given up at once. The same
    command goes on where it was broken off.

    JSON: {"entries": [{"name", "look", "runs", "over", "why", "failed", "skill"}, ...]}.
    """
    from mnemic.dsl.catalogue import names
    from mnemic.models.files import replacing
    from mnemic.search.report.leaderboard import kept
    from mnemic.search.report.leaderboard import leaderboard as measured
    from mnemic.search.report.standings import table
    from mnemic.search.space.space import load_space

    read = load_space(space)
    folder = run or Path("runs") / read.name
    asked = specs or names()
    entries = (
        kept(read, asked, folder) if report else measured(read, asked, folder, to_stderr, again)
    )
    text = table(read, entries)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as beside:
            beside.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"entries": [_plain(entry) for entry in entries]})
    elif out is None:
        echo(text)
    else:
        echo(f"wrote {out}")


def _plain(entry: "Entry") -> dict[str, Any]:
    skill = entry.skill
    found = None if skill is None else {"mean": skill.mean, "half": skill.half}
    return {**asdict(entry), "skill": found}
