"""Memory of training against the length: each length in a process of its own, by its peak."""

import math
import sys
from collections.abc import Iterator

from mnemic.bench.processes import python
from mnemic.bench.report import Figure

LENGTHS = (1024, 2048, 4096, 8192)

PROGRAM = """
import resource, sys, torch
from mnemic.bench.subject import Sizes, Subject
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
subject = Subject.named(sys.argv[1], Sizes(1, int(sys.argv[2]), 4, 64, 64))
warm = Subject(subject.compiled, Sizes(1, 64, 4, 64, 64))
run = subject.form("chunk")
torch.autograd.grad(run(**warm.leaves).sum(), list(warm.leaves.values()))
leaves = subject.leaves
before = peak()
torch.autograd.grad(run(**leaves).sum(), list(leaves.values()))
print(peak() - before)
"""


def figures() -> Iterator[Figure | str]:
    """Megabytes a thousand tokens and head, and how they grow."""
    unit = 2**20 if _bytes() else 2**10
    peaks = [int(python("-c", PROGRAM, "gated-deltanet", str(n))) / unit for n in LENGTHS]
    detail = ", ".join(f"T={n}: {peak:.0f} MB" for n, peak in zip(LENGTHS, peaks, strict=True))
    span = math.log2(LENGTHS[-1] / LENGTHS[1])
    power = math.log2(peaks[-1] / max(peaks[1], 1e-9)) / span
    what = "gated-deltanet, forward+backward, power of T in the memory"
    yield Figure(what, power, "", detail, most=1.15)


def _bytes() -> bool:
    """Whether this system counts the peak in bytes rather than kilobytes."""
    return sys.platform == "darwin"
