"""What a plan can call: one object an operation, from which every stage reads what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnemic.codegen.ops.at import At
    from mnemic.codegen.ops.entries import Entries

CHUNK, TOKEN, PAIRS, LANES = "chunk", "token", "pairs", "lanes"
"""The plans that become kernels: a chunk's rows, one token, a chunk's rows beside kept pairs, and
one token of a diagonal memory, whose channels are single numbers side by side."""

A_MATRIX_A_TOKEN = "a matrix of its own for every token of a chunk; token by token there is one"
"""Why there are no tiles, in words."""

ROWS = frozenset({CHUNK, PAIRS})
EVERYWHERE = ROWS | {TOKEN}


@dataclass(frozen=True)
class Argument:
    """One argument of an operation: the letters of its axes, ``*`` standing for any others."""

    letters: str
    optional: bool = False
    repeated: bool = False
    """Whether any number of them may follow."""
    shape_only: bool = False
    """Whether it only tells a shape or a place, so that no gradient goes through it."""

    @classmethod
    def read(cls, text: str) -> Argument:
        """Read ``~tk`` (no gradient), ``t?`` (may be left out), ``tv...`` (any number)."""
        text = text.strip()
        letters = text.removeprefix("~").removesuffix("...").removesuffix("?")
        return cls(letters, text.endswith("?"), text.endswith("..."), text.startswith("~"))

    def named(self, axes: tuple[str, ...]) -> str:
        """Return the letters of an argument with these axes in a plan; ``*`` stands for its own."""
        before, star, behind = self.letters.partition("*")
        if not star:
            return self.letters
        own = axes[len(before) : len(axes) - len(behind)]
        return before + "".join(own) + behind


@dataclass(frozen=True)
class Axes:
    """The axes that an operation takes and gives.

    >>> Axes.read("vk, k -> v").gives.letters, Axes.read("tk, tk, t? -> tt").takes[2].optional
    ('v', True)
    """

    takes: tuple[Argument, ...]
    gives: Argument

    @classmethod
    def read(cls, text: str) -> Axes:
        """Read ``vk, k -> v``: letters of axes, after what stands before them as a batch."""
        takes, gives = text.split("->")
        return cls(tuple(map(Argument.read, takes.split(","))), Argument(gives.strip()))

    def arguments(self, count: int) -> Iterator[Argument]:
        """Yield the argument that stands at each of so many places."""
        for place in range(count):
            last = self.takes[-1]
            if place < len(self.takes) or last.repeated:
                yield self.takes[min(place, len(self.takes) - 1)]

    def named(self, shapes: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
        """Return the letters of arguments that have these axes in a plan."""
        found = self.arguments(len(shapes))
        return tuple(a.named(axes) for a, axes in zip(found, shapes, strict=False))


@dataclass(frozen=True)
class Tile:
    """How kernels compute an operation: by the function of ``support.tiles`` of the same name.

    ``extras`` are passed beside quantities: ``live`` (the rows of axis t that are there),
    ``precision``, ``width:x`` (how many channels of axis x are there), ``inside:x`` (which of
    them), ``rows`` and ``sources`` (the sizes of tiles of tokens, and of what windows read),
    ``window`` (its width).
    """

    forms: frozenset[str] = ROWS
    extras: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options passed on as constants, in order."""
    text: str = ""
    """What stands in place of a call, with arguments by number and options by name."""
    longer: str = ""
    """What is added to the function's name where its optional arguments are there."""
    square: str = ""
    """The function for rows against rows, in a body of code of its own."""
    in_module: bool = False
    """Whether the kernels' own module defines the function, from the spec's expressions."""
    padded: bool = False
    """Whether it is not zero in channels that only fill a tile, so that it is made zero there."""
    swapped: bool = False
    """Whether its arguments change places where the result is held the other way round."""
    holds: tuple[int, int] = (0, 0)
    """Tiles that it holds beside its arguments and its result: so many as large as the result, and
    so many as the lesser side of it squared."""
    reduces: int = 0
    """The axis that it sums, counted from the last, where how the tile lies says by which function.
    """
    woven: bool = False
    """Whether loads and passes over kept pairs do it: there is no function of tiles."""
    loaded: bool = False
    """Whether a kernel's loads do it: what they open is a window of tokens."""

    @property
    def multiplies(self) -> bool:
        """Whether it takes products of matrices."""
        return "precision" in self.extras


@dataclass(frozen=True)
class Streaming:
    """What is particular where an operation meets kept pairs block by block."""

    grows: str | float | None = None
    """What a state grows by: ``"rows"`` of an argument, or a number a pair."""
    reads: tuple[int, ...] | None = None
    """The places of the arguments whose entries a pass reads; all of them where this is unset."""
    same: bool = False
    """Whether it leaves the entries of a block of old pairs as they are."""
    behind: bool = False
    """Whether it is a chunk's own entries of a state in memory."""
    wide: bool = False
    """Whether its arguments are float64, because their difference is what counts."""
    online: bool = False
    """Whether it sums weights that are relative to a row's largest, which share a pass with it."""
    own: int = 0
    """How many arguments behind the first are the chunk's own part, beside that of kept pairs."""
    costly: bool = False
    """Whether it is not computed twice."""


@dataclass(frozen=True)
class Sample:
    """How the operation's own test draws its arguments and options."""

    axes: str = ""
    """The operation's axes by letters of the test, one a length: where it only says ``*``, or where
    axes of one kind differ in length (``n`` pairs, and ``N`` with a chunk's ``t``)."""
    token: str = ""
    """One token's axes by letters of the test, where they are not those above without ``t``."""
    kinds: tuple[str, ...] = ()
    """By place, what an argument is beside its axes, in the words of the test."""
    options: dict[str, object] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    """The source of functions that options name, as a spec's module would define them."""
    tolerance: float = 1e-10


@dataclass(frozen=True)
class Operation:
    """An operation of a plan: a function of ``support.ops`` (and of ``support.tiles``) by name.

    ``axes`` are read by ``Axes.read``; ``token`` are those of one token, where they are others.
    """

    name: str
    axes: str
    token: str = ""
    adjoint: Callable[[At], None] | None = None
    """What the arguments get of the gradient; without it the operation is forward only."""
    tile: Tile | None = None
    untiled: str = ""
    """Why no tile holds it, in words for users."""
    sums: str = ""
    """Letters over which it is a sum, so that blocks of them can be added up."""
    tops: str = ""
    """Letters over which it is a maximum."""
    searches: str = ""
    """Letters over which it is the root of a sum, to which every step of the search adds blocks."""
    mixes: str = ""
    """Letters along which entries depend on each other although the axis stays."""
    casts: bool = False
    """Whether it gives its first argument in another dtype: kernels keep one throughout."""
    by_token: bool = False
    """Whether it takes each token by itself, so that PyTorch can compute it before a kernel."""
    of_windows: bool = False
    """Whether it leaves of windows' rows each token's own."""
    lane: str = ""
    """What it is where keys, values and memories are single numbers, with arguments by number."""
    by_entries: Callable[[Entries], None] | None = None
    """What it is as sums and maxima over a memory's entries, which blocks can be joined by."""
    streaming: Streaming = Streaming()
    in_pytorch: bool = True
    """Whether ``support.ops`` has it, for PyTorch's forms or their gradients, and not kernels
    (or a spec's own module) alone."""
    sample: Sample | None = Sample()
    """How its test tries it; ``None`` where only a spec's own functions say what it is."""

    @cached_property
    def _axes(self) -> tuple[Axes, Axes]:
        rows = Axes.read(self.axes)
        return rows, Axes.read(self.token) if self.token else rows

    def signature(self, form: str = CHUNK) -> Axes:
        """Return the axes that it takes and gives in a plan of this form."""
        return self._axes[form == TOKEN]

    def on_tiles(self, form: str) -> bool:
        """Return whether kernels of plans of this form can compute it."""
        if form == LANES:
            return bool(self.lane)
        if self.tile is None:
            return False
        return form in self.tile.forms or (form == TOKEN and bool(self.token))

    def differentiated(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of its arguments that a gradient goes through."""
        found = self.signature().arguments(len(arguments))
        return tuple(a for a, how in zip(arguments, found, strict=True) if not how.shape_only)
