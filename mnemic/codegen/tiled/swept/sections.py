"""A chunk that loops over blocks of an axis: its sections, their loops, the steps of a block."""

from dataclasses import dataclass

from mnemic.codegen.plan import Quantity
from mnemic.codegen.tiled.layout import Held, Row


@dataclass(frozen=True)
class Sum:
    """A quantity that is summed over the blocks of a loop."""

    quantity: Quantity


@dataclass(frozen=True)
class Scratch:
    """Rows that an earlier sweep has computed and stored."""

    name: str
    size: str


@dataclass(frozen=True)
class Store:
    """Rows that later sweeps load."""

    scratch: Scratch


@dataclass(frozen=True)
class End:
    """A quantity along the axis that is to be stored when it is known."""

    name: str


@dataclass(frozen=True)
class Again:
    """The load of rows without a swept axis, repeated for each block in a lean cut."""

    load: Row | Scratch


Load = Row | Held | Scratch
Step = Load | Quantity | Sum | End | Store | Again


@dataclass(frozen=True)
class Loop:
    """A sweep along one axis: the steps of a block. It is gone through once, or for each step of
    the ``search`` for the root of a sum.

    Memories are loaded anew for each sum and each end: to read them from a cache again is cheaper
    than to keep them in registers.
    """

    size: str
    steps: tuple[Step, ...]
    search: bool = False

    @property
    def sums(self) -> tuple[Quantity, ...]:
        """What is summed over its blocks."""
        return tuple(step.quantity for step in self.steps if isinstance(step, Sum))

    @property
    def made(self) -> set[str]:
        """The quantities that are computed of each block."""
        return {step.name for step in self.steps if isinstance(step, Quantity)}

    def after(self, names: set[str]) -> int:
        """Count the steps after which nothing loads or computes any of these names."""
        made = (Row, Held, Scratch, Quantity)
        found = [i for i, x in enumerate(self.steps, 1) if isinstance(x, made) and x.name in names]
        return max(found, default=0)


@dataclass(frozen=True)
class Section:
    """The statements before a sweep, the ends that are known by then, and the sweep's loops."""

    steps: tuple[Load | Quantity | Store, ...]
    ends: tuple[str, ...]
    loops: tuple[Loop, ...]
