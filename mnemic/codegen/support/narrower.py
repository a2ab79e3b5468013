"""Which cut replaces which when a kernel spills registers.

Models only count what a kernel holds; the assembler alone knows which registers run out. So the
kernel of the model's cut is compiled before its first launch (which needs it anyway), and if it
keeps anything on its stack, the next narrower cut is tried.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import torch

from . import versions
from .configuration import BLOCKS, LEANEST, ROWS, WARPS, Configuration

TRIES = 4
"""Narrower cuts that are compiled at most."""

HOPELESS = 8_192
"""Bytes of spilled registers a thread from which on nothing narrower is tried: eight times what
registers hold. No cut makes up for that, and each takes long to compile."""

FEW = 32
"""Bytes a thread that count as none where every cut spills: values that the loop does not change
(places, masks), read once a chunk, while a narrower block repeats work that blocks share."""

MUCH = 256
"""Bytes a thread from which on another kernel is tried, one that does not hold its memories: a
quarter of a thread's registers."""

TOLD = 1_024
"""Bytes a thread from which on a warning, given once, says that a kernel spills."""

Shrink = Callable[[Configuration], Configuration]
Order = tuple[Shrink, ...]
"""The ways to make a cut narrower: each as often as it changes the cut, then the next."""

_settled: dict[Hashable, Configuration] = {}
"""The cuts of launches that are alike."""


# -- orders ----------------------------------------------------------------------------------


def leaner(cut: Configuration) -> Configuration:
    """Return a cut of the same size that reloads more of what it reads."""
    return replace(cut, lean=min(cut.lean + 1, LEANEST), stages=1)


def fewer_rows(cut: Configuration) -> Configuration:
    """Halve the rows of a chunk."""
    return replace(cut, rows=max(min(cut.rows, ROWS[-1]), cut.rows // 2))


def narrower_block(cut: Configuration) -> Configuration:
    """Halve the channels (or kept pairs) of a block."""
    return replace(cut, block=max(min(cut.block, BLOCKS[-1]), cut.block // 2))


def more_warps(cut: Configuration) -> Configuration:
    """Double the warps of a program."""
    return replace(cut, warps=max(cut.warps, min(WARPS[-1], 2 * cut.warps)))


def eight_warps(cut: Configuration) -> Configuration:
    """Give a program eight warps, which have all registers of a multiprocessor."""
    return replace(cut, warps=max(cut.warps, 8))


def of_chunks(*, split: bool, whole: bool = False) -> Order:
    """Return the order for chunks: fewer rows (unless a ``whole`` sequence is one chunk), narrower
    blocks of a memory that is ``split``, then more warps."""
    rows = () if whole else (fewer_rows,)
    return (*rows, *((narrower_block,) if split else ()), more_warps)


def smaller(cut: Configuration) -> Configuration:
    """Halve the rows and the block, down to blocks of two tiles."""
    return narrower_block(fewer_rows(cut)) if cut.block > 2 * BLOCKS[-1] else cut


def traded(cut: Configuration) -> Configuration:
    """Halve the rows and double the block."""
    fewer = fewer_rows(cut)
    return cut if fewer == cut else replace(fewer, block=2 * cut.block)


def of_sweeps() -> Order:
    """Return the order for loops over blocks of memories: fewer rows and narrower blocks at once
    (each chunk reads all memories), narrower, fewer rows with wider blocks, more warps."""
    return (smaller, narrower_block, traded, narrower_block, more_warps)


def of_pairs() -> Order:
    """Return the order for kept pairs: fewer rows, narrower blocks of pairs, then eight warps,
    which have all registers; with more, each would hold a chunk's operands once more."""
    return (fewer_rows, narrower_block, eight_warps)


def of_tokens(*, split: bool) -> Order:
    """Return the tokens' order: more warps, over which entries spread evenly; narrower blocks."""
    return (more_warps, *((narrower_block,) if split else ()))


def of_gradient(order: Order) -> Order:
    """Return a gradient's order: leaner cuts come first, for tokens right after more warps."""
    first = order[:1] if order[:1] == (more_warps,) else ()
    return (*first, leaner, *order[len(first) :]) if order else ()


def narrower(order: Order, cut: Configuration) -> Iterator[Configuration]:
    """Yield the cuts of an order, of which a thread holds less and less."""
    for shrink in order:
        while (found := shrink(cut)) != cut:
            yield (cut := found)


# -- other ways --------------------------------------------------------------------------------


def sparing(cut: Configuration) -> Configuration:
    """Return the same cut with the assembler asked to save registers."""
    return replace(cut, sparing=versions.tells_assembler())


def fuller(cut: Configuration) -> Configuration:
    """Return the same cut with all registers allowed to the assembler."""
    return replace(cut, full=True)


# -- the choice ------------------------------------------------------------------------------


def settled(
    cut: Configuration, order: Order, spilled: Callable[[Configuration], int], *,
    what: str, sizes: Mapping[str, int], alike: Hashable, device: torch.device,
    instead: Callable[[], Iterable[Configuration]] = tuple,
    behind: Shrink = lambda cut: cut,
) -> Configuration:  # fmt: skip
    """Return the model's cut, or a narrower one if its kernels spill registers.

    ``spilled`` compiles a cut and returns the bytes that a thread spills. It is called once for
    launches ``alike`` at these sizes, and never if kernels are interpreted or the order is empty.
    If much still spills, the cuts ``instead``, of another kernel, are tried, the widest first. To
    the best cut three changes are then tried, twice over since one may help another, while anything
    spills (but not hopelessly much): ``behind``; all registers (``fuller``, only if little spills:
    the assembler may have held back some so that two programs share a multiprocessor); and
    ``sparing``. If much spills in the end, a warning says so, naming ``what``.
    """
    if not order or versions.interpreting():
        return cut
    if device.type != "cuda" and not versions.elsewhere():
        return cut
    key = (what, *sizes.items(), alike, cut, device, versions.offline())
    if key not in _settled:
        found, left = least(cut, narrower(order, cut), spilled)
        others = tuple(instead()) if left >= MUCH else ()
        if others:
            other, less = _best(others[: 1 + TRIES], spilled)
            found, left = min((found, left), (other, less), key=lambda x: x[1] * x[0].warps)
        tried = {found}
        for change in 2 * (behind, fuller, sparing):
            way = change(found)
            if way not in tried and 0 < left < (MUCH if change is fuller else HOPELESS):
                tried.add(way)
                found, left = min((found, left), (way, _tried(way, spilled)), key=lambda x: x[1])
        _settled[key] = found
        if left >= TOLD and not versions.offline():
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            versions.announce(
                f"the kernel of a {what} at {shown} does not fit into registers: "
                f"{left} bytes a thread go through the cache"
            )
    return _settled[key]


def _tried(way: Configuration, spilled: Callable[[Configuration], int]) -> int:
    """Return what a changed cut spills; a huge number if it does not compile, as an assembler may
    not know the option."""
    try:
        return spilled(way)
    except versions.failures():
        return 1 << 30


def least(
    cut: Configuration, others: Iterable[Configuration], spilled: Callable[[Configuration], int]
) -> tuple[Configuration, int]:
    """Return the first of a cut and a few others that spills next to nothing, else the one whose
    threads spill least in all; and the bytes of one thread.

    If the first one spills so much that the others cannot help, they are not tried.
    """
    return _best([cut, *islice(others, TRIES)], spilled, most=HOPELESS)


def _best(
    cuts: Iterable[Configuration], spilled: Callable[[Configuration], int], *, most: int = 1 << 30
) -> tuple[Configuration, int]:
    """Return the best of some cuts (at least one) and the bytes of one thread; stop after one that
    spills nothing, or more than ``most``."""
    found: dict[Configuration, int] = {}
    for tried in cuts:
        found[tried] = spilled(tried)
        if not found[tried] or found[tried] > most:
            break
    spilling = {tried: bytes if bytes > FEW else min(bytes, 1) for tried, bytes in found.items()}
    best = min(spilling, key=lambda tried: spilling[tried] * tried.warps)
    return best, found[best]
