"""What is left to try where a cut's kernels spill registers, and whether they do.

The assembler alone knows which registers it runs out of, and the model of ``configuration`` only
counts what it must hold. So a kernel of the model's choice is compiled before its first launch
(which needs it anyway), and if it keeps anything on its stack, the next narrower cut is tried.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from .configuration import BLOCKS, ROWS, Configuration, Cuttable

TRIES = 3
"""Narrower cuts that are compiled at most."""

FRAME = 0x11
"""The attribute of a kernel's binary that holds the bytes of its stack, a thread."""

SIZED = 0x04
"""The form of an attribute that tells its own length."""

INFO = 0x70000000
"""The type of a section of attributes."""


def narrower(kernel: Cuttable, cut: Configuration, *, whole: bool) -> Iterator[Configuration]:
    """Cuts that hold less, each narrower than the one before: fewer rows, then narrower blocks.

    Where a sequence is one chunk (``whole``) its rows are as many as they are.
    """
    while True:
        if kernel.chunked and not whole and cut.rows > ROWS[-1]:
            cut = replace(cut, rows=max(ROWS[-1], cut.rows // 2))
        elif kernel.split and cut.block > BLOCKS[-1]:
            cut = replace(cut, block=cut.block // 2)
        else:
            return
        yield cut


def settled(
    cuts: Iterable[Configuration], spilled: Callable[[Configuration], int]
) -> Configuration:  # fmt: skip
    """The first cut that spills nothing, or of a few the one that spills least."""
    found: dict[Configuration, int] = {}
    for cut in islice(cuts, 1 + TRIES):
        found[cut] = spilled(cut)
        if not found[cut]:
            return cut
    return min(found, key=found.__getitem__)


def stack(binary: bytes) -> int:
    """Bytes of a thread's stack, of a kernel compiled for NVIDIA's devices: what it spills.

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
