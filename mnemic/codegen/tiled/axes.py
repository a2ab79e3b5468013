"""Which axes of a plan have the same size: found by what its statements join."""

from dataclasses import dataclass, field

from mnemic.codegen.ops import OPERATIONS
from mnemic.codegen.ops.errors import SIGNALS
from mnemic.codegen.ops.pulled import BACK
from mnemic.codegen.plan import Call, Fused, Given, Map, Plan, Product, Quantity
from mnemic.codegen.words import in_words

Place = tuple[str, int]
"""An axis: a quantity and the axis's number."""


class NoTiles(Exception):
    """Why a plan has no kernel, for users: a sentence without its end."""


@dataclass
class Axes:
    """Classes of axes of equal size, and what reduces or mixes along each."""

    plan: Plan
    form: str
    """Which kind of plan it is, by the names of ``codegen.ops.operation``."""
    parent: dict[Place, Place] = field(default_factory=dict)
    reduced: set[Place] = field(default_factory=set)
    """Axes along which something sums, or entries depend on each other."""

    def find(self, place: Place) -> Place:
        """Find the representative of an axis's class."""
        top = place
        while (above := self.parent.setdefault(top, top)) != top:
            top = above
        while place != top:  # so that the next way is short
            self.parent[place], place = top, self.parent[place]
        return top

    def join(self, one: Place, other: Place) -> None:
        """Join the classes of two axes, which have the same size."""
        first, second = self.find(one), self.find(other)
        if first != second:
            self.parent[second] = first

    def classes(self, name: str) -> tuple[Place, ...]:
        """Return the classes of a quantity's axes."""
        return tuple(self.find((name, i)) for i in range(len(self.plan.axes(name))))

    def is_reduced(self, place: Place) -> bool:
        """Return whether anything is summed or mixed along a class of axes."""
        own = self.find(place)
        return any(self.find(found) == own for found in self.reduced)


def joined(plan: Plan, form: str, quantities: tuple[Quantity, ...]) -> Axes:
    """Find the classes of the axes of these quantities.

    Raises ``NoTiles`` where a function has no twin on tiles.
    """
    axes = Axes(plan, form)
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
    _refuse(axes, call)
    operation, seen = OPERATIONS[call.function], dict[str, Place]()
    for argument, letters in zip(call.arguments, named(axes, call), strict=False):
        if len(letters) != len(axes.plan.axes(argument)):
            count = len(axes.plan.axes(argument))
            raise NoTiles(f"no tiles of {count} axes for {in_words(call.function)}")
        for i, letter in enumerate(letters):
            axes.join(seen.setdefault(letter, (argument, i)), (argument, i))
    gives = operation.signature(axes.form).gives.named(quantity.axes)
    for i, letter in enumerate(gives):
        if letter in seen and i < len(quantity.axes):
            axes.join(seen[letter], (quantity.name, i))
    if "v" in seen and call.function in SIGNALS and axes.plan.signals["error"].uses_norm:
        axes.reduced.add(seen["v"])
    lost = set(seen) - set(gives) | set(operation.mixes) | _doubled(gives)
    axes.reduced |= {seen[letter] for letter in lost}


def _refuse(axes: Axes, call: Call) -> None:
    """Raise ``NoTiles`` for a function that no tile computes in such a plan."""
    operation = OPERATIONS.get(call.function)
    if call.function == BACK:
        of = str(dict(call.options)["of"])
        if of not in OPERATIONS or not OPERATIONS[of].on_tiles(axes.form):
            raise NoTiles(f"no gradient of {in_words(of)}")
    if operation is None or not operation.on_tiles(axes.form):
        reason = operation.untiled if operation else ""
        raise NoTiles(reason or f"no tiles for {in_words(call.function)}")


def named(axes: Axes, call: Call) -> tuple[str, ...]:
    """Return the letters of the axes of a call's arguments."""
    shapes = tuple(axes.plan.axes(argument) for argument in call.arguments)
    return OPERATIONS[call.function].signature(axes.form).named(shapes)


def _doubled(letters: str) -> set[str]:
    """Return the letters that stand twice: rows against rows."""
    return {letter for letter in letters if letters.count(letter) > 1}
