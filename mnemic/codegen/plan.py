"""A form's plan: a graph of named quantities, from which statements and their order follow.

A quantity has trailing axes (``t`` rows of a chunk, ``s`` rows as sources, ``k`` features, ``v``
value channels, ``r`` slots of a window, ``l`` levels of a tree); whatever stands before them is a
batch. The graph decides what is computed for all chunks at once (what no carried state reaches),
what goes chunk by chunk, and what happens only where a chunk of the spec's anchor ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType
from typing import Any

import networkx as nx

MEMORIES = (("v", "k"), ("k", "k"))
"""The axes of memories and of matrices over keys, which tiles hold the other way round."""


@dataclass(frozen=True)
class Given:
    """An argument of the form, or a carried state."""

    state: bool = False


@dataclass(frozen=True)
class Read:
    """A quantity read inside an expression, with its axes as this expression sees them."""

    symbol: str
    quantity: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Map:
    """An elementwise expression (SymPy) of other quantities."""

    expr: Any
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Product:
    """A matrix product over the last two axes, either side transposed where told."""

    left: str
    right: str
    flip_left: bool = False
    flip_right: bool = False


@dataclass(frozen=True)
class Call:
    """A function of the support module, with quantities and literal options."""

    function: str
    arguments: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Fused:
    """addend ± left right: a product that is read once, by a sum."""

    addend: str
    product: Product
    sign: int = 1


Op = Given | Map | Product | Call | Fused


def renamed_reads(op: Op, names: Mapping[str, str]) -> Op:
    """Return an operation with what it reads renamed by ``names``."""
    match op:
        case Map(expr=expr, reads=reads):
            return Map(expr, tuple(replace(r, quantity=names.get(r.quantity, r.quantity))
                                   for r in reads))  # fmt: skip
        case Product():
            return _renamed(op, names)
        case Fused(addend=addend, product=product):
            return replace(op, addend=names.get(addend, addend),
                           product=_renamed(product, names))  # fmt: skip
        case Call(arguments=arguments):
            return replace(op, arguments=tuple(names.get(a, a) for a in arguments))
        case _:
            return op


def _renamed(product: Product, names: Mapping[str, str]) -> Product:
    left, right = product.left, product.right
    return replace(product, left=names.get(left, left), right=names.get(right, right))


@dataclass(frozen=True)
class Quantity:
    """A named quantity: its axes, how it is computed, and the equation that it belongs to."""

    name: str
    axes: tuple[str, ...]
    op: Op
    equation: str = ""

    def reads(self) -> tuple[str, ...]:
        """Return the names of the quantities that its statement reads."""
        match self.op:
            case Map(reads=reads):
                return tuple(dict.fromkeys(r.quantity for r in reads))
            case Product(left=left, right=right):
                return (left, right)
            case Fused(addend=addend, product=product):
                return (addend, product.left, product.right)
            case Call(arguments=arguments):
                return arguments
            case _:
                return ()


@dataclass(frozen=True)
class Closing:
    """What happens after every so many tokens: statements, and the states (or output) that they
    replace.

    ``renamed`` says which states then already hold the values of shorter intervals.
    """

    every: int
    statements: tuple[Quantity, ...]
    moves: dict[str, str]
    renamed: dict[str, str]


@dataclass(frozen=True)
class Phases:
    """Statements before the scan, inside it, and where intervals end, the shortest first."""

    before: tuple[Quantity, ...]
    scan: tuple[Quantity, ...]
    closings: tuple[Closing, ...]


@dataclass
class Plan:
    """The graph while it is built; quantities that are computed alike are merged."""

    graph: Any = field(default_factory=nx.DiGraph)
    known: dict[Any, str] = field(default_factory=dict)
    following: dict[str, str] = field(default_factory=dict)
    closed: dict[int, dict[str, str]] = field(default_factory=dict)
    """By the number of tokens of an interval: what its end puts in place of states or output."""
    functions: dict[str, str] = field(default_factory=dict)
    signals: dict[str, Any] = field(default_factory=dict)
    """What the functions of an error say, by name, for those who differentiate them."""
    results: dict[str, str] = field(default_factory=dict)
    """What a chunk gives beside output and next states, by name: an adjoint's gradients."""
    output: str = ""
    order: list[str] | None = field(default=None, init=False, repr=False, compare=False)
    """Every name behind those that it reads, in order of declaration: known until one is put."""

    def given(self, name: str, axes: tuple[str, ...], *, state: bool = False) -> str:
        """Declare an argument or a state."""
        return self._put(Quantity(name, axes, Given(state)))

    def add(self, name: str, axes: tuple[str, ...], op: Op, equation: str = "") -> str:
        """Add a quantity, or return the name of the equal one that is already there."""
        key = (op, axes)
        if key not in self.known:
            quantity = Quantity(name, axes, op, equation)
            self.known[key] = self._put(replace(quantity, name=self._free(quantity)))
        return self.known[key]

    def _free(self, quantity: Quantity) -> str:
        """Return a name that is not taken, which says what is particular to this quantity."""
        name, reads = quantity.name, quantity.reads()
        if name not in self.graph:
            return name
        if not name.startswith("d_"):
            name = f"{name}_of_{reads[0]}" if reads else f"{name}_again"
        elif self[name].op == Given(state=True):
            name = f"{name}_before"
        else:
            name = f"{name}_again" if "_of_" in name else f"{name}_whole"
        numbered = (f"{name}{number}" for number in count(2))
        return name if name not in self.graph else next(n for n in numbered if n not in self.graph)

    def emptied(self, renamed: Mapping[str, str] = MappingProxyType({})) -> Plan:
        """Return a plan without quantities, its ends the same but for those ``renamed``."""
        names = renamed.get
        return Plan(
            following={place: names(end, end) for place, end in self.following.items()},
            closed={every: {place: names(end, end) for place, end in moves.items()}
                    for every, moves in self.closed.items()},
            functions=dict(self.functions), signals=dict(self.signals),
            results={place: names(end, end) for place, end in self.results.items()},
            output=names(self.output, self.output),
        )  # fmt: skip

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the axes of a quantity."""
        return self[name].axes

    def __getitem__(self, name: str) -> Quantity:
        found: Quantity = self.graph.nodes[name]["quantity"]
        return found

    def _put(self, quantity: Quantity) -> str:
        self.order = None
        self.graph.add_node(quantity.name, quantity=quantity, index=len(self.graph))
        for read in quantity.reads():
            self.graph.add_edge(read, quantity.name)
        return quantity.name

    def rewrite(self, quantity: Quantity) -> None:
        """Put another way of computing a quantity in its place."""
        self.order = None
        self.graph.remove_edges_from(list(self.graph.in_edges(quantity.name)))
        self.graph.nodes[quantity.name]["quantity"] = quantity
        self.graph.add_edges_from((read, quantity.name) for read in quantity.reads())

    def keep(self, names: Collection[str]) -> None:
        """Leave out every quantity but those of ``names``."""
        self.order = None
        self.graph.remove_nodes_from([name for name in self.graph if name not in names])
        self.known = {key: name for key, name in self.known.items() if name in names}

    def is_carried(self, name: str) -> bool:
        """Return whether a carried state reaches a quantity, which then cannot leave the scan."""
        return not nx.ancestors(self.graph, name).isdisjoint(self.states())

    def is_end(self, name: str) -> bool:
        """Return whether a quantity is the output, a next state or a result."""
        return name in self._ends() | set(self._closed())

    def close(self, every: int, place: str, value: str) -> None:
        """Put a value in place of a state (or output) where an interval of so many tokens ends."""
        self.closed.setdefault(every, {})[place] = value

    def _closed(self) -> tuple[str, ...]:
        return tuple(value for moves in self.closed.values() for value in moves.values())

    def _ends(self) -> set[str]:
        return {self.output, *self.following.values(), *self.results.values()} - {""}

    def needed(self) -> set[str]:
        """Return all that the output, a next state or a result depends on."""
        return self._behind(self._ends() | set(self._closed()))

    def arguments(self) -> tuple[str, ...]:
        """Return the arguments that are used, in order of declaration."""
        return tuple(q.name for q in self._ordered(self.needed()) if q.op == Given())

    def states(self) -> tuple[str, ...]:
        """Return the carried states, in order of declaration."""
        return tuple(n for n in self.graph if self[n].op == Given(state=True))

    def phases(self, stepwise: Collection[str] = ()) -> Phases:
        """Split the needed statements by whether a carried state reaches them.

        What is ``stepwise``, and what follows from it, is computed step by step as well.
        """
        carried = self.states()
        begun = (*carried, *stepwise)
        reached = set().union(*(nx.descendants(self.graph, n) for n in begun), stepwise)
        always = self._behind(self._ends())
        needed = self.needed()
        late = needed & reached - always
        return Phases(
            before=self._ordered(needed - reached - set(carried)),
            scan=self._ordered(needed & reached & always),
            closings=tuple(self._closings(late)),
        )

    def _closings(self, late: set[str]) -> Iterator[Closing]:
        """Yield the closings of intervals; longer ones read what shorter ones put in place."""
        renamed: dict[str, str] = {}
        for every, moves in sorted(self.closed.items()):
            statements = self._behind(set(moves.values()) - set(renamed), stop=set(renamed))
            yield Closing(every, self._ordered(statements & late), moves, dict(renamed))
            renamed |= {value: place for place, value in moves.items()}

    def _behind(self, ends: set[str], stop: Collection[str] = ()) -> set[str]:
        """Return ``ends`` and all that they depend on, not following paths through ``stop``."""
        found, ahead = set[str](), list(ends)
        while ahead:
            name = ahead.pop()
            if name not in found and name not in stop:
                found.add(name)
                ahead += self.graph.pred[name]
        return found

    def ordered(self) -> tuple[Quantity, ...]:
        """Return every quantity that is needed, each behind those that it reads."""
        return self._ordered(self.needed())

    def _ordered(self, names: set[str]) -> tuple[Quantity, ...]:
        if self.order is None:
            index = self.graph.nodes(data="index")
            order = nx.lexicographical_topological_sort(self.graph, key=lambda name: index[name])
            self.order = list(order)
        return tuple(self[name] for name in self.order if name in names)
