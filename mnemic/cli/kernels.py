"""``mnemic kernels``: what the fused kernels of specs take on a GPU, without one."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import console, echo, print_json
from mnemic.cli.pages import PAGE, demand_ending, write_page
from mnemic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from mnemic.kernels.build import Built
    from mnemic.kernels.jobs import Job
    from mnemic.kernels.layouts import Layout
    from mnemic.kernels.table import Cells


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
    typer.Option("-o", "--output", metavar="FILE",
                 help="Also write the results: JSON (.json), or a table to continue (.md)."),
]  # fmt: skip
Processes = Annotated[int, typer.Option("--processes", min=1, help="Compile so many at a time.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Exit with 4 where a kernel spills or does not fit, too.",
                 show_default=False),
]  # fmt: skip


Count = Annotated[
    bool,
    typer.Option("--count", help="Count bytes and products in Triton's interpreter instead.",
                 show_default=False),
]  # fmt: skip


Stalls = Annotated[
    bool,
    typer.Option("--stalls", help="Simulate the machine code as well: an estimate of its cycles.",
                 show_default=False),
]  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The Markdown file that is asked for, if any; ``whole``: of all specs that there are."""

    target: str
    path: Path | None
    whole: bool
    layout: "Layout"


def kernels(
    specs: Specs = None,
    target: Target = "sm_90",
    width: Width = None,
    output: Out = None,
    processes: Processes = 1,
    check: Check = False,
    count: Count = False,
    stalls: Stalls = False,
    as_json: AsJson = False,
) -> None:
    """Compile every fused kernel of specs for a GPU that need not be there.

    Forward, backward, decode (the rule's token) and step (the whole layer's), at d = 64 and 128 in
    bfloat16: registers, spilled bytes, shared memory and instructions of the tensor cores, against
    the device's limits. With --count instead the bytes that they ask for against the least
    possible, and the products, at d = 64. With --stalls (sm_80, sm_90) the machine code of forward
    and backward kernels is simulated, too: cycles of a turn of the loop over chunks, or of a
    program, cycles of a multiprocessor for 64 rows of a memory, barriers, and what warps wait for;
    a table has milliseconds of four shapes besides. That is an estimate, not a time.

    A table (-o FILE.md) is written after every spec. What it holds already is compiled again only
    if what its kernels are made from has changed since; specs that are not asked for keep their
    rows. Of all specs, it lets go of those that are no more.

    JSON, of what was compiled now: {"target", "versions", "kernels": [{"spec", "class", "d",
    "source", "passes", "missing"}, ...]}; a pass is {"kernels", "bytes": {"moved", "floor",
    "launches"}, "error", "refused"}, with --count {"moved", "floor", "products", "error",
    "refused"}; refused says why kernels do not take this size, for which PyTorch's form runs. A
    kernel's "cycles" are, with --stalls, {"whole", "rows", "programs", "beside", "instructions",
    "barriers", "alone", "full", "more", "waits", "of_rows"}.

    Exit code 4 where a pass fails, that is, neither compiles nor is refused for its size.
    """
    from mnemic.dsl.catalogue import names
    from mnemic.kernels import build, table
    from mnemic.kernels.layouts import layout

    if find_spec("triton") is None:
        raise ModuleNotFoundError(name="triton")
    if count and stalls:
        raise UsageError("kernels: read --count with --stalls, allowed: one of them")
    found_layout = layout(stalls=stalls)
    demand_ending(output, PAGE, ".json")
    markdown = output if output is not None and output.suffix == PAGE else None
    widths = tuple(width or (build.WIDTHS[:1] if count else build.WIDTHS))
    jobs = list(build.jobs(specs or names(), target, widths, stalls=stalls))
    made = _counted if count else _compiled
    found, cells = made(jobs, processes, Table(target, markdown, not specs, found_layout))
    plain = {"target": target, "versions": build.versions(), "kernels": _plain(found)}
    if output is not None and markdown is None:
        write_page(output, json.dumps(plain, indent=1) + "\n")
    if as_json:
        print_json(plain)
    else:
        console().print(table.terminal(table.COUNTED if count else found_layout.headings, cells))
        if not count:
            echo(_summary(cells, len(jobs) - len(found)))
    wrong = _wrong(cells, count=count, check=check)
    if wrong:
        if as_json:  # the one document has been printed
            raise typer.Exit(CheckFailed.exit_code)
        raise CheckFailed(f"kernels: {len(wrong)} not as they should be: {'; '.join(wrong[:5])}")


def _wrong(cells: "Sequence[Cells]", *, count: bool, check: bool) -> list[str]:
    """Return why the command fails: what failed itself, and with ``check`` what is not well."""
    from mnemic.kernels import table

    if count:
        return table.miscounted(cells)
    return table.wrong(cells) if check else table.failed(cells)


def _compiled(
    jobs: "Sequence[Job]", processes: int, asked: Table
) -> "tuple[list[Built], list[Cells]]":
    """Compile what the table lacks; return that, and the rows of all that was asked for."""
    from mnemic.kernels import build
    from mnemic.kernels.resumed_table import Kept

    kept = Kept.read(asked.path, asked.target, build.versions(), asked.layout)
    found = []
    with _telling() as told:
        for job, one in build.build([job for job in jobs if not kept.has(job)], processes, told):
            found.append((job, one))
            kept.put(job, asked.layout.rows(job, one))
    if asked.whole:
        kept.only(job.spec for job in jobs)
    return found, kept.of(jobs)


def _counted(
    jobs: "Sequence[Job]", processes: int, asked: Table
) -> "tuple[list[Built], list[Cells]]":
    """Count bytes and products of the jobs; return them and their rows; a table is written last."""
    from mnemic.kernels import build, table

    with _telling() as told:
        found = list(build.count(jobs, processes, told))
    cells = [row for job, one in found for row in table.counts(job, one)]
    if asked.path is not None:
        write_page(asked.path, table.counts_markdown(cells, asked.target))
    return found, cells


@contextmanager
def _telling() -> "Iterator[Callable[[Job], None]]":
    """Yield a function that says on the terminal which job begins."""
    with console(stderr=True).status("compiling") as status:
        yield lambda job: status.update(f"{job.spec}, d = {job.width}")


def _plain(found: "Sequence[Built]") -> list[dict[str, Any]]:
    """Return results as JSON holds them, without this machine's folders."""
    listed = []
    for job, one in found:
        told = asdict(job)
        lead = {"spec": told["spec"], "class": told["family"], "d": told["width"]}
        listed.append({**lead, "dtype": told["dtype"], "source": told["source"], **one})
    return listed


def _summary(listed: "Sequence[Cells]", before: int) -> str:
    from mnemic.kernels.jobs import NO_FORM
    from mnemic.kernels.table import KERNEL, PASS, TOLD, amiss

    compiled = [row for row in listed if row[KERNEL]]
    without = [row for row in listed if row[PASS] and not row[KERNEL]]
    failed = sum(amiss(row[TOLD]) for row in without)
    lacking = {row[0] for row in listed if row[TOLD] == NO_FORM}
    crashed = {row[0] for row in listed if not row[PASS] and row[TOLD] != NO_FORM}
    stumbled = f", {len(crashed)} specs failed as a whole" if crashed else ""
    earlier = f"; {before} specs and sizes as they were in the table" if before else ""
    return (
        f"{len(compiled)} kernels, {sum(bool(row[TOLD]) for row in compiled)} of them spill or do "
        f"not fit; {failed} passes failed{stumbled}, {len(without) - failed} refuse the "
        f"size; "
        f"{len(lacking)} specs without a fused form{earlier}"
    )
