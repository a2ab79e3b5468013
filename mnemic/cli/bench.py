"""``mnemic bench``: speed and memory of compiled rules on this machine."""

from typing import Annotated

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import console, echo, print_json

Specs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC",
        help="Specs to time, chunk form against token by token; the standard set if left out.",
        autocompletion=complete_name,
    ),
]


def bench(specs: Specs = None, as_json: AsJson = False) -> None:
    """Time compiled rules side by side with references: one process, one thread, best of several.

    JSON: {"setting", "figures": [{"what", "value", "unit", "goal", "met", "detail"}, ...],
    "notes": [...]}.
    """
    from mnemic.bench import run, setting

    with console(stderr=True).status("timing") as status:
        report = run(tuple(specs or ()), lambda what: status.update(f"timing {what}"))
    if as_json:
        print_json({"setting": setting(), **report.to_json()})
        return
    echo(setting())
    console().print(report.table())
    for note in report.notes:
        echo(f"note: {note}")
