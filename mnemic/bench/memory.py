"""Memory of training against the length: the peak of each length in a process of its own."""

import math
from collections.abc import Iterator
from pathlib import Path

from mnemic.bench.processes import python
from mnemic.bench.report import Figure

LENGTHS = (1024, 2048, 4096, 8192)
RESET = Path("/proc/self/clear_refs")
ABSENT = "this system cannot reset a process's peak of memory (no /proc/self/clear_refs)"

PLAIN = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Set so that what is freed goes back to the system, and a peak is that of live tensors."""

PROGRAM = """
import re, sys, torch
from mnemic.bench.subject import Sizes, Subject

def kilobytes(name):
    with open("/proc/self/status") as status:
        return int(re.search(name + r":\\s+(\\d+)", status.read())[1])

torch.set_num_threads(1)
subject = Subject.named(sys.argv[1], Sizes(1, int(sys.argv[2]), 4, 64, 64))
warm = Subject(subject.compiled, Sizes(1, 64, 4, 64, 64))
warm.there_and_back(warm.form("chunk"))()
run = subject.there_and_back(subject.form("chunk"))
subject.leaves
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")
before = kilobytes("VmRSS")
run()
print((kilobytes("VmHWM") - before) * 1024)
"""


def figures() -> Iterator[Figure | str]:
    """Yield the power of T with which the memory of training grows; 1 is linear."""
    if not RESET.exists():
        yield ABSENT
        return
    peaks = [peak("gated-deltanet", length) for length in LENGTHS]
    shown = (f"T={n}: {p / 2**20:.0f} MB" for n, p in zip(LENGTHS, peaks, strict=True))
    power = math.log2(peaks[-1] / max(peaks[0], 1)) / math.log2(LENGTHS[-1] / LENGTHS[0])
    what = "gated-deltanet, forward+backward, memory ~ T to the power of"
    yield Figure(what, power, "", ", ".join(shown), most=1.1)


def peak(name: str, length: int) -> int:
    """Measure the most bytes that forward and backward hold beside arguments and gradients."""
    return int(python("-c", PROGRAM, name, str(length), environment=PLAIN))
