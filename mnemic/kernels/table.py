"""The tables of kernels: their cells, as Markdown for the repository, for a terminal."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mnemic.kernels.jobs import NO_FORM, TOKENS, Job
from mnemic.kernels.limits import target

if TYPE_CHECKING:
    from rich.table import Table

Cells = tuple[str, ...]
"""One text a heading."""

HEADINGS = (
    "spec", "class", "d", "pass", "kernel", "sizes", "warps", "stages", "registers", "spill",
    "shared", "tensor", "local", "blocks", "told", "source",
)  # fmt: skip
"""spill and shared in bytes, local: loads and stores of the stack, blocks: a multiprocessor.

``told`` is empty where all is well; without a kernel it says why there is none. ``source`` is the
digest of what the kernels were made from, empty where they could not be compiled this time.
"""
WORDS = {"spec", "class", "pass", "kernel", "sizes", "tensor", "of a", "waits", "told", "source"}
RIGHT = {"d", "warps", "stages", "registers", "spill", "shared", "local", "blocks"}
PASS, KERNEL = map(HEADINGS.index, ("pass", "kernel"))
TOLD, SOURCE = -2, -1
"""Places of cells, in the table of cycles too, which has more of them between."""

TITLE = "Kernels compiled for"


REFUSED = "refused: "
"""What is told begins so where kernels do not take a size, and PyTorch's form runs: no fault."""


def rows(job: Job, found: Mapping[str, Any]) -> Iterator[Cells]:
    """Yield the rows of one job: one a kernel, and one for what has none."""
    lead = (job.spec, job.family, str(job.width))
    source = "" if found.get("failed") else job.source
    if found["missing"] is not None:
        yield (*lead, *("",) * (len(HEADINGS) - 2 - len(lead)), found["missing"], source)
    for name, step in found["passes"].items():
        for kernel in step["kernels"]:
            yield (*lead, name, *_taken(kernel), "; ".join(kernel["troubles"]), source)
        if told := _without(step):
            yield (*lead, name, *("",) * (len(HEADINGS) - 2 - KERNEL), told, source)


def _without(step: Mapping[str, Any]) -> str:
    """Return why a pass has no kernel, or an empty text if it has one."""
    return REFUSED + step["refused"] if step["refused"] else step["error"] or ""


def amiss(told: str) -> bool:
    """Return whether a remark on a pass (or on all of them) reports a fault."""
    return bool(told) and told != NO_FORM and not told.startswith(REFUSED)


def _taken(kernel: Mapping[str, Any]) -> Cells:
    """Return a kernel's name, its cut and the resources that it takes."""
    taken = kernel["resources"]
    sizes = " ".join(f"{n}={x}" for n, x in kernel["constants"].items() if _size(x))
    tensor = " ".join(f"{count} {name}" for name, count in taken["tensor"].items())
    return (
        kernel["name"], sizes, str(kernel["num_warps"]), str(kernel["num_stages"]),
        str(taken["registers"]), str(taken["spill_stores"] + taken["spill_loads"]),
        str(taken["shared"]), tensor, str(taken["local_loads"] + taken["local_stores"]),
        str(kernel["blocks"]),
    )  # fmt: skip


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def wrong(listed: Iterable[Cells]) -> list[str]:
    """List what spills, does not fit or does not compile."""
    return [_fault(x) for x in listed if amiss(x[TOLD])]


def failed(listed: Iterable[Cells]) -> list[str]:
    """List what does not compile: passes, and all of a spec where the tool itself stumbled."""
    return [_fault(x) for x in listed if not x[KERNEL] and amiss(x[TOLD])]


def _fault(row: Cells) -> str:
    """Tell in words what is amiss in a row."""
    where = f"{row[0]} d = {row[2]}"
    return f"{where} {row[PASS]}: {row[TOLD]}" if row[PASS] else f"{where}: {row[TOLD]}"


def markdown(listed: Iterable[Cells], name: str, versions: Mapping[str, str]) -> str:
    """Return the table as the repository keeps it, the same whenever and wherever it is made."""
    named = ", ".join(f"{package} {text}" for package, text in versions.items())
    head = [
        f"# {TITLE} {name}",
        "",
        f"bfloat16, default configuration, no device: registers, spills and instructions as the "
        f"assembler of {named} leaves them. Spill and shared are bytes, local counts loads and "
        f"stores of the stack, blocks is how many a multiprocessor holds, source the digest of "
        f"what a spec's kernels were made from. Written by `mnemic kernels --target {name} -o "
        f"benchmarks/kernels/{name}.md`, which compiles what has another source by now.",
        "",
    ]
    ruled = ["---:" if name in RIGHT else "---" for name in HEADINGS]
    return "\n".join([*head, line(HEADINGS), line(ruled), *map(line, listed), ""])


# -- counts ------------------------------------------------------------------------------------

COUNTED = ("spec", "class", "d", "pass", "bytes", "floor", "times", "products", "bound ns", "told")
"""A token and head; ``bound`` is the least time that the target's memory and tensor cores allow."""


def counts(job: Job, found: Mapping[str, Any]) -> Iterator[Cells]:
    """Yield the cells of one job's counts."""
    limits = target(job.target)
    lead = (job.spec, job.family, str(job.width))
    if found["missing"] is not None:
        yield (*lead, *("",) * (len(COUNTED) - len(lead) - 1), found["missing"])
    for name, step in found["passes"].items():
        moved, floor, products = step["moved"], step["floor"], step["products"]
        bound = max(moved / limits.bandwidth, products / limits.dense) * 1e9
        times = f"{moved / floor:.2f}" if floor else ""
        yield (*lead, name, f"{moved:.0f}", f"{floor:.0f}", times, f"{products:.0f}",
               f"{bound:.2f}", _without(step))  # fmt: skip


def counts_markdown(cells: Iterable[Cells], name: str) -> str:
    """Return the counts as the repository keeps them."""
    head = [
        "# What kernels ask for",
        "",
        f"Bytes and operations of matrix products, a token and head, in 16 bits, as counted in "
        f"Triton's interpreter at T = {TOKENS}; the floor is every argument, output, state and "
        f"gradient once, and the bound is what the peaks of {name} ({target(name).device}) allow "
        f"at least. Written by `mnemic kernels --count --target {name} -o FILE.md`.",
        "",
    ]
    ruled = ["---" if n in ("spec", "class", "pass", "told") else "---:" for n in COUNTED]
    return "\n".join([*head, line(COUNTED), line(ruled), *map(line, cells), ""])


def miscounted(listed: Iterable[Cells]) -> list[str]:
    """List what could not be counted."""
    return [f"{x[0]} {x[3]}".rstrip() + f": {x[-1]}" for x in listed if amiss(x[-1])]


def line(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def terminal(headings: Iterable[str], cells: Iterable[Cells]) -> "Table":
    """Make a table of cells under headings for a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in headings:
        table.add_column(name, justify="left" if name in WORDS else "right")
    for row in cells:
        table.add_row(*row)
    return table
