"""Bytes that a pass moves between the device's memory and its kernels, against the floor."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from mnemic.kernels.offline import Launch


@dataclass(frozen=True)
class Bytes:
    """Bytes of one pass.

    Args:
        moved: each kernel's tensors once, summed over launches.
        floor: each tensor that the pass is given or gives, once.
        launches: kernels started.
    """

    moved: int
    floor: int
    launches: int

    @property
    def excess(self) -> float:
        """How many times the floor is moved."""
        return self.moved / self.floor if self.floor else float("inf")


def counted(launches: Collection[Launch], inputs: Collection[Tensor],
            outputs: Collection[Tensor]) -> Bytes:  # fmt: skip
    """Count the bytes of the launches of a pass that reads ``inputs`` and writes ``outputs``."""
    moved = sum(_once(launch) for launch in launches)
    floor = sum(size(x) for x in (*inputs, *outputs))
    return Bytes(moved, floor, len(launches))


def size(x: Tensor) -> int:
    """Count the bytes of a tensor; an axis that was expanded counts once."""
    entries = 1
    for length, stride in zip(x.shape, x.stride(), strict=True):
        entries *= 1 if stride == 0 and length else length
    return entries * x.element_size()


def _once(launch: Launch) -> int:
    """Count the bytes of a launch's tensors, those that lie in one place once."""
    largest: Mapping[int, int] = {}
    for argument in launch.tensors:
        known = largest.get(argument.address, 0)
        largest = {**largest, argument.address: max(known, argument.bytes)}
    return sum(largest.values())
