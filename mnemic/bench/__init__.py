"""What `mnemic bench` measures: compiled rules beside hand-written references, on this machine.

Everything runs in one process on one thread and the least of several runs counts. Goals stand
beside the figures that have one; figures without a goal are for orientation.
"""

import platform
from collections.abc import Callable, Iterator

from mnemic.bench.report import Figure, Report

Told = Callable[[str], None]


def run(specs: tuple[str, ...] = (), told: Told = lambda what: None) -> Report:
    """Measure the chunk forms of specs against token by token, or the standard set without specs.

    Raises:
        UsageError: no such spec. InvalidSpec: a spec that is none.
        CheckFailed: two things that are timed against one another do not agree.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        figures, notes = list[Figure](), list[str]()
        for found in _of_specs(specs, told) if specs else _standard(told):
            (figures if isinstance(found, Figure) else notes).append(found)  # type: ignore[arg-type]
        return Report(tuple(figures), tuple(notes))
    finally:
        torch.set_num_threads(before)


def _of_specs(specs: tuple[str, ...], told: Told) -> Iterator[Figure | str]:
    from mnemic.bench import forms

    for name in specs:
        told(name)
        yield from forms.figures(name)


def _standard(told: Told) -> Iterator[Figure | str]:
    from mnemic.bench import fla, forms, loops, memory, startup

    for part in (startup, loops, fla, memory):
        told(part.__name__.rpartition(".")[2])
        yield from part.figures()
    for name in ("gated-deltanet", "huber-coordinate"):
        told(name)
        yield from forms.figures(name)


def setting() -> str:
    """Return the machine, the versions and the sizes on one line."""
    import torch

    from mnemic.bench.subject import SIZES

    machine = f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return (
        f"{machine}, torch {torch.__version__}, one thread, float32; "
        f"B={SIZES.batch} T={SIZES.length} H={SIZES.heads} d={SIZES.key}"
    )
