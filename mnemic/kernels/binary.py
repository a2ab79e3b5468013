"""What a compiled kernel costs, read from its machine code by the compiler's own tools."""

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemic.kernels.loops import Chunk, chunk

TENSOR = ("HMMA", "IMMA", "DMMA", "HGMMA", "UTCHMMA", "UTCQMMA")
"""Instructions of the tensor cores: per warp, per group of warps (sm_90), per block (sm_100)."""

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.M)
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes.

    Args:
        registers: of a thread.
        stack: bytes a thread, of arrays and spilled registers.
        spill_stores, spill_loads: bytes of spilled registers, as the assembler counts them.
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
    with tempfile.TemporaryDirectory(prefix="kernel.") as place:
        binary = Path(place) / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        usage = USAGE.findall(_tool("cuobjdump", "-res-usage", str(binary)))
        disassembly = _tool("nvdisasm", "-c", str(binary))
    counted = Counter(INSTRUCTION.findall(disassembly))
    registers = max(int(found) for found, _ in usage)
    stack = max(int(found) for _, found in usage)
    stores, loads = _spilled(compiled) if stack else (0, 0)
    return Resources(
        registers=registers,
        stack=stack,
        spill_stores=stores,
        spill_loads=loads,
        shared=int(compiled.metadata.shared),
        tensor={name: counted[name] for name in TENSOR if counted[name]},
        local_loads=counted["LDL"],
        local_stores=counted["STL"],
        instructions=sum(counted.values()) - counted["NOP"],
        chunk=chunk(disassembly, compiled.asm["ttgir"]),
    )


def _spilled(compiled: Any) -> tuple[int, int]:
    """Bytes of spill stores and loads: the assembler is asked again, since Triton drops its log."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    arch = compiled.metadata.target.arch
    with tempfile.TemporaryDirectory(prefix="kernel.") as place:
        source = Path(place) / "kernel.ptx"
        source.write_text(compiled.asm["ptx"], encoding="utf-8")
        fused = [] if compiled.metadata.enable_fp_fusion else ["--fmad=false"]
        done = subprocess.run(
            [get_ptxas(arch).path, "-v", *fused, f"--gpu-name={sm_arch_from_capability(arch)}",
             str(source), "-o", str(source.with_suffix(".cubin"))],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = SPILLED.findall(done.stderr + done.stdout)
    return max(int(stores) for stores, _ in found), max(int(loads) for _, loads in found)


def _tool(name: str, *arguments: str) -> str:
    """What one of the tools that come with Triton prints."""
    from triton import knobs

    path = getattr(knobs.nvidia, name).path
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
