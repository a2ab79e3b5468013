"""The order in which a warp goes through one turn of the loop over chunks, or through a program.

Inner loops are taken as often as the intermediate code tells, once where it does not. A branch
forward that a predicate decides is not taken (what it would skip is run), one that none decides is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mnemic.kernels.loops import Loop, Turns, longest_loop, machine_loops, paired, told_turns
from mnemic.kernels.stalls.instructions import Instruction


@dataclass(frozen=True)
class Path:
    """The order in which a warp executes a kernel's instructions, by their places in the code.

    Args:
        places: of one iteration of the longest loop, or of a whole program.
        whole: a program does one iteration and ends; else it makes one after another.
        shared: programs have chunks of their own: they share out the turns of the longest loop,
            or how far it goes (over the pairs before a chunk) depends on the program.
        unknown: inner loops whose number of iterations is not known.
    """

    places: tuple[int, ...]
    whole: bool
    shared: bool
    unknown: int


def path(code: Sequence[Instruction], disassembly: str, ttgir: str, turns: int = 1) -> Path:
    """Return the path of a kernel; ``turns`` is what inner loops take whose number is not known."""
    names, loops = machine_loops(disassembly)
    assert len(names) == len(code)
    if not loops:
        return Path(tuple(_straight(code, 0, len(code) - 1, {})), True, False, 0)
    all_told = told_turns(ttgir)
    loop, told = longest_loop(loops, all_told)
    unrolled = _Unrolled(code, turns)
    if told is not None and (told.shared or told.placed or told.count):
        alike = len(loops) == len(all_told)
        others = dict(zip(loops, all_told, strict=True)) if alike else {}
        others[loop] = Turns(1, told.inner) if told.shared else told
        pairs = [(x, others.get(x)) for x in loops]
        places = unrolled.run(0, len(code) - 1, pairs)
        return Path(tuple(places), True, told.shared or told.placed, unrolled.unknown)
    inner = _inside(loop, told)
    return Path(tuple(unrolled.run(loop.first, loop.last, inner)), False, False, unrolled.unknown)


Pairs = Sequence[tuple[Loop, Turns | None]]


class _Unrolled:
    """Inner loops written out, with a note of those whose turns are not known."""

    def __init__(self, code: Sequence[Instruction], turns: int) -> None:
        self.code, self.turns, self.unknown = code, turns, 0

    def run(self, first: int, last: int, inner: Pairs) -> list[int]:
        """Return the places from first to last, with loops inside as often as they turn."""
        bodies = {}
        for loop, told in inner:
            body = self.run(loop.first, loop.last, _inside(loop, told))
            known = told is not None and told.count > 0
            self.unknown += not known
            bodies[loop.first] = (loop.last, body * (told.count if told and known else self.turns))
        return _straight(self.code, first, last, bodies)


def _inside(loop: Loop, told: Turns | None) -> Pairs:
    """Return the loops inside one, with what is told of them where there are as many."""
    pairs = list(paired(loop, told)) if told is not None else []
    return pairs if len(pairs) == len(loop.inner) else [(x, None) for x in loop.inner]


def _straight(
    code: Sequence[Instruction], first: int, last: int, bodies: dict[int, tuple[int, list[int]]]
) -> list[int]:
    """Return places in order, up to the end of a program, without what branches always skip."""
    found: list[int] = []
    at = first
    while at <= last:
        if at in bodies:
            end, body = bodies[at]
            found += body
            at = end + 1
            continue
        one = code[at]
        found.append(at)
        if one.kind == "EXIT" and not one.guarded:
            break
        leaps = one.target is not None and not one.guarded and at < one.target
        at = one.target if leaps and one.target is not None else at + 1
    return found
