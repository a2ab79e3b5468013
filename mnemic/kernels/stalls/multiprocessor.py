"""The warps of a multiprocessor's programs, going through a path turn after turn: when each does.

Each of four schedulers issues one instruction a cycle at most, of the warp that has been ready for
longest. A warp is ready when its stall count is over and the scoreboards that it awaits are empty;
an instruction waits until its unit is free. Loads and stores queue at the one unit that all
schedulers share. Products of warp groups go on beside their warps, each warp's rows on its
scheduler's tensor core.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from mnemic.errors import UsageError
from mnemic.kernels.limits import Target
from mnemic.kernels.stalls.instructions import BOARDS, Instruction
from mnemic.kernels.stalls.units import BARRIER, CARRIED, LATENCY, READ, Unit, Use, use

SCHEDULERS = 4
QUEUED = 16
"""Cycles of work that may wait at the unit of loads and stores before a scheduler is held up."""

THREADS = 32


@dataclass(frozen=True)
class Step:
    """An instruction on a path, with what the simulation asks of it worked out.

    Args:
        arrives: the barrier at which the warp waits for as many warps as ``needed`` (0: all).
        leaves: how many groups of products, or of copies, may be under way when it goes on.
    """

    one: Instruction
    use: Use
    ends: bool = False
    arrives: str | None = None
    needed: int = 0
    leaves: int | None = None

    @classmethod
    def of(cls, one: Instruction, target: Target, latency: int = LATENCY) -> "Step":
        """Make the step of an instruction."""
        taken = use(one, target, latency)
        if one.kind == "BAR" and one.modifiers[:1] in (("SYNC",), ("RED",)):
            threads = _number(one.operands[1]) if len(one.operands) > 1 else 0
            return cls(one, taken, arrives=one.operands[0], needed=threads // THREADS)
        if one.name.startswith(("DEPBAR.LE", "WARPGROUP.DEPBAR")):
            return cls(one, taken, leaves=_number(one.operands[1]))
        return cls(one, taken)


def _number(text: str) -> int:
    """Parse a number of an operand; 0 where a register holds it."""
    return int(text, 16) if text.startswith("0x") else 0


END = Step(Instruction("EXIT"), Use(Unit.NONE, 1, 1, "branches"), ends=True)
"""Behind a whole program: the next one begins when all warps of this one are through."""


@dataclass
class Warp:
    """Where a warp is, and what is under way for it."""

    number: int
    program: int
    scheduler: int
    at: int = 0
    turn: int = 0
    boards: list[int] = field(default_factory=lambda: [0] * BOARDS)
    owners: list[str] = field(default_factory=lambda: [""] * BOARDS)
    copies: list[int] = field(default_factory=list)
    """When each group of copies to shared memory is there, in order."""
    copying: int = 0
    groups: list[int] = field(default_factory=list)
    """When each group of products is done, in order."""
    multiplying: int = 0


@dataclass(frozen=True)
class Simulated:
    """Cycles of a turn, on the average of warps, and those that they wait, by what for."""

    cycles: float
    waits: dict[str, float]


def simulate(
    steps: Sequence[Step], warps: int, programs: int, *, warm: int = 1, turns: int = 2
) -> Simulated:
    """Simulate so many programs of so many warps beside each other.

    ``turns`` are counted behind ``warm`` ones; all warps go on until the last has made them.
    """
    found = Multiprocessor(steps, warps, programs, warm, warm + turns)
    found.run()
    spans = [end - begin for begin, end in zip(found.begun, found.ended, strict=True)]
    many = warps * programs * turns
    waits = {name: cycles / many for name, cycles in found.waits.most_common() if cycles}
    return Simulated(sum(spans) / len(spans) / turns, waits)


class Multiprocessor:
    """The state of one multiprocessor while it is simulated."""

    def __init__(
        self, steps: Sequence[Step], warps: int, programs: int, warm: int, last: int
    ) -> None:
        self.steps, self.size, self.warm, self.last = steps, warps, warm, last
        self.warps = [Warp(n, n // warps, n % SCHEDULERS) for n in range(warps * programs)]
        self.issued = [0] * SCHEDULERS
        self.free: dict[tuple[Unit, int], int] = {}
        self.carrying = 0
        self.arrived: dict[tuple[int, str, int], list[tuple[Warp, int]]] = {}
        self.begun, self.ended = [0] * len(self.warps), [0] * len(self.warps)
        self.left = len(self.warps)
        self.waits: Counter[str] = Counter()
        self.queue: list[tuple[int, int, int]] = [(0, 0, warp.number) for warp in self.warps]
        heapify(self.queue)

    def run(self) -> None:
        """Issue instructions until every warp has made its turns."""
        while self.left:
            if not self.queue:
                raise UsageError("stalls: warps wait at a barrier for others that never come")
            now, ready, number = heappop(self.queue)
            warp = self.warps[number]
            step = self.steps[warp.at]
            place = self._place(step.use.unit, warp.scheduler)
            unit = self._free(step.use.unit, place)
            possible = max(now, self.issued[warp.scheduler], unit)
            if possible > now:
                self._wait(warp, "issue slots" if unit <= now else step.use.unit.value,
                           possible - now)  # fmt: skip
                heappush(self.queue, (possible, ready, number))
                continue
            self.issued[warp.scheduler] = now + 1
            self._issue(warp, step, place, now)

    @staticmethod
    def _place(unit: Unit, scheduler: int) -> tuple[Unit, int]:
        return (unit, 0 if unit is Unit.MEMORY else scheduler)

    def _free(self, unit: Unit, place: tuple[Unit, int]) -> int:
        """Return when an instruction of a unit may be issued."""
        free = self.free.get(place, 0)
        if unit is Unit.NONE:
            return 0
        return free - QUEUED if unit is Unit.MEMORY else free

    def _wait(self, warp: Warp, name: str, cycles: int) -> None:
        if self.warm <= warp.turn < self.last:
            self.waits[name] += cycles

    def _issue(self, warp: Warp, step: Step, place: tuple[Unit, int], now: int) -> None:
        """Take the unit, count scoreboards, and find out when the warp goes on."""
        one, taken = step.one, step.use
        if warp.at == 0:
            self._begin(warp, now)
        done = self._take(warp, step, place, now)
        if (board := one.control.written) is not None:
            self._count(warp, board, done, taken.awaited)
        if (board := one.control.read) is not None:
            self._count(warp, board, now + min(taken.latency, READ), "operands to be read")
        ready = now + max(1, one.control.stall)
        self._wait(warp, "fixed latencies", ready - now - 1)
        warp.at += 1
        if warp.at == len(self.steps):
            warp.at, warp.turn = 0, warp.turn + 1
        if step.ends or step.arrives is not None:
            self._arrive(warp, step, now, ready)
        else:
            self._go_on(warp, ready)

    def _begin(self, warp: Warp, now: int) -> None:
        """Note when the turns begin that are counted, and when the one behind them does."""
        if warp.turn == self.warm:
            self.begun[warp.number] = now
        elif warp.turn == self.last:
            self.ended[warp.number] = now
            self.left -= 1

    def _take(self, warp: Warp, step: Step, place: tuple[Unit, int], now: int) -> int:
        """Hold the unit for the instruction; return when its result is there."""
        one, taken = step.one, step.use
        begin = now
        if taken.unit is not Unit.NONE:
            begin = max(now, self.free.get(place, 0))
            self.free[place] = begin + taken.busy
        done = begin + taken.busy - 1 + taken.latency
        if taken.carried:
            self.carrying = max(begin, self.carrying) + taken.carried // CARRIED
            done = self.carrying + taken.latency
        if one.kind == "HGMMA":
            warp.multiplying = max(warp.multiplying, done)
            if "gsb0" in one.operands:
                warp.groups.append(warp.multiplying)
        elif one.kind == "LDGSTS":
            warp.copying = max(warp.copying, done)
        elif one.kind == "LDGDEPBAR":
            done = max(now, warp.copying)
            warp.copies.append(done)
        return done

    @staticmethod
    def _count(warp: Warp, board: int, done: int, awaited: str) -> None:
        if done >= warp.boards[board]:
            warp.boards[board], warp.owners[board] = done, awaited

    def _go_on(self, warp: Warp, ready: int) -> None:
        """Queue a warp for its next instruction, from when on nothing of its own is awaited."""
        step = self.steps[warp.at]
        until, name = ready, ""
        for board in step.one.control.wait:
            if warp.boards[board] > until:
                until, name = warp.boards[board], warp.owners[board]
        if step.leaves is not None:
            groups = step.one.kind == "WARPGROUP"
            under_way = warp.groups if groups else warp.copies
            last = len(under_way) - step.leaves - 1
            if last >= 0 and under_way[last] > until:
                until = under_way[last]
                name = "products" if groups else "copies to shared memory"
        if until > ready:
            self._wait(warp, name, until - ready)
        heappush(self.queue, (until, until, warp.number))

    def _arrive(self, warp: Warp, step: Step, now: int, ready: int) -> None:
        """Wait for the other warps of the program, or of the part of it that a barrier is for."""
        needed = step.needed or self.size
        part = warp.number % self.size // needed
        key = (warp.program, step.arrives or "the end", part)
        others = self.arrived.setdefault(key, [])
        others.append((warp, ready))
        if len(others) < needed:
            return
        del self.arrived[key]
        until = max(ready, now + (0 if step.ends else BARRIER))
        for other, since in others:
            self._wait(other, "barriers", until - since)
            self._go_on(other, until)
