"""What a kernel spills: the bytes of a thread's stack, as the binary that Triton compiles tells."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .starting import clear_of_faults

FRAME = 0x11
"""The attribute of a kernel's binary that holds the bytes of its stack, a thread."""

SIZED = 0x04
"""The form of an attribute that tells its own length."""

INFO = 0x70000000
"""The type of a section of attributes."""


def stack_of(
    function: Any, grid: tuple[int, ...], arguments: list[Any], options: Mapping[str, Any],
    like: Tensor,
) -> int:  # fmt: skip
    """Return the bytes that a thread of a launch would spill on ``like``'s device; launch nothing.

    A dtype among the arguments stands for a tensor. Triton keeps what it compiles for the launch.
    What is counted is what would run: with two warps, where more would be wrong.
    """
    with torch.cuda.device_of(like):  # Triton compiles for the current device
        options = clear_of_faults(function, grid, arguments, options, like.device)
        compiled = function.warmup(*arguments, grid=grid, **options)
    return stack(compiled.asm["cubin"]) if "cubin" in compiled.asm else 0


def stack(binary: bytes) -> int:
    """Return the bytes of a thread's stack, of a kernel for NVIDIA's devices: what it spills.

    The binary is an ELF file; a section of attributes, each four bytes (form, name, length) and
    its value, holds (symbol, bytes) of every function's frame.
    """
    sections, size, count = (
        struct.unpack_from(kind, binary, at)[0] for kind, at in (("<Q", 40), ("<H", 58), ("<H", 60))
    )
    found = 0
    for section in range(count):
        header = sections + section * size
        (kind,) = struct.unpack_from("<I", binary, header + 4)
        begin, length = struct.unpack_from("<QQ", binary, header + 24)
        if kind == INFO:
            found = max([found, *_frames(binary[begin : begin + length])])
    return found


def _frames(attributes: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(attributes):
        form, name, length = struct.unpack_from("<BBH", attributes, at)
        if form == SIZED and name == FRAME:
            yield struct.unpack_from("<I", attributes, at + 8)[0]
        at += 4 + (length if form == SIZED else 0)
