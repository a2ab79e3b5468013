"""In which order a chunk goes by kept pairs, and along an axis of the memory beside them.

A memory beside the pairs (a second layer) has channels that the chunk's own rows are not made of:
hidden ones, which statements are elementwise in, or sum over. Rows along such an axis, and the
memory itself, need not be on chip all at once: a *sweep* goes along the axis block by block, a
*pass* by the pairs. What a sweep sums is known after it, and so is what a pass sums; sweeps stand
at even times and passes at odd ones,

    time(Σ over the axis) = the next even one at which all that it reads is known,
    time(Σ over pairs)    = the next odd one,
    known(Σ)              = time + 1.

A sum over pairs that lies along the axis is taken inside a sweep, by a loop over pairs for each
block. A pass goes along the axis for each block of pairs; rows along the axis which it reads are
kept by the sweep that computes them, and so are those which a later sweep reads and which took a
loop over pairs or a product.
"""

from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx

from mnemic.codegen.plan import Fused, Product, Quantity
from mnemic.codegen.streamed.pair_layout import PAIRS, Streams
from mnemic.codegen.streamed.pair_passes import Passes, reads_behind
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.latest import heavy
from mnemic.codegen.tiled.layout import SOURCES, TALL
from mnemic.codegen.tiled.swept.along_axis import mixed, summed, tops


def even(time: int) -> int:
    """Return the next time of a sweep, ``time`` itself if it is one."""
    return time + time % 2


def odd(time: int) -> int:
    """Return the next time of a pass, ``time`` itself if it is one."""
    return time + 1 - time % 2


@dataclass(frozen=True)
class Stages:
    """The schedule of a chunk: at which time each quantity is computed, by name."""

    found: Streams
    passes: Passes
    along: str
    """The size of the axis."""
    ends: tuple[str, ...]
    """What is stored of the chunk, and does not lie along the axis."""
    last: tuple[str, ...]
    """What is stored of the chunk that lies along the axis."""
    rewrites: tuple[str, ...]
    """What takes the place of pairs' entries."""
    tails: bool = False
    """Whether the chunk adds to the last pairs before it."""
    exact: bool = False
    """Whether what is put in place of pairs' entries is not rounded."""
    apart: bool = False
    """Whether what is stored along the axis has a sweep of its own, for which rows are kept."""
    times: dict[tuple[str, bool], int] = field(default_factory=dict)

    # -- what lies where ---------------------------------------------------------------------

    def lies(self, name: str) -> bool:
        """Return whether a quantity has the axis."""
        return self.along in self.found.lay.sizes(name)

    def crosses(self, quantity: Quantity) -> bool:
        """Return whether a quantity sums over the axis."""
        return not self.lies(quantity.name) and any(map(self.lies, self.passes.reads(quantity)))

    @cached_property
    def needed(self) -> dict[str, Quantity]:
        """The statements that all stored quantities depend on, in order."""
        return {q.name: q for q in self.passes.needed((*self.ends, *self.last, *self.rewrites))}

    def _rows(self) -> list[Quantity]:
        return [q for q in self.needed.values() if not self.found.streams(q.name)]

    @cached_property
    def over_axis(self) -> list[Quantity]:
        """Sums over the axis, of the chunk's rows."""
        return [q for q in self._rows() if self.crosses(q)]

    @cached_property
    def over_pairs(self) -> list[Quantity]:
        """Sums over pairs that do not lie along the axis."""
        return [q for q in self._rows() if self.passes.sums(q) and not self.lies(q.name)]

    @cached_property
    def inner(self) -> list[Quantity]:
        """Sums over pairs that lie along the axis."""
        return [q for q in self._rows() if self.passes.sums(q) and self.lies(q.name)]

    # -- times -------------------------------------------------------------------------------

    def known(self, name: str) -> int:
        """Return the time from which a quantity of rows can be read (or computed in a sweep)."""
        return self._timed(name, inside=True)

    def ready(self, name: str, *, inside: bool) -> int:
        """Return the time from which entries of pairs can be computed, inside a sweep or in a
        pass."""
        return self._timed(name, inside=inside)

    def _timed(self, name: str, *, inside: bool) -> int:
        if name not in self.passes.inside:
            return 0
        key = (name, inside)
        if key not in self.times:
            quantity = self.passes.inside[name]
            streams = self.found.streams(name)
            self.times[key] = self._entry(quantity, inside) if streams else self._row(quantity)
        return self.times[key]

    def _entry(self, quantity: Quantity, inside: bool) -> int:
        if inside and self.crosses(quantity):
            raise NoTiles("a sum over kept pairs of what sums over channels")
        return max((self._read(r, inside) for r in self.passes.reads(quantity)), default=0)

    def _read(self, name: str, inside: bool) -> int:
        if self.found.streams(name):
            return self.ready(name, inside=inside)
        if self.lies(name) and not inside:
            return even(self.known(name)) + 1
        return self.known(name)

    def _row(self, quantity: Quantity) -> int:
        if self.lies(quantity.name):
            return max((self._read(r, True) for r in self.passes.reads(quantity)), default=0)
        if self.crosses(quantity):
            return even(self._behind(quantity)) + 1
        if self.passes.sums(quantity):
            return self.passing(quantity) + 1
        return self._behind(quantity)

    def _behind(self, quantity: Quantity) -> int:
        return max(map(self.known, self.passes.reads(quantity)), default=0)

    def sweeping(self, quantity: Quantity) -> int:
        """Return the time at which a sum over the axis is taken."""
        return self.known(quantity.name) - 1

    def passing(self, quantity: Quantity) -> int:
        """Return the time of a sum over pairs: that of the last pass if nothing waits for it."""
        if quantity.name in self._idle:
            return self.last_pass
        return self._soonest(quantity)

    def _soonest(self, quantity: Quantity) -> int:
        return odd(max((self._read(r, False) for r in self.passes.reads(quantity)), default=0))

    @cached_property
    def _idle(self) -> frozenset[str]:
        """The sums over pairs that nothing waits for: no other sum reads them, nor anything along
        the axis."""
        sums = {q.name for q in (*self.over_axis, *self.over_pairs, *self.inner)}
        busy = {n for n in self.needed if n in sums or self.lies(n) or self.found.streams(n)}
        graph = self.found.plan.graph
        return frozenset(
            q.name for q in self.over_pairs if not busy & nx.descendants(graph, q.name)
        )  # fmt: skip

    @cached_property
    def last_pass(self) -> int:
        """The time of the last pass, -1 where there is none."""
        times = [self._soonest(q) for q in self.over_pairs]
        if self.rewriting_by_pass:
            times += [odd(self._read(n, False)) for n in self.rewrites]
        return max(times, default=-1)

    @cached_property
    def rewriting_by_pass(self) -> bool:
        """Whether new entries of pairs are stored by a pass, rather than by a loop inside a
        sweep."""
        whole = any(not self.lies(n) for n in self.rewrites)
        return bool(self.rewrites) and (whole or bool(self.over_pairs))

    @cached_property
    def last_sweep(self) -> int:
        """The time of the last sweep, which stores the next memories."""
        times = [self.sweeping(q) for q in self.over_axis]
        times += [even(self.known(n)) for n in self.last]
        if self.rewrites and not self.rewriting_by_pass:
            times += [even(self.ready(n, inside=True)) for n in self.rewrites]
        if self.tails:
            times.append(self.last_pass + 1)
        return max(times, default=0) + 2 * self.apart

    # -- what a stage does -------------------------------------------------------------------

    @cached_property
    def final(self) -> int:
        """The time of the last stage."""
        return max(self.last_sweep, self.last_pass)

    @cached_property
    def last_sum(self) -> int:
        """The time of the last stage that sums anything."""
        return max([self.last_pass, *map(self.sweeping, self.over_axis)])

    def summed(self, time: int) -> list[Quantity]:
        """Return the sums over the axis that the sweep at this time computes."""
        return [q for q in self.over_axis if self.sweeping(q) == time]

    def early(self, quantity: Quantity) -> bool:
        """Return whether a sum over the axis depends on none of the sweep's own sums over pairs."""
        behind = {q.name for q in self.passes.needed((quantity.name,))}
        taken = {q.name for q in self.demanded(self.sweeping(quantity))} & behind
        return not taken & {q.name for q in self.inner}

    def passed(self, time: int) -> list[Quantity]:
        """Return the sums over pairs that the pass at this time computes."""
        return [q for q in self.over_pairs if self.passing(q) == time]

    def rewriting(self, time: int) -> bool:
        """Return whether new entries of pairs replace the old ones at this time."""
        by_pass = self.rewriting_by_pass
        return bool(self.rewrites) and time == (self.last_pass if by_pass else self.last_sweep)

    @cached_property
    def stored_at(self) -> dict[str, int]:
        """Rows along the axis that a sweep stores for later stages, with the time of that sweep."""
        fed = sorted(self._fed) if self.apart else ()
        found = {n: even(self.known(n)) for n in (*self._read_by_passes, *fed)}
        first: dict[str, int] = {}
        for time in range(0, self.last_sweep + 1, 2):
            for name in self._demanded(time, found, first):
                first.setdefault(name, time)
        return found

    @cached_property
    def _read_by_passes(self) -> tuple[str, ...]:
        """Rows along the axis that passes read."""
        reads = (r for q in self._passing for r in self.passes.reads(q))
        return tuple(dict.fromkeys(
            r for r in reads if r in self.needed and self.lies(r) and not self.found.streams(r)
        ))  # fmt: skip

    @cached_property
    def _passing(self) -> list[Quantity]:
        """What passes compute of pairs."""
        ends = [n for q in self.over_pairs for n in self.passes.sums(q)]
        ends += self.rewrites if self.rewriting_by_pass else ()
        return [q for q in self.passes.needed(tuple(ends)) if self.found.streams(q.name)]

    @cached_property
    def _fed(self) -> frozenset[str]:
        """Rows that are operands of products which make a memory."""
        lay = self.found.lay
        rows = {*TALL, PAIRS}
        made = [
            q for q in self.needed.values() if isinstance(q.op, Product)
            and self.lies(q.name) and not rows & set(lay.sizes(q.name))
        ]  # fmt: skip
        reads = (r for q in made for r in q.reads() if self.lies(r) and r in self.needed)
        return frozenset(r for r in reads if lay.sizes(r)[0] in TALL)

    def _dear(self, quantity: Quantity) -> bool:
        """Return whether rows are too costly to recompute, so that they are stored."""
        if not self.lies(quantity.name) or self.found.lay.sizes(quantity.name)[0] not in TALL:
            return False
        return bool(self.passes.sums(quantity)) or heavy(quantity)

    def rounded(self, name: str) -> bool:
        """Return whether only products read the rows that were kept: they round them anyway."""
        later = [q for time in range(self.stored_at[name] + 2, self.last_sweep + 1, 2)
                 for q in (*self.demanded(time), *self.summed(time))]  # fmt: skip
        later += self._passing if name in self._read_by_passes else ()
        readers = (q for q in later if name in self.passes.reads(q))
        return not self.exact and all(isinstance(q.op, Product) for q in readers)

    def targets(self, time: int) -> list[str]:
        """Return what a sweep computes along the axis for its own sake."""
        names = [r for q in self.summed(time) for r in self.passes.reads(q) if self.lies(r)]
        names += [n for n, when in self.stored_at.items() if when == time]
        names += self.last if time == self.last_sweep else ()
        return list(dict.fromkeys(names))

    def demanded(self, time: int) -> list[Quantity]:
        """Return the statements along the axis, and of pairs, that a sweep needs, in order."""
        return [self.needed[n] for n in self._demanded(time, self.stored_at, {})]

    def _demanded(self, time: int, kept: dict[str, int], first: dict[str, int]) -> list[str]:
        """List what a sweep needs, in order; costly rows that an earlier sweep computed (``first``
        says when) are entered in ``kept``."""
        names = [r for q in self.summed(time) for r in self.passes.reads(q)]
        names += [n for n, when in kept.items() if when == time]
        names += self.last if time == self.last_sweep else ()
        names += self.rewrites if self.rewriting(time) and not self.rewriting_by_pass else ()
        known: dict[str, None] = {}

        def visit(name: str) -> None:
            inside = name in self.needed and (self.lies(name) or self.found.streams(name))
            if name in known or not inside:
                return
            if first.get(name, time) < time and self._dear(self.needed[name]):
                kept.setdefault(name, first[name])
            if kept.get(name, time) < time:
                return
            for read in self.passes.reads(self.needed[name]):
                visit(read)
            known[name] = None

        for name in names:
            visit(name)
        return list(known)

    def outside(self, time: int) -> list[str]:
        """Return what a sweep reads that does not lie along the axis."""
        reads = [r for q in self.demanded(time) for r in self.passes.reads(q)]
        reads += [r for q in self.summed(time) for r in self.passes.reads(q)]
        found = (r for r in reads if not self.lies(r) and not self.found.streams(r))
        return list(dict.fromkeys(found))

    # -- what can't be so --------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``NoTiles`` where something mixes along the axis, or sums in no known way."""
        lay = self.found.lay
        for quantity in self.needed.values():
            _check(self, quantity)
        rows = {row.name for row in lay.rows if self.lies(row.name)}
        if any(rows & set(self.passes.reads(q)) for q in self._passing):
            raise NoTiles("a pass over kept pairs that reads rows along their channels")
        late = [q for time in range(self.last_pass + 1, self.last_sweep + 1, 2)
                for q in self.demanded(time) if self.rewriting_by_pass]  # fmt: skip
        if any(reads_behind(q) and SOURCES in lay.sizes(q.name) for q in late):
            raise NoTiles("a sweep that reads the last pairs when they have been changed")


def _check(stages: Stages, quantity: Quantity) -> None:
    lay, along = stages.found.lay, stages.along
    if lay.sizes(quantity.name).count(along) > 1 or along in mixed(lay, quantity):
        raise NoTiles("a quantity that mixes channels of kept pairs")
    if not stages.crosses(quantity):
        return
    if along not in summed(lay, quantity) or tops(quantity) or isinstance(quantity.op, Fused):
        raise NoTiles("a quantity of kept pairs that is no sum over their channels")
    if not stages.found.streams(quantity.name) and stages.passes.sums(quantity):
        raise NoTiles("a quantity that sums over kept pairs and over their channels at once")
