"""``mnemic kernels``: what the fused kernels of specs take on a GPU, without one."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import console, echo, print_json
from mnemic.errors import CheckFailed

if TYPE_CHECKING:
    from mnemic.kernels.build import Built
    from mnemic.kernels.table import Row

Specs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC", help="Specs (all that compile, if left out).", autocompletion=complete_name
    ),
]
Target = Annotated[str, typer.Option("--target", help="sm_80, sm_90, sm_100 or sm_120.")]
Width = Annotated[
    list[int] | None,
    typer.Option("--width", help="d_k = d_v (64 and 128).", show_default=False, min=1),
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Also write the table: Markdown for .md, else JSON.",
                 metavar="FILE"),
]  # fmt: skip
Processes = Annotated[int, typer.Option("--processes", min=1, help="Compile so many at a time.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Exit with 4 where a kernel spills, does not fit or compile.",
                 show_default=False),
]  # fmt: skip


def kernels(
    specs: Specs = None,
    target: Target = "sm_90",
    width: Width = None,
    output: Out = None,
    processes: Processes = 1,
    check: Check = False,
    as_json: AsJson = False,
) -> None:
    """Compile every fused kernel of specs for a GPU that need not be there.

    Forward, backward and decode, at d = 64 and 128 in bfloat16: registers, spilled bytes, shared
    memory and instructions of the tensor cores, against the device's limits.

    JSON: {"target", "versions", "kernels": [{"spec", "class", "d", "passes", "missing"}, ...]};
    a pass is {"kernels", "bytes": {"moved", "floor", "launches"}, "error"}.
    """
    from mnemic.dsl.catalogue import names
    from mnemic.kernels import build, table

    with console(stderr=True).status("compiling") as status:
        asked = build.jobs(specs or names(), target, tuple(width or build.WIDTHS))
        found = build.build(
            asked, processes, lambda job: status.update(f"compiling {job.spec}, d = {job.width}")
        )
    rows = [row for job, one in found for row in table.rows(job, one)]
    plain = {"target": target, "versions": build.versions(), "kernels": _plain(found)}
    if output is not None and output.suffix == ".md":
        _write(output, table.markdown(rows, target, build.versions()))
    elif output is not None:
        _write(output, json.dumps(plain, indent=1) + "\n")
    if as_json:
        print_json(plain)
    else:
        console().print(table.terminal(rows))
        echo(_summary(rows))
    wrong = [row for row in rows if row.told and row.step]
    if check and wrong:
        told = "; ".join(f"{r.spec} d = {r.width} {r.step}: {r.told}" for r in wrong[:5])
        raise CheckFailed(f"kernels: {len(wrong)} do not compile well: {told}")


def _plain(found: "Sequence[Built]") -> list[dict[str, Any]]:
    """Results as JSON holds them, without this machine's folders."""
    listed = []
    for job, one in found:
        told = asdict(job)
        lead = {"spec": told["spec"], "class": told["family"], "d": told["width"]}
        listed.append({**lead, "dtype": told["dtype"], **one})
    return listed


def _summary(rows: "Sequence[Row]") -> str:
    compiled = sum(row.kernel is not None for row in rows)
    troubled = sum(row.kernel is not None and bool(row.told) for row in rows)
    failed = sum(row.kernel is None and bool(row.step) for row in rows)
    lacking = len({row.spec for row in rows if not row.step})
    return (
        f"{compiled} kernels, {troubled} of them spill or do not fit; {failed} passes failed; "
        f"{lacking} specs without a fused form"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
