"""Kernels by hand beside generated ones, compiled for a device that need not be there.

    python benchmarks/by_hand/compare.py sm_90 -o benchmarks/kernels/by_hand.md

Without a GPU the count of instructions stands for time: of a turn of the loop over chunks (inner
loops times their turns), and a token and head, all warps and blocks of values together. Bytes are
what the kernels ask for in Triton's interpreter at a few tokens, without states at start and end.
``--stalls`` adds cycles of a multiprocessor for 64 rows of a memory, by a simulation of the machine
code (docs/kernels.md, Cycles without a device): an estimate. Words on the command line choose cases
(``--rows generated forward 128``).
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

TOKENS, HEADS = 256, 16

SPECS: Final[Mapping[str, Any]] = {
    "titans-64": {
        "mnemic": 1, "name": "titans-64", "extends": "titans",
        "optimizer": {"anchor": {"chunk": 64}},
    },
}  # fmt: skip
"""Specs that no catalogue has."""


@dataclass(frozen=True)
class Case:
    """One line: by hand (a module of this folder) or generated (a spec), its pass, d, its cut.

    Without ``rows`` a generated kernel is cut as the model says. With ``parallel`` warps the form
    is in several kernels, and so is its gradient.
    """

    name: str
    hand: bool
    step: str
    width: int
    rows: int = 0
    block: int = 64
    warps: int = 8
    stages: int = 1
    parallel: int = 0


SEVERAL: Final = (
    "linear-attention", "gla", "deltanet", "gated-deltanet", "kda", "huber-coordinate",
)  # fmt: skip
"""Specs whose forms are compiled in one kernel and in several."""

GRADIENTS: Final = tuple(
    Case(name, False, "backward", 128, *cut)
    for name in ("linear-attention", "gla", "gated-deltanet") for cut in ((), (64, 64, 4, 2, 4))
)  # fmt: skip
"""Gradients in one kernel, as the model cuts it, and in several, with the form that keeps states
for them."""

CASES: Final = (
    *(Case("gated_delta", True, "forward", *cut) for cut in (
        (64, 32), (64, 64), (128, 32), (128, 32, 64, 4), (128, 64))),
    *(Case("gated-deltanet", False, "forward", *cut) for cut in (
        (64,), (64, 64), (128,), (128, 32), (128, 32, 64, 4))),
    *(Case("huber-coordinate", False, "forward", *cut) for cut in ((64,), (128,))),
    *(Case("gated_delta", True, "backward", d, 32) for d in (64, 128)),
    *(Case("gated-deltanet", False, "backward", d, 32) for d in (64, 128)),
    Case("huber-coordinate", False, "backward", 64, 32),
    Case("titans", True, "forward", 64, 64),
    Case("titans-64", False, "forward", 64),
    *(Case(name, False, "forward", d, 64, 32, 4, 2, 4) for d in (64, 128) for name in SEVERAL),
    *GRADIENTS,
)  # fmt: skip


def matching(words: list[str]) -> tuple[Case, ...]:
    """The cases whose cells hold every word; all, without words."""
    told = {case: f"{case.name} {'hand' if case.hand else 'generated'} {case.step} {case.width}"
            + (" gradients" if case in GRADIENTS else " several" * bool(case.parallel))
            for case in CASES}  # fmt: skip
    return tuple(case for case in CASES if all(word in told[case].split() for word in words))


# -- in a process of its own -----------------------------------------------------------------


def compiled(
    case: Mapping[str, Any], folder: str, target: str, stalls: bool
) -> list[dict[str, Any]]:
    """A case's kernels, those of the loop over chunks alone."""
    from mnemic.kernels.limits import target as known
    from mnemic.kernels.offline import compiling

    run = _runner(Case(**case), folder, TOKENS, HEADS)
    with compiling(known(target), stalls=stalls) as log:
        run()
    return [
        {**asdict(kernel), "target": target, "of rows": kernel.cycles and kernel.cycles.of_rows}
        for kernel in log.kernels
    ]


def moved(case: Mapping[str, Any], folder: str) -> float:
    """Bytes that a token and head asks for, beyond what no token asks for."""
    from mnemic.kernels.tracing import tracing

    found = []
    for tokens in (128, 192):
        run = _runner(Case(**case), folder, tokens, 1)
        with tracing() as traced:
            run()
        found.append(traced.moved)
    return (found[1] - found[0]) / 64


def _runner(case: Case, folder: str, tokens: int, heads: int) -> Any:
    import torch

    from mnemic.codegen.support.versions import interpreting

    short = torch.float16 if interpreting() else torch.bfloat16
    make = _by_hand if case.hand else _generated
    return make(case, folder, tokens, heads, short)


def _by_hand(case: Case, _: str, tokens: int, heads: int, short: Any) -> Any:
    import torch

    from by_hand import gated_delta, titans

    d, cut = case.width, {"rows": case.rows, "block": case.block, "warps": case.warps}
    q, k, v = (torch.zeros(1, tokens, heads, d, dtype=short) for _ in range(3))
    numbers = [torch.zeros(1, tokens, heads) for _ in range(3)]
    state = torch.zeros(1, heads, d, d)
    if case.name == "titans":
        shapes = ((4 * d, d), (d, 4 * d)) * 2
        matrices = tuple(torch.zeros(1, heads, *shape) for shape in shapes)
        return lambda: titans.forward(q, k, v, *numbers, matrices, **cut)
    if case.step == "forward":
        return lambda: gated_delta.forward(q, k, v, *numbers[:2], state, **cut)
    kept = torch.zeros(heads * -(-tokens // case.rows // gated_delta.PIECE), d, d)
    return lambda: gated_delta.backward(q, k, v, *numbers[:2], kept, v, state, **cut)


def _generated(case: Case, folder: str, tokens: int, heads: int, short: Any) -> Any:
    from mnemic.codegen.package import load, support
    from mnemic.kernels import jobs

    jobs.BATCH, jobs.TOKENS = 1, tokens
    module = load(Path(folder))
    fused = support(module, "fused")
    if case.rows:
        cut = fused.Configuration(case.rows, case.block, case.warps, case.stages,
                                  parallel=case.parallel)  # fmt: skip
        fused.configured = lambda *_, **__: cut
    fused.divided_cut = lambda *given, **_: given[4]
    subject = jobs.Subject.of(module, case.width, short, heads)
    return getattr(subject, case.step)


# -- the table -------------------------------------------------------------------------------

HEADINGS = (
    "kernel", "pass", "d", "rows", "block", "warps", "registers", "spill", "shared", "tensor",
    "all", "chunk", "a token", "bytes", "floor", "64 rows",
)  # fmt: skip

IN_BLOCKS = ("chunk_back_parallel", "chunk_back_rest")
"""Kernels whose programs have all values, a block of them after another."""

KERNELS = (
    "chunk_parallel", "chunk_scan", "chunk_forward", "chunk_backward", "chunk_back_scan",
    *IN_BLOCKS, "chunk_swept_forward", "gated_delta_forward", "gated_delta_backward",
    "titans_forward",
)  # fmt: skip


def cells(case: Case, kernel: Mapping[str, Any], bytes_: float | None) -> tuple[str, ...]:
    """One line of the table."""
    taken, constants = kernel["resources"], kernel["constants"]
    rows, warps = constants["C"], kernel["num_warps"]
    values = constants.get("BV", case.width)
    chunk = taken["chunk"]
    once = chunk["executed"]
    if kernel["name"] == "gated_delta_backward":  # a loop over pieces: two loops over chunks inside
        once = sum(chunk["inner"])
    if case.name == "titans":  # two loops over blocks of hidden units
        turns = constants["N"] // constants["BN"]
        once = chunk["written"] + (turns - 1) * sum(chunk["inner"])
    told = "?" if once is None else str(once)
    shared = 1 if kernel["name"] in IN_BLOCKS else case.width / values
    each = "?" if once is None else f"{once * warps * shared / rows:.0f}"
    tensor = " ".join(f"{n} {name}" for name, n in taken["tensor"].items())
    label = f"{case.name}, {'by hand' if case.hand else 'generated'}"
    if kernel["name"] == "chunk_forward" and case.step == "backward":
        label += ", states" if not constants["READ"] else ", kept"
    label += {
        "chunk_parallel": ", in parallel", "chunk_scan": ", scan", "chunk_back_scan": ", scan back",
        "chunk_back_parallel": ", back, in parallel", "chunk_back_rest": ", back, the rest",
    }.get(kernel["name"], "")  # fmt: skip
    return (
        label, case.step, str(case.width), str(rows), str(values), str(warps),
        str(taken["registers"]), str(taken["spill_stores"] + taken["spill_loads"]),
        str(taken["shared"]), tensor, str(taken["instructions"]), told, each,
        "" if bytes_ is None else f"{bytes_:.0f}", floor(case), cycles(kernel),
    )  # fmt: skip


def cycles(kernel: Mapping[str, Any]) -> str:
    """Cycles of a multiprocessor for 64 rows, where it was simulated; `>` where inner loops take
    turns that no one knows."""
    if kernel["cycles"] is None:
        return ""
    return "> " * (kernel["cycles"]["more"] is not None) + f"{kernel['of rows']:.0f}"


def floor(case: Case) -> str:
    """Bytes of a token's arguments and results, each once."""
    numbers = 3 if case.name.startswith(("titans", "huber")) else 2
    forward = 2 * 4 * case.width + 4 * numbers
    return str(forward if case.step == "forward" else 2 * 7 * case.width + 8 * numbers)


def lines(
    cases: tuple[Case, ...], target: str, *, count: bool, stalls: bool
) -> Iterator[tuple[str, ...]]:
    """Every case compiled, and counted."""
    from mnemic import pipeline
    from mnemic.kernels.worker import COMPILING, INTERPRETING, worker

    folders: dict[str, str] = {}
    with (
        worker(COMPILING, HERE.parent) as compiler,
        worker(INTERPRETING, HERE.parent) as interpreter,
    ):
        for case in cases:
            print(f"compiling {case}", file=sys.stderr, flush=True)
            if not case.hand and case.name not in folders:
                spec = SPECS.get(case.name, case.name)
                folders[case.name] = str(pipeline.compile(spec).folder)
            folder, asked = folders.get(case.name, ""), asdict(case)
            place = "by_hand.compare"
            kernels = compiler.call(
                place, "compiled", case=asked, folder=folder, target=target, stalls=stalls
            )
            asks = None
            if count and case.step == "forward":
                asks = interpreter.call(place, "moved", case=asked, folder=folder)
            for kernel in kernels:
                if kernel["name"] in KERNELS:
                    found = cells(case, kernel, asks)
                    print(*found, sep="\t", file=sys.stderr, flush=True)
                    yield found


def markdown(found: list[tuple[str, ...]], target: str, command: str) -> str:
    """The table with what made it."""
    from datetime import date

    import torch
    import triton

    def row(entries: tuple[str, ...]) -> str:
        return f"| {' | '.join(entries)} |"

    head = (HERE / "by_hand.txt").read_text(encoding="utf-8").format(
        target=target, command=command, triton=triton.__version__, torch=torch.__version__,
        date=date.today().isoformat(),
    )  # fmt: skip
    rule = row(tuple("---" if h in ("kernel", "pass", "tensor") else "---:" for h in HEADINGS))
    return "\n".join([head, row(HEADINGS), rule, *map(row, found), ""])


def main() -> None:
    """Compile, count and write."""
    parser = argparse.ArgumentParser(description="Kernels by hand beside generated ones.")
    parser.add_argument("target")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--rows", nargs="*", default=[], help="words that a case's cells hold")
    parser.add_argument("--no-count", action="store_true", help="without the interpreter's bytes")
    parser.add_argument("--stalls", action="store_true", help="simulate the machine code, too")
    given = parser.parse_args()
    cases = matching(given.rows)
    found = list(lines(cases, given.target, count=not given.no_count, stalls=given.stalls))
    words = [*sys.argv[1:]]
    text = markdown(found, given.target, f"python benchmarks/by_hand/compare.py {' '.join(words)}")
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
