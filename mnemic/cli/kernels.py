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


Count = Annotated[
    bool,
    typer.Option("--count", help="Count bytes and products in Triton's interpreter instead.",
                 show_default=False),
]  # fmt: skip


def kernels(
    specs: Specs = None,
    target: Target = "sm_90",
    width: Width = None,
    output: Out = None,
    processes: Processes = 1,
    check: Check = False,
    count: Count = False,
    as_json: AsJson = False,
) -> None:
    """Compile every fused kernel of specs for a GPU that need not be there.

    Forward, backward, decode (the rule's token) and step (the whole layer's), at d = 64 and 128 in
    bfloat16: registers, spilled bytes, shared memory and instructions of the tensor cores, against
    the device's limits. With --count instead the bytes that they ask for against the least
    possible, and the products, at d = 64.

    JSON: {"target", "versions", "kernels": [{"spec", "class", "d", "passes", "missing"}, ...]};
    a pass is {"kernels", "bytes": {"moved", "floor", "launches"}, "error", "refused"}, with --count
    {"moved", "floor", "products", "error", "refused"}; refused says why its kernels do not take
    this size, for which PyTorch's form runs.
    """
    from mnemic.dsl.catalogue import names
    from mnemic.kernels import build

    widths = tuple(width or (build.WIDTHS[:1] if count else build.WIDTHS))
    with console(stderr=True).status("compiling") as status:
        asked = build.jobs(specs or names(), target, widths)
        found = (build.count if count else build.build)(
            asked, processes, lambda job: status.update(f"{job.spec}, d = {job.width}")
        )
    plain = {"target": target, "versions": build.versions(), "kernels": _plain(found)}
    if output is not None and output.suffix != ".md":
        _write(output, json.dumps(plain, indent=1) + "\n")
    if as_json:
        print_json(plain)
    markdown = output if output is not None and output.suffix == ".md" else None
    show = _counted if count else _compiled
    wrong = show(found, target, markdown, quiet=as_json)
    if check and wrong:
        raise CheckFailed(f"kernels: {len(wrong)} not as they should be: {'; '.join(wrong[:5])}")


def _compiled(
    found: "Sequence[Built]", target: str, markdown: Path | None, *, quiet: bool
) -> list[str]:
    """Show and write what was compiled; what is wrong with it."""
    from mnemic.kernels import build, table

    rows = [row for job, one in found for row in table.rows(job, one)]
    if markdown is not None:
        _write(markdown, table.markdown(rows, target, build.versions()))
    if not quiet:
        console().print(table.terminal(table.HEADINGS, [row.cells for row in rows]))
        echo(_summary(rows))
    return [
        f"{r.spec} d = {r.width} {r.step}: {r.told}" for r in rows if r.step and table.amiss(r.told)
    ]


def _counted(
    found: "Sequence[Built]", target: str, markdown: Path | None, *, quiet: bool
) -> list[str]:
    """Show and write what was counted; what is wrong with it."""
    from mnemic.kernels import table

    cells = [row for job, one in found for row in table.counts(job, one)]
    if markdown is not None:
        _write(markdown, table.counts_markdown(cells, target))
    if not quiet:
        console().print(table.terminal(table.COUNTED, cells))
    return [f"{row[0]} {row[3]}: {row[-1]}" for row in cells if row[3] and table.amiss(row[-1])]


def _plain(found: "Sequence[Built]") -> list[dict[str, Any]]:
    """Results as JSON holds them, without this machine's folders."""
    listed = []
    for job, one in found:
        told = asdict(job)
        lead = {"spec": told["spec"], "class": told["family"], "d": told["width"]}
        listed.append({**lead, "dtype": told["dtype"], **one})
    return listed


def _summary(rows: "Sequence[Row]") -> str:
    from mnemic.kernels.table import amiss

    compiled = sum(row.kernel is not None for row in rows)
    troubled = sum(row.kernel is not None and bool(row.told) for row in rows)
    without = [row for row in rows if row.kernel is None and row.step]
    failed = sum(amiss(row.told) for row in without)
    lacking = len({row.spec for row in rows if not row.step})
    return (
        f"{compiled} kernels, {troubled} of them spill or do not fit; {failed} passes failed; "
        f"{len(without) - failed} refuse the size; "
        f"{lacking} specs without a fused form"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
