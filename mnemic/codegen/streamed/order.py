"""The order of a block's statements: few tiles alive at once."""

from dataclasses import dataclass

from mnemic.codegen.tiled.axes import NoTiles


@dataclass(frozen=True)
class Step:
    """Lines that make one quantity of a block, and what they read of it."""

    name: str
    reads: tuple[str, ...]
    lines: tuple[str, ...]
    large: bool
    """Whether what they make is a tile of two axes (a sum over pairs is there before)."""


def ordered(steps: list[Step], ends: frozenset[str]) -> tuple[list[Step], int]:
    """Order steps so that few tiles live at once; return them, and how many live at most.

    Next is what frees most tiles and makes fewest, a load when it is first read; ``ends`` are
    needed last. Raises ``NoTiles`` where a statement reads what is not of this block.
    """
    loads = {s.name: s for s in steps if not s.reads}
    waiting = [s for s in steps if s.reads]
    uses = {s.name: sum(s.name in other.reads for other in steps) for s in steps}
    uses |= {end: uses.get(end, 0) + 1 for end in ends}
    large = {s.name for s in steps if s.large}
    known: set[str] = set()
    found: list[Step] = []
    most = 0

    def gain(step: Step) -> int:
        new = [n for n in dict.fromkeys(step.reads) if n in loads and n not in known]
        freed = sum(uses[n] == 1 and n in large for n in dict.fromkeys(step.reads))
        return freed - step.large - sum(n in large for n in new)

    while waiting:
        ready = [s for s in waiting if all(n in known or n in loads for n in s.reads)]
        if not ready:
            raise NoTiles("a pass over kept pairs that waits for a later one")
        step = max(ready, key=gain)
        waiting.remove(step)
        new = [n for n in dict.fromkeys(step.reads) if n in loads and n not in known]
        found += [*(loads[n] for n in new), step]
        known |= {*new, step.name}
        most = max(most, sum(uses[n] > 0 and n in large for n in known))
        for name in dict.fromkeys(step.reads):
            if name in uses:
                uses[name] -= 1
    return found, most
