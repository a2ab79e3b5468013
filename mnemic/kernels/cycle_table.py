"""The table of kernels' cycles by the simulation: their cells, and the file with what follows."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mnemic.kernels import table
from mnemic.kernels.jobs import Job
from mnemic.kernels.limits import target as known
from mnemic.kernels.stalls import shapes
from mnemic.kernels.stalls.units import LATENCY, clock
from mnemic.kernels.table import Cells, line

TITLE = "Cycles of kernels compiled for"

OWN = ("of a", "rows", "programs", "cycles", "alone", "inner", "64 rows", "barriers", "waits")
"""What the simulation adds to the cells of a compiled kernel.

``of a`` turn or program, of so many ``rows`` of a memory, which so many ``programs`` share;
``cycles`` with as many programs on a multiprocessor as it holds (``blocks``), ``alone`` with one,
``inner`` of one more turn of inner loops whose number is not known; ``64 rows`` cycles of a
multiprocessor for so many rows of a memory.
"""

HEADINGS = (*table.HEADINGS[:-2], *OWN, *table.HEADINGS[-2:])
RIGHT = table.RIGHT | set(OWN) - {"of a", "waits"}


def rows(job: Job, found: Mapping[str, Any]) -> Iterator[Cells]:
    """Yield the rows of one job: those of what kernels take, with their cycles."""
    kernels = [kernel for step in found["passes"].values() for kernel in step["kernels"]]
    left = iter(kernels)
    for row in table.rows(job, found):
        own = _simulated(next(left)["cycles"]) if row[table.KERNEL] else ("",) * len(OWN)
        yield (*row[:-2], *own, *row[-2:])


def _simulated(cycles: Mapping[str, Any]) -> Cells:
    waits = ", ".join(f"{100 * x:.0f} % {name}" for name, x in cycles["waits"].items())
    more = "" if cycles["more"] is None else f"{cycles['more']:.0f}"
    return (
        "program" if cycles["whole"] else "turn", str(cycles["rows"]), str(cycles["programs"]),
        f"{cycles['full']:.0f}", f"{cycles['alone']:.0f}", more, f"{cycles['of_rows']:.0f}",
        str(cycles["barriers"]), waits,
    )  # fmt: skip


def markdown(listed: Iterable[Cells], name: str, versions: Mapping[str, str]) -> str:
    """Return the file's text: what the figures are, every kernel, and what calls would take."""
    listed, target = list(listed), known(name)
    named = ", ".join(f"{package} {text}" for package, text in versions.items())
    head = [
        f"# {TITLE} {name}",
        "",
        f"An estimate, not a time: machine code of {named} in bfloat16, simulated "
        f"([docs/kernels.md](../../docs/kernels.md#cycles-without-a-device)), loads from the "
        f"device's memory {LATENCY} cycles long. Written by `mnemic kernels SPECS --stalls "
        f"--target {name} -o FILE`, which simulates what has another source by now.",
        "",
        "`cycles` are those of a turn of the loop over chunks, or of a program that has one chunk, "
        "with `blocks` programs beside each other on a multiprocessor, `alone` with one. A turn or "
        "program is for `rows` rows of a memory, which `programs` programs share (blocks of "
        "values). `inner` is one more turn of inner loops whose number is not known, such as one "
        "over kept pairs; one is in `cycles`. `64 rows` are cycles of a multiprocessor for 64 rows "
        "of a memory, all its programs: cycles / blocks x programs x 64 / rows. `waits` are the "
        "largest shares of a warp's time. A backward pass lists the forward kernels that it "
        "starts, too. Kernels are cut as the model says for a short call; the other columns are "
        f"those of [{name}.md]({name}.md).",
        "",
    ]
    ruled = ["---:" if n in RIGHT else "---" for n in HEADINGS]
    cells = [line(HEADINGS), line(ruled), *map(line, listed), ""]
    return "\n".join([*head, *cells, *_calls(listed, target.name)])


def _calls(listed: list[Cells], name: str) -> Iterator[str]:
    """Yield the lines on what calls would take by these cycles, at the device's clock."""
    target = known(name)
    gigahertz = clock(target) / 1e9
    yield "## Calls, by these cycles"
    yield ""
    yield (
        f"Programs and waves of each kernel, and milliseconds = cycles / clock at "
        f"{gigahertz:.2f} GHz, where the peak of products of the {target.device} holds (at 1.4 "
        f"GHz, under a limit of power, {gigahertz / 1.4:.1f} times as many). A wave is "
        f"{target.processors} multiprocessors x `blocks` programs; cycles are waves x those of a "
        f"program, or of a turn x chunks. A last wave that fills multiprocessors in part takes "
        f"cycles between `alone` and `cycles`, by how full they are. Kernels start one after "
        f"another; starting them is not in it, nor are the bytes of device memory that all "
        f"multiprocessors ask for at once: `bytes` is the time in which q, k, v and y (of a "
        f"gradient also q, k, v, dy, dq, dk, dv) go through {target.bandwidth / 1e12:.2f} TB/s "
        f"once. The cut is the one above, whatever the shape. Where chunks go over all pairs "
        f"before them, inner loops take half as many turns on the average as the text has blocks "
        f"of pairs; `>` where they take others, of which one is counted. A kernel with a "
        f"program a block of pairs has as many as the text has blocks, and takes half of all "
        f"chunks; one that is launched for PART chunks at a time is counted in all its launches."
    )
    yield ""
    headings = ("spec", "pass", "B x T x H, d", "kernels: programs / waves / ms", "ms", "bytes")
    yield line(headings)
    yield line(("---", "---", "---", "---", "---:", "---:"))
    for call in shapes.calls((dict(zip(HEADINGS, row, strict=True)) for row in listed), target):
        parts = "; ".join(f"{x.name} {x.programs} / {x.waves:.1f} / {_ms(x.seconds)}"
                          for x in call.kernels)  # fmt: skip
        least = "> " if call.least else ""
        yield line((call.spec, call.step, str(call.shape), parts, least + _ms(call.seconds),
                    _ms(call.bytes)))  # fmt: skip
    yield ""


def _ms(seconds: float) -> str:
    """Return seconds as milliseconds in three digits."""
    found = 1e3 * seconds
    return f"{found:.0f}" if found >= 100 else f"{found:.3g}"
