"""``mnemic verify``: does a compiled spec compute on this machine what it should?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.facts import warned
from mnemic.cli.output import console, echo, print_json, to_stderr
from mnemic.dsl.spec import Spec
from mnemic.errors import CheckFailed

if TYPE_CHECKING:
    from rich.table import Table

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="The compiled folder; mnemic's cache if left out.",
                 metavar="DIR"),
]  # fmt: skip


Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", min=0, show_default=False,
        help="Without a GPU: begin no trial after so many seconds, in PyTorch and again in Triton's"
        " interpreter (120); 0 for all of them. On a GPU all are made.",
    ),
]  # fmt: skip


Processes = Annotated[
    int | None,
    typer.Option(
        "--processes", min=1, metavar="N", show_default=False,
        help="Processes that share out the trials, whose kernels are compiled first (on a GPU one"
        " for two processor cores, eight at most; else 1).",
    ),
]  # fmt: skip


def verify(
    spec: SpecArgument, output: Output = None, seconds: Seconds = None,
    processes: Processes = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run every form of a spec on this machine against its recurrence in float64.

    Outputs, states and all gradients, at lengths around a chunk, with strong decay, carried states,
    packed documents and views, in each dtype that the device has; fused kernels also at 600 tokens
    of 128 channels, from a state, as lean as each may be. What is found is written to
    verified.json beside the generated code; form="auto" takes the fused kernels only where it says
    that they passed here. Exit code 4 where a form is wrong, or could
    be compared in no dtype. What is being tried is said on standard error, and what there was no
    time for at the end.

    JSON: {"name", "folder", "passed", "note", "entries": [...]} with entries as in verified.json.
    """
    from mnemic.compiler.compare.canonical import rule_hash
    from mnemic.kernels import verifying

    compiled = pipeline.compile(spec, output)
    place = verifying.device()
    limit = verifying.SECONDS if seconds is None else seconds or None
    several = processes or verifying.processes(place)
    told = rule_hash(compiled.rule)
    found = list(verifying.entries(compiled.folder, told, place, limit, several))
    passed = all(entry["passed"] for entry in found)
    note = _note(compiled, place)
    if as_json:
        print_json({"name": compiled.spec.name, "folder": str(compiled.folder), "passed": passed,
                    "note": note, "entries": found})  # fmt: skip
    else:
        _show(found, note, compiled.folder)
    if not passed:
        if growing := _growing(compiled.spec):
            to_stderr(growing)
        if as_json:  # the one document has been printed
            raise typer.Exit(CheckFailed.exit_code)
        wrong = [w for entry in found for line in verifying.lines(entry) for w in line.wrong]
        reasons = wrong[:3] or ["a form of which nothing could be compared in any dtype"]
        raise CheckFailed(f"verify: {compiled.spec.name}: {'; '.join(reasons)}")


def _growing(spec: Spec) -> str:
    """Say why equal forms may part, where a spec's numbers can grow; empty where they cannot."""
    if not any(told.startswith("Outside the stable range") for told in warned(spec)):
        return ""
    return (
        f"{spec.name} may leave its stable range, where rounding errors grow from token to token "
        "and correct forms disagree; `mnemic check` says what keeps it inside. Fix that first"
    )


def _note(compiled: pipeline.Compiled, place: str) -> str:
    from mnemic.kernels.verifying import note

    if "triton" not in compiled.operator.forms:
        return "this rule has no fused form"
    return note(place)


def _show(found: list[dict[str, Any]], note: str, folder: Path) -> None:
    setting = found[0]["setting"] if found else {}
    told = [f"{name} {value}" for name, value in setting.items() if value is not None]
    echo(", ".join(told))
    console().print(_table(found))
    left = [name for entry in found for name in entry["left out"]]
    late = f"no time for {len(left)}: {'; '.join(left)} (--seconds 0 tries all)" if left else ""
    for line in (late, note, f"written to {folder / 'verified.json'}" if found else ""):
        if line:
            echo(line)


def _table(found: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from mnemic.kernels.verifying import lines

    table = Table(box=None, pad_edge=False)
    for heading in ("form", "dtype", "", "largest error", "wrong"):
        table.add_column(heading)
    for line in (line for entry in found for line in lines(entry)):
        more = f" and {len(line.wrong) - 2} more" if len(line.wrong) > 2 else ""
        wrong = "; ".join(line.wrong[:2]) + more
        table.add_row(
            line.form, line.dtype, "passed" if line.passed else "FAILED", line.worst, wrong
        )
    return table
