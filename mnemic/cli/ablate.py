"""``mnemic ablate``: what each change of a spec does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.output import console, echo, going_on, print_json, raw, to_stderr
from mnemic.cli.overrides import (
    BlockOption,
    CompileSteps,
    Device,
    Rates,
    Seeds,
    numbers,
    overridden,
)
from mnemic.cli.pages import PAGE, demand_ending, write_page
from mnemic.errors import Issue, UsageError, format_issue, nearest

if TYPE_CHECKING:
    from mnemic.dsl.spec import Spec
    from mnemic.search.space.neighbours import Dropped, Neighbour
    from mnemic.search.space.space import Space

SpacePath = Annotated[
    str | None,
    typer.Option("--space", metavar="SPACE", help="A YAML file with the tasks and the budget."),
]
Axes = Annotated[
    str | None, typer.Option(metavar="AXIS,AXIS,...", help="Change only these.", show_default="all")
]
List = Annotated[bool, typer.Option("--list", help="Only list the neighbours; train nothing.")]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="Folder of the runs.", show_default="runs/SPEC-ablation",
                 metavar="DIR"),
]  # fmt: skip
Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", "--out", metavar="FILE", help="Write the table to a Markdown file."
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Neighbours that are trained at a time.")]
Again = Annotated[bool, typer.Option("--again", help="Try once more what failed.")]
Report = Annotated[
    bool, typer.Option("--report", help="Only write the table of what was measured.")
]


def ablate(
    spec: SpecArgument,
    space: SpacePath = None,
    axes: Axes = None,
    block: BlockOption = None,
    seeds: Seeds = None,
    rates: Rates = None,
    list_: List = False,
    run: Run = None,
    out: Out = None,
    device: Device = None,
    compile_steps: CompileSteps = False,
    jobs: Jobs = 1,
    again: Again = False,
    report: Report = False,
    as_json: AsJson = False,
) -> None:
    """Train a spec beside all specs that differ from it in one axis, and say what each change does.

    The axes are loss, features, weights, window, retention, order, optimizer, rate, anchor, keys,
    function-class and read-out. Their values are those of the language that need no numbers, and
    those of the packaged specs. Changes that are refused, or give the same rule, are listed with
    the reason. Differences are taken seed by seed, with 95 % intervals. The same command goes on
    where it was broken off.

    JSON: {"spec", "skill", "effects": [{"axis", "change", "name", "mean", "tasks", "sure", "why"},
    ...], "dropped": [{"axis", "change", "why"}, ...]}; of --list {"spec", "neighbours": [{"axis",
    "change", "name"}, ...], "dropped"}.
    """
    from mnemic.dsl.load import load
    from mnemic.models.device import OF_SPACE, demand_device
    from mnemic.search.report.ablation import default_space
    from mnemic.search.space.neighbours import neighbours
    from mnemic.search.space.one_block import fitted, with_block
    from mnemic.search.space.space import load_space

    demand_ending(out, PAGE)
    asked = load_space(space) if space else default_space()
    read = overridden(asked, None, numbers(rates), seeds, device=device,
                      compile=compile_steps or None)  # fmt: skip
    read = read if block is None else with_block(read, block)
    chosen = _chosen(axes)
    if not (list_ or report):
        demand_device(read.settings.device, OF_SPACE)
    own = fitted(read, load(spec))
    with console(stderr=True).status("deriving neighbours") as status:
        found, dropped = neighbours(own, chosen, lambda what: status.update(what[:100]))
    if list_:
        _list(own.name, found, dropped, as_json)
        return
    folder = run or Path("runs") / f"{own.name}-ablation"
    _measure(read, own, found, dropped, Asked(folder, out, jobs, again, report, as_json))


class Asked:
    """Where the results go, how many specs are trained at a time, whether any is, and whether
    those that failed are trained once more."""

    def __init__(
        self, folder: Path, out: Path | None, jobs: int, again: bool, report: bool, as_json: bool
    ) -> None:  # fmt: skip
        self.folder, self.out, self.jobs = folder, out, jobs
        self.again, self.report, self.as_json = again, report, as_json


def _measure(
    space: "Space", own: "Spec", found: "list[Neighbour]", dropped: "list[Dropped]", asked: Asked
) -> None:
    """Train the spec and its neighbours, or read what was trained, and tell what changes do."""
    from dataclasses import asdict

    from mnemic.search.report.ablation import effects, page
    from mnemic.search.report.leaderboard import leaderboard, read_measured

    made = {own.name: own, **{one.spec.name: one.spec for one in found}}
    if asked.report:
        entries = read_measured(space, tuple(made), asked.folder, made=made)
    else:
        with going_on(asked.folder):
            entries = leaderboard(
                space, tuple(made), asked.folder, to_stderr, asked.again, made=made, jobs=asked.jobs
            )  # fmt: skip
    first, *others = entries
    told = effects(first, list(zip(found, others, strict=True)))
    text = page(space, first, told, dropped)
    if asked.out is not None:
        write_page(asked.out, text)
    if asked.as_json:
        skill = None if first.skill is None else asdict(first.skill)
        print_json({"spec": own.name, "skill": skill, "effects": [e.to_json() for e in told],
                    "dropped": [asdict(one) for one in dropped]})  # fmt: skip
    else:
        raw(text if asked.out is None else f"wrote {asked.out}")


def _chosen(text: str | None) -> tuple[str, ...]:
    """Return the axes that are named, in the language's order. Raises UsageError for others."""
    from mnemic.search.space.neighbours import AXES

    given = tuple(AXES) if text is None else tuple(text.split(","))
    for name in given:
        if name not in AXES:
            issue = Issue("", "--axes", name, tuple(AXES), nearest(name, AXES))
            raise UsageError(format_issue(issue))
    return tuple(name for name in AXES if name in given)


def _list(name: str, found: "list[Neighbour]", dropped: "list[Dropped]", as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        plain: list[dict[str, Any]] = [
            {"axis": one.axis, "change": one.change, "name": one.spec.name} for one in found
        ]
        print_json({"spec": name, "neighbours": plain, "dropped": [asdict(d) for d in dropped]})
        return
    echo(f"{name}: {len(found)} neighbours")
    for one in found:
        echo(f"  {one.axis}: {one.change}")
    echo(f"\n{len(dropped)} changes give none:")
    for left in dropped:
        echo(f"  {left.axis}: {left.change}: {left.why}")
