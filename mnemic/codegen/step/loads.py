"""The inputs of a layer's step: the token's projections, the convolution's window, learned
numbers."""

from dataclasses import dataclass

from mnemic.codegen.tiled.layout import Layout, Row


@dataclass(frozen=True)
class Channels:
    """Channels of a projected vector at one of a token's steps: the token's own (``new``), an
    earlier token's (``tail``), or the weight of one of the convolution's ``taps``.

    ``partner`` are the channels half a vector further, with which a position turns them.
    """

    vector: str
    step: int
    part: str = "new"
    number: int = 0
    partner: bool = False

    def text(self, size: str) -> str:
        """Write the load, where the vector's channels have this size."""
        place = f"place_{self.vector}_{self.step}"
        at = f"(at_{size} + {size} // 2) % {size}" if self.partner else f"at_{size}"
        rest = f"{at}, {size}, REAL"
        if self.part == "taps":
            return f"tiles.load_tap(taps, {place}, {self.number}, TAPS, {rest})"
        source = "token" if self.part == "new" else f"before_{self.number}"
        return f"tiles.load_vector({source} + {place}, 0, {rest})"


@dataclass(frozen=True)
class Raw:
    """A coefficient before its activation: of this token, or a parameter (``fixed``)."""

    name: str
    fixed: bool
    step: int = 0
    steps: int = 1

    def text(self, sizes: tuple[str, ...]) -> str:
        """Write the load, where an entry has these sizes."""
        rows = [] if self.fixed else ["batch" if self.steps == 1 else f"batch * {self.steps}"]
        row = " + ".join([*rows, *([str(self.step)] if self.step else [])])
        number = f"({row}) * heads + head" if " " in row else f"{row} * heads + head"
        number = number if row else "head"
        if not sizes:
            return f"tiles.load_number(raw_{self.name}, {number}, REAL)"
        (size,) = sizes
        return f"tiles.load_vector(raw_{self.name}, {number}, at_{size}, {size}, REAL)"


@dataclass(frozen=True)
class Same:
    """A number that is the same for all memories, or along a vector."""

    value: float

    def text(self, sizes: tuple[str, ...]) -> str:
        """Write the number, in channels that are there."""
        if not sizes:
            return f"tl.full((), {self.value!r}, REAL)"
        (size,) = sizes
        return f"in_{size}.to(REAL) * {self.value!r}"


@dataclass(frozen=True)
class Told:
    """A number that the kernel knows without a load: the head, the token's position."""

    source: str

    def text(self, sizes: tuple[str, ...]) -> str:
        """Return the number as the kernel spells it."""
        assert not sizes
        return self.source


@dataclass(frozen=True)
class Finish:
    """Channels of the gate, or of the norm's weight."""

    source: str
    number: str

    def text(self, sizes: tuple[str, ...]) -> str:
        """Write the load of the gate's or weight's channels."""
        (size,) = sizes
        return f"tiles.load_vector({self.source}, {self.number}, at_{size}, {size}, REAL)"


@dataclass(frozen=True)
class Tail:
    """What the last c − 1 tokens of a window left: rows of a vector, or numbers."""

    state: str

    def text(self, sizes: tuple[str, ...]) -> str:
        """Write the load of a window's rows, or of its numbers."""
        slots, *channels = sizes
        if not channels:
            return f"tiles.load_tail_numbers(start_{self.state}, memory, at_{slots}, {slots}, REAL)"
        (size,) = channels
        rest = f"at_{slots}, {slots}, at_{size}, {size}, REAL"
        return f"tiles.load_tail(start_{self.state}, memory, {rest})"


Load = Channels | Raw | Same | Told | Finish | Tail


def load(lay: Layout, row: Row, found: Load) -> str:
    """Write the right-hand side of what a step reads."""
    if isinstance(found, Channels):
        (size,) = row.sizes
        return found.text(size)
    return found.text(row.sizes)
