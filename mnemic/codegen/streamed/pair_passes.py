"""Which pass over the kept pairs computes what: a sum over pairs is known after its own pass.

A quantity of the chunk's rows that sums over pairs is known one pass later than what it sums. A
pass recomputes the quantities with an entry a pair that it needs. The largest logit of a row and
the sums of weights relative to it share a pass, as in online softmax: when a larger logit turns up,
the sums so far are rescaled.
"""

from dataclasses import dataclass, field
from functools import cached_property

import networkx as nx

from mnemic.codegen.ops import OPERATIONS, called
from mnemic.codegen.plan import Call, Given, Product, Quantity
from mnemic.codegen.streamed.pair_layout import PAIRS, Streams
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.swept.along_axis import summed


def reads_behind(quantity: Quantity) -> bool:
    """Return whether a quantity is the chunk's own part of a state in memory, behind its older
    entries."""
    operation = called(quantity)
    return operation is not None and operation.streaming.behind


@dataclass(frozen=True)
class Passes:
    """The levels of quantities: how many passes must be over before each is known."""

    found: Streams
    levels: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    """Quantities of rows that are there before."""

    @cached_property
    def inside(self) -> dict[str, Quantity]:
        """The statements by name."""
        return {
            q.name: q for q in self.found.lay.tiles
            if not isinstance(q.op, Given) and q.name not in self.known
        }  # fmt: skip

    def sums(self, quantity: Quantity) -> tuple[str, ...]:
        """Return the quantities that a quantity of the chunk's rows sums over pairs; empty for any
        other."""
        if isinstance(quantity.op, Given) or self.found.streams(quantity.name):
            return ()
        operation = called(quantity)
        if operation and operation.streaming.reads == ():
            return ()
        return tuple(n for n in quantity.reads() if self.found.streams(n))

    def reads(self, quantity: Quantity) -> tuple[str, ...]:
        """Return what a quantity reads, without arguments that only give a shape or a place in
        memory."""
        match quantity.op:
            case Call(function="solution", arguments=(target, diagonal, unknown, image)):
                return (target, diagonal, *self.around(unknown, image))
            case Call(function=function, arguments=arguments):
                places = OPERATIONS[function].streaming.reads
                return arguments if places is None else tuple(arguments[i] for i in places)
            case _:
                return quantity.reads()

    def around(self, unknown: str, image: str) -> tuple[str, ...]:
        """Return the rows that what lies between a direction and its image reads from outside."""
        plan = self.found.plan
        between = nx.descendants(plan.graph, unknown) | {unknown}
        found: dict[str, None] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name in seen:
                return
            seen.add(name)
            if name not in between and not self.found.streams(name):
                found[name] = None
                return
            for read in self.reads(plan[name]) if name != unknown else ():
                visit(read)

        visit(image)
        return tuple(found)

    def level(self, name: str) -> int:
        """Return how many passes must be over before a quantity is known (or, with an entry a pair,
        before it can be computed)."""
        if name not in self.inside:
            return 0
        if name not in self.levels:
            self.levels[name] = self._level(self.inside[name])
        return self.levels[name]

    def _level(self, quantity: Quantity) -> int:
        reads = self.reads(quantity)
        summed = self.sums(quantity)
        if not summed:
            return max((self.level(read) for read in reads), default=0)
        others = [self.level(read) for read in reads if read not in summed]
        return max([1 + self.core(quantity), *others])

    def core(self, quantity: Quantity) -> int:
        """Return the number of the pass, from 0, in which a sum over pairs is computed."""
        top = self.top_of(quantity)
        if top is not None:
            return self.core(self.inside[top])
        return max(self.level(read) for read in self.sums(quantity))

    def weight(self, name: str) -> int:
        """Return how much must be computed before a quantity: the longer its chains, the more."""
        if name not in self.weights:
            reads = self.reads(self.inside[name]) if name in self.inside else ()
            self.weights[name] = 1 + sum(self.weight(read) for read in reads)
        return self.weights[name]

    # -- weights relative to a running largest -----------------------------------------------

    def top_of(self, quantity: Quantity) -> str | None:
        """Return the largest logit that a sum of weights can go along with; ``None`` for others."""
        match quantity.op:
            case Product(left=left, right=right, flip_left=False):
                others: tuple[str, ...] = (right,)
            case Call(arguments=(left, *rest)) as call if sums_weights(call):
                others = tuple(n for n in rest if self.found.streams(n))
            case _:
                return None
        if left not in self.sums(quantity):
            return None
        weights = self.inside.get(left)
        if weights is None or not isinstance(weights.op, Call) or weights.op.function != "exp_over":
            return None
        logits, top, *coefficients = weights.op.arguments
        largest = self.inside.get(top)
        if largest is None or not self.sums(largest):
            return None
        begun = self.core(largest)
        early = (logits, *coefficients, *others)
        return top if all(self.level(n) <= begun for n in early) else None

    # -- what a pass does --------------------------------------------------------------------

    def needed(self, ends: tuple[str, ...]) -> list[Quantity]:
        """Return the statements behind some ends, in order."""
        known: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in known or name not in self.inside:
                return
            for read in self.reads(self.inside[name]):
                visit(read)
            known[name] = None

        for end in ends:
            visit(end)
        return [self.inside[name] for name in known]

    def check(self) -> None:
        """Raise ``NoTiles`` where a sum is of a kind that no pass takes."""
        for quantity in self.inside.values():
            if not self.sums(quantity):
                continue
            if not (isinstance(quantity.op, Product) or _adds_up(self.found, quantity)):
                raise NoTiles("a sum over kept pairs of another kind")


def _adds_up(found: Streams, quantity: Quantity) -> bool:
    """Return whether a quantity is a sum (or maximum) over pairs, which blocks of them add to."""
    return isinstance(quantity.op, Call) and PAIRS in summed(found.lay, quantity)


def sums_weights(call: Call) -> bool:
    """Return whether a call sums weights that are relative to a running largest."""
    return OPERATIONS[call.function].streaming.online


def beside_pairs(call: Call) -> tuple[str, ...]:
    """Return the arguments that are the chunk's own part, beside that of kept pairs."""
    return call.arguments[1 : 1 + OPERATIONS[call.function].streaming.own]
