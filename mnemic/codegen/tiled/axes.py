"""Which axes of a plan have the same size: found by what its statements join."""

from dataclasses import dataclass, field

from mnemic.codegen.operations import operation
from mnemic.codegen.plan import Call, Fused, Given, Map, Plan, Product, Quantity
from mnemic.codegen.tiled.functions import BACK, LIKE, ROOTS, SIGNALS, TileFunction

Place = tuple[str, int]
"""An axis: a quantity and the axis's number."""


UNTILED = {
    **dict.fromkeys(
        ("accumulate", "accumulate_states", "unit_of"),
        "a matrix of its own for every token of a chunk; token by token there is one",
    ),
    "carried_keys": "keys that are carried on and compared by more than their products with "
    "queries",
    "decayed_products": "momentum under a decay of each channel, which takes a matrix of a chunk's "
    "rows a channel; token by token there is one",
}
"""What no tile holds, in words."""


class NoTiles(Exception):
    """Why a plan has no kernel, for users: a sentence without its end."""


@dataclass
class Axes:
    """Classes of axes of equal size, and what reduces or mixes along each."""

    plan: Plan
    table: dict[str, TileFunction]
    parent: dict[Place, Place] = field(default_factory=dict)
    reduced: set[Place] = field(default_factory=set)
    """Axes along which something sums, or entries depend on each other."""

    def find(self, place: Place) -> Place:
        """The representative of an axis's class."""
        top = place
        while (above := self.parent.setdefault(top, top)) != top:
            top = above
        while place != top:  # so that the next way is short
            self.parent[place], place = top, self.parent[place]
        return top

    def join(self, one: Place, other: Place) -> None:
        """Two axes have the same size."""
        first, second = self.find(one), self.find(other)
        if first != second:
            self.parent[second] = first

    def classes(self, name: str) -> tuple[Place, ...]:
        """The classes of a quantity's axes."""
        return tuple(self.find((name, i)) for i in range(len(self.plan.axes(name))))

    def is_reduced(self, place: Place) -> bool:
        """Whether anything is summed or mixed along a class of axes."""
        own = self.find(place)
        return any(self.find(found) == own for found in self.reduced)


def joined(plan: Plan, table: dict[str, TileFunction], quantities: tuple[Quantity, ...]) -> Axes:
    """The classes of the axes of these quantities.

    Raises ``NoTiles`` where a function has no twin on tiles.
    """
    axes = Axes(plan, table)
    for quantity in quantities:
        match quantity.op:
            case Map(reads=reads):
                for read in reads:
                    for i, letter in enumerate(read.axes):
                        axes.join((quantity.name, quantity.axes.index(letter)), (read.quantity, i))
            case Product():
                _product(axes, quantity, quantity.op)
            case Fused(addend=addend, product=product):
                _product(axes, quantity, product)
                for i in range(len(quantity.axes)):
                    axes.join((quantity.name, i), (addend, i))
            case Call():
                _call(axes, quantity, quantity.op)
            case Given():
                pass
    for state, following in plan.following.items():
        _same(axes, state, following)
    for moves in plan.closed.values():
        for place, value in moves.items():
            _same(axes, place if place in plan.graph else plan.output, value)
    return axes


def _same(axes: Axes, one: str, other: str) -> None:
    for i in range(len(axes.plan.axes(one))):
        axes.join((one, i), (other, i))


def _product(axes: Axes, quantity: Quantity, product: Product) -> None:
    left, right = (0, 1), (0, 1)
    if product.flip_left:
        left = (1, 0)
    if product.flip_right:
        right = (1, 0)
    if len(axes.plan.axes(product.left)) != 2 or len(axes.plan.axes(product.right)) != 2:
        raise NoTiles("a product of more than two axes")
    axes.join((quantity.name, 0), (product.left, left[0]))
    axes.join((quantity.name, 1), (product.right, right[1]))
    axes.join((product.left, left[1]), (product.right, right[0]))
    axes.reduced.add((product.left, left[1]))


def _call(axes: Axes, quantity: Quantity, call: Call) -> None:
    function = axes.table.get(call.function)
    if call.function == BACK and str(dict(call.options)["of"]) not in ROOTS:
        raise NoTiles(f"no gradient of {operation(str(dict(call.options)['of']))}")
    if function is None:
        raise NoTiles(UNTILED.get(call.function, f"no tiles for {operation(call.function)}"))
    seen: dict[str, Place] = {}
    for argument, letters in zip(call.arguments, taken(axes, call, function), strict=False):
        if len(letters) != len(axes.plan.axes(argument)):
            count = len(axes.plan.axes(argument))
            raise NoTiles(f"no tiles of {count} axes for {operation(call.function)}")
        for i, letter in enumerate(letters):
            axes.join(seen.setdefault(letter, (argument, i)), (argument, i))
    gives = "".join(quantity.axes) if function.gives == LIKE else function.gives
    for i, letter in enumerate(gives):
        if letter in seen and i < len(quantity.axes):
            axes.join(seen[letter], (quantity.name, i))
    if "v" in seen and call.function in SIGNALS and axes.plan.signals["error"].uses_norm:
        axes.reduced.add(seen["v"])
    lost = set(seen) - set(gives) | set(function.mixes) | _doubled(gives)
    axes.reduced |= {seen[letter] for letter in lost}


def taken(axes: Axes, call: Call, function: TileFunction) -> tuple[str, ...]:
    """The letters of a call's arguments; norms go with the axis that is named, and what an error
    takes beside errors are rows of values."""
    if call.function == "scaled_to_norms":
        return ("vk", str(dict(call.options)["axis"]))
    takes = function.takes
    if call.function in SIGNALS:
        takes = (*takes, *["tv"] * (len(call.arguments) - len(takes)))
    own = axes.plan.axes
    return tuple(
        "".join(own(argument)) if letters == LIKE else letters
        for argument, letters in zip(call.arguments, takes, strict=False)
    )


def _doubled(letters: str) -> set[str]:
    """Letters that stand twice: rows against rows."""
    return {letter for letter in letters if letters.count(letter) > 1}
