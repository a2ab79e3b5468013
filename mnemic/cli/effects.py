"""``mnemic effects`` and ``mnemic pareto``: what all that was measured says."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.output import echo, print_json, raw
from mnemic.cli.pages import PAGE, demand_ending, write_page

Places = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE",
        help="Folders of leaderboards, ablations or searches, their files, or storages' URLs.",
    ),
]
Study = Annotated[
    str | None, typer.Option("--study", help="The study's name, where a storage holds several.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        "--out",
        metavar="FILE",
        help="Write Markdown to this file, and pictures beside it.",
    ),
]


def effects(
    places: Places, study: Study = None, out: Out = None, as_json: AsJson = False
) -> None:  # fmt: skip
    """Estimate what each axis of the language does, all else equal, and what axes do together.

    Main effects are mean differences over matched pairs: points that agree on every axis but one,
    the block too. Interactions are those over matched squares. For searches Optuna's functional
    ANOVA tells the importance of each axis beside them. What no pair shows is listed.

    JSON: {"points", "main": [{"axis", "level", "reference", "size": {"mean", "half", "seeds"},
    "pairs"}, ...], "interactions": [{"axes", "changes", "size", "squares"}, ...], "importance":
    {axis: share}, "unknown": [...]}.
    """
    from mnemic.search.report.comparable import described, together
    from mnemic.search.report.effects import effects as estimated
    from mnemic.search.report.effects_page import crossed, forest, page
    from mnemic.search.report.points import STUDY, measured_in

    demand_ending(out, PAGE)
    read = [measured_in(where, study) for where in places]
    points = together(read)
    trained = described(points)
    found = estimated(points, random=all(one.kind == STUDY for one in read))
    pictures: dict[str, str] = {}
    if out is not None:
        drawn = {"effects": forest(found)} if found.main else {}
        drawn |= {"interactions": crossed(found)} if found.interactions else {}
        pictures = {f"{out.stem}-{name}.svg": svg for name, svg in drawn.items()}
        write_page(out, page(found, places, tuple(pictures), trained), pictures)
    if as_json:
        print_json(asdict(found))
    else:
        raw(page(found, places, trained=trained)) if out is None else _tell(out, pictures)


def pareto(places: Places, study: Study = None, out: Out = None, as_json: AsJson = False) -> None:
    """Show skill against state, FLOPs and measured time over everything measured.

    JSON: {"points", "fronts": [{"cost", "points": [{"name", "skill", COST}, ...]}, ...],
    "overall": [name, ...]}.
    """
    from mnemic.search.report.comparable import together
    from mnemic.search.report.pareto import fronts, overall, page, picture
    from mnemic.search.report.points import measured_in

    demand_ending(out, PAGE)
    points = together([measured_in(where, study) for where in places])
    pictures: dict[str, str] = {}
    if out is not None:
        name = f"{out.stem}.svg"
        pictures = {name: picture(points)}
        write_page(out, page(points, places, name), pictures)
    if as_json:
        print_json({"points": len(points), "fronts": [one.to_json() for one in fronts(points)],
                    "overall": [point.name for point in overall(points)]})  # fmt: skip
    else:
        raw(page(points, places)) if out is None else _tell(out, pictures)


def _tell(out: Path, pictures: Iterable[str]) -> None:
    echo(f"wrote {', '.join([str(out), *pictures])}")
