"""How many sweeps along an axis a quantity waits for.

Where an axis of the memories (the hidden channels of an MLP, the features of an expanded map) is
only ever summed over, a chunk can go along it block by block, with the memories in the device's
memory. What depends on a sum over the axis waits until all blocks are through: so there are as many
sweeps as sums depend on sums (the root of a sum takes one for every step of its search),

    level(q) = max over what q reads of  level(r) + [r lies along an axis that q does not].
"""

from dataclasses import dataclass, field
from functools import cached_property

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.layout import Layout
from mnemic.codegen.tiled.swept.along_axis import mixed, searched, summands, summed
from mnemic.codegen.tiled.swept.sections import Loop, Sum


@dataclass
class Levels:
    """A layout whose memories are looped over by blocks of some axes.

    ``inside`` are its statements; ``ends`` are to be known as soon as they can be, ``last`` (the
    next memories) in the last sweep.
    """

    lay: Layout
    along: tuple[str, ...]
    inside: dict[str, Quantity]
    ends: tuple[str, ...]
    last: tuple[str, ...]
    levels: dict[str, int] = field(default_factory=dict, init=False)

    @cached_property
    def needed(self) -> set[str]:
        """What ends and next memories depend on."""
        found: set[str] = set()
        ahead = [*self.ends, *self.last]
        while ahead:
            name = ahead.pop()
            if name not in found:
                found.add(name)
                ahead += self.inside[name].reads() if name in self.inside else ()
        return found

    def axis(self, name: str) -> str:
        """Return the swept axis that a quantity lies along, or none.

        Raises ``NoTiles`` where it lies along two.
        """
        found = [size for size in self.lay.sizes(name) if size in self.along]
        if len(found) > 1:
            raise NoTiles("a quantity along two axes that are both gone along by blocks")
        return found[0] if found else ""

    def level(self, name: str) -> int:
        """Count the sweeps that are done when a quantity can be computed."""
        if name not in self.levels:
            quantity = self.inside.get(name)
            reads = quantity.reads() if quantity else ()
            self.levels[name] = max((self._after(name, read) for read in reads), default=0)
        return self.levels[name]

    def _after(self, name: str, read: str) -> int:
        own, other = self.axis(name), self.axis(read)
        if other in ("", own):
            return self.level(read)
        quantity = self.inside[name]
        if own or other not in summed(self.lay, quantity) | searched(self.lay, quantity):
            raise NoTiles("a quantity along one axis of the memory that is no sum over the other")
        return self.level(read) + 1

    def crosses(self, name: str) -> str:
        """Return the axis that a quantity sums over, of those that are swept, or none."""
        own = self.axis(name)
        for read in self.inside[name].reads() if name in self.inside else ():
            if self.axis(read) not in ("", own):
                return self.axis(read)
        return ""

    def searched(self, name: str) -> bool:
        """Return whether a quantity is the root of a sum over a swept axis."""
        return self.crosses(name) in searched(self.lay, self.inside[name])

    def sweep(self, name: str) -> int:
        """Return the number of the sweep in which a sum is made."""
        across = (read for read in self.inside[name].reads() if self.axis(read))
        return max(map(self.level, across))

    def check(self, name: str) -> None:
        """Raise ``NoTiles`` where a quantity mixes the entries of the swept axis it lies along."""
        self.level(name)
        quantity, own = self.inside.get(name), self.axis(name)
        if quantity and own and own in mixed(self.lay, quantity):
            raise NoTiles("a quantity that mixes the channels that are gone along by blocks")

    def outside(self, loop: Loop) -> list[str]:
        """Name what a loop reads that lies along no axis."""
        found: dict[str, None] = {}
        for step in loop.steps:
            quantity = step.quantity if isinstance(step, Sum) else step
            if isinstance(quantity, Quantity):
                reads = summands(quantity) if isinstance(step, Sum) else quantity.reads()
                found |= dict.fromkeys(read for read in reads if not self.axis(read))
        return list(found)
