"""``mnemic reproduce``: what papers claim, measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.drawing import PICTURE, Drawing, write_drawing
from mnemic.cli.output import console, echo, print_json, raw, to_stderr
from mnemic.cli.pages import demand_ending
from mnemic.errors import UsageError

if TYPE_CHECKING:
    from mnemic.claims import Claim, Outcome


def _complete(incomplete: str) -> list[str]:
    from mnemic.claims import names

    return [name for name in names() if name.startswith(incomplete)]


Name = Annotated[
    str | None,
    typer.Argument(metavar="CLAIM", help="One of the claims; all are listed without one.",
                   autocompletion=_complete, show_default=False),
]  # fmt: skip
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", min=1, help="Repetitions; the claim's own number without it.",
                 show_default=False),
]  # fmt: skip
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Test at the smallest sizes that it runs; keep no verdict."),
]  # fmt: skip
Record = Annotated[bool, typer.Option("--record", help="Keep the outcome in the package.")]
Page = Annotated[bool, typer.Option("--markdown", help="Print the page of all kept outcomes.")]


def reproduce(
    claim: Name = None, seeds: Seeds = None, quick: Quick = False, out: Drawing = None,
    record: Record = False, markdown: Page = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Reproduce what a paper claims, and say whether it holds.

    Systems are compiled from their specs; the verdict follows from the numbers: holds, holds in
    part, does not hold, or not settled. Claims without training take a minute or two, those with
    training up to an hour. Without a name the claims are listed with the verdicts that come with
    the package.

    JSON: of one claim its outcome (claim, verdict, parts, panels, rows, sizes, seconds, setting);
    without a name {"claims": [{"name", "says", "source", "verdict", "trained"}], "counts"}.
    """
    from mnemic.claims import find

    if markdown:
        from mnemic.claims.page import page

        raw(page().rstrip("\n"))
    elif claim is None:
        _list(as_json)
    else:
        _run(find(claim), seeds, quick, out, record, as_json)


def _run(
    claim: "Claim", seeds: int | None, quick: bool, out: Path | None, record: bool, as_json: bool
) -> None:  # fmt: skip
    from mnemic.claims import reproduce as run
    from mnemic.claims.drawing import svg
    from mnemic.claims.recorded import record as keep

    if quick and record:
        raise UsageError("--quick and --record exclude one another")
    demand_ending(out, PICTURE)
    with console(stderr=True).status(claim.name) as status:
        found = run(claim, seeds, quick, lambda what: status.update(f"{claim.name}: {what}"))
    if out is not None:
        write_drawing(out, svg(found))
    if record:
        to_stderr(f"kept as {keep(found)}")
    if as_json:
        print_json(found.to_json())
    else:
        tell(claim, found)


def tell(claim: "Claim", found: "Outcome") -> None:
    """Print an outcome part by part."""
    echo(f"{claim.says}\n  ({claim.source})")
    for part in found.parts:
        mark = {True: "yes ", False: "no  ", None: "open"}[part.holds]
        echo(f"  {mark}  {part.says}\n        {part.seen}")
        if part.why and not part.holds:
            echo(f"        why: {part.why}")
    echo(f"{claim.name}: {found.verdict}, in {found.seconds:.0f} s")


def _list(as_json: bool) -> None:
    from mnemic.claims import CLAIMS
    from mnemic.claims.page import counts, summary
    from mnemic.claims.recorded import outcome

    kept = {claim.name: outcome(claim.name) for claim in CLAIMS}
    verdicts = {n: "not run" if one is None else one.verdict for n, one in kept.items()}
    if as_json:
        rows = [{"name": c.name, "says": c.says, "source": c.source, "trained": c.trained,
                 "verdict": verdicts[c.name]} for c in CLAIMS]  # fmt: skip
        print_json({"claims": rows, "counts": counts()})
        return
    for claim in CLAIMS:
        trained = ", trained" if claim.trained else ""
        echo(f"{claim.name}: {verdicts[claim.name]}{trained}\n  {claim.says}\n  {claim.source}")
    echo(summary())
