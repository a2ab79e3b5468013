"""The resources of a compiled kernel, read from its machine code with the compiler's own tools."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemic.kernels.loops import Chunk, chunk

TENSOR = ("HMMA", "IMMA", "DMMA", "HGMMA", "UTCHMMA", "UTCQMMA")
"""Instructions of the tensor cores: per warp, per group of warps (sm_90), per block (sm_100)."""

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.M)
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
LOCAL = re.compile(r"\b(STL|LDL)(?:\.[A-Z]+)*(?:\.(\d+))?\b")
"""An instruction that reaches the stack, and how many bits it moves, if not 32."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes.

    Args:
        registers: of a thread.
        stack: bytes a thread, of arrays and spilled registers.
        spill_stores, spill_loads: bytes of spilled registers, by the instructions that move them.
        shared: bytes of shared memory a block.
        tensor: instructions of the tensor cores by name.
        local_loads, local_stores: instructions that reach the stack.
        instructions: all of them.
        chunk: those of a turn of the longest loop, where there is one.
    """

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int
    tensor: dict[str, int]
    local_loads: int
    local_stores: int
    instructions: int
    chunk: Chunk | None = None

    @property
    def spill(self) -> int:
        """Bytes spilled, both ways."""
        return self.spill_stores + self.spill_loads


def resources(compiled: Any) -> Resources:
    """Read a kernel that Triton compiled for an NVIDIA target."""
    with _binary(compiled) as binary:
        usage = USAGE.findall(_tool("cuobjdump", "-res-usage", binary))
        disassembly = _tool("nvdisasm", "-c", binary)
    counted = Counter(INSTRUCTION.findall(disassembly))
    registers = max(int(found) for found, _ in usage)
    stack = max(int(found) for _, found in usage)
    spilled = _spilled(disassembly)
    return Resources(
        registers=registers,
        stack=stack,
        spill_stores=spilled["STL"],
        spill_loads=spilled["LDL"],
        shared=int(compiled.metadata.shared),
        tensor={name: counted[name] for name in TENSOR if counted[name]},
        local_loads=counted["LDL"],
        local_stores=counted["STL"],
        instructions=sum(counted.values()) - counted["NOP"],
        chunk=chunk(disassembly, compiled.asm["ttgir"]),
    )


def encoded(compiled: Any) -> str:
    """Return the disassembly of a kernel with the words that encode each instruction."""
    with _binary(compiled) as binary:
        return _tool("nvdisasm", "-c", "-hex", binary)


@contextmanager
def _binary(compiled: Any) -> Iterator[str]:
    """Yield the path of a temporary file with the machine code."""
    with tempfile.TemporaryDirectory(prefix="kernel.") as place:
        binary = Path(place) / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        yield str(binary)


def _spilled(disassembly: str) -> Counter[str]:
    """Count the bytes of stores to a thread's stack (STL) and of loads from it (LDL), each once."""
    found: Counter[str] = Counter()
    for name, wide in LOCAL.findall(disassembly):
        found[name] += int(wide or 32) // 8
    return found


def _tool(name: str, *arguments: str) -> str:
    """Run one of the tools that come with Triton, and return what it prints."""
    from triton import knobs

    path = getattr(knobs.nvidia, name).path
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
