"""The table of kernels: rows, as Markdown for the repository, as JSON, for a terminal."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mnemic.kernels.jobs import TOKENS, Job
from mnemic.kernels.limits import target

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = (
    "spec", "class", "d", "pass", "kernel", "sizes", "warps", "stages", "registers", "spill",
    "shared", "tensor", "local", "blocks", "told",
)  # fmt: skip
"""spill and shared in bytes, local: loads and stores of the stack, blocks: a multiprocessor."""
RIGHT = {"d", "warps", "stages", "registers", "spill", "shared", "local", "blocks"}


REFUSED = "refused: "
"""What is told begins so where kernels do not take a size, and PyTorch's form runs: no fault."""


@dataclass(frozen=True)
class Row:
    """One kernel of a spec's pass, or (without ``kernel``) why there is none.

    ``cells`` are what the headings say after the pass; ``told`` is empty where all is well.
    """

    spec: str
    family: str
    width: int
    step: str
    kernel: Mapping[str, Any] | None
    told: str

    @property
    def cells(self) -> tuple[str, ...]:
        """One text a heading."""
        lead = (self.spec, self.family, str(self.width), self.step)
        if self.kernel is None:
            return (*lead, *("",) * (len(HEADINGS) - len(lead) - 1), self.told)
        kernel, taken = self.kernel, self.kernel["resources"]
        sizes = " ".join(f"{n}={x}" for n, x in kernel["constants"].items() if _size(x))
        tensor = " ".join(f"{count} {name}" for name, count in taken["tensor"].items())
        return (
            *lead, kernel["name"], sizes, str(kernel["num_warps"]), str(kernel["num_stages"]),
            str(taken["registers"]), str(taken["spill_stores"] + taken["spill_loads"]),
            str(taken["shared"]), tensor, str(taken["local_loads"] + taken["local_stores"]),
            str(kernel["blocks"]), self.told,
        )  # fmt: skip


def _size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def rows(job: Job, found: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of one job."""
    if found["missing"] is not None:
        yield Row(job.spec, job.family, job.width, "", None, found["missing"])
    for name, step in found["passes"].items():
        for kernel in step["kernels"]:
            told = "; ".join(kernel["troubles"])
            yield Row(job.spec, job.family, job.width, name, kernel, told)
        if told := _without(step):
            yield Row(job.spec, job.family, job.width, name, None, told)


def _without(step: Mapping[str, Any]) -> str:
    """Why a pass has no kernel, or nothing."""
    return REFUSED + step["refused"] if step["refused"] else step["error"] or ""


def amiss(told: str) -> bool:
    """Whether what is told of a pass is a fault."""
    return bool(told) and not told.startswith(REFUSED)


def markdown(rows: Iterable[Row], name: str, versions: Mapping[str, str]) -> str:
    """The table as the repository keeps it: nothing in it depends on when or where it was made."""
    named = ", ".join(f"{package} {text}" for package, text in versions.items())
    head = [
        f"# Kernels compiled for {name}",
        "",
        f"bfloat16, default configuration, no device: registers, spills and instructions as the "
        f"assembler of {named} leaves them. Spill and shared are bytes, local counts loads and "
        f"stores of the stack, blocks is how many a multiprocessor holds. Written by "
        f"`mnemic kernels --target {name} -o benchmarks/kernels/{name}.md`.",
        "",
    ]
    ruled = ["---:" if name in RIGHT else "---" for name in HEADINGS]
    body = [line(row.cells) for row in rows]
    return "\n".join([*head, line(HEADINGS), line(ruled), *body, ""])


# -- counts ------------------------------------------------------------------------------------

COUNTED = ("spec", "class", "d", "pass", "bytes", "floor", "times", "products", "bound ns", "told")
"""A token and head; ``bound`` is the least time that the target's memory and tensor cores allow."""


def counts(job: Job, found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The cells of one job's counts."""
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


def counts_markdown(cells: Iterable[Iterable[str]], name: str) -> str:
    """The counts as the repository keeps them."""
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


def line(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def terminal(headings: Iterable[str], cells: Iterable[Iterable[str]]) -> "Table":
    """Either table for a terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    words = {"spec", "class", "pass", "kernel", "sizes", "tensor", "told"}
    for name in headings:
        table.add_column(name, justify="left" if name in words else "right")
    for row in cells:
        table.add_row(*row)
    return table


# -- the table in the repository ---------------------------------------------------------------


def parsed(text: str) -> dict[tuple[str, str], list[str]]:
    """The lines of a written table by spec and d."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in text.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        if row.startswith("| ") and cells[0] not in (HEADINGS[0], "---"):
            found.setdefault((cells[0], cells[2]), []).append(row)
    return found


def made_with(text: str, versions: Mapping[str, str]) -> bool:
    """Whether a written table is of these versions: others give other registers."""
    return all(f"{package} {version} " in text for package, version in versions.items())
