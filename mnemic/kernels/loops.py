"""Loops of a kernel in its machine code: what one turn of the loop over chunks costs.

A loop is what lies between a label and the last jump back to it. Instructions of inner loops whose
number of turns the intermediate code tells are counted so many times, those of a constant number
or of none as if there were some.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LABEL = re.compile(r"^\s*(\.L_x_\d+):")
LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)([^;]*)")
TARGET = re.compile(r"\(?`?\(?(\.L_x_\d+)\)")
PRODUCT = re.compile(r"^\s*(%\S+) = arith\.muli (%\S+), (%\S+) :")
ONE_AT_MOST = re.compile(r"^\s*(%\S+) = arith\.minsi %\S+, %c1_i(?:32|64) :")
CONSTANT = re.compile(r"^\s*(%\S+) = arith\.constant (\d+) : i(?:32|64)")
FOR = re.compile(r"scf\.for %\S+ = (%\S+) to (%\S+) step (%\S+)")
PROGRAMS = re.compile(r"^\s*(%\S+) = tt\.get_num_programs \w+ :")
PLACE = re.compile(r"^\s*(%\S+) = tt\.get_program_id [yz] :")
SCALAR = re.compile(r"^\s*(%\S+) = arith\.\w+ ([^:<]*) : i(?:32|64)")
NAMES = re.compile(r"%[\w#]+")


@dataclass(frozen=True)
class Loop:
    """From the first to the last instruction, and the loops inside."""

    first: int
    last: int
    inner: tuple["Loop", ...] = ()


@dataclass(frozen=True)
class Turns:
    """A loop of the intermediate code: its iterations if they are known (else 0), and the loops
    inside.

    ``shared``: programs share out its iterations, as its step is their number; ``placed``: its
    bounds depend on the program's index on an axis other than the first.
    """

    count: int
    inner: tuple["Turns", ...] = ()
    shared: bool = False
    placed: bool = False


@dataclass(frozen=True)
class Chunk:
    """The instructions of one iteration of the longest loop.

    Args:
        written: as they stand.
        executed: inner loops times their iterations; None where these are not known.
        inner: as they stand in each loop directly inside.
    """

    written: int
    executed: int | None
    inner: tuple[int, ...] = ()


def chunk(disassembly: str, ttgir: str) -> Chunk | None:
    """Count what a turn of the longest loop costs; None for a kernel without loops."""
    names, loops = machine_loops(disassembly)
    if not loops:
        return None
    longest, turns = longest_loop(loops, told_turns(ttgir))
    written = _length(names, longest)
    executed = written if not longest.inner else None
    if turns is not None:
        executed = _executed(names, longest, turns)
    return Chunk(written, executed, tuple(_length(names, inner) for inner in longest.inner))


def longest_loop(loops: Sequence[Loop], told: Sequence[Turns]) -> tuple[Loop, Turns | None]:
    """Return the longest of some loops, and the loop of the intermediate code that it corresponds
    to: the one at the same place if there are as many, else the deepest."""
    longest = max(loops, key=lambda loop: loop.last - loop.first)
    if len(loops) == len(told):
        return longest, told[loops.index(longest)]
    return longest, max(told, key=_depth, default=None)


# -- machine code ----------------------------------------------------------------------------


def machine_loops(disassembly: str) -> tuple[list[str], list[Loop]]:
    """Return the instructions' names, and the loops that are in no other."""
    names: list[str] = []
    labels: dict[str, int] = {}
    back: dict[int, int] = {}
    for line in disassembly.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(names)
        elif found := LINE.match(line):
            target = TARGET.search(found[2]) if found[1] == "BRA" else None
            if target and labels.get(target[1], len(names)) < len(names):
                back[labels[target[1]]] = len(names)
            names.append(found[1])
    return names, _nested(sorted(back.items()))


def _nested(spans: list[tuple[int, int]]) -> list[Loop]:
    found: list[Loop] = []
    while spans:
        first, last = spans[0]
        inside = [s for s in spans[1:] if s[1] <= last]
        found.append(Loop(first, last, tuple(_nested(inside))))
        spans = [s for s in spans[1:] if s not in inside]
    return found


def _length(names: list[str], loop: Loop) -> int:
    return sum(name != "NOP" for name in names[loop.first : loop.last + 1])


# -- turns -----------------------------------------------------------------------------------


def told_turns(ttgir: str) -> tuple[Turns, ...]:
    """Read the outermost loops of the intermediate code, with those inside."""
    constants = {m[1]: int(m[2]) for m in map(CONSTANT.match, ttgir.splitlines()) if m}
    for product in filter(None, map(PRODUCT.match, ttgir.splitlines())):
        factors = [constants[name] for name in product.group(2, 3) if name in constants]
        constants |= {product[1]: factors[0]} if factors else {}
    constants |= {m[1]: 1 for m in map(ONE_AT_MOST.match, ttgir.splitlines()) if m}
    programs = {m[1] for m in map(PROGRAMS.match, ttgir.splitlines()) if m}
    placed = _placed(ttgir)
    opened: list[tuple[int, int, bool, bool, list[Turns]]] = [(-1, 0, False, False, [])]
    for line in ttgir.splitlines():
        depth = len(line) - len(line.lstrip())
        while len(opened) > 1 and line.strip().startswith("}") and depth <= opened[-1][0]:
            _, count, *how, inner = opened.pop()
            opened[-1][-1].append(Turns(count, tuple(inner), *how))
        if found := FOR.search(line):
            low, high, step = (constants.get(found[i], -1) for i in (1, 2, 3))
            known = min(low, high) >= 0 and step > 0
            count = -(-(high - low) // step) if known else 0
            opened.append((depth, count, found[3] in programs, found[2] in placed, []))
    return tuple(opened[0][-1])


def _placed(ttgir: str) -> set[str]:
    """Find the values that are computed from a program's index on an axis other than the first."""
    found = set()
    for line in ttgir.splitlines():
        if place := PLACE.match(line):
            found.add(place[1])
        elif (scalar := SCALAR.match(line)) and found.intersection(NAMES.findall(scalar[2])):
            found.add(scalar[1])
    return found


def _depth(turns: Turns) -> int:
    return 1 + max(map(_depth, turns.inner), default=0)


def _executed(names: list[str], loop: Loop, turns: Turns) -> int | None:
    """Count one turn's instructions; None where the codes' loops differ or turns are unknown."""
    pairs = list(paired(loop, turns))
    if len(pairs) != len(loop.inner):
        return None
    found = _length(names, loop) - sum(_length(names, inner) for inner in loop.inner)
    for inner, known in pairs:
        once = _executed(names, inner, known)
        if once is None or not known.count:
            return None
        found += known.count * once
    return found


def paired(loop: Loop, turns: Turns) -> Iterator[tuple[Loop, Turns]]:
    """Pair inner loops in order, where there are as many as before.

    A loop of one turn is none in machine code, mostly: without those there may be as many. Where
    some were unrolled or stand apart, loops are paired if all have as many turns. Else none are.
    """
    told = turns.inner
    if len(told) != len(loop.inner):
        told = tuple(x for x in told if x.count != 1)
    if len(told) != len(loop.inner) and len({x.count for x in told}) == 1:
        told = (max(told, key=_depth),) * len(loop.inner)
    if len(told) == len(loop.inner):
        yield from zip(loop.inner, told, strict=True)
