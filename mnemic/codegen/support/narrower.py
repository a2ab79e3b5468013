"""What is left to try where a cut's kernels spill registers, and whether they do.

The assembler alone knows which registers it runs out of, and the model of ``configuration`` only
counts what it must hold. So a kernel of the model's choice is compiled before its first launch
(which needs it anyway), and if it keeps anything on its stack, the next narrower cut is tried.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from .configuration import BLOCKS, ROWS, WARPS, Configuration, Cuttable

TRIES = 2
"""Narrower cuts that are compiled at most."""

HOPELESS = 2_048
"""Bytes of spilled registers a thread from which on nothing is tried: twice what registers hold,
which no cut makes up for, while each takes long to compile."""

TOLD = 1_024
"""Bytes from which on it is said, once."""

FRAME = 0x11
"""The attribute of a kernel's binary that holds the bytes of its stack, a thread."""

SIZED = 0x04
"""The form of an attribute that tells its own length."""

INFO = 0x70000000
"""The type of a section of attributes."""


def narrower(kernel: Cuttable, cut: Configuration, *, whole: bool) -> Iterator[Configuration]:
    """Cuts of which a thread holds less and less.

    Over chunks: fewer rows (unless a ``whole`` sequence is one chunk), then narrower blocks, then
    more warps; token by token, where all lies in threads evenly, more warps and then blocks.
    """
    shrinks = [_fewer_rows] if kernel.chunked and not whole else []
    blocks = [_narrower_block] if kernel.split else []
    warps = [] if kernel.lanes else [_more_warps]
    shrinks += [*blocks, *warps] if kernel.chunked else [*warps, *blocks]
    for shrink in shrinks:
        while (found := shrink(cut)) != cut:
            yield (cut := found)


def _fewer_rows(cut: Configuration) -> Configuration:
    return replace(cut, rows=max(min(cut.rows, ROWS[-1]), cut.rows // 2))


def _narrower_block(cut: Configuration) -> Configuration:
    return replace(cut, block=max(min(cut.block, BLOCKS[-1]), cut.block // 2))


def _more_warps(cut: Configuration) -> Configuration:
    return replace(cut, warps=min(WARPS[-1], 2 * cut.warps))


def settled(
    cuts: Iterable[Configuration], spilled: Callable[[Configuration], int]
) -> Configuration:  # fmt: skip
    """The first cut that spills nothing, or of a few the one whose threads spill least in all.

    ``spilled`` tells the bytes of one thread. The first of all is left where it spills too much for
    others to help.
    """
    found: dict[Configuration, int] = {}
    for cut in islice(cuts, 1 + TRIES):
        found[cut] = spilled(cut)
        if not found[cut] or found[cut] > HOPELESS:
            break
    return min(found, key=lambda cut: found[cut] * cut.warps)


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
